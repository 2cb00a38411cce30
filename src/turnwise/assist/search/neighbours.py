"""Exact nearest-neighbour search by cosine similarity, in memory."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from turnwise.core.progress import Progress, silent

#: Similarities that are held in memory at a time.
_BLOCK = 2**24

#: Queries between two progress reports, at most.
_QUERIES = 1_024

#: An upper bound of the rounding error of a cosine similarity in single precision.
_MARGIN = 1e-5


@dataclass(frozen=True, slots=True)
class Neighbours:
    """The nearest rows of each query, nearest first (queries, k), and their cosine similarities."""

    rows: npt.NDArray[np.int64]
    similarities: npt.NDArray[np.float64]


def nearest_neighbours(
    queries: npt.NDArray[np.float32],
    vectors: npt.NDArray[np.float32],
    k: int,
    progress: Progress = silent,
    description: str = "finding neighbours",
) -> Neighbours:
    """Return the k rows with the highest cosine similarity to each query, highest first; ties by row number.

    Queries (queries, size) and vectors (rows, size), at least one, are of length 1. If there are fewer than k rows, all
    are returned. `progress` receives the number of finished queries, with `description`.
    """
    k = min(k, len(vectors))
    rows = np.empty((len(queries), k), np.int64)
    similarities = np.empty((len(queries), k))
    block = min(_QUERIES, max(1, _BLOCK // len(vectors)))
    for first in range(0, len(queries), block):
        for query, cosines in enumerate(queries[first : first + block] @ vectors.T, first):
            # A matrix product may round equal vectors differently: recompute every candidate for the first k.
            near = np.flatnonzero(cosines >= np.partition(cosines, -k)[-k] - _MARGIN)
            exact = (vectors[near].astype(np.float64) * queries[query]).sum(1)
            order = np.argsort(-exact, kind="stable")[:k]
            rows[query], similarities[query] = near[order], exact[order]
        progress(description, min(first + block, len(queries)), len(queries))
    return Neighbours(rows, similarities)
