"""The approximate index of a vector table: vectors in partitions, of which a query reads the nearest.

Recall depends on how many partitions are read. It is measured against an exact search, and the number of partitions is
raised until the requested recall is reached.
"""

import json
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from turnwise.assist.search.schema import KEY, VECTOR, as_matrix
from turnwise.core.progress import Progress
from turnwise.core.types import Vectors

#: Recall is measured over so many nearest rows, with so many queries.
_NEAREST, _QUERIES = 10, 100

#: Rows per partition.
_PARTITION_ROWS = 1_000

#: k-means for partitions: vectors sampled per partition, and iterations. Four times as many gain little.
_SAMPLE_RATE, _ITERATIONS = 64, 20

#: Partitions read at first when recall is measured.
_PROBES = 8

_METADATA = b"turnwise"
_NAME = "vector_idx"


@dataclass(frozen=True, slots=True)
class VectorIndex:
    """How an index is searched, and its recall."""

    rows: int  # in the table when recall was measured
    partitions: int
    probes: int  # partitions read per query
    recall: float  # the fraction of the ten nearest rows that is found


def read_index(table: Any) -> VectorIndex | None:
    """Return the index of a LanceDB table; None if it has none, or none that was measured."""
    stored = (table.schema.field(VECTOR).metadata or {}).get(_METADATA)
    return VectorIndex(**json.loads(stored)) if stored else None


def index_keys(table: Any) -> None:
    """Build an index of the keys, so that insertions need not read all of them."""
    from lancedb.index import BTree

    if table.count_rows() and not any(index.columns == [KEY] for index in table.list_indices()):
        table.create_index(KEY, config=BTree())


def build_index(table: Any, recall: float, queries: Vectors | None, progress: Progress) -> VectorIndex:
    """Build the index of a LanceDB table, measure its recall, and store the result in the table's metadata.

    Recall is measured with `queries`, or with a sample of the table's vectors (not as their own neighbours).
    """
    from lancedb.index import IvfFlat

    rows = int(table.count_rows())
    partitions = max(1, round(rows / _PARTITION_ROWS))
    progress("building the index", 0)
    config = IvfFlat(
        distance_type="cosine", num_partitions=partitions, max_iterations=_ITERATIONS, sample_rate=_SAMPLE_RATE
    )
    _store(table, None)  # searches must not use the measurements of the previous index
    table.create_index(VECTOR, config=config, name=_NAME, replace=True)
    skip = 1 if queries is None else 0
    sample = _sample(table, rows) if queries is None else queries[:_QUERIES]
    exact = _search(table, sample, _NEAREST + skip, None)
    probes = min(_PROBES, partitions)
    while True:
        progress(f"measuring the index: {probes} of {partitions:,} partitions", 0)
        measured = _recall(_search(table, sample, _NEAREST + skip, probes), exact, skip)
        if measured >= recall or probes >= partitions:
            break
        probes = min(2 * probes, partitions)
    index = VectorIndex(rows, partitions, probes, measured)
    _store(table, index)
    return index


def _store(table: Any, index: VectorIndex | None) -> None:
    text = json.dumps(asdict(index)) if index is not None else ""
    table.update_field_metadata({"path": VECTOR, "metadata": {_METADATA.decode(): text}})


def _sample(table: Any, rows: int) -> Vectors:
    sample = np.random.default_rng(0).choice(rows, min(_QUERIES, rows), replace=False)
    return as_matrix(table.take_offsets(sorted(sample.tolist())).select([VECTOR]).to_arrow()[VECTOR])


def _search(table: Any, queries: Vectors, k: int, probes: int | None) -> list[list[int]]:
    """Return the row ids nearest to each query, nearest first; probes None: by an exact search."""
    query = table.search(queries, vector_column_name=VECTOR, query_type="vector").distance_type("cosine").limit(k)
    query = query.bypass_vector_index() if probes is None else query.nprobes(probes)
    hits = query.select(["_distance"]).with_row_id(True).to_arrow()
    numbers = hits["query_index"].to_numpy() if len(queries) > 1 else np.zeros(len(hits), np.int64)
    order = np.lexsort((hits["_distance"].to_numpy(), numbers))
    row_ids: list[list[int]] = [[] for _ in queries]
    for number, row_id in zip(numbers[order].tolist(), hits["_rowid"].to_numpy()[order].tolist(), strict=True):
        row_ids[number].append(row_id)
    return row_ids


def _recall(approximate: list[list[int]], exact: list[list[int]], skip: int) -> float:
    """Return the mean fraction of the exact neighbours that were found; the first `skip` of each do not count."""
    recalls = [
        len(set(expected[skip:]) & set(rows)) / max(1, len(expected) - skip)
        for rows, expected in zip(approximate, exact, strict=True)
    ]
    return float(np.mean(recalls))
