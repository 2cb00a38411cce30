"""The rows that a responder keeps: agent turns with the situations that they answered, and canned answers."""

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from turnwise.core.conversation import Said, conversation, reply
from turnwise.core.dialogue import SYSTEM, Dialogue, Turn, same_text

#: What answers can be filtered by.
FILTERS: dict[str, type] = {
    "text": str,
    "speaker": str,
    "dialogue": str,
    "turn": int,
    "source": str,
    "split": str,
    "intent": str,
}


@dataclass(frozen=True, slots=True)
class Answer:
    """A canned answer.

    Attributes:
        text: what may be said.
        after: what it answers, newest turn last; empty: it is found by its own words.
        source: where it comes from.
        split: a part of that.
        intent: what it is about.
    """

    text: str
    after: tuple[str, ...] = ()
    source: str | None = None
    split: str | None = None
    intent: str | None = None

    def __post_init__(self) -> None:
        # these refuse what nobody can have said, and labels that are none
        turns = (Turn(SYSTEM, self.text, self.intent), *(Turn(SYSTEM, text) for text in self.after))
        Dialogue("answer", turns, self.source, self.split)


@dataclass(frozen=True, slots=True)
class Entry:
    """A row to be.

    Attributes:
        key: what it is known by.
        situation: what the encoder reads to find it by, as `situation` gives it.
        text: the answer.
        speaker: who said it.
        dialogue: where it was said; None: it is a canned answer.
        turn: its place there, from 0.
        source: where it comes from.
        split: the part of that.
        intent: what it is about.
    """

    key: str
    situation: tuple[Said, ...]
    text: str
    speaker: str
    dialogue: str | None
    turn: int | None
    source: str | None
    split: str | None
    intent: str | None


def situation(said: Sequence[Turn], turns: int) -> tuple[Said, ...]:
    """What the encoder reads of a conversation: its newest turn, and its newest turns together, where there are several."""
    # without their labels, which it does not read: by these alone equal situations would differ
    newest = tuple(Turn(turn.speaker, turn.text) for turn in said[-turns:])
    return (newest,) if len(newest) == 1 else (newest[-1:], newest)


def entries_of(dialogue: Dialogue, speakers: frozenset[str], turns: int) -> Iterator[Entry]:
    """The turns of some speakers, each with at most so many turns before it; one that opens the dialogue stands for itself."""
    for place, turn in enumerate(dialogue.turns):
        if turn.speaker in speakers:
            yield Entry(
                key=_key("turn", dialogue.source, dialogue.id, place),
                situation=situation(dialogue.turns[:place] or (turn,), turns),
                text=turn.text,
                speaker=turn.speaker,
                dialogue=dialogue.id,
                turn=place,
                source=dialogue.source,
                split=dialogue.split,
                intent=turn.intent,
            )


def canned(answer: Answer, turns: int) -> Entry:
    """The row of a canned answer, with at most so many turns before it."""
    before = conversation(answer.after) or reply(answer.text)
    return Entry(
        key=_key("answer", answer.source, answer.split, answer.intent, *answer.after, answer.text),
        situation=situation([turn for turn in before if isinstance(turn, Turn)], turns),
        text=answer.text,
        speaker=SYSTEM,
        dialogue=None,
        turn=None,
        source=answer.source,
        split=answer.split,
        intent=answer.intent,
    )


def _key(*parts: str | int | None) -> str:
    return hashlib.blake2b(json.dumps(parts).encode(), digest_size=16).hexdigest()


def _number(text: str) -> int:
    """A number for a text, the same for texts that count as one."""
    return int.from_bytes(hashlib.blake2b(same_text(text).encode(), digest_size=8).digest(), "big", signed=True)


def columns_of(size: int) -> pa.Schema:
    """The columns of the table, for vectors of a size."""
    return pa.schema(
        [
            pa.field("text", pa.string(), nullable=False),
            pa.field("speaker", pa.string(), nullable=False),
            pa.field("dialogue", pa.string()),
            pa.field("turn", pa.int32()),
            pa.field("source", pa.string()),
            pa.field("split", pa.string()),
            pa.field("intent", pa.string()),
            pa.field("same", pa.int64(), nullable=False),  # the same number for the same text, to count by
            pa.field("answer", pa.list_(pa.float16(), size), nullable=False),  # half precision is enough to fold by
        ]
    )


def values(entries: Sequence[Entry], answers: npt.NDArray[np.float32]) -> dict[str, list[Any]]:
    """What the columns hold for some rows.

    Args:
        entries: the rows.
        answers: vectors of their texts.
    """
    columns: dict[str, list[Any]] = {name: [getattr(entry, name) for entry in entries] for name in FILTERS}
    return columns | {"same": [_number(entry.text) for entry in entries], "answer": list(answers.astype(np.float16))}
