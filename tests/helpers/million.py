"""A table of a million made-up vectors: how long it takes to fill, to index and to search, and what the index finds.

    python tests/assist/million.py FOLDER [ROWS]

prints the figures as JSON; FOLDER is left as it is, and a run that was stopped goes on.
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

#: As vectors of texts: few directions hold most of what differs.
_WEIGHTS = (np.arange(1, SIZE + 1) ** -0.5).astype(np.float32)


def made(count: int, seed: int) -> np.ndarray:
    """Vectors that gather about topics, none of them clear of the others."""
    topics = np.random.default_rng(0).standard_normal((TOPICS, SIZE), dtype=np.float32)
    draw = np.random.default_rng([1, seed])
    vectors = (
        topics[draw.integers(0, TOPICS, count)] + 0.8 * draw.standard_normal((count, SIZE), dtype=np.float32)
    ) * _WEIGHTS
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def measure(folder: Path, rows: int) -> dict[str, Any]:
    """The figures; times are medians, in milliseconds."""
    table = VectorTable.open(folder, "million", size=SIZE, columns=pa.schema([pa.field("text", pa.string())]))
    queries, figures = made(QUERIES, rows), {"rows": rows}
    began, added = time.perf_counter(), 0
    for first in range(0, rows, PORTION):
        places = range(first, min(first + PORTION, rows))
        added += table.add(
            [f"{place:09}" for place in places],
            made(len(places), first),
            {"text": [f"text {place}" for place in places]},
        )
        if first < EXACT_UP_TO <= first + PORTION:
            table.compact()
            figures[f"exact, {len(table):,} rows"] = _median(lambda query: table.search(query, 10), queries[:30])
    figures |= {"added": added, "seconds to add": time.perf_counter() - began}
    table.compact()
    figures[f"exact, {len(table):,} rows"] = _median(lambda query: table.search(query, 10, exact=True), queries[:10])
    began = time.perf_counter()
    index = table.build_index(recall=RECALL)
    figures |= {"seconds to index": time.perf_counter() - began, "partitions": index.partitions, "probes": index.probes}
    figures["by the index"] = _median(lambda query: table.search(query, 10), queries)
    right = table.search(queries, 10, exact=True, columns=[])
    found = table.search(queries, 10, columns=[])
    shared = [
        len({row.key for row in one} & {row.key for row in other}) for one, other in zip(right, found, strict=True)
    ]
    return figures | {"recall, own vectors": index.recall, "recall, other vectors": float(np.mean(shared)) / 10}


def _median(search: Callable[[np.ndarray], object], queries: np.ndarray) -> float:
    times = []
    for query in queries:
        began = time.perf_counter()
        search(query[None])
        times.append(time.perf_counter() - began)
    return float(np.median(times)) * 1000


if __name__ == "__main__":
    json.dump(measure(Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 1_000_000), sys.stdout, indent=2)
