"""Time to fill, index and search a table of a million synthetic vectors, and the recall of its index.

    python benchmarks/million_vectors.py FOLDER [ROWS]

prints the measurements as JSON. FOLDER is kept, and an interrupted run continues.
"""

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from turnwise.assist.search.table import EXACT_UP_TO, RECALL, VectorTable

SIZE, TOPICS, PORTION, QUERIES = 384, 2_000, 8_192, 100

#: As for text embeddings, a few directions carry most of the variance.
_WEIGHTS = (np.arange(1, SIZE + 1) ** -0.5).astype(np.float32)


def make_vectors(count: int, seed: int) -> np.ndarray:
    """Return normalised vectors around overlapping topics."""
    topics = np.random.default_rng(0).standard_normal((TOPICS, SIZE), dtype=np.float32)
    random = np.random.default_rng([1, seed])
    vectors = (
        topics[random.integers(0, TOPICS, count)] + 0.8 * random.standard_normal((count, SIZE), dtype=np.float32)
    ) * _WEIGHTS
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def measure(folder: Path, rows: int) -> dict[str, Any]:
    """Return the measurements; search times are medians in milliseconds."""
    table = VectorTable.open(folder, "million", size=SIZE, columns=pa.schema([pa.field("text", pa.string())]))
    queries, metrics = make_vectors(QUERIES, rows), {"rows": rows}
    start, added = time.perf_counter(), 0
    for first in range(0, rows, PORTION):
        places = range(first, min(first + PORTION, rows))
        added += table.add(
            [f"{place:09}" for place in places],
            make_vectors(len(places), first),
            {"text": [f"text {place}" for place in places]},
        )
        if first < EXACT_UP_TO <= first + PORTION:
            table.compact()
            metrics[f"exact, {len(table):,} rows"] = _median(lambda query: table.search(query, 10), queries[:30])
    metrics |= {"added": added, "seconds to add": time.perf_counter() - start}
    table.compact()
    metrics[f"exact, {len(table):,} rows"] = _median(lambda query: table.search(query, 10, exact=True), queries[:10])
    start = time.perf_counter()
    index = table.build_index(recall=RECALL)
    metrics |= {"seconds to index": time.perf_counter() - start, "partitions": index.partitions, "probes": index.probes}
    metrics["by the index"] = _median(lambda query: table.search(query, 10), queries)
    exact = table.search(queries, 10, exact=True)
    approximate = table.search(queries, 10)
    shared = [
        len({row.key for row in one} & {row.key for row in other})
        for one, other in zip(exact, approximate, strict=True)
    ]
    return metrics | {"recall, own vectors": index.recall, "recall, other vectors": float(np.mean(shared)) / 10}


def _median(search: Callable[[np.ndarray], object], queries: np.ndarray) -> float:
    times = []
    for query in queries:
        start = time.perf_counter()
        search(query[None])
        times.append(time.perf_counter() - start)
    return float(np.median(times)) * 1000


if __name__ == "__main__":
    json.dump(measure(Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 1_000_000), sys.stdout, indent=2)
