"""A table of vectors with keys and other columns, stored by LanceDB in a folder or on object storage.

A key is in a table once, however often it is added. When `add` returns, its rows are committed and on disk; an addition
that is killed is there completely or not at all, and can be repeated. Up to `EXACT_UP_TO` rows a search compares the
query with every vector. Above, it uses an index: vectors in partitions, of which a query reads the nearest. The number
of partitions that are read is raised until the requested recall, measured against exact searches, is reached.
"""

import json
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from turnwise.assist.search.schema import (
    KEY,
    VECTOR,
    Filter,
    as_matrix,
    check_schema,
    filter_sql,
    make_schema,
    normalise,
    vector_array,
)
from turnwise.core.errors import SearchError, TurnwiseError
from turnwise.core.files import check_digests, explaining_damage, read_json, sha256, sync_to_disk, write_atomic
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

#: Recall is measured over so many nearest rows, with so many queries.
_NEAREST, _QUERIES = 10, 100

#: Rows per partition, and partitions that are read at first when recall is measured.
_PARTITION_ROWS, _PROBES = 1_000, 8

#: k-means for partitions: vectors sampled per partition, and iterations. Four times as many gain little.
_SAMPLE_RATE, _ITERATIONS = 64, 20

#: The index's name, and the metadata of the vector column that has its measurements.
_INDEX, _METADATA = "vector_idx", b"turnwise"

#: The SHA-256 of the data files of a local table, to find damaged ones.
_DIGESTS = "digests.json"


@dataclass(frozen=True, slots=True)
class VectorIndex:
    """How an index is searched, and its recall."""

    rows: int  # in the table when recall was measured
    partitions: int
    probes: int  # partitions read per query
    recall: float  # the fraction of the ten nearest rows that is found


@dataclass(frozen=True, slots=True)
class SearchHit:
    """A row that a search has returned, with its cosine similarity and the caller's columns (vectors as arrays)."""

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

        `uri` is a folder, or any address that LanceDB takes, and `storage` its options for object storage. `columns`
        are those besides `key` and `vector`. `settings` and the encoder's identity are stored in a new table and
        compared with those of an existing one; `rebuild` is the command that builds it again.
        """
        schema = make_schema(size, columns, settings or {}, encoder)
        table = _open_table(str(uri), name, storage, schema)
        check_schema(table.schema, schema, f"{uri}, table {name}", rebuild)
        _check_files(local_folder(f"{uri}/{name}.lance"), rebuild)
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
        self._columns = [name for name in table.schema.names if name not in (KEY, VECTOR)]

    def __len__(self) -> int:
        return int(self._table.count_rows())

    # ---- writing

    def add(self, keys: Sequence[str], vectors: Vectors, columns: Mapping[str, Sequence[Any]]) -> int:
        """Add and commit the rows whose keys are new, and return their number; of a repeated key the first counts."""
        if not len(keys):
            return 0
        rows = self._make_rows(keys, vectors, columns)
        with self._committing("be written"), self._locked():
            self._table.checkout_latest()  # rows of another process with the same keys count as present
            added = self._table.merge_insert(KEY).when_not_matched_insert_all().execute(rows).num_inserted_rows
        self._commits += 1
        if self._commits >= _COMMITS:
            self.compact()
        return int(added)

    def compact(self) -> None:
        """Compact the files of small commits, add new rows to the index, and drop old versions."""
        from lancedb.index import BTree

        with self._committing("be compacted"):
            # an index of the keys, so that insertions need not read all of them
            if len(self) and not any(index.columns == [KEY] for index in self._table.list_indices()):
                self._table.create_index(KEY, config=BTree())
            self._table.optimize(cleanup_older_than=_KEEP)
        self._commits = 0

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Lock a local table against writers in other processes: with an older version, they would add a key again."""
        if self._folder is None:
            yield
            return
        from filelock import FileLock

        with FileLock(self._folder.with_name(f".{self.name}.lock")):
            yield

    @contextmanager
    def _committing(self, action: str) -> Iterator[None]:
        """Write what was committed inside to disk at the end: LanceDB leaves that to the operating system."""
        began = time.time() - 1  # the file system's clock may be slightly behind
        with _reporting(f"{self.uri}, table {self.name} cannot {action}"):
            yield
        for parent, _, names in os.walk(self._folder) if self._folder is not None else ():
            changed = False
            for path in (Path(parent, name) for name in names):
                with suppress(FileNotFoundError):  # compacted by another process
                    if path.stat().st_mtime >= began:
                        sync_to_disk(path)
                        changed = True
            if changed:
                sync_to_disk(Path(parent))
        if self._folder is not None:
            _record_digests(self._folder)

    def _make_rows(self, keys: Sequence[str], vectors: Vectors, columns: Mapping[str, Sequence[Any]]) -> "pa.Table":
        import pyarrow as pa

        schema = self._table.schema
        first = list({key: row for row, key in reversed([*enumerate(keys)])}.values())[::-1]
        arrays = {VECTOR: vector_array(normalise(vectors, self.size)[first])}
        try:
            for name, values in {KEY: keys, **columns}.items():
                arrays[name] = pa.array([values[row] for row in first], schema.field(name).type)
            return pa.table(arrays, schema=schema)
        except (pa.ArrowException, UnicodeEncodeError, KeyError, IndexError) as error:
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
        query = self._table.search().select([KEY, VECTOR, *self._columns] if columns is None else list(columns))
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
        exact: bool = False,
    ) -> list[list[SearchHit]]:
        """Return the k rows with the highest cosine similarity to each vector (queries, size); ties by key.

        `where` has values by column (`{"source": "logs", "split": ["train", None]}`), or is an SQL expression from a
        trusted source. `exact` uses no index.
        """
        if k < 1:
            raise SearchError(f"k must be at least 1, got {k}")
        queries = normalise(vectors, self.size)
        if not len(queries):
            return []
        query = self._table.search(queries, vector_column_name=VECTOR, query_type="vector")
        query = query.distance_type("cosine").limit(k).select([KEY, *self._columns, _DISTANCE])
        index = None if exact else self.index
        query = query.bypass_vector_index() if index is None else query.minimum_nprobes(index.probes).maximum_nprobes(0)
        if where is not None:
            query = query.where(self._sql(where), prefilter=True)
        with _reporting(f"{self.uri}, table {self.name} cannot be searched"):
            rows = query.to_arrow()
        hits: list[list[SearchHit]] = [[] for _ in queries]
        numbers = rows[_QUERY].to_pylist() if _QUERY in rows.schema.names else [0] * len(rows)
        similarities = np.clip(1.0 - rows[_DISTANCE].to_numpy(), -1.0, 1.0).tolist()
        values = [_values(rows[name]) for name in self._columns]
        for number, key, similarity, *row in zip(numbers, rows[KEY].to_pylist(), similarities, *values, strict=True):
            hits[number].append(SearchHit(key, similarity, dict(zip(self._columns, row, strict=True))))
        return [sorted(each, key=lambda hit: (-hit.similarity, hit.key)) for each in hits]

    def _sql(self, where: Filter) -> str:
        import pyarrow as pa

        tests = ((str, pa.types.is_string), (int, pa.types.is_integer))
        schema = self._table.schema
        return filter_sql(where, {field.name: kind for field in schema for kind, test in tests if test(field.type)})

    # ---- the index

    @property
    def index(self) -> VectorIndex | None:
        """The index and its measured recall; None: every search is exact."""
        stored = (self._table.schema.field(VECTOR).metadata or {}).get(_METADATA)
        return VectorIndex(**json.loads(stored)) if stored else None

    def build_index(self, recall: float = RECALL, *, progress: Progress = silent) -> VectorIndex:
        """Build the index and measure its recall, with a sample of the table's vectors, not as their own neighbours."""
        from lancedb.index import IvfFlat

        rows = len(self)
        partitions = max(1, round(rows / _PARTITION_ROWS))
        progress("building the index", 0)
        config = IvfFlat(
            distance_type="cosine", num_partitions=partitions, max_iterations=_ITERATIONS, sample_rate=_SAMPLE_RATE
        )
        with self._committing("be indexed"):
            self._store_index("")  # searches must not use the measurements of the previous index
            self._table.create_index(VECTOR, config=config, name=_INDEX, replace=True)
            sample = np.random.default_rng(0).choice(rows, min(_QUERIES, rows), replace=False)
            queries = as_matrix(self._table.take_offsets(sorted(sample.tolist())).select([VECTOR]).to_arrow()[VECTOR])
            exact = self._nearest_rows(queries, None)
            probes = min(_PROBES, partitions)
            while True:
                progress(f"measuring the index: {probes} of {partitions:,} partitions", 0)
                found = self._nearest_rows(queries, probes)
                pairs = zip(exact, found, strict=True)
                shares = [len({*near[1:]} & {*ids}) / max(1, len(near) - 1) for near, ids in pairs]
                if np.mean(shares) >= recall or probes >= partitions:
                    break
                probes = min(2 * probes, partitions)
            index = VectorIndex(rows, partitions, probes, float(np.mean(shares)))
            self._store_index(json.dumps(asdict(index)))
        return index

    def _store_index(self, measured: str) -> None:
        self._table.update_field_metadata({"path": VECTOR, "metadata": {_METADATA.decode(): measured}})

    def _nearest_rows(self, queries: Vectors, probes: int | None) -> list[list[int]]:
        """Return the ids of the rows nearest to each query, nearest first; probes None: by an exact search."""
        query = self._table.search(queries, vector_column_name=VECTOR, query_type="vector").distance_type("cosine")
        query = query.bypass_vector_index() if probes is None else query.nprobes(probes)
        hits = query.limit(_NEAREST + 1).select([_DISTANCE]).with_row_id(True).to_arrow()
        numbers = hits[_QUERY].to_numpy() if len(queries) > 1 else np.zeros(len(hits), np.int64)
        order = np.lexsort((hits[_DISTANCE].to_numpy(), numbers))
        ids = hits["_rowid"].to_numpy()[order]
        return [each.tolist() for each in np.split(ids, np.searchsorted(numbers[order], np.arange(1, len(queries))))]

    def optimise(self, *, progress: Progress = silent) -> None:
        """Compact files after many additions, and build an index if the table is too large for exact search.

        An index is rebuilt when the table has doubled: its partitions suit the new rows less.
        """
        progress("compacting files", 0)
        self.compact()
        index = self.index
        if len(self) > EXACT_UP_TO and (index is None or len(self) >= 2 * index.rows):
            self.build_index(progress=progress)


def _values(column: "pa.ChunkedArray") -> Sequence[Any]:
    """Return the values of a column; vectors as arrays."""
    import pyarrow as pa

    return list(as_matrix(column) if pa.types.is_fixed_size_list(column.type) else column.to_pylist())


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


def _record_digests(folder: Path) -> None:
    """Record the SHA-256 of the data files of a table, which never change, unless it is recorded already."""
    path = folder / _DIGESTS
    known = read_json(path) if path.exists() else {}
    digests = {}
    for file in folder.glob("data/*.lance"):
        with suppress(FileNotFoundError):  # compacted by another process
            digests[file.name] = known.get(file.name) or sha256(file)
    write_atomic(path, json.dumps(digests))


def _check_files(folder: Path | None, rebuild: str) -> None:
    """Raise a SearchError if a data file of a local table is not as it was written."""
    if folder is None or not (folder / _DIGESTS).exists():
        return
    advice = "remove the folder of the table and index again" + (f": `{rebuild}`" if rebuild else "")
    with explaining_damage(folder, SearchError, advice):
        for name, digest in read_json(folder / _DIGESTS).items():
            with suppress(FileNotFoundError):  # compacted since
                check_digests(folder / "data", {name: digest})


@contextmanager
def _reporting(failure: str) -> Iterator[None]:
    """Raise errors of LanceDB and the libraries below it, which have no common class, as `SearchError`."""
    try:
        yield
    except TurnwiseError:
        raise
    except Exception as error:
        raise SearchError(f"{failure}: {error}") from error


def local_folder(uri: str) -> Path | None:
    """Return the folder of a table's files; None if it is not on a local disk."""
    scheme, separator, rest = uri.partition("://")
    if separator and scheme != "file":
        return None
    return Path(rest if separator else uri).absolute()
