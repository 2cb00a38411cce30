"""ConvoKit's `utterances.jsonl`: an utterance a line, with its conversation, speaker, time and what it replies to."""

from collections.abc import Iterator, Mapping
from typing import Any

from turnwise.core.dialogue import Dialogue
from turnwise.corpus.intake import CorpusError, Intake
from turnwise.corpus.readers.gather import Gather
from turnwise.corpus.readers.roles import Roles


def read(
    intake: Intake, *, order: str = "chronological", speakers: Mapping[str, str] | None = None
) -> Iterator[Dialogue]:
    """Reads the file.

    Args:
        intake: where to read.
        order: 'chronological' makes one dialogue of a conversation, by time; 'paths' one of each chain of replies from the
            first utterance to a last one, which suits threads in which many answer one.
        speakers: names and who they are: 'bob=system,*=user'; others are numbered.
    """
    if order not in ("chronological", "paths"):
        raise CorpusError(f"order={order!r}: choose 'chronological' or 'paths'")
    roles = Roles(intake, speakers or {})
    for path in intake.files("utterances.jsonl"):
        gather = Gather()
        for line, record in intake.json_lines(path):
            with intake.record(path, line):
                # older releases say root, user and reply-to
                conversation = record.get("conversation_id") or record.get("root") or record["id"]
                message = {
                    "line": line,
                    "id": str(record["id"]),
                    "speaker": _name(record["speaker"] if "speaker" in record else record["user"]),
                    "text": record["text"],
                    "reply_to": _name(record.get("reply_to") or record.get("reply-to")),
                }
                gather.add(str(conversation), _seconds(record.get("timestamp")), message)
        for conversation, messages in gather.conversations():
            chains = list(_chains(messages)) if order == "paths" else [messages]
            chained = {message["line"] for chain in chains for message in chain}
            for message in messages:
                if message["line"] not in chained:
                    reason = "it replies, over others or not, to itself: no chain of replies holds it"
                    intake.reject(path, message["line"], "turn", reason, dialogue=conversation, text=message["text"])
            for number, chain in enumerate(chains):
                with intake.dialogue(path, chain[0]["line"]) as draft:
                    draft.id = f"{conversation}/{number}" if order == "paths" else conversation
                    for message in chain:
                        draft.say(roles.speaker(draft, message["speaker"]), message["text"], line=message["line"])
                yield from draft.done()


def _name(value: Any) -> str:
    return "" if value is None else str(value)


def _seconds(value: Any) -> float:
    try:
        return float(value or 0)
    except OverflowError:
        raise ValueError("the timestamp is too large a number") from None


def _chains(messages: list[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    """Every chain of replies from a first utterance to one that nobody answers."""
    by_id = {message["id"]: message for message in messages}
    answered = {message["reply_to"] for message in messages}
    for message in messages:
        if message["id"] in answered:
            continue
        chain: list[dict[str, Any]] = []
        seen = set()
        link: dict[str, Any] | None = message
        while link is not None and link["id"] not in seen:  # a faulty file may reply in a circle
            seen.add(link["id"])
            chain.append(link)
            link = by_id.get(link["reply_to"])
        yield chain[::-1]
