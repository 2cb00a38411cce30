"""A corpus in Parquet as the row groups of its files: what there is, known from the files' footers alone."""

import hashlib
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs

from turnwise.assist.search.embedding.embedded import EmbeddingError
from turnwise.assist.search.embedding.records import Records, TableRecords, TurnRecords
from turnwise.corpus.store import Store, is_store, read_corpus

#: Columns that are added to those of the input.
ROW, VECTOR = "row", "vector"

#: Footers that are read at the same time: on object storage each is a matter of waiting.
_READERS = 32

#: The column of a store's files that has a value a turn.
_TEXTS = "texts.list.element"


@dataclass(frozen=True, slots=True)
class Group:
    """A row group.

    Attributes:
        path: of its file.
        number: of it in the file.
        texts: that it holds, chosen or not.
    """

    path: str
    number: int
    texts: int


@dataclass(frozen=True, slots=True)
class Corpus:
    """What is to be encoded.

    Attributes:
        filesystem: that the files lie on.
        groups: in order.
        records: how their rows become texts.
        identity: the same for the same texts: a store's generation, or what the files' names, sizes and footers come to.
    """

    filesystem: fs.FileSystem
    groups: tuple[Group, ...]
    records: Records
    identity: str


@dataclass(frozen=True, slots=True)
class _Footer:
    groups: tuple[Group, ...]
    schema: pa.Schema
    digest: str


def read_groups(source: str, column: str = "text", splits: Sequence[str] = (), speakers: Sequence[str] = ()) -> Corpus:
    """The row groups of a store, a Parquet file, or a folder of Parquet files, in the order of their names.

    Args:
        source: a store; a file or folder, or the URI of one on object storage.
        column: the column of texts; of a store it has no meaning.
        splits: of a store, dialogues of these splits alone; none: all.
        speakers: of a store, turns by these speakers alone; none: all.

    Raises:
        EmbeddingError: if there are no such texts, or the files differ in their columns.
    """
    if "://" not in source and is_store(Path(source)):
        return _of_store(Path(source).absolute(), splits, speakers)
    if splits or speakers:
        raise EmbeddingError(f"{source} has no splits and no speakers to choose by: only a store has")
    filesystem, paths, base = _files(source)
    with ThreadPoolExecutor(_READERS) as pool:
        footers = list(pool.map(lambda path: _footer(filesystem, path, None), paths))
    schema = footers[0].schema
    _expect_columns(paths[0], schema, column)
    for path, footer in zip(paths, footers, strict=True):
        if not footer.schema.equals(schema):
            raise EmbeddingError(
                f"{path} has other columns than {paths[0]}: write them alike, or embed them one by one"
            )
    names = [path.removeprefix(base) for path in paths]
    known = [f"{name} {footer.digest}" for name, footer in zip(names, footers, strict=True)]
    identity = hashlib.sha256("\n".join([column, *known]).encode()).hexdigest()
    groups = tuple(group for footer in footers for group in footer.groups)
    return Corpus(filesystem, groups, TableRecords(schema, column), identity)


def _of_store(folder: Path, splits: Sequence[str], speakers: Sequence[str]) -> Corpus:
    store = Store(folder)
    if splits:
        read_corpus(folder, splits=splits)  # which tells of a split that no dialogue is in
    filesystem = fs.LocalFileSystem()
    footers = [_footer(filesystem, str(folder / file["name"]), _TEXTS) for file in store.manifest["files"]]
    groups = tuple(group for footer in footers for group in footer.groups)
    identity = f"{store.manifest['generation']} {sorted(splits)} {sorted(speakers)}"
    return Corpus(filesystem, groups, TurnRecords(tuple(splits), tuple(speakers)), identity)


def _files(source: str) -> tuple[fs.FileSystem, list[str], str]:
    """The Parquet files of a file or folder, in the order of their names, and what all their paths begin with."""
    try:
        filesystem, path = fs.FileSystem.from_uri(source if "://" in source else str(Path(source).absolute()))
        found = filesystem.get_file_info(path)
        if found.type == fs.FileType.NotFound:
            raise EmbeddingError(f"{source} does not exist")
        if found.is_file:
            if not path.lower().endswith(".parquet"):
                raise EmbeddingError(
                    f"{source} is no .parquet file: `--engine ray` reads Parquet files and stores alone"
                )
            return filesystem, [path], path
        inside = filesystem.get_file_info(fs.FileSelector(path, recursive=True))
    except (OSError, pa.ArrowException) as error:
        raise EmbeddingError(f"{source} cannot be read: {error}") from error
    paths = sorted(file.path for file in inside if file.is_file and _counts(file.path.removeprefix(path)))
    if not paths:
        raise EmbeddingError(f"{source} holds no .parquet file, and is no store")
    return filesystem, paths, path


def _counts(name: str) -> bool:
    """Whether a name is that of a file of texts: what begins with a dot or an underscore is another program's note."""
    return name.lower().endswith(".parquet") and not any(part.startswith((".", "_")) for part in name.split("/"))


def _footer(filesystem: fs.FileSystem, path: str, leaf: str | None) -> _Footer:
    """What a file's footer says; texts are counted by the values of a column, or by rows where none is named."""
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
        raise EmbeddingError(f"{path} cannot be read: {error}") from error
    place = (
        [metadata.schema.column(number).path for number in range(metadata.num_columns)].index(leaf) if leaf else None
    )
    groups = []
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        groups.append(Group(path, number, group.num_rows if place is None else group.column(place).num_values))
    return _Footer(tuple(groups), schema, f"{size} {digest}")


def _expect_columns(path: str, schema: pa.Schema, column: str) -> None:
    names = schema.names
    if column not in names:
        raise EmbeddingError(
            f"{path} has no column {column!r}; it has {', '.join(map(repr, names))}. Name the right one by --column"
        )
    for name in (ROW, VECTOR):
        if name in names:
            raise EmbeddingError(
                f"{path} has a column {name!r}, which is the name of one that is added: rename it or leave it out"
            )
    if len(set(names)) < len(names):
        raise EmbeddingError(f"{path} has two columns of one name: leave one that name")
    kind = schema.field(column).type
    texts = kind.value_type if pa.types.is_dictionary(kind) else kind
    if not (pa.types.is_string(texts) or pa.types.is_large_string(texts) or pa.types.is_string_view(texts)):
        raise EmbeddingError(f"{path}: column {column!r} holds {kind}, not texts. Name the right one by --column")
