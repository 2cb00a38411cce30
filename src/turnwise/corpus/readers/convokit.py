"""ConvoKit's `utterances.jsonl`: an utterance per line, with its conversation, speaker, time and what it replies to."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

from turnwise.core.dialogue import Dialogue
from turnwise.corpus.readers.message_logs import MessageSorter, SpeakerMapper
from turnwise.corpus.readers.reply_trees import reply_chains
from turnwise.corpus.source.corpus_source import CorpusSource


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
        sorter = MessageSorter(source)
        for line, record in source.json_lines(path):
            with source.guard(path, line):
                # older releases say root, user and reply-to
                conversation = record.get("conversation_id") or record.get("root") or record["id"]
                message = {
                    "line": line,
                    "time": _seconds(record.get("timestamp")),
                    "id": str(record["id"]),
                    "speaker": _name(record["speaker"] if "speaker" in record else record["user"]),
                    "text": record["text"],
                    "reply_to": _name(record.get("reply_to") or record.get("reply-to")),
                }
                sorter.add(str(conversation), message["time"], message)
        for conversation, messages in sorter.conversations():
            chains: Sequence[Sequence[dict[str, Any] | None]] = [messages]
            if order == "paths":  # what a message replies to is known, so holes do not matter
                present = [message for message in messages if message is not None]
                chains = list(reply_chains(present))
                chained = {message["line"] for chain in chains for message in chain if message is not None}
                for message in present:
                    if message["line"] not in chained:
                        line, text = message["line"], message["text"]
                        reason = "it replies, directly or indirectly, to itself: no chain of replies contains it"
                        source.reject(path, line, "turn", reason, dialogue=conversation, text=text)
            for number, chain in enumerate(chains):
                first = next((message for message in chain if message is not None), None)
                if first is None:
                    continue
                with source.dialogue(path, first["line"]) as builder:
                    builder.id = f"{conversation}/{number}" if order == "paths" else conversation
                    builder.conversation = conversation
                    builder.time = first["time"]
                    for entry in chain:
                        if entry is None:
                            builder.mark_hole()
                            continue
                        speaker = mapper.speaker(builder, entry["speaker"])
                        builder.add_turn(speaker, entry["text"], line=entry["line"])
                yield from builder.result()


def _name(value: Any) -> str:
    return "" if value is None else str(value)


def _seconds(value: Any) -> float | None:
    try:
        return None if value is None else float(value)
    except OverflowError:
        raise ValueError("the timestamp is too large a number") from None
