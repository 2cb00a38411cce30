"""Blocks: so many texts in a row, known by a number; whoever reads one, and whenever, finds the same texts in it."""

import bisect
import itertools
from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.parquet as pq

from turnwise.assist.search.embedding.embedded import EmbeddingError
from turnwise.assist.search.embedding.groups import ROW, Corpus, Group
from turnwise.assist.search.embedding.records import Portion
from turnwise.corpus.text_sources import Item


@dataclass(frozen=True, slots=True)
class Piece:
    """What a block takes from a row group.

    Attributes:
        group: the row group.
        first: text of it that is taken.
        count: of the texts.
    """

    group: Group
    first: int
    count: int


class Blocks:
    """A corpus, cut into blocks of equally many texts; the last may have fewer.

    Attributes:
        corpus: what is cut.
        size: texts of a block.
        texts: of all blocks, chosen or not.
    """

    def __init__(self, corpus: Corpus, size: int):
        self.corpus = corpus
        self.size = size
        self._starts = [0, *itertools.accumulate(group.texts for group in corpus.groups)]
        self.texts = self._starts[-1]

    def __len__(self) -> int:
        return -(-self.texts // self.size)

    def count(self, number: int) -> int:
        """How many texts a block has, chosen or not."""
        return min(self.size, self.texts - number * self.size)

    def pieces(self, number: int) -> Iterator[Piece]:
        """What a block is made of, in order."""
        first, last = number * self.size, number * self.size + self.count(number)
        place = bisect.bisect_right(self._starts, first) - 1
        while first < last:
            begins, ends = self._starts[place : place + 2]
            if ends > first:
                yield Piece(self.corpus.groups[place], first - begins, min(ends, last) - first)
                first = min(ends, last)
            place += 1

    def portions(self, number: int) -> Iterator[tuple[list[Item], pa.Table]]:
        """The chosen texts of a block, some thousands at a time, with what goes with them and which of all texts each is (from 0).

        Raises:
            EmbeddingError: if a file cannot be read, is no longer what it was, or a row has no text.
        """
        row = number * self.size
        for piece in self.pieces(number):
            for portion, texts in self._read(piece):
                if portion.items:
                    rows = pa.array(portion.places + row, pa.int64())
                    yield portion.items, portion.table.append_column(ROW, rows)
                row += texts

    def _read(self, piece: Piece) -> Iterator[tuple[Portion, int]]:
        """The chosen texts of a piece, and how many there were to choose from."""
        group, records = piece.group, self.corpus.records
        place, last = 0, piece.first + piece.count

        def where(within: int) -> str:
            return f"{group.path}, row group {group.number}, row {place + within:,} of it (from 0)"

        try:
            with (
                self.corpus.filesystem.open_input_file(group.path) as file,
                # pre_buffer would hold all of a row group, of which a block may be a small part
                pq.ParquetFile(file, pre_buffer=False) as parquet,
            ):
                for batch in parquet.iter_batches(records.batch_rows, row_groups=[group.number]):
                    texts = records.count(batch)
                    begins, ends = max(0, piece.first - place), min(texts, last - place)
                    if begins < ends:
                        yield records.read(batch, begins, ends, where), ends - begins
                    place += texts
                    if place >= last:
                        return
        except (OSError, pa.ArrowException, UnicodeDecodeError) as error:
            raise EmbeddingError(f"{group.path}, row group {group.number} cannot be read: {error}") from error
        raise EmbeddingError(
            f"{group.path} has changed: row group {group.number} had {group.texts:,} texts. Begin anew"
        )
