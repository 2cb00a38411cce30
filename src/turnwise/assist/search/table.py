"""A table of vectors, each with a key and what is known of it: kept by LanceDB in a folder, or in a bucket on object storage.

A key is in a table once, however often it is added; when `add` comes back, its rows are committed, and whoever kills the process
afterwards takes none of them away. What was being added when a process was killed is not there, or there whole: add it again.
Up to a size every vector is compared with the query; above it an index (vectors in partitions, of which the nearest are read)
answers, set such that it finds a named share of what an exact search would. That share is measured when the index is built.
"""

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from turnwise.assist.search import indexing
from turnwise.assist.search.disk import flush, folder_of
from turnwise.assist.search.filters import Where, condition, one_of
from turnwise.assist.search.indexing import Index
from turnwise.assist.search.schema import (
    ABOUT,
    KEY,
    VECTOR,
    TableError,
    Vectors,
    compare,
    kinds_of,
    plain,
    scaled,
    schema_of,
)
from turnwise.core.progress import Progress, silent
from turnwise.core.types import SupportsEncode

#: Rows up to which an exact search is quick enough that an index does not pay.
EXACT_UP_TO = 100_000

#: The share of the nearest rows that an index has to find.
RECALL = 0.95

#: Every commit leaves a small file and a version of its own: so many of them are then put together.
_COMMITS = 100

#: Versions younger than this are kept when files are put together, for those that still read them.
_KEEP = timedelta(minutes=10)

#: How old what another process has committed may be before it is seen.
_FRESH = timedelta(seconds=2)

#: Keys that are asked for at once.
_ASKED = 1_000

_DISTANCE, _QUERY = "_distance", "query_index"


@dataclass(frozen=True, slots=True)
class Row:
    """A row that was found.

    Attributes:
        key: its key.
        similarity: the cosine of its vector with the query.
        values: what the columns that were asked for hold, by their names; vectors as arrays.
    """

    key: str
    similarity: float
    values: dict[str, Any]


class VectorTable:
    """One table of LanceDB: a key, a vector, and columns of the caller's.

    Attributes:
        uri: the folder or bucket that it lies in.
        name: its name there.
        size: of a vector.
        about: what was noted when it was made.
    """

    @classmethod
    def open(
        cls,
        uri: str | Path,
        name: str,
        *,
        size: int,
        columns: pa.Schema,
        about: Mapping[str, str] | None = None,
        encoder: SupportsEncode | None = None,
        storage: Mapping[str, str] | None = None,
    ) -> "VectorTable":
        """Opens a table, and makes it where there is none.

        Args:
            uri: a folder, or what LanceDB takes (`s3://bucket/path`, `gs://…`, `az://…`, `memory://`).
            name: of the table.
            size: of a vector.
            columns: what else a row holds; neither `key` nor `vector`, nor names that begin with `_`.
            about: noted with a table that is made, and compared with what was noted of one that is there.
            encoder: what the vectors come from; a table that was made with another one is refused.
            storage: LanceDB's options for object storage, such as keys and an end point; None: from the environment.

        Raises:
            TableError: if LanceDB is missing, or a table is there that holds something else.
        """
        folder = str(uri)
        schema = schema_of(size, columns, about or {}, encoder)
        with _told(f"{folder} cannot be opened as a LanceDB database"):
            database = _connected(folder, storage)
            try:
                table = database.open_table(name)
            except ValueError:  # there is none, and another process may make it at the same time
                table = database.create_table(name, schema=schema, exist_ok=True)
        compare(table.schema, schema, f"{folder}, table {name}")
        return cls(folder, name, table)

    @classmethod
    def exists(cls, uri: str | Path, name: str, *, storage: Mapping[str, str] | None = None) -> bool:
        """Whether there is such a table; nothing is made.

        Raises:
            TableError: if LanceDB is missing, or cannot look there.
        """
        folder = folder_of(str(uri), name)
        if folder is not None:
            return folder.is_dir()
        with _told(f"{uri} cannot be opened as a LanceDB database"):
            database = _connected(str(uri), storage)
            try:
                database.open_table(name)
            except ValueError:
                return False
        return True

    def __init__(self, uri: str, name: str, table: Any):
        """Takes a table of LanceDB; `open` is what you want."""
        self.uri = uri
        self.name = name
        self._table = table
        self._folder = folder_of(uri, name)
        # what others have committed, and processes that ended early have not put together, counts too
        self._commits = int(table.stats()["fragment_stats"]["num_small_fragments"])
        self.size: int = table.schema.field(VECTOR).type.list_size
        self.about: dict[str, str] = json.loads(table.schema.metadata[ABOUT])

    def __len__(self) -> int:
        """How many rows there are."""
        return int(self._table.count_rows())

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the caller's columns."""
        return tuple(name for name in self._table.schema.names if name not in (KEY, VECTOR))

    # ---- writing

    def add(self, keys: Sequence[str], vectors: Vectors, columns: Mapping[str, Sequence[Any]]) -> int:
        """Adds rows whose keys are not there; what is there stays as it is. When this comes back, they are committed.

        Args:
            keys: of the rows; of one that repeats the first counts.
            vectors: (rows, size), of any length but 0.
            columns: the values of every column of the table, in the order of the keys.

        Returns:
            How many rows are new.

        Raises:
            TableError: if something does not fit the table, or it cannot be written.
        """
        if not len(keys):
            return 0
        rows = self._rows(keys, vectors, columns)
        with self._committed("be written"):
            added = self._table.merge_insert(KEY).when_not_matched_insert_all().execute(rows).num_inserted_rows
        self._commits += 1
        if self._commits >= _COMMITS:
            self.tidy()
        return int(added)

    def remove(self, where: Where) -> int:
        """Removes the rows that fulfil a condition; when this comes back, that is committed.

        Returns:
            How many there were.

        Raises:
            TableError: if the table cannot be written.
        """
        with self._committed("be written"):
            return int(self._table.delete(self._condition(where)).num_deleted_rows)

    def tidy(self) -> None:
        """Puts the files of many small commits together, takes new rows into the index, and drops versions that nobody reads."""
        with self._committed("be put in order"):
            indexing.index_keys(self._table, KEY)
            self._table.optimize(cleanup_older_than=_KEEP)
        self._commits = 0

    @contextmanager
    def _committed(self, what: str) -> Iterator[None]:
        """What is written inside is on disk at the end: LanceDB itself leaves that to the operating system."""
        began = time.time() - 1  # a file system's clock may be a little behind
        with _told(f"{self.uri}, table {self.name} cannot {what}"):
            yield
        if self._folder is not None:
            flush(self._folder, began)

    def _rows(self, keys: Sequence[str], vectors: Vectors, columns: Mapping[str, Sequence[Any]]) -> pa.Table:
        if set(columns) != set(self.columns):
            raise TableError(
                f"the table has the columns {', '.join(self.columns)}; given are {', '.join(columns) or 'none'}"
            )
        lengths = {name: len(values) for name, values in columns.items()} | {VECTOR: len(vectors)}
        for name, length in lengths.items():
            if length != len(keys):
                raise TableError(f"there are {len(keys):,} keys and {length:,} values of {name}: give one for each")
        first = list({key: place for place, key in reversed([*enumerate(keys)])}.values())[::-1]
        schema = self._table.schema
        lying = scaled(vectors, self.size)[first]
        flat = pa.FixedSizeListArray.from_arrays(pa.array(lying.ravel(), pa.float32()), self.size)
        try:
            whole = {
                name: pa.array([columns[name][place] for place in first], schema.field(name).type)
                for name in self.columns
            }
            named = pa.array([keys[place] for place in first], pa.string())
            return pa.table({KEY: named, VECTOR: flat, **whole}, schema=schema)
        except (pa.ArrowException, UnicodeEncodeError) as error:
            raise TableError(f"a value does not fit its column in {self.uri}, table {self.name}: {error}") from error

    # ---- reading

    def holds(self, keys: Sequence[str]) -> set[str]:
        """Which of some keys are in the table."""
        found: set[str] = set()
        for first in range(0, len(keys), _ASKED):
            asked = one_of(KEY, keys[first : first + _ASKED])
            found.update(self._scan([KEY], asked)[KEY].to_pylist())
        return found

    def read(self, columns: Sequence[str] | None = None, where: Where | None = None) -> pa.Table:
        """Rows as an Arrow table, in no order.

        Args:
            columns: which to read, `key` and `vector` among them; None: all.
            where: a condition that they fulfil; None: all rows.
        """
        names = [KEY, VECTOR, *self.columns] if columns is None else list(columns)
        return self._scan(names, None if where is None else self._condition(where))

    def search(
        self,
        vectors: Vectors,
        k: int,
        *,
        where: Where | None = None,
        columns: Sequence[str] | None = None,
        exact: bool = False,
    ) -> list[list[Row]]:
        """The k nearest rows by cosine to each vector, nearest first; all where there are fewer.

        Args:
            vectors: (queries, size), of any length but 0.
            k: how many for each.
            where: a condition that rows fulfil: values by column (`{"source": "logs", "split": ["train", "valid"]}`; None stands
                for rows without a value), or an SQL expression over the columns, which must not come from a stranger.
            columns: which to give of a row; None: the caller's, without the vector.
            exact: compare with every vector, even where there is an index.

        Raises:
            TableError: if the vectors or the condition do not fit the table.
        """
        if k < 1:
            raise TableError(f"k is {k}: ask for one row at least")
        queries = scaled(vectors, self.size)
        if not len(queries):
            return []
        names = [*dict.fromkeys((KEY, *(self.columns if columns is None else columns))), _DISTANCE]
        query = self._table.search(queries, vector_column_name=VECTOR, query_type="vector")
        query = query.distance_type("cosine").limit(k).select(names)
        index = None if exact else self.index
        query = query.bypass_vector_index() if index is None else query.minimum_nprobes(index.probes).maximum_nprobes(0)
        if where is not None:
            query = query.where(self._condition(where), prefilter=True)
        with _told(f"{self.uri}, table {self.name} cannot be searched"):
            found = query.to_arrow()
        return self._sorted(found, len(queries))

    def _sorted(self, found: pa.Table, queries: int) -> list[list[Row]]:
        rows: list[list[Row]] = [[] for _ in range(queries)]
        numbers = found[_QUERY].to_pylist() if _QUERY in found.schema.names else [0] * len(found)
        similarities = np.clip(1.0 - found[_DISTANCE].to_numpy(), -1.0, 1.0).tolist()
        names = [name for name in found.schema.names if name not in (KEY, _DISTANCE, _QUERY)]
        values = zip(*(plain(found[name]) for name in names), strict=True) if names else iter([()] * len(found))
        for number, key, similarity, held in zip(numbers, found[KEY].to_pylist(), similarities, values, strict=True):
            rows[number].append(Row(key, similarity, dict(zip(names, held, strict=True))))
        # of equal ones always the same comes first, however the rows lie in their files
        return [sorted(each, key=lambda row: (-row.similarity, row.key)) for each in rows]

    def _scan(self, names: Sequence[str], where: str | None) -> pa.Table:
        query = self._table.search().select(list(names))
        if where is not None:
            query = query.where(where)
        with _told(f"{self.uri}, table {self.name} cannot be read"):
            return query.limit(max(1, len(self))).to_arrow()

    def _condition(self, where: Where) -> str:
        return condition(where, kinds_of(self._table.schema))

    # ---- the index

    @property
    def index(self) -> Index | None:
        """The index, and what it finds; None: every search is exact."""
        return indexing.noted(self._table)

    def build_index(
        self, *, recall: float = RECALL, queries: Vectors | None = None, progress: Progress = silent
    ) -> Index:
        """Builds the index anew and measures it.

        Args:
            recall: the share of the nearest rows that it has to find.
            queries: that it is measured by; None: a sample of the table's own vectors.
            progress: told what is done.

        Raises:
            TableError: if the table is empty or cannot be written.
        """
        if not len(self):
            raise TableError(f"{self.uri}, table {self.name} is empty: there is nothing to index")
        asked = None if queries is None else scaled(queries, self.size)
        with self._committed("be indexed"):
            return indexing.build(self._table, recall, asked, progress)

    def settle(self, *, exact_up_to: int = EXACT_UP_TO, recall: float = RECALL, progress: Progress = silent) -> None:
        """What is to be done once much was added: files put together, and an index where the table has outgrown an exact search.

        An index is built anew when the table has doubled: partitions that were found for half of it suit the other half less.

        Args:
            exact_up_to: rows up to which every search is exact.
            recall: the share of the nearest rows that an index has to find.
            progress: told what is done.
        """
        progress("putting files together", 0)
        self.tidy()
        index = self.index
        if len(self) > exact_up_to and (index is None or len(self) >= 2 * index.rows):
            self.build_index(recall=recall, progress=progress)


def _connected(uri: str, storage: Mapping[str, str] | None) -> Any:
    try:
        import lancedb
    except ImportError as error:
        raise TableError("tables of vectors need LanceDB: pip install 'turnwise[serve]'") from error
    return lancedb.connect(uri, read_consistency_interval=_FRESH, storage_options=dict(storage or {}) or None)


@contextmanager
def _told(what: str) -> Iterator[None]:
    """Says what LanceDB, or what it stands on, could not do."""
    try:
        yield
    except (OSError, ValueError, RuntimeError) as error:
        raise TableError(f"{what}: {error}") from error
