"""A corpus in Parquet files as numbered blocks of texts, for workers of a cluster.

The layout is read from the files' footers alone. A block is a fixed range of texts: whoever reads it, and whenever,
gets the same texts.
"""

import bisect
import hashlib
import itertools
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs

from turnwise.assist.search.schema import rows_to_table
from turnwise.core.errors import SearchError
from turnwise.corpus.storage.corpus import read_corpus
from turnwise.corpus.storage.rows import dialogues_from_batch
from turnwise.corpus.storage.store import Store, is_store, require_speakers
from turnwise.corpus.texts.text_sources import TURN_COLUMNS, EncoderInput, columns_schema, turn_rows

#: Columns that are added to those of the input.
ROW, VECTOR = "row", "vector"

#: Texts per block: at most so many are encoded again when a worker is lost.
BLOCK_ROWS = 16_384

#: Footers that are read concurrently: on object storage each is a round trip.
_READERS = 32

#: The column of a store's files that has one value per turn.
_TEXTS = "texts.list.element"


# ---- rows to texts


#: Selected texts of a range, with their columns and their positions in the range.
TextBatch = tuple[list[EncoderInput], pa.Table, npt.NDArray[np.int64]]


@dataclass(frozen=True, slots=True)
class TableReader:
    """Reads one text per row, from a column."""

    schema: pa.Schema  # the columns that accompany each text
    column: str
    batch_rows: int = 4_096  # rows that are read at a time

    def count(self, batch: pa.RecordBatch) -> int:
        """Return the number of texts in a batch, selected or not."""
        return int(batch.num_rows)

    def read(self, batch: pa.RecordBatch, first: int, last: int, location: Callable[[int], str]) -> TextBatch:
        """Return the selected texts among `first` to `last` (exclusive); `location` describes where a text is."""
        table = pa.Table.from_batches([batch.slice(first, last - first)], schema=self.schema)
        texts = table.column(self.column)
        if texts.null_count:
            null = int(np.flatnonzero(texts.is_null().to_numpy())[0])
            raise SearchError(f"{location(first + null)}: {self.column!r} is null: remove rows without texts")
        return texts.to_pylist(), table, np.arange(last - first)


@dataclass(frozen=True, slots=True)
class TurnReader:
    """Reads the turns of the dialogues of a store; no splits or speakers: all."""

    splits: tuple[str, ...]
    speakers: tuple[str, ...]
    schema: pa.Schema = field(default_factory=lambda: columns_schema(TURN_COLUMNS))
    batch_rows: int = 512

    def count(self, batch: pa.RecordBatch) -> int:
        """Return the number of turns in a batch, selected or not."""
        offsets = batch.column("texts").offsets
        return int(offsets[-1].as_py() - offsets[0].as_py())

    def read(self, batch: pa.RecordBatch, first: int, last: int, location: Callable[[int], str]) -> TextBatch:
        """Return the selected turns of the range, as `TableReader.read` does."""
        items: list[EncoderInput] = []
        rows = []
        offsets = []
        position = 0
        for dialogue in dialogues_from_batch(batch):
            selected = not self.splits or dialogue.split in self.splits
            for item, row in turn_rows([dialogue]):
                if selected and first <= position < last and (not self.speakers or item[0].speaker in self.speakers):
                    items.append(item)
                    rows.append(row)
                    offsets.append(position - first)
                position += 1
        return items, rows_to_table(rows, self.schema), np.array(offsets, np.int64)


# ---- the corpus


@dataclass(frozen=True, slots=True)
class RowGroup:
    """A row group of a Parquet file and the number of its texts, selected or not."""

    path: str
    number: int
    texts: int


@dataclass(frozen=True, slots=True)
class BlockPiece:
    """The texts of a row group that belong to a block: `count` of them from `first` on."""

    group: RowGroup
    first: int
    count: int


@dataclass(frozen=True)
class ParquetCorpus:
    """Texts in Parquet files, in blocks of `block_rows`, of which the last may have fewer."""

    filesystem: fs.FileSystem
    groups: tuple[RowGroup, ...]
    reader: TableReader | TurnReader
    identity: str  # of the texts: a store's generation, or a hash of the files' names, sizes and footers
    block_rows: int

    @cached_property
    def _starts(self) -> list[int]:
        """The number of texts before each row group, and of all texts."""
        return [0, *itertools.accumulate(group.texts for group in self.groups)]

    @property
    def texts(self) -> int:
        """The number of texts, selected or not."""
        return self._starts[-1]

    @property
    def blocks(self) -> int:
        """The number of blocks."""
        return -(-self.texts // self.block_rows)

    def count(self, block: int) -> int:
        """Return the number of texts of a block, selected or not."""
        return min(self.block_rows, self.texts - block * self.block_rows)

    def pieces(self, block: int) -> Iterator[BlockPiece]:
        """Yield the parts of row groups that make up a block, in order."""
        starts, first = self._starts, block * self.block_rows
        last = first + self.count(block)
        for number in range(bisect.bisect_right(starts, first) - 1, bisect.bisect_left(starts, last)):
            start, end = max(first, starts[number]), min(last, starts[number + 1])
            if start < end:
                yield BlockPiece(self.groups[number], start - starts[number], end - start)

    def read(self, block: int) -> Iterator[tuple[list[EncoderInput], pa.Table]]:
        """Yield the selected texts of a block in batches, with their columns and their number among all texts."""
        row = block * self.block_rows
        for piece in self.pieces(block):
            for (items, table, offsets), texts in self._read_piece(piece):
                if items:
                    yield items, table.append_column(ROW, pa.array(offsets + row, pa.int64()))
                row += texts

    def _read_piece(self, piece: BlockPiece) -> Iterator[tuple[TextBatch, int]]:
        """Yield the selected texts of a piece, and how many there were to select from."""
        group, reader = piece.group, self.reader
        position, last = 0, piece.first + piece.count

        def location(offset: int) -> str:
            return f"{group.path}, row group {group.number}, row {position + offset:,} of it (from 0)"

        try:
            with (
                self.filesystem.open_input_file(group.path) as file,
                # pre_buffer would load the whole row group, of which a block may be a small part
                pq.ParquetFile(file, pre_buffer=False) as parquet,
            ):
                for batch in parquet.iter_batches(reader.batch_rows, row_groups=[group.number]):
                    texts = reader.count(batch)
                    start, end = max(0, piece.first - position), min(texts, last - position)
                    if start < end:
                        yield reader.read(batch, start, end, location), end - start
                    position += texts
                    if position >= last:
                        return
        except (OSError, pa.ArrowException, UnicodeDecodeError) as error:
            raise SearchError(f"{group.path}, row group {group.number} cannot be read: {error}") from error
        raise SearchError(f"{group.path} has changed: row group {group.number} had {group.texts:,} texts. Start again")


# ---- opening


def open_corpus(
    source: str,
    column: str = "text",
    splits: Sequence[str] = (),
    speakers: Sequence[str] = (),
    block_rows: int = BLOCK_ROWS,
) -> ParquetCorpus:
    """Read the footers of a store, a Parquet file, or a folder of Parquet files (in the order of their names).

    `source` may be a URI on object storage. `column` names the texts of files; `splits` and `speakers` select turns of
    a store.
    """
    if "://" not in source and is_store(Path(source)):
        return _open_store(Path(source).absolute(), splits, speakers, block_rows)
    if splits or speakers:
        raise SearchError(f"{source} is not a store: only a store has splits and speakers")
    filesystem, paths, base = _find_files(source)
    with ThreadPoolExecutor(_READERS) as pool:
        footers = list(pool.map(lambda path: _read_footer(filesystem, path, None), paths))
    _, schema, _ = footers[0]
    _check_columns(paths[0], schema, column)
    groups: list[RowGroup] = []
    digests = [column]
    for path, (file_groups, file_schema, digest) in zip(paths, footers, strict=True):
        if not file_schema.equals(schema):
            raise SearchError(
                f"{path} has other columns than {paths[0]}: write them with the same columns, or embed them separately"
            )
        groups += file_groups
        digests.append(f"{path.removeprefix(base)} {digest}")
    identity = hashlib.sha256("\n".join(digests).encode()).hexdigest()
    return ParquetCorpus(filesystem, tuple(groups), TableReader(schema, column), identity, block_rows)


def _open_store(folder: Path, splits: Sequence[str], speakers: Sequence[str], block_rows: int) -> ParquetCorpus:
    store = Store(folder)
    require_speakers([store], speakers)
    if splits:
        read_corpus(folder, splits=splits)  # rejects a split that no dialogue is in
    filesystem = fs.LocalFileSystem()
    footers = [_read_footer(filesystem, str(folder / file["name"]), _TEXTS) for file in store.manifest["files"]]
    groups = tuple(group for file_groups, _, _ in footers for group in file_groups)
    identity = f"{store.manifest['generation']} {sorted(splits)} {sorted(speakers)}"
    return ParquetCorpus(filesystem, groups, TurnReader(tuple(splits), tuple(speakers)), identity, block_rows)


def _find_files(source: str) -> tuple[fs.FileSystem, list[str], str]:
    """Return the sorted Parquet files of a file or folder, and the prefix of all their paths."""
    try:
        filesystem, path = fs.FileSystem.from_uri(source if "://" in source else str(Path(source).absolute()))
        info = filesystem.get_file_info(path)
        if info.type == fs.FileType.NotFound:
            raise SearchError(f"{source} does not exist")
        if info.is_file:
            if not path.lower().endswith(".parquet"):
                raise SearchError(
                    f"{source} is not a .parquet file: `--engine ray` reads only Parquet files and stores"
                )
            return filesystem, [path], path
        files = filesystem.get_file_info(fs.FileSelector(path, recursive=True))
    except (OSError, pa.ArrowException) as error:
        raise SearchError(f"{source} cannot be read: {error}") from error
    paths = sorted(file.path for file in files if file.is_file and _is_data(file.path.removeprefix(path)))
    if not paths:
        raise SearchError(f"{source} is not a store, and has no .parquet file")
    return filesystem, paths, path


def _is_data(name: str) -> bool:
    """Return whether a file holds data: a leading dot or underscore marks another program's metadata."""
    return name.lower().endswith(".parquet") and not any(part.startswith((".", "_")) for part in name.split("/"))


def _read_footer(filesystem: fs.FileSystem, path: str, leaf: str | None) -> tuple[list[RowGroup], pa.Schema, str]:
    """Return a file's row groups, schema and digest; texts are the values of column `leaf`, or the rows if None."""
    try:
        with filesystem.open_input_file(path) as file:
            size = file.size()
            file.seek(max(0, size - 8))
            length = int.from_bytes(file.read(4), "little")
            file.seek(max(0, size - 8 - length))
            digest = hashlib.sha256(file.read(length)).hexdigest()
            file.seek(0)
            with pq.ParquetFile(file) as parquet:
                metadata, schema = parquet.metadata, parquet.schema_arrow.remove_metadata()
    except (OSError, pa.ArrowException) as error:
        raise SearchError(f"{path} cannot be read: {error}") from error
    columns = [metadata.schema.column(number).path for number in range(metadata.num_columns)]
    groups = []
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        texts = group.num_rows if leaf is None else group.column(columns.index(leaf)).num_values
        groups.append(RowGroup(path, number, texts))
    return groups, schema, f"{size} {digest}"


def _check_columns(path: str, schema: pa.Schema, column: str) -> None:
    names = schema.names
    if column not in names:
        raise SearchError(
            f"{path} has no column {column!r}; it has {', '.join(map(repr, names))}. Choose one with --column"
        )
    for name in (ROW, VECTOR):
        if name in names:
            raise SearchError(f"{path} has a column {name!r}, which the output needs: rename or remove it")
    if len(set(names)) < len(names):
        raise SearchError(f"{path} has two columns of the same name: rename one")
    column_type = schema.field(column).type
    texts = column_type.value_type if pa.types.is_dictionary(column_type) else column_type
    if not (pa.types.is_string(texts) or pa.types.is_large_string(texts) or pa.types.is_string_view(texts)):
        raise SearchError(f"{path}: column {column!r} has type {column_type}, not text. Choose one with --column")
