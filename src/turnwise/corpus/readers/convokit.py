"""ConvoKit's `utterances.jsonl`: an utterance per line, with its conversation, speaker, time and what it replies to."""

from collections.abc import Iterator, Mapping
from typing import Any, Literal

from turnwise.core.dialogue import Dialogue
from turnwise.corpus.readers.message_logs import MessageSorter, SpeakerMapper
from turnwise.corpus.source import CorpusSource


def read(
    source: CorpusSource,
    *,
    order: Literal["chronological", "paths"] = "chronological",
    speakers: Mapping[str, str] | None = None,
) -> Iterator[Dialogue]:
    """Read the file.

    Args:
        source: the files to read.
        order: 'chronological': one dialogue per conversation, sorted by time; 'paths': one per chain of replies from
            the first utterance to a last one, which suits threads in which many reply to one.
        speakers: names and their roles: 'bob=system,*=user'; others are numbered.
    """
    mapper = SpeakerMapper(source, speakers or {})
    for path in source.files("utterances.jsonl"):
        sorter = MessageSorter()
        for line, record in source.json_lines(path):
            with source.guard(path, line):
                # older releases say root, user and reply-to
                conversation = record.get("conversation_id") or record.get("root") or record["id"]
                message = {
                    "line": line,
                    "id": str(record["id"]),
                    "speaker": _name(record["speaker"] if "speaker" in record else record["user"]),
                    "text": record["text"],
                    "reply_to": _name(record.get("reply_to") or record.get("reply-to")),
                }
                sorter.add(str(conversation), _seconds(record.get("timestamp")), message)
        for conversation, messages in sorter.conversations():
            chains = list(_reply_chains(messages)) if order == "paths" else [messages]
            chained = {message["line"] for chain in chains for message in chain}
            for message in messages:
                if message["line"] not in chained:
                    reason = "it replies, directly or indirectly, to itself: no chain of replies contains it"
                    source.reject(path, message["line"], "turn", reason, dialogue=conversation, text=message["text"])
            for number, chain in enumerate(chains):
                with source.dialogue(path, chain[0]["line"]) as builder:
                    builder.id = f"{conversation}/{number}" if order == "paths" else conversation
                    for message in chain:
                        speaker = mapper.speaker(builder, message["speaker"])
                        builder.add_turn(speaker, message["text"], line=message["line"])
                yield from builder.result()


def _name(value: Any) -> str:
    return "" if value is None else str(value)


def _seconds(value: Any) -> float:
    try:
        return float(value or 0)
    except OverflowError:
        raise ValueError("the timestamp is too large a number") from None


def _reply_chains(messages: list[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    """Yield every chain of replies from a first utterance to one without a reply."""
    by_id = {message["id"]: message for message in messages}
    answered = {message["reply_to"] for message in messages}
    for message in messages:
        if message["id"] in answered:
            continue
        chain: list[dict[str, Any]] = []
        seen = set()
        link: dict[str, Any] | None = message
        while link is not None and link["id"] not in seen:  # a faulty file may contain a cycle
            seen.add(link["id"])
            chain.append(link)
            link = by_id.get(link["reply_to"])
        yield chain[::-1]
