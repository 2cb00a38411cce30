"""How well an order mixes: what examples of one batch have in common, beside what they would have in a shuffle of everything."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from turnwise.training.order import Order

_Numbers = npt.NDArray[np.integer]


@dataclass(frozen=True, slots=True)
class Mixing:
    """How a pass over examples mixes their groups (dialogues, stores, …).

    Attributes:
        together: of two examples of one batch, how often they are of one group.
        chance: how often two examples are in a shuffle of everything.
        correlation: of the places in the corpus with those in the order, from −1 to 1; a shuffle's is near 0.
    """

    together: float
    chance: float
    correlation: float


def mixing(order: Order, batch_size: int, groups: _Numbers, passed: int = 0) -> Mixing:
    """Measures a pass; it is held as a whole, so a corpus of millions of examples will do.

    Args:
        order: what is measured.
        batch_size: examples of a step.
        groups: for every example, the number of its group, from 0.
        passed: which pass.
    """
    rows = order.rows(passed, 0, len(order))
    batches = np.arange(len(rows)) // batch_size
    # a number for each group in each batch
    joint = np.unique(batches * (int(groups.max()) + 1) + groups[rows], return_counts=True)[1]
    _, sizes = np.unique(batches, return_counts=True)
    _, every = np.unique(groups[rows], return_counts=True)
    return Mixing(
        together=_pairs(joint) / max(1, _pairs(sizes)),
        chance=_pairs(every) / max(1, _pairs(np.array([len(rows)]))),
        correlation=float(np.corrcoef(rows, np.arange(len(rows)))[0, 1]),
    )


def _pairs(counts: _Numbers) -> int:
    """How many pairs there are within groups of these sizes."""
    counts = counts.astype(np.int64)
    return int((counts * (counts - 1)).sum()) // 2
