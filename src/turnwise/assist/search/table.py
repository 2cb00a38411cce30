"""A table of vectors with keys and other columns, stored by LanceDB in a folder or on object storage.

A key is in a table once, however often it is added. When `add` returns, its rows are committed and on disk; an addition
that is killed is there completely or not at all, and can be repeated. Up to `EXACT_UP_TO` rows a search compares the
query with every vector; above, it uses an index whose recall was measured (see `index`).
"""

import json
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from turnwise.assist.search.index import VectorIndex, build_index, index_keys, read_index
from turnwise.assist.search.schema import (
    KEY,
    SETTINGS,
    VECTOR,
    Filter,
    as_values,
    check_schema,
    column_types,
    filter_sql,
    make_schema,
    normalise,
    vector_array,
)
from turnwise.core.errors import SearchError
from turnwise.core.files import sync_to_disk
from turnwise.core.imports import defer_package, explain_missing_packages, without_garbage_collection
from turnwise.core.progress import Progress, silent
from turnwise.core.types import Vectors
from turnwise.models.identity import EncoderIdentity

if TYPE_CHECKING:
    import pyarrow as pa


#: Rows up to which every search is exact.
EXACT_UP_TO = 100_000

#: The recall that an index must reach.
RECALL = 0.95

#: Every commit writes a small file and a version: so many are compacted together.
_COMMITS = 100

#: Versions younger than this survive compaction, for concurrent readers.
_KEEP = timedelta(minutes=10)

#: Commits of other processes are seen after this time at the latest.
_CONSISTENCY = timedelta(seconds=2)

#: Keys per lookup.
_LOOKUP = 1_000

_DISTANCE, _QUERY = "_distance", "query_index"


@dataclass(frozen=True, slots=True)
class SearchHit:
    """A row that a search has returned, with its cosine similarity and the requested columns (vectors as arrays)."""

    key: str
    similarity: float
    values: dict[str, Any]


class VectorTable:
    """A LanceDB table with a key, a vector of `size` dimensions, and the caller's columns and settings."""

    @classmethod
    def open(
        cls,
        uri: str | Path,
        name: str,
        *,
        size: int,
        columns: "pa.Schema",
        settings: Mapping[str, str] | None = None,
        encoder: EncoderIdentity | None = None,
        rebuild: str = "",
        storage: Mapping[str, str] | None = None,
    ) -> "VectorTable":
        """Open a table; create it if there is none; raise `SearchError` if an existing one does not fit.

        `uri` is a folder, or any address that LanceDB takes (`s3://bucket/path`, `gs://…`, `az://…`, `memory://`), and
        `storage` its options for object storage, such as keys and an endpoint (None: from the environment). `columns`
        are the columns besides `key` and `vector`; their names must not start with an underscore. `settings` are stored
        in a new table and compared with those of an existing one. A table that another encoder wrote is rejected;
        `rebuild` is the command that builds it again, for the message.
        """
        schema = make_schema(size, columns, settings or {}, encoder)
        table = _open_table(str(uri), name, storage, schema)
        check_schema(table.schema, schema, f"{uri}, table {name}", rebuild)
        return cls(str(uri), name, table)

    @classmethod
    def exists(cls, uri: str | Path, name: str, *, storage: Mapping[str, str] | None = None) -> bool:
        """Return whether there is such a table; nothing is created."""
        folder = local_folder(f"{uri}/{name}.lance")
        if folder is not None:
            return folder.is_dir()
        return _open_table(str(uri), name, storage, None) is not None

    @classmethod
    def drop(cls, uri: str | Path, name: str, *, storage: Mapping[str, str] | None = None) -> None:
        """Remove a table with all its rows, if there is one."""
        if cls.exists(uri, name, storage=storage):
            with _reporting(f"{uri}, table {name} cannot be removed"):
                _connect(str(uri), storage).drop_table(name)

    def __init__(self, uri: str, name: str, table: Any):
        """Wrap a LanceDB table; use `open` instead."""
        self.uri = uri
        self.name = name
        self._table = table
        self._folder = local_folder(f"{uri}/{name}.lance")
        # Commits of other processes, and of ones that ended before compacting, count as well.
        self._commits = int(table.stats()["fragment_stats"]["num_small_fragments"])
        self.size: int = table.schema.field(VECTOR).type.list_size
        self.settings: dict[str, str] = json.loads(table.schema.metadata[SETTINGS])

    def __len__(self) -> int:
        return int(self._table.count_rows())

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the caller's columns."""
        return tuple(name for name in self._table.schema.names if name not in (KEY, VECTOR))

    # ---- writing

    def add(self, keys: Sequence[str], vectors: Vectors, columns: Mapping[str, Sequence[Any]]) -> int:
        """Add and commit the rows whose keys are new, and return their number; existing rows stay as they are.

        Of a repeated key the first row counts. Vectors (rows, size) may have any length but 0. `columns` has the values
        of every column, in the order of the keys.
        """
        if not len(keys):
            return 0
        rows = self._make_rows(keys, vectors, columns)
        with self._committing("be written"):
            added = self._table.merge_insert(KEY).when_not_matched_insert_all().execute(rows).num_inserted_rows
        self._commits += 1
        if self._commits >= _COMMITS:
            self.compact()
        return int(added)

    def remove(self, where: Filter) -> int:
        """Remove the rows that a filter matches, commit, and return how many there were."""
        with self._committing("be written"):
            return int(self._table.delete(self._sql(where)).num_deleted_rows)

    def compact(self) -> None:
        """Compact the files of small commits, add new rows to the index, and drop old versions."""
        with self._committing("be compacted"):
            index_keys(self._table)
            self._table.optimize(cleanup_older_than=_KEEP)
        self._commits = 0

    @contextmanager
    def _committing(self, action: str) -> Iterator[None]:
        """Write what was committed inside to disk at the end: LanceDB leaves that to the operating system."""
        began = time.time() - 1  # the file system's clock may be slightly behind
        with _reporting(f"{self.uri}, table {self.name} cannot {action}"):
            yield
        if self._folder is not None:
            _sync_changes(self._folder, began)

    def _make_rows(self, keys: Sequence[str], vectors: Vectors, columns: Mapping[str, Sequence[Any]]) -> "pa.Table":
        import pyarrow as pa

        if set(columns) != set(self.columns):
            raise SearchError(
                f"the table has the columns {', '.join(self.columns)}, got {', '.join(columns) or 'none'}"
            )
        lengths = {name: len(values) for name, values in columns.items()} | {VECTOR: len(vectors)}
        for name, length in lengths.items():
            if length != len(keys):
                raise SearchError(
                    f"there are {len(keys):,} keys, but {length:,} values of {name}: give one for each key"
                )
        schema = self._table.schema
        first = list({key: row for row, key in reversed([*enumerate(keys)])}.values())[::-1]
        unit = normalise(vectors, self.size)[first]
        arrays = {VECTOR: vector_array(unit)}
        try:
            for name, values in {KEY: keys, **columns}.items():
                arrays[name] = pa.array([values[row] for row in first], schema.field(name).type)
            return pa.table(arrays, schema=schema)
        except (pa.ArrowException, UnicodeEncodeError) as error:
            raise SearchError(f"a value does not fit its column in {self.uri}, table {self.name}: {error}") from error

    # ---- reading

    def existing_keys(self, keys: Sequence[str]) -> set[str]:
        """Return which of some keys are in the table."""
        existing: set[str] = set()
        for first in range(0, len(keys), _LOOKUP):
            rows = self.read([KEY], {KEY: list(keys[first : first + _LOOKUP])})
            existing.update(rows[KEY].to_pylist())
        return existing

    def read(self, columns: Sequence[str] | None = None, where: Filter | None = None) -> "pa.Table":
        """Return rows as an Arrow table, in no particular order; by default all rows and columns."""
        query = self._table.search().select([KEY, VECTOR, *self.columns] if columns is None else list(columns))
        if where is not None:
            query = query.where(self._sql(where))
        with _reporting(f"{self.uri}, table {self.name} cannot be read"):
            return query.limit(max(1, len(self))).to_arrow()

    def search(
        self,
        vectors: Vectors,
        k: int,
        *,
        where: Filter | None = None,
        columns: Sequence[str] | None = None,
        exact: bool = False,
    ) -> list[list[SearchHit]]:
        """Return the k rows with the highest cosine similarity to each vector (queries, size); ties by key.

        `where` has values by column (`{"source": "logs", "split": ["train", "valid"]}`; None for rows without a value),
        or is an SQL expression over the columns, which must come from a trusted source. `columns` are those to return
        (None: the caller's). `exact` compares with every vector even where there is an index.
        """
        if k < 1:
            raise SearchError(f"k must be at least 1, got {k}")
        queries = normalise(vectors, self.size)
        if not len(queries):
            return []
        names = [*dict.fromkeys((KEY, *(self.columns if columns is None else columns))), _DISTANCE]
        query = self._table.search(queries, vector_column_name=VECTOR, query_type="vector")
        query = query.distance_type("cosine").limit(k).select(names)
        index = None if exact else self.index
        query = query.bypass_vector_index() if index is None else query.minimum_nprobes(index.probes).maximum_nprobes(0)
        if where is not None:
            query = query.where(self._sql(where), prefilter=True)
        with _reporting(f"{self.uri}, table {self.name} cannot be searched"):
            rows = query.to_arrow()
        hits: list[list[SearchHit]] = [[] for _ in queries]
        numbers = rows[_QUERY].to_pylist() if _QUERY in rows.schema.names else [0] * len(rows)
        similarities = np.clip(1.0 - rows[_DISTANCE].to_numpy(), -1.0, 1.0).tolist()
        values = {name: as_values(rows[name]) for name in rows.schema.names if name not in (KEY, _DISTANCE, _QUERY)}
        for row, (number, key) in enumerate(zip(numbers, rows[KEY].to_pylist(), strict=True)):
            columns_of_row = {name: column[row] for name, column in values.items()}
            hits[number].append(SearchHit(key, similarities[row], columns_of_row))
        return [sorted(each, key=lambda hit: (-hit.similarity, hit.key)) for each in hits]

    def _sql(self, where: Filter) -> str:
        return filter_sql(where, column_types(self._table.schema))

    # ---- the index

    @property
    def index(self) -> VectorIndex | None:
        """The index and its measured recall; None: every search is exact."""
        return read_index(self._table)

    def build_index(
        self, *, recall: float = RECALL, queries: Vectors | None = None, progress: Progress = silent
    ) -> VectorIndex:
        """Build the index and measure its recall, with `queries` or else a sample of the table's own vectors."""
        if not len(self):
            raise SearchError(f"{self.uri}, table {self.name} is empty: add rows before building an index")
        unit = None if queries is None else normalise(queries, self.size)
        with self._committing("be indexed"):
            return build_index(self._table, recall, unit, progress)

    def optimise(self, *, exact_up_to: int = EXACT_UP_TO, recall: float = RECALL, progress: Progress = silent) -> None:
        """Compact files after many additions, and build an index if the table is too large for exact search.

        An index is rebuilt when the table has doubled: its partitions suit the new rows less.
        """
        progress("compacting files", 0)
        self.compact()
        index = self.index
        if len(self) > exact_up_to and (index is None or len(self) >= 2 * index.rows):
            self.build_index(recall=recall, progress=progress)


def _open_table(uri: str, name: str, storage: Mapping[str, str] | None, schema: "pa.Schema | None") -> Any:
    """Return a LanceDB table; if there is none, a new one with a schema, or None without one."""
    with _reporting(f"{uri} cannot be opened as a LanceDB database"):
        database = _connect(uri, storage)
        try:
            return database.open_table(name)
        except ValueError:  # there is none; another process may create it at the same time
            return None if schema is None else database.create_table(name, schema=schema, exist_ok=True)


def _connect(uri: str, storage: Mapping[str, str] | None) -> Any:
    # LanceDB needs the models of this REST client, but not the client itself, which takes a second to import
    defer_package("lance_namespace_urllib3_client")
    with explain_missing_packages(), without_garbage_collection():
        import lancedb
    return lancedb.connect(uri, read_consistency_interval=_CONSISTENCY, storage_options=dict(storage or {}) or None)


@contextmanager
def _reporting(failure: str) -> Iterator[None]:
    """Raise errors of LanceDB and the libraries below it as `SearchError`."""
    try:
        yield
    except (OSError, ValueError, RuntimeError) as error:
        raise SearchError(f"{failure}: {error}") from error


def local_folder(uri: str) -> Path | None:
    """Return the folder of a table's files; None if it is not on a local disk."""
    scheme, separator, rest = uri.partition("://")
    if separator and scheme != "file":
        return None
    return Path(rest if separator else uri).absolute()


def _sync_changes(folder: Path, since: float) -> None:
    """Wait until the files of a folder that were modified since a time are on disk."""
    for parent, _, names in os.walk(folder):
        changed = False
        for name in names:
            with suppress(FileNotFoundError):  # compacted by another process
                path = Path(parent, name)
                if path.stat().st_mtime >= since:
                    sync_to_disk(path)
                    changed = True
        if changed:
            sync_to_disk(Path(parent))
