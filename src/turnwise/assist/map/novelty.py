"""What is new: texts unlike any that were there before.

A text is new where its cosine with the nearest earlier text is lower than that of nearly every earlier text with its own nearest.
The earlier texts set the measure themselves: where all is varied, it takes more to be new.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from turnwise.assist.map.reduction import Vectors
from turnwise.assist.search.neighbours import nearest_neighbours
from turnwise.core.progress import Progress, silent

#: The share of earlier texts that would count as new among the others.
FALSE_ALARMS = 0.01


@dataclass(frozen=True, slots=True)
class Novelty:
    """How new texts are.

    Attributes:
        nearest: for each text the row of the nearest earlier one.
        similarity: the cosine with it.
        threshold: below it a text is new.
        new: whether it is.
    """

    nearest: npt.NDArray[np.int64]
    similarity: npt.NDArray[np.float64]
    threshold: float
    new: npt.NDArray[np.bool_]


def novelty(vectors: Vectors, earlier: Vectors, *, progress: Progress = silent) -> Novelty:
    """How new texts are to earlier ones.

    Args:
        vectors: of length 1 (texts, size).
        earlier: of length 1 (earlier texts, size), two at least.
        progress: told how many are compared.
    """
    # the nearest is the text itself, or one with the same vector
    among = nearest_neighbours(
        earlier, earlier, 2, description="comparing earlier texts", progress=progress
    ).similarities[:, 1]
    threshold = float(np.quantile(among, FALSE_ALARMS))
    found = nearest_neighbours(vectors, earlier, 1, description="comparing with earlier texts", progress=progress)
    return Novelty(found.rows[:, 0], found.similarities[:, 0], threshold, found.similarities[:, 0] < threshold)
