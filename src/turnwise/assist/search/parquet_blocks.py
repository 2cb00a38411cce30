"""A corpus in Parquet files as numbered blocks of texts, for workers of a cluster.

The layout is read from the files' footers alone. A block is a fixed range of texts: whoever reads it, and whenever,
gets the same texts.
"""

import hashlib
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs

from turnwise.assist.search.schema import rows_to_table
from turnwise.core.errors import SearchError
from turnwise.corpus.storage.corpus import read_corpus
from turnwise.corpus.storage.rows import dialogues_from_batch
from turnwise.corpus.storage.store import Store, is_store, require_speakers
from turnwise.corpus.texts import TURN_COLUMNS, EncoderInput, columns_schema, turn_rows

#: Columns that are added to those of the input.
ROW, VECTOR = "row", "vector"

#: Texts per block: at most so many are encoded again when a worker is lost.
BLOCK_ROWS = 16_384

#: Footers that are read concurrently: on object storage each is a round trip.
_READERS = 32

#: The column of a store's files that has one value per turn.
_TEXTS = "texts.list.element"

#: Selected texts of a range, with their columns and their positions in the range.
TextBatch = tuple[list[EncoderInput], pa.Table, Sequence[int]]


@dataclass(frozen=True, slots=True)
class TableReader:
    """Reads one text per row, from a column."""

    schema: pa.Schema  # the columns that accompany each text
    column: str
    batch_rows: int = 4_096  # rows that are read at a time

    def count(self, batch: pa.RecordBatch) -> int:
        """Return the number of texts in a batch, selected or not."""
        return int(batch.num_rows)

    def read(self, batch: pa.RecordBatch, first: int, last: int) -> TextBatch:
        """Return the selected texts among `first` to `last` (exclusive)."""
        table = pa.Table.from_batches([batch.slice(first, last - first)], schema=self.schema)
        return table.column(self.column).to_pylist(), table, range(last - first)


@dataclass(frozen=True, slots=True)
class TurnReader:
    """Reads the turns of the dialogues of a store; no splits or speakers: all."""

    splits: Sequence[str]
    speakers: Sequence[str]
    schema: pa.Schema = field(default_factory=lambda: columns_schema(TURN_COLUMNS))
    batch_rows: int = 512

    def count(self, batch: pa.RecordBatch) -> int:
        """Return the number of turns in a batch, selected or not."""
        offsets = batch.column("texts").offsets
        return int(offsets[-1].as_py() - offsets[0].as_py())

    def read(self, batch: pa.RecordBatch, first: int, last: int) -> TextBatch:
        """Return the selected turns of the range, as `TableReader.read` does."""
        items: list[EncoderInput] = []
        rows, offsets = [], []
        turns = ((each, turn) for each in dialogues_from_batch(batch) for turn in turn_rows([each]))
        for offset, (dialogue, (item, row)) in enumerate(islice(turns, first, last)):
            is_selected = not self.splits or dialogue.split in self.splits
            if is_selected and (not self.speakers or item[0].speaker in self.speakers):
                items.append(item)
                rows.append(row)
                offsets.append(offset)
        return items, rows_to_table(rows, self.schema), offsets


@dataclass(frozen=True, slots=True)
class RowGroup:
    """A row group of a Parquet file and the number of its texts, selected or not."""

    path: str
    number: int
    texts: int


@dataclass(frozen=True)
class ParquetCorpus:
    """Texts in Parquet files, in blocks of `block_rows`, of which the last may have fewer."""

    filesystem: fs.FileSystem
    groups: tuple[RowGroup, ...]
    reader: TableReader | TurnReader
    identity: str  # of the texts: a store's generation, or a hash of the files' names, sizes and footers
    block_rows: int

    @cached_property
    def texts(self) -> int:
        """The number of texts, selected or not."""
        return sum(group.texts for group in self.groups)

    @property
    def blocks(self) -> int:
        """The number of blocks."""
        return -(-self.texts // self.block_rows)

    def count(self, block: int) -> int:
        """Return the number of texts of a block, selected or not."""
        return min(self.block_rows, self.texts - block * self.block_rows)

    def pieces(self, block: int) -> Iterator[tuple[RowGroup, int, int]]:
        """Yield the row groups of a block in order, with the first and the last (exclusive) of their texts in it."""
        start = -block * self.block_rows  # of the row group, relative to the block
        for group in self.groups:
            first, last = max(0, -start), min(group.texts, self.count(block) - start)
            if first < last:
                yield group, first, last
            start += group.texts

    def read(self, block: int) -> Iterator[tuple[list[EncoderInput], pa.Table]]:
        """Yield the selected texts of a block in batches, with their columns and their number among all texts."""
        row = block * self.block_rows
        for group, first, last in self.pieces(block):
            for (items, table, offsets), texts in self._read_piece(group, first, last):
                if items:
                    yield items, table.append_column(ROW, pa.array(np.add(offsets, row), pa.int64()))
                row += texts

    def _read_piece(self, group: RowGroup, first: int, last: int) -> Iterator[tuple[TextBatch, int]]:
        """Yield selected texts of a row group, and how many there were to select from."""
        position, name = 0, f"{group.path}, row group {group.number}"
        try:
            with (
                self.filesystem.open_input_file(group.path) as file,
                # pre_buffer would load the whole row group, of which a block may be a small part
                pq.ParquetFile(file, pre_buffer=False) as parquet,
            ):
                for batch in parquet.iter_batches(self.reader.batch_rows, row_groups=[group.number]):
                    texts = self.reader.count(batch)
                    start, end = max(0, first - position), min(texts, last - position)
                    if start < end:
                        read = self.reader.read(batch, start, end)
                        if None in read[0]:
                            row = position + start + read[0].index(None)  # type: ignore[arg-type]
                            raise SearchError(f"{name}, row {row:,} of it (from 0) has no text: remove such rows")
                        yield read, end - start
                    position += texts
                    if position >= last:
                        return
        except (OSError, pa.ArrowException, UnicodeDecodeError) as error:
            raise SearchError(f"{name} cannot be read: {error}") from error
        raise SearchError(f"{group.path} has changed: row group {group.number} had {group.texts:,} texts. Start again")


# ---- opening


def open_corpus(
    source: str,
    column: str = "text",
    splits: Sequence[str] = (),
    speakers: Sequence[str] = (),
    block_rows: int = BLOCK_ROWS,
) -> ParquetCorpus:
    """Read the footers of a store, a Parquet file, or a folder of Parquet files; `source` may be a URI."""
    if "://" not in source and is_store(Path(source)):
        return _open_store(Path(source).absolute(), splits, speakers, block_rows)
    if splits or speakers:
        raise SearchError(f"{source} is not a store: only a store has splits and speakers")
    filesystem, paths, base = _find_files(source)
    with ThreadPoolExecutor(_READERS) as pool:
        footers = list(pool.map(lambda path: _read_footer(filesystem, path, None), paths))
    schema = footers[0][1]
    _check_columns(paths[0], schema, column)
    for path, (_, file_schema, _) in zip(paths, footers, strict=True):
        if not file_schema.equals(schema):
            raise SearchError(
                f"{path} has other columns than {paths[0]}: write them with the same columns, or embed them separately"
            )
    digests = [f"{path.removeprefix(base)} {digest}" for path, (_, _, digest) in zip(paths, footers, strict=True)]
    identity = hashlib.sha256("\n".join([column, *digests]).encode()).hexdigest()
    groups = tuple(group for file_groups, _, _ in footers for group in file_groups)
    return ParquetCorpus(filesystem, groups, TableReader(schema, column), identity, block_rows)


def _open_store(folder: Path, splits: Sequence[str], speakers: Sequence[str], block_rows: int) -> ParquetCorpus:
    store = Store(folder)
    require_speakers([store], speakers)
    if splits:
        read_corpus(folder, splits=splits)  # rejects a split that no dialogue is in
    filesystem = fs.LocalFileSystem()
    paths = [str(folder / file["name"]) for file in store.manifest["files"]]
    groups = tuple(group for path in paths for group in _read_footer(filesystem, path, _TEXTS)[0])
    identity = f"{store.manifest['generation']} {sorted(splits)} {sorted(speakers)}"
    return ParquetCorpus(filesystem, groups, TurnReader(splits, speakers), identity, block_rows)


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
    names = (file.path.removeprefix(path) for file in files if file.is_file)
    # a leading dot or underscore marks another program's metadata
    data = (name for name in names if not any(part.startswith((".", "_")) for part in name.split("/")))
    paths = sorted(path + name for name in data if name.lower().endswith(".parquet"))
    if not paths:
        raise SearchError(f"{source} is not a store, and has no .parquet file")
    return filesystem, paths, path


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
