"""How well candidates are ranked: where the right ones stand, and what is said of that.

Ties never favour the model: among equal scores wrong candidates come first, and a score that is not a number counts against it.
"""

from typing import Any, cast

import numpy as np
import numpy.typing as npt

Ranks = npt.NDArray[np.int64]


def ranks(scores: npt.NDArray[np.floating[Any]], labels: npt.NDArray[np.bool_]) -> Ranks:
    """The ranks (from 1) of the right candidates of one context, best first; among equal scores wrong ones come first."""
    against = np.where(labels, -np.inf, np.inf)
    known = np.where(np.isnan(scores), against, scores)
    return cast(Ranks, np.flatnonzero(labels[np.lexsort((labels, -known))]) + 1)


def truth_ranks(
    truth: npt.NDArray[np.floating[Any]], scores: npt.NDArray[np.floating[Any]], wrong: npt.NDArray[np.bool_]
) -> Ranks:
    """The rank (from 1) of the one right candidate of every question.

    Args:
        truth: its score (questions,).
        scores: of all candidates (questions, candidates).
        wrong: which of them stand against it (questions, candidates); the others do not count.
    """
    return cast(Ranks, 1 + (wrong & ~(scores < truth[:, None])).sum(1))


def average_precision(found: Ranks) -> float:
    """The mean, over the right candidates, of the share of right ones down to each; `found`: their ranks, best first."""
    return float((np.arange(1, len(found) + 1) / found).mean())


def reciprocal_rank(found: Ranks) -> float:
    """One over the rank of the best right candidate; `found`: the right ones' ranks, best first."""
    return 1 / float(found[0])


def recall_at(found: Ranks, cutoff: int) -> float:
    """The share of the right candidates that stand among the first so many; `found`: their ranks."""
    return float((found <= cutoff).mean())


def precision_at_one(found: Ranks) -> float:
    """Whether the first candidate is a right one; `found`: the right ones' ranks, best first."""
    return float(found[0] == 1)
