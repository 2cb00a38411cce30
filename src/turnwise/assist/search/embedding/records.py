"""What a batch of rows of a Parquet file holds for an encoder: a text a row, or all turns of a dialogue a row."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from turnwise.assist.search.embedding.embedded import EmbeddingError
from turnwise.corpus.rows import dialogues_of
from turnwise.corpus.text_sources import TURNS, Item, turn_rows


@dataclass(frozen=True, slots=True)
class Portion:
    """Some texts in a row.

    Attributes:
        items: what is encoded.
        table: what goes with each.
        places: of each among the texts that there were to choose from, counted from the first of them.
    """

    items: list[Item]
    table: pa.Table
    places: npt.NDArray[np.int64]


class Records(Protocol):
    """How rows of Parquet become texts."""

    @property
    def schema(self) -> pa.Schema:
        """Of what goes with each text."""

    @property
    def batch_rows(self) -> int:
        """Rows that are read at a time."""

    def count(self, batch: pa.RecordBatch) -> int:
        """How many texts a batch holds, chosen or not."""

    def read(self, batch: pa.RecordBatch, first: int, last: int, where: Callable[[int], str]) -> Portion:
        """The chosen ones of the texts `first` to `last` (not included) of a batch; `where` says in words where one is."""


@dataclass(frozen=True, slots=True)
class TableRecords:
    """A text a row.

    Attributes:
        schema: of the file.
        column: of the texts.
    """

    schema: pa.Schema
    column: str
    batch_rows: int = 4_096

    def count(self, batch: pa.RecordBatch) -> int:
        """How many texts a batch holds."""
        return int(batch.num_rows)

    def read(self, batch: pa.RecordBatch, first: int, last: int, where: Callable[[int], str]) -> Portion:
        """The texts `first` to `last` (not included) of a batch.

        Raises:
            EmbeddingError: if a row has no text.
        """
        table = pa.Table.from_batches([batch.slice(first, last - first)], schema=self.schema)
        texts = table.column(self.column)
        if texts.null_count:
            empty = int(np.flatnonzero(texts.is_null().to_numpy())[0])
            raise EmbeddingError(
                f"{where(first + empty)}: {self.column!r} holds no text but nothing: leave out rows without texts"
            )
        return Portion(texts.to_pylist(), table, np.arange(last - first))


@dataclass(frozen=True, slots=True)
class TurnRecords:
    """The turns of a dialogue a row.

    Attributes:
        splits: whose dialogues are chosen; none: all.
        speakers: whose turns are chosen; none: all.
    """

    splits: tuple[str, ...]
    speakers: tuple[str, ...]
    batch_rows: int = 512

    @property
    def schema(self) -> pa.Schema:
        """Of what goes with each turn."""
        return TURNS

    def count(self, batch: pa.RecordBatch) -> int:
        """How many turns a batch holds."""
        offsets = batch.column("texts").offsets
        return int(offsets[-1].as_py() - offsets[0].as_py())

    def read(self, batch: pa.RecordBatch, first: int, last: int, where: Callable[[int], str]) -> Portion:
        """The chosen ones of the turns `first` to `last` (not included) of a batch."""
        items: list[Item] = []
        told = []
        places = []
        place = 0
        for dialogue in dialogues_of(batch):
            chosen = not self.splits or dialogue.split in self.splits
            for item, row in turn_rows([dialogue]):
                if chosen and first <= place < last and (not self.speakers or item[0].speaker in self.speakers):
                    items.append(item)
                    told.append(row)
                    places.append(place - first)
                place += 1
        columns = zip(*told, strict=True) if told else ([] for _ in TURNS)
        arrays = [pa.array(column, field.type) for column, field in zip(columns, TURNS, strict=True)]
        return Portion(items, pa.Table.from_arrays(arrays, schema=TURNS), np.array(places, np.int64))
