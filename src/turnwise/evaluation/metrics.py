"""Metrics with confidence intervals, computed from per-example outcomes.

A task keeps a few numbers for every run and every test example: the *evidence*. A statistic turns evidence into the
value of a metric. Confidence intervals come from the bootstrap: runs and examples are resampled together, because all
runs of a test set share its examples. Two models evaluated on the same examples get the same resamples, so that their
difference is a paired one.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, cast
from zlib import crc32

import numpy as np
import numpy.typing as npt

from turnwise.core.progress import Progress, silent

Array = npt.NDArray[np.float64]
Statistic = Literal["mean", "ratio", "macro ratio", "log ratio", "spearman", "pearson", "auroc", "fpr95"]

#: Identifies a metric: task, data set, setting, metric.
MetricKey = tuple[str, str, str, str]

#: Bootstrap samples of a confidence interval.
BOOTSTRAP_SAMPLES = 1_000

#: Prefixes of metrics for which lower is better.
LOWER_IS_BETTER = (
    "adversary first",
    "alignment",
    "fpr95",
    "mean cosine",
    "share of the first principal component",
    "uniformity",
)

#: λ of semantic compression, as chosen on validation data.
TEMPLATE_SHARE = "share of the template"

#: Time of a model, on the machine named in the results.
MILLISECONDS = "milliseconds a context"

#: The expected value for random answers.
CHANCE = "chance"

#: The proportion of in-scope utterances that are rejected: the target is a requested rate, not the minimum.
FALSE_REJECTION = "false rejection"

#: How many contexts are left out because they have no correct response.
WITHOUT_ANSWER = "contexts without a right response"

#: Metrics by which models are not compared: they describe the data, the settings or the machine.
DESCRIPTIVE_METRICS = (WITHOUT_ANSWER, TEMPLATE_SHARE, MILLISECONDS, CHANCE, FALSE_REJECTION)

#: Number of bootstrap weights that are drawn at once; four times more or fewer were slower.
_MAX_WEIGHTS = 1_000_000


def lower_is_better(metric: str) -> bool:
    """Return whether a lower value of a metric is better."""
    return metric.casefold().startswith(LOWER_IS_BETTER)


@dataclass(frozen=True, slots=True)
class Metric:
    """A metric of a task on a data set; the setting is named as in the paper's tables, such as '1-shot prototypes'."""

    task: str
    dataset: str
    setting: str
    metric: str

    @property
    def key(self) -> MetricKey:
        """Return what identifies the metric: task, data set, setting, metric."""
        return self.task, self.dataset, self.setting, self.metric


@dataclass(frozen=True, slots=True)
class MetricRow(Metric):
    """A metric as `results.json` has it."""

    #: The mean over runs, in the unit of the paper's table, with its standard deviation over runs.
    value: float
    std: float
    #: The bounds of the 95% confidence interval.
    low: float
    high: float
    runs: int
    n: int  # the number of test examples per run
    #: The paper's table that has this metric, and the value there, if any. Where a mean covers a part of the paper's
    #: data sets, `table` says which, and `published` is the mean over the same ones.
    table: str | None = None
    published: float | None = None
    comparable: str | None = None  # why the published value is not comparable; None if it is, or if there is none
    seen: str | None = None  # how many of the test examples the model has seen in training; None if none, or unknown


@dataclass(frozen=True, slots=True)
class Outcome(Metric):
    """A metric with its per-example evidence."""

    evidence: npt.NDArray[np.floating]  # (runs, examples) or (runs, examples, parts), in the order of the test set
    statistic: Statistic = "mean"  # how the value is computed from the evidence
    scale: float = 100.0  # 100 where the paper's table has percentages

    def __post_init__(self) -> None:
        if self.evidence.ndim not in (2, 3) or 0 in self.evidence.shape:
            raise ValueError(f"evidence must be (runs, examples) or (runs, examples, parts), got {self.evidence.shape}")

    @property
    def table(self) -> npt.NDArray[np.floating]:
        """Return the evidence as (runs, examples, parts)."""
        return self.evidence if self.evidence.ndim == 3 else self.evidence[..., None]

    def per_run(self) -> Array:
        """Return the value of each run."""
        return compute_per_run(self.statistic, self.table) * self.scale

    @property
    def value(self) -> float:
        """Return the mean over runs."""
        return float(compute_per_run(self.statistic, self.table).mean() * self.scale)

    def bootstrap(self, seed: int = 0, count: int = BOOTSTRAP_SAMPLES) -> Array:
        """Return the value in each bootstrap sample; equal seeds and shapes give paired samples."""
        return bootstrap(self.statistic, self.table, seed, count) * self.scale

    def row(self) -> MetricRow:
        """Return the metric with its confidence interval."""
        values = self.per_run()
        low, high = confidence_interval(self.bootstrap())
        std = float(values.std(ddof=1)) if len(values) > 1 else 0.0
        return MetricRow(*self.key, self.value, std, low, high, *self.evidence.shape[:2])


def bootstrap_mean(outcomes: Sequence[Outcome], count: int = BOOTSTRAP_SAMPLES) -> Array:
    """Return the mean of several metrics in each bootstrap sample; metrics of one data set share its resamples."""
    return np.asarray(np.mean(bootstrap_outcomes(outcomes, count), axis=0))


def bootstrap_outcomes(
    outcomes: Sequence[Outcome], count: int = BOOTSTRAP_SAMPLES, progress: Progress = silent
) -> list[Array]:
    """Return each metric in each bootstrap sample; those of one data set share its resamples, which are drawn once."""
    groups: dict[tuple[int, int, int], list[int]] = {}
    for number, outcome in enumerate(outcomes):
        seed = crc32(outcome.dataset.encode())
        groups.setdefault((seed, *outcome.table.shape[:2]), []).append(number)
    samples: dict[int, Array] = {}
    for (seed, _, _), numbers in groups.items():

        def report(drawn: int, before: int = len(samples), members: int = len(numbers)) -> None:
            progress("resampling", before * count + drawn * members, len(outcomes) * count)

        evidence = [(outcomes[number].statistic, outcomes[number].table) for number in numbers]
        for number, values in zip(numbers, _bootstrap_together(evidence, seed, count, report), strict=True):
            samples[number] = values * outcomes[number].scale
    return [samples[number] for number in range(len(outcomes))]


def compute_per_run(statistic: Statistic, evidence: npt.NDArray[np.floating]) -> Array:
    """Compute a statistic of every run from evidence (runs, examples, parts).

    'mean' is that of one part; 'ratio' that of the sums of two parts (numerator, denominator); 'macro ratio' the mean
    over several such pairs, where a pair whose denominator is 0 counts as 0 (unless that is only so in a bootstrap
    sample: a rare label that was not sampled is left out); 'log ratio' the logarithm of a ratio; 'spearman' and
    'pearson' are correlations of two parts; 'auroc' and 'fpr95' those of a score (higher: more likely positive) and a
    label (0 or 1).
    """
    values = evidence.astype(np.float64, copy=False)
    return cast(Array, _weighted(statistic, values, np.ones((1, values.shape[1])))[0])


def bootstrap(
    statistic: Statistic, evidence: npt.NDArray[np.floating], seed: int = 0, count: int = BOOTSTRAP_SAMPLES
) -> Array:
    """Compute a statistic, as the mean over runs, in each bootstrap sample; NaN where it is undefined."""
    return _bootstrap_together([(statistic, evidence)], seed, count)[0]


def _bootstrap_together(
    evidence: Sequence[tuple[Statistic, npt.NDArray[np.floating]]],
    seed: int,
    count: int,
    report: Callable[[int], None] = lambda drawn: None,
) -> list[Array]:
    """Compute statistics of evidence with equal numbers of runs and examples, with the same resamples for all."""
    tables = [(statistic, values.astype(np.float64, copy=False)) for statistic, values in evidence]
    runs, examples, _ = tables[0][1].shape
    random = np.random.default_rng(seed)
    run_weights = random.multinomial(runs, np.full(runs, 1 / runs), count) / runs
    samples = np.empty((len(tables), count, runs))
    block = max(1, _MAX_WEIGHTS // examples)
    for first in range(0, count, block):
        weights = _resample(random, min(block, count - first), examples)
        for number, (statistic, values) in enumerate(tables):
            samples[number, first : first + block] = _weighted(statistic, values, weights)
        report(min(first + block, count))
    # a run that was not sampled does not count, even if its value is undefined
    return list(np.where(run_weights > 0, samples * run_weights, 0).sum(2))


def confidence_interval(samples: Array) -> tuple[float, float]:
    """Return the 95% percentile interval of bootstrap samples, ignoring undefined ones."""
    defined = samples[np.isfinite(samples)]
    if not len(defined):
        return float("nan"), float("nan")
    low, high = np.percentile(defined, [2.5, 97.5])
    return float(low), float(high)


def _resample(random: np.random.Generator, count: int, examples: int) -> Array:
    """Return how often each sample has each example: (samples, examples)."""
    sampled = random.integers(0, examples, (count, examples)) + np.arange(count)[:, None] * examples
    return np.bincount(sampled.ravel(), minlength=count * examples).reshape(count, examples).astype(np.float64)


def _weighted(statistic: Statistic, values: Array, weights: Array) -> Array:
    """Compute a statistic (samples, runs) of evidence (runs, examples, parts) with weights (samples, examples)."""
    runs, examples, parts = values.shape
    samples = len(weights)
    with np.errstate(invalid="ignore", divide="ignore"):
        if statistic in _STATISTICS_OF_SUMS:
            sums = weights @ values.transpose(1, 0, 2).reshape(examples, runs * parts)
            return _STATISTICS_OF_SUMS[statistic](sums.reshape(-1, runs, parts), values)
        if statistic in _STATISTICS_OF_SCORES:
            compute, weights = _STATISTICS_OF_SCORES[statistic], weights.T.astype(np.float32, order="C")
        else:
            compute = _STATISTICS_OF_EXAMPLES[statistic]
        # NaN cannot be ranked
        undefined = np.full(samples, np.nan)
        return np.stack(
            [undefined if np.isnan(run).any() else compute(run[:, 0], run[:, 1], weights) for run in values], 1
        )


# ---- statistics of sums (samples, runs, parts) and of what was summed (runs, examples, parts): → (samples, runs)


def _macro_ratio(sums: Array, values: Array) -> Array:
    numerators, denominators = sums[..., 0::2], sums[..., 1::2]
    ratios = np.divide(numerators, denominators, out=np.zeros_like(numerators), where=denominators > 0)
    not_sampled = (denominators == 0) & (values[..., 1::2].sum(1) > 0)
    return cast(Array, ratios.sum(-1) / (~not_sampled).sum(-1))


_STATISTICS_OF_SUMS: dict[str, Callable[[Array, Array], Array]] = {
    "mean": lambda sums, values: sums[..., 0] / values.shape[1],
    "ratio": lambda sums, values: sums[..., 0] / sums[..., 1],
    "macro ratio": _macro_ratio,
    "log ratio": lambda sums, values: np.log(sums[..., 0] / sums[..., 1]),
}


# ---- statistics of two parts (examples,) with weights (samples, examples): → (samples,)
# Values are sorted once for all samples, which only change how often each example counts.


def _pearson(first: Array, second: Array, weights: Array) -> Array:
    """Return the weighted correlation of parts (examples,), or of parts that vary by sample (samples, examples)."""
    total = weights.sum(1)

    def centred(part: Array) -> Array:
        return cast(Array, part - ((weights * part).sum(1) / total)[:, None])

    def constant(part: Array) -> npt.NDArray[np.bool_]:
        sampled = weights > 0
        return np.asarray(np.where(sampled, part, -np.inf).max(1) == np.where(sampled, part, np.inf).min(1))

    x, y = centred(first), centred(second)
    norm = np.sqrt((weights * x**2).sum(1) * (weights * y**2).sum(1))
    # rounding must not produce a correlation with a constant
    return np.where(constant(first) | constant(second), np.nan, (weights * x * y).sum(1) / norm)


def _ranks(part: Array, weights: Array) -> Array:
    """Return ranks from 1 among the sampled examples, ties sharing their mean rank: (samples, examples)."""
    _, starts, place = np.unique(np.sort(part), return_index=True, return_inverse=True)
    order = np.argsort(part, kind="stable")
    equal = np.add.reduceat(weights[:, order], starts, axis=1)
    ranks = np.empty_like(weights)
    ranks[:, order] = (np.cumsum(equal, 1) - (equal - 1) / 2)[:, place]
    return ranks


def _spearman(first: Array, second: Array, weights: Array) -> Array:
    return _pearson(_ranks(first, weights), _ranks(second, weights), weights)


_STATISTICS_OF_EXAMPLES: dict[str, Callable[[Array, Array, Array], Array]] = {
    "spearman": _spearman,
    "pearson": _pearson,
}


# ---- statistics of a score and a label (examples,) with counts (examples, samples): → (samples,)
# Examples come first here: selecting and summing rows is fast, and these two do little else. Counts are float32, which
# is exact up to 16 million examples.


def _count_up_to(counts: Array) -> Array:
    """Return how many there are among the first 0, 1, 2, … examples, in each sample: (examples + 1, samples)."""
    sums = np.zeros((len(counts) + 1, counts.shape[1]), counts.dtype)
    np.cumsum(counts, 0, out=sums[1:])
    return sums


def _auroc(score: Array, label: Array, counts: Array) -> Array:
    """Compute the AUROC: how many negatives are below each positive; ties count half."""
    positives, negatives = np.flatnonzero(label > 0.5), np.flatnonzero(label <= 0.5)
    negatives = negatives[np.argsort(score[negatives], kind="stable")]
    below = _count_up_to(counts[negatives])
    first, last = (np.searchsorted(score[negatives], score[positives], side) for side in ("left", "right"))
    above = np.einsum("ps,ps->s", counts[positives], below[first] + below[last], dtype=np.float64) / 2
    return cast(Array, above / (counts[positives].sum(0, np.float64) * below[-1]))


def _fpr95(score: Array, label: Array, counts: Array) -> Array:
    """Return the false positive rate at the highest threshold that at least 95% of the positives pass."""
    positives, negatives = np.flatnonzero(label > 0.5), np.flatnonzero(label <= 0.5)
    samples = np.arange(counts.shape[1])
    if not len(positives):
        return np.full(len(samples), np.nan)
    positives = positives[np.argsort(-score[positives], kind="stable")]
    negatives = negatives[np.argsort(score[negatives], kind="stable")]
    passing = np.cumsum(counts[positives], 0)
    threshold = score[positives][(passing >= np.ceil(0.95 * passing[-1].astype(np.float64))).argmax(0)]
    below = _count_up_to(counts[negatives])
    rejected = below[np.searchsorted(score[negatives], threshold), samples]
    total = below[-1].astype(np.float64)
    return np.where(passing[-1] > 0, (total - rejected) / total, np.nan)


_STATISTICS_OF_SCORES: dict[str, Callable[[Array, Array, Array], Array]] = {"auroc": _auroc, "fpr95": _fpr95}
