"""The index of a table of vectors: vectors lie in partitions, and a query is compared with those of the nearest partitions alone.

What that finds depends on how many partitions are read. So it is measured, against an exact search, and as many are read as it
takes to find the share that is asked for.
"""

import json
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from turnwise.core.progress import Progress

#: How many nearest rows a recall is measured over.
MEASURED = 10

#: Queries that it is measured by.
_QUERIES = 100

#: Rows of a partition.
_PARTITION = 1_000

#: How partitions are found: vectors of each that are looked at, and how often. Four times as many find little more.
_SAMPLED, _ITERATIONS = 64, 20

#: Partitions that are read at first, when it is measured.
_PROBES = 8

_NOTE = b"turnwise"
_NAME = "vector_idx"

Vectors = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Index:
    """How an index is searched, and what that finds.

    Attributes:
        rows: that were in the table when it was measured.
        partitions: into which the vectors were put.
        probes: partitions that are read for a query.
        recall: the share of the `MEASURED` nearest rows that it found.
    """

    rows: int
    partitions: int
    probes: int
    recall: float


def noted(table: Any) -> Index | None:
    """The index of a table of LanceDB; None: it has none, or none that was measured."""
    note = table.schema.field("vector").metadata or {}
    return Index(**json.loads(note[_NOTE])) if note.get(_NOTE) else None


def index_keys(table: Any, column: str) -> None:
    """Lets rows be found by their keys without reading all keys, which every addition would do otherwise."""
    from lancedb.index import BTree

    if table.count_rows() and not any(index.columns == [column] for index in table.list_indices()):
        table.create_index(column, config=BTree())


def build(table: Any, recall: float, queries: Vectors | None, progress: Progress) -> Index:
    """Builds the index of a table of LanceDB anew, measures it, and notes what was measured with the table.

    Args:
        table: of LanceDB.
        recall: the share of the nearest rows that it has to find.
        queries: that it is measured by; None: vectors of the table, each of which does not count as near to itself.
        progress: told what is done.
    """
    from lancedb.index import IvfFlat

    rows = int(table.count_rows())
    partitions = max(1, round(rows / _PARTITION))
    progress("building the index", 0)
    config = IvfFlat(
        distance_type="cosine", num_partitions=partitions, max_iterations=_ITERATIONS, sample_rate=_SAMPLED
    )
    # a search must not go by what was measured of another index
    _note(table, None)
    table.create_index("vector", config=config, name=_NAME, replace=True)
    asked = _sampled(table, rows) if queries is None else queries[:_QUERIES]
    itself = 1 if queries is None else 0
    wanted = _nearest(table, asked, MEASURED + itself, None)
    probes, found = min(_PROBES, partitions), 0.0
    while True:
        progress(f"measuring the index: {probes} of {partitions:,} partitions", 0)
        found = _recall(_nearest(table, asked, MEASURED + itself, probes), wanted, itself)
        if found >= recall or probes >= partitions:
            break
        probes = min(2 * probes, partitions)
    index = Index(rows, partitions, probes, found)
    _note(table, index)
    return index


def _note(table: Any, index: Index | None) -> None:
    text = json.dumps(asdict(index)) if index is not None else ""
    table.update_field_metadata({"path": "vector", "metadata": {_NOTE.decode(): text}})


def _sampled(table: Any, rows: int) -> Vectors:
    places = np.random.default_rng(0).choice(rows, min(_QUERIES, rows), replace=False)
    column: pa.ChunkedArray = table.take_offsets(sorted(places.tolist())).select(["vector"]).to_arrow()["vector"]
    flat: Vectors = column.combine_chunks().flatten().to_numpy()
    return flat.reshape(len(column), -1)


def _nearest(table: Any, queries: Vectors, k: int, probes: int | None) -> list[list[int]]:
    """The rows nearest to each query, nearest first; by an exact search where probes are None."""
    query = table.search(queries, vector_column_name="vector", query_type="vector").distance_type("cosine").limit(k)
    query = query.bypass_vector_index() if probes is None else query.nprobes(probes)
    found = query.select(["_distance"]).with_row_id(True).to_arrow()
    numbers = found["query_index"].to_numpy() if len(queries) > 1 else np.zeros(len(found), np.int64)
    order = np.lexsort((found["_distance"].to_numpy(), numbers))
    lists: list[list[int]] = [[] for _ in queries]
    for number, row in zip(numbers[order].tolist(), found["_rowid"].to_numpy()[order].tolist(), strict=True):
        lists[number].append(row)
    return lists


def _recall(found: list[list[int]], wanted: list[list[int]], itself: int) -> float:
    """The share of the wanted rows that were found; the first `itself` of each do not count."""
    shares = [
        len(set(near[itself:]) & set(rows)) / max(1, len(near) - itself)
        for rows, near in zip(found, wanted, strict=True)
    ]
    return float(np.mean(shares))
