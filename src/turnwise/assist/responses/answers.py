"""The rows of a responder's table: agent turns with the situations that they answered, and canned answers."""

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from turnwise.core.dialogue import SYSTEM, Dialogue, EncoderInput, Turn, context_turns, response_turns
from turnwise.core.errors import SearchError
from turnwise.core.text import normalise_text
from turnwise.corpus.texts.table_files import TEXT_FILE_SUFFIXES, read_rows

if TYPE_CHECKING:
    import pyarrow as pa


#: The columns that answers can be filtered by.
FILTER_TYPES: dict[str, type] = {
    name: int if name == "turn" else str
    for name in ("text", "speaker", "dialogue", "turn", "source", "split", "intent")
}


@dataclass(frozen=True, slots=True)
class Answer:
    """A canned answer."""

    text: str
    after: tuple[str, ...] = ()  # the turns that it answers, newest last; empty: it is found by its own words
    source: str | None = None
    split: str | None = None
    intent: str | None = None

    def __post_init__(self) -> None:
        # Turn and Dialogue reject blank texts and invalid labels.
        turns = (Turn(SYSTEM, self.text, self.intent), *(Turn(SYSTEM, text) for text in self.after))
        Dialogue("answer", turns, self.source, self.split)


def read_answers(path: Path) -> list[Answer]:
    """Read canned answers from a .txt file with one answer per line, or from a .csv, .tsv, .jsonl or .parquet file.

    The latter have a field `text` and optionally `after` (a text; in .jsonl and .parquet also a list of turns),
    `source`, `split` and `intent`.
    """
    plain_text = path.suffix.lower() == ".txt"
    answers = []
    for row in read_rows(path, ["text"], ["after", "source", "split", "intent"], TEXT_FILE_SUFFIXES):
        text = row.text("text").strip() if plain_text else row.text("text")
        if plain_text and not text:
            continue
        after = row.values.get("after") or ()
        turns = (after,) if isinstance(after, str) else after
        labels = {name: row.values.get(name) or None for name in ("source", "split", "intent")}
        try:
            if not isinstance(turns, list | tuple):
                raise ValueError("'after' must be a text or a list of texts")
            answers.append(Answer(text, tuple(turns), **labels))
        except ValueError as error:
            raise SearchError(f"{row.where}: {error}") from error
    return answers


@dataclass(frozen=True, slots=True)
class AnswerRow:
    """A row to be added to the table: an answer, and the encoder's inputs that it is found by (see `situation_of`)."""

    key: str
    situation: tuple[EncoderInput, ...]
    text: str
    source: str | None
    split: str | None
    intent: str | None
    speaker: str = SYSTEM
    dialogue: str | None = None  # a canned answer has no dialogue and no turn
    turn: int | None = None


def situation_of(conversation: Sequence[Turn], turns: int) -> tuple[EncoderInput, ...]:
    """Return the encoder's inputs for a conversation: its newest turn, and its newest `turns` turns together."""
    # Without labels, which the encoder does not read: equal situations must compare equal.
    newest = tuple(Turn(turn.speaker, turn.text) for turn in conversation[-turns:])
    return (newest,) if len(newest) == 1 else (newest[-1:], newest)


def turn_answers(dialogue: Dialogue, speakers: frozenset[str], turns: int) -> Iterator[AnswerRow]:
    """Yield the turns of some speakers with the situation before each; a dialogue's first turn is its own."""
    for position, turn in enumerate(dialogue.turns):
        if turn.speaker in speakers:
            yield AnswerRow(
                key=_key("turn", dialogue.source, dialogue.id, position),
                situation=situation_of(dialogue.turns[:position] or (turn,), turns),
                text=turn.text,
                source=dialogue.source,
                split=dialogue.split,
                intent=turn.intent,
                speaker=turn.speaker,
                dialogue=dialogue.id,
                turn=position,
            )


def canned_answer(answer: Answer, turns: int) -> AnswerRow:
    """Return the row of a canned answer."""
    before = context_turns(answer.after) or response_turns(answer.text)
    situation = situation_of([turn for turn in before if isinstance(turn, Turn)], turns)
    labels = answer.source, answer.split, answer.intent
    return AnswerRow(_key("answer", *labels, *answer.after, answer.text), situation, answer.text, *labels)


def _key(*parts: str | int | None) -> str:
    return hashlib.blake2b(json.dumps(parts).encode(), digest_size=16).hexdigest()


def _text_number(text: str) -> int:
    """Return a number that equivalent texts share."""
    return int.from_bytes(hashlib.blake2b(normalise_text(text).encode(), digest_size=8).digest(), "big", signed=True)


def answer_columns(size: int) -> "pa.Schema":
    """Return the table's columns for vectors of a size."""
    import pyarrow as pa

    types = {str: pa.string(), int: pa.int32()}
    labels = [
        pa.field(name, types[python_type], nullable=name not in ("text", "speaker"))
        for name, python_type in FILTER_TYPES.items()
    ]
    same = pa.field("same", pa.int64(), nullable=False)  # equal for equivalent texts, to count them
    # half precision suffices to find duplicates
    return pa.schema([*labels, same, pa.field("answer", pa.list_(pa.float16(), size), nullable=False)])


def column_values(rows: Sequence[AnswerRow], vectors: npt.NDArray[np.float32]) -> dict[str, list[Any]]:
    """Return the columns' values for rows and the vectors of their texts."""
    columns: dict[str, list[Any]] = {name: [getattr(row, name) for row in rows] for name in FILTER_TYPES}
    return columns | {"same": [_text_number(row.text) for row in rows], "answer": list(vectors.astype(np.float16))}
