"""From what was seen of each example to a figure, and how far to trust it.

A task keeps, for every run and every test example, a few numbers: its *evidence*. A statistic turns evidence into a figure.
Intervals come from the bootstrap: runs and examples are drawn anew together, because runs of one test set share its examples. Two
models seen on the same examples get the same drawings, so that their difference is a paired one.
"""

from collections.abc import Callable
from typing import Literal, cast

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]
Statistic = Literal["mean", "ratio", "macro ratio", "log ratio", "spearman", "pearson", "auroc", "fpr95"]

#: Bootstrap drawings of an interval.
DRAWINGS = 1_000

#: Memory that the drawings of one figure may take at a time, in numbers.
_BLOCK = 4_000_000


def figures(statistic: Statistic, evidence: npt.NDArray[np.floating]) -> Array:
    """The figure of every run.

    Args:
        statistic: 'mean' of one part; 'ratio' of the sums of two (numerator, denominator); 'macro ratio', the mean over several
            such pairs, a pair that has nothing to say counting as 0 (one that merely has nothing to say in a drawing of the
            bootstrap is left out there: a rare label that was not drawn is no failure); 'log ratio', the logarithm of a ratio;
            'spearman' and 'pearson' correlation of two parts; 'auroc' and 'fpr95' of a score (higher: more likely positive) and a
            truth (0 or 1).
        evidence: (runs, examples, parts).
    """
    values = evidence.astype(np.float64, copy=False)
    return cast(Array, _weighted(statistic, values, np.ones((1, values.shape[1])))[0])


def drawings(statistic: Statistic, evidence: npt.NDArray[np.floating], seed: int = 0, count: int = DRAWINGS) -> Array:
    """The figure, as the mean over runs, in every drawing of the bootstrap; NaN where it is undefined."""
    values = evidence.astype(np.float64, copy=False)
    runs, examples, _ = values.shape
    random = np.random.default_rng(seed)
    run_weights = random.multinomial(runs, np.full(runs, 1 / runs), count) / runs
    found = np.empty((count, runs))
    block = max(1, _BLOCK // examples)
    for first in range(0, count, block):
        found[first : first + block] = _weighted(statistic, values, _drawn(random, min(block, count - first), examples))
    # a run that was not drawn has no say, even where its figure is undefined
    return cast(Array, np.where(run_weights > 0, found * run_weights, 0).sum(1))


def interval(drawn: Array) -> tuple[float, float]:
    """The 95% percentile interval of drawings; those in which the figure is undefined are left out."""
    defined = drawn[np.isfinite(drawn)]
    if not len(defined):
        return float("nan"), float("nan")
    low, high = np.percentile(defined, [2.5, 97.5])
    return float(low), float(high)


def _drawn(random: np.random.Generator, count: int, examples: int) -> Array:
    """How often each drawing has each example: (drawings, examples)."""
    drawn = random.integers(0, examples, (count, examples)) + np.arange(count)[:, None] * examples
    return np.bincount(drawn.ravel(), minlength=count * examples).reshape(count, examples).astype(np.float64)


def _weighted(statistic: Statistic, values: Array, weights: Array) -> Array:
    """Figures (drawings, runs) of evidence (runs, examples, parts) in which examples count (drawings, examples) times."""
    runs, examples, parts = values.shape
    with np.errstate(invalid="ignore", divide="ignore"):
        if statistic in _OF_SUMS:
            sums = weights @ values.transpose(1, 0, 2).reshape(examples, runs * parts)
            return _OF_SUMS[statistic](sums.reshape(-1, runs, parts), values)
        of_examples = _OF_EXAMPLES[statistic]
        # NaN has no place in an order
        undefined = np.full(len(weights), np.nan)
        return np.stack(
            [undefined if np.isnan(run).any() else of_examples(run[:, 0], run[:, 1], weights) for run in values], 1
        )


# ---- statistics of sums: (drawings, runs, parts), and what was summed, (runs, examples, parts) → (drawings, runs)


def _mean(sums: Array, values: Array) -> Array:
    return cast(Array, sums[..., 0] / values.shape[1])


def _ratio(sums: Array, values: Array) -> Array:
    return sums[..., 0] / sums[..., 1]


def _macro_ratio(sums: Array, values: Array) -> Array:
    above, below = sums[..., 0::2], sums[..., 1::2]
    ratios = np.divide(above, below, out=np.zeros_like(above), where=below > 0)
    missed = (below == 0) & (values[..., 1::2].sum(1) > 0)
    return cast(Array, ratios.sum(-1) / (~missed).sum(-1))


def _log_ratio(sums: Array, values: Array) -> Array:
    return np.log(_ratio(sums, values))


_OF_SUMS: dict[str, Callable[[Array, Array], Array]] = {
    "mean": _mean,
    "ratio": _ratio,
    "macro ratio": _macro_ratio,
    "log ratio": _log_ratio,
}


# ---- statistics of all examples together: two parts (examples,) and weights (drawings, examples) → (drawings,)
# Values are sorted once for all drawings, which only change how often each of them counts.


def _pearson(first: Array, second: Array, weights: Array) -> Array:
    """Of parts (examples,), or of parts that differ between drawings (drawings, examples)."""
    total = weights.sum(1)

    def centred(part: Array) -> Array:
        return cast(Array, part - ((weights * part).sum(1) / total)[:, None])

    def constant(part: Array) -> npt.NDArray[np.bool_]:
        drawn = weights > 0
        return np.asarray(np.where(drawn, part, -np.inf).max(1) == np.where(drawn, part, np.inf).min(1))

    across, up = centred(first), centred(second)
    norm = np.sqrt((weights * across**2).sum(1) * (weights * up**2).sum(1))
    # rounding must not make a correlation of what does not vary
    return np.where(constant(first) | constant(second), np.nan, (weights * across * up).sum(1) / norm)


def _ranks(part: Array, weights: Array) -> Array:
    """The rank of each example among those drawn, from 1, equal values sharing their mean rank: (drawings, examples)."""
    _, starts, place = np.unique(np.sort(part), return_index=True, return_inverse=True)
    order = np.argsort(part, kind="stable")
    equal = np.add.reduceat(weights[:, order], starts, axis=1)
    ranks = np.empty_like(weights)
    ranks[:, order] = (np.cumsum(equal, 1) - (equal - 1) / 2)[:, place]
    return ranks


def _spearman(first: Array, second: Array, weights: Array) -> Array:
    return _pearson(_ranks(first, weights), _ranks(second, weights), weights)


def _auroc(score: Array, truth: Array, weights: Array) -> Array:
    """By the rank sum of the positives; a positive and a negative of equal score count half."""
    positive = truth > 0.5
    positives, negatives = weights[:, positive].sum(1), weights[:, ~positive].sum(1)
    above = (weights * _ranks(score, weights))[:, positive].sum(1) - positives * (positives + 1) / 2
    return cast(Array, above / (positives * negatives))


def _fpr95(score: Array, truth: Array, weights: Array) -> Array:
    """The share of negatives that pass at the highest threshold which at least 95% of the positives pass."""
    positive = truth > 0.5
    order = np.argsort(-score[positive], kind="stable")
    passing = np.cumsum(weights[:, positive][:, order], 1)
    if not passing.size:
        return np.full(len(weights), np.nan)
    last = (passing >= np.ceil(0.95 * passing[:, -1:])).argmax(1)
    threshold = np.where(passing[:, -1] > 0, score[positive][order][last], np.nan)
    negatives = weights[:, ~positive]
    passed = (negatives * (score[~positive] >= threshold[:, None])).sum(1) / negatives.sum(1)
    return np.where(np.isnan(threshold), np.nan, passed)


_OF_EXAMPLES: dict[str, Callable[[Array, Array, Array], Array]] = {
    "spearman": _spearman,
    "pearson": _pearson,
    "auroc": _auroc,
    "fpr95": _fpr95,
}
