"""The nearest of many vectors to many others, with progress."""

import numpy as np
import numpy.typing as npt

from turnwise.assist.responses.selector import Retrieved, nearest
from turnwise.core.progress import Progress, silent

#: Vectors whose neighbours are sought between two reports of progress.
_PORTION = 1_024


def neighbours(
    queries: npt.NDArray[np.float32],
    vectors: npt.NDArray[np.float32],
    count: int,
    what: str = "finding neighbours",
    *,
    progress: Progress = silent,
) -> Retrieved:
    """What `nearest` finds: exact, so that nothing hangs on chance.

    Args:
        queries: of length 1 (queries, size).
        vectors: of length 1 (rows, size), one at least.
        count: how many for each; all where there are fewer.
        what: is being done.
        progress: told for how many it is.
    """
    count = min(count, len(vectors))
    found = Retrieved(np.empty((len(queries), count), np.int64), np.empty((len(queries), count)))
    for first in range(0, len(queries), _PORTION):
        portion = slice(first, first + _PORTION)
        near = nearest(queries[portion], vectors, count)
        found.rows[portion], found.similarities[portion] = near.rows, near.similarities
        progress(what, min(first + _PORTION, len(queries)), len(queries))
    return found
