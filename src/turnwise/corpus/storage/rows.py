"""Conversion between dialogues and the Arrow columns of a store."""

from collections.abc import Iterator
from dataclasses import fields
from itertools import islice
from typing import TypeVar

import numpy as np
import pyarrow as pa

from turnwise.core.dialogue import Dialogue, Slot, Turn

#: A row group is closed at this many turns or characters: what a writer or reader holds in memory.
GROUP_TURNS = 32_768
GROUP_CHARACTERS = 8_000_000

_SPEAKER = pa.dictionary(pa.int16(), pa.string())
_LABEL = pa.dictionary(pa.int32(), pa.string())
_SLOT = pa.struct([("name", _LABEL), ("start", pa.int32()), ("end", pa.int32())])
SCHEMA = pa.schema(
    [
        pa.field("id", pa.string(), nullable=False),
        pa.field("source", _LABEL),
        pa.field("split", _LABEL),
        pa.field("speakers", pa.list_(_SPEAKER), nullable=False),
        pa.field("texts", pa.list_(pa.string()), nullable=False),
        pa.field("intents", pa.list_(_LABEL), nullable=False),
        pa.field("acts", pa.list_(pa.list_(_LABEL)), nullable=False),
        pa.field("slots", pa.list_(pa.list_(_SLOT)), nullable=False),
    ]
)


_Value = TypeVar("_Value")

# Setting the fields one by one bypasses the validation of turns and slots.
_set_speaker, _set_text, _set_intent, _set_acts, _set_slots = (vars(Turn)[field.name].__set__ for field in fields(Turn))
_set_name, _set_value, _set_start, _set_end = (vars(Slot)[field.name].__set__ for field in fields(Slot))


class RowGroupBuilder:
    """Collects the dialogues of a row group as flat columns with offsets, which Arrow converts fastest."""

    def __init__(self) -> None:
        self.ids: list[str] = []
        self.sources: list[str | None] = []
        self.splits: list[str | None] = []
        self.turn_ends = [0]
        self.speakers: list[str] = []
        self.texts: list[str] = []
        self.intents: list[str | None] = []
        self.act_ends = [0]
        self.acts: list[str] = []
        self.slot_ends = [0]
        self.slots: list[Slot] = []
        self.characters = 0

    @property
    def full(self) -> bool:
        """Whether the row group is large enough to be written."""
        return len(self.texts) >= GROUP_TURNS or self.characters >= GROUP_CHARACTERS

    def add(self, dialogue: Dialogue) -> None:
        """Append a dialogue."""
        self.ids.append(dialogue.id)
        self.sources.append(dialogue.source)
        self.splits.append(dialogue.split)
        for turn in dialogue.turns:
            self.speakers.append(turn.speaker)
            self.texts.append(turn.text)
            self.intents.append(turn.intent)
            self.acts.extend(turn.acts)
            self.act_ends.append(len(self.acts))
            self.slots.extend(turn.slots)
            self.slot_ends.append(len(self.slots))
            self.characters += len(turn.text)
        self.turn_ends.append(len(self.texts))

    def table(self) -> pa.Table:
        """Return the rows, for a Parquet file."""
        slots = pa.StructArray.from_arrays(
            [
                pa.array([slot.name for slot in self.slots], _LABEL),
                pa.array([slot.start for slot in self.slots], pa.int32()),
                pa.array([slot.end for slot in self.slots], pa.int32()),
            ],
            fields=list(_SLOT),
        )
        turns = pa.array(self.turn_ends, pa.int32())

        def per_turn(values: pa.Array) -> pa.Array:
            return pa.ListArray.from_arrays(turns, values)

        return pa.Table.from_arrays(
            [
                pa.array(self.ids, pa.string()),
                pa.array(self.sources, _LABEL),
                pa.array(self.splits, _LABEL),
                per_turn(pa.array(self.speakers, _SPEAKER)),
                per_turn(pa.array(self.texts, pa.string())),
                per_turn(pa.array(self.intents, _LABEL)),
                per_turn(pa.ListArray.from_arrays(pa.array(self.act_ends, pa.int32()), pa.array(self.acts, _LABEL))),
                per_turn(pa.ListArray.from_arrays(pa.array(self.slot_ends, pa.int32()), slots)),
            ],
            schema=SCHEMA,
        )


def dialogues_from_batch(batch: pa.RecordBatch) -> Iterator[Dialogue]:
    """Yield the dialogues of a record batch; they are not validated again, which takes half of the time."""
    columns = {name: batch.column(name) for name in batch.schema.names}
    texts = columns["texts"].values.to_pylist()
    acts, slots = columns["acts"].values, columns["slots"].values
    # lazily, one dialogue at a time: with all turns in memory, the garbage collector would scan them again and again
    turns = map(
        _make_turn,
        _decode(columns["speakers"].values),
        texts,
        _decode(columns["intents"].values),
        _split(acts.offsets, iter(_decode(acts.values))),
        _split(slots.offsets, _slots(slots, texts)),
    )
    labels = zip(columns["id"].to_pylist(), _decode(columns["source"]), _decode(columns["split"]), strict=True)
    for (dialogue_id, source, split), dialogue_turns in zip(
        labels, _split(columns["texts"].offsets, turns), strict=True
    ):
        yield Dialogue(dialogue_id, dialogue_turns, source, split)


def _decode(values: pa.DictionaryArray) -> list[str | None]:
    """Decode a dictionary array; equal values share one object, unlike in Arrow's own conversion."""
    labels: list[str | None] = [*values.dictionary.to_pylist(), None]
    return [labels[index] for index in values.indices.fill_null(len(labels) - 1).to_pylist()]


def _split(offsets: pa.Array, values: Iterator[_Value]) -> Iterator[tuple[_Value, ...]]:
    """Yield the lists of a list column as tuples, given its offsets and flat values."""
    for size in np.diff(offsets.to_numpy()).tolist():
        yield tuple(islice(values, size)) if size else ()


def _slots(slots: pa.ListArray, texts: list[str]) -> Iterator[Slot]:
    """Yield the slots of all turns; a value is the text between the offsets."""
    names = _decode(slots.values.field("name"))
    starts, ends = (slots.values.field(name).to_pylist() for name in ("start", "end"))
    for name, turn, start, end in zip(names, slots.value_parent_indices().to_pylist(), starts, ends, strict=True):
        slot = object.__new__(Slot)
        _set_name(slot, name)
        _set_value(slot, texts[turn][start:end])
        _set_start(slot, start)
        _set_end(slot, end)
        yield slot


def _make_turn(
    speaker: str | None, text: str, intent: str | None, acts: tuple[str | None, ...], slots: tuple[Slot, ...]
) -> Turn:
    turn = object.__new__(Turn)
    _set_speaker(turn, speaker)
    _set_text(turn, text)
    _set_intent(turn, intent)
    _set_acts(turn, acts)
    _set_slots(turn, slots)
    return turn
