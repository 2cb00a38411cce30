"""Metrics with confidence intervals, computed from per-example outcomes.

A task keeps a few numbers for every run and every test example: the *evidence*. A statistic turns evidence into the
value of a metric. Confidence intervals come from the bootstrap: runs and examples are resampled together, because all
runs of a test set share its examples. Two models evaluated on the same examples get the same resamples, so that their
difference is a paired one.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b
from typing import Literal, cast
from zlib import crc32

import numpy as np
import numpy.typing as npt

from turnwise.core.progress import Progress, silent

Array = npt.NDArray[np.float64]
Evidence = npt.NDArray[np.floating]
Statistic = Literal["mean", "ratio", "macro ratio", "log ratio", "spearman", "pearson", "auroc", "fpr95"]

MetricKey = tuple[str, str, str, str]  # identifies a metric: task, data set, setting, metric
BOOTSTRAP_SAMPLES = 1_000  # bootstrap samples of a confidence interval

#: Prefixes of metrics for which lower is better.
LOWER_IS_BETTER = (
    "adversary first",
    "alignment",
    "fpr95",
    "mean cosine",
    "variance of the first principal component",
    "uniformity",
)

TEMPLATE_WEIGHT = "template weight"  # λ of semantic compression, as chosen on validation data
MILLISECONDS = "milliseconds a context"  # time of a model, on the machine named in the results
CHANCE = "chance"  # the expected value for random answers

#: The proportion of in-scope utterances that are rejected: the target is a requested rate, not the minimum.
FALSE_REJECTION = "false rejection"

#: How many contexts are left out because they have no correct response.
WITHOUT_ANSWER = "contexts without a right response"

#: Metrics by which models are not compared: they describe the data, the settings or the machine.
DESCRIPTIVE_METRICS = (WITHOUT_ANSWER, TEMPLATE_WEIGHT, MILLISECONDS, CHANCE, FALSE_REJECTION)

_MAX_WEIGHTS = 1_000_000  # number of bootstrap weights that are drawn at once; four times more or fewer were slower


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

    evidence: Evidence  # (runs, examples) or (runs, examples, parts), in the order of the test set
    statistic: Statistic = "mean"  # how the value is computed from the evidence
    scale: float = 100.0  # 100 where the paper's table has percentages

    def __post_init__(self) -> None:
        if self.evidence.ndim not in (2, 3) or 0 in self.evidence.shape:
            raise ValueError(f"evidence must be (runs, examples) or (runs, examples, parts), got {self.evidence.shape}")

    @property
    def table(self) -> Evidence:
        """Return the evidence as (runs, examples, parts)."""
        return self.evidence if self.evidence.ndim == 3 else self.evidence[..., None]

    def per_run(self) -> Array:
        """Return the value of each run."""
        return compute_per_run(self.statistic, self.table) * self.scale

    @property
    def value(self) -> float:
        """Return the mean over runs."""
        return float(compute_per_run(self.statistic, self.table).mean() * self.scale)

    def row(self) -> MetricRow:
        """Return the metric with its confidence interval."""
        return metric_rows([self])[0]


def metric_rows(outcomes: Sequence[Outcome]) -> list[MetricRow]:
    """Return metrics with their confidence intervals; those with equal numbers of runs and examples share resamples."""
    rows = []
    for outcome, samples in zip(outcomes, bootstrap_outcomes(outcomes, seed=0), strict=True):
        values = compute_per_run(outcome.statistic, outcome.table)
        std = float((values * outcome.scale).std(ddof=1)) if len(values) > 1 else 0.0
        value = float(values.mean() * outcome.scale)
        rows.append(MetricRow(*outcome.key, value, std, *confidence_interval(samples), *outcome.evidence.shape[:2]))
    return rows


def bootstrap_mean(outcomes: Sequence[Outcome], count: int = BOOTSTRAP_SAMPLES) -> Array:
    """Return the mean of several metrics in each bootstrap sample; metrics of one data set share its resamples."""
    return np.asarray(np.mean(bootstrap_outcomes(outcomes, count), axis=0))


def bootstrap_outcomes(
    outcomes: Sequence[Outcome], count: int = BOOTSTRAP_SAMPLES, progress: Progress = silent, *, seed: int | None = None
) -> list[Array]:
    """Return each metric in each bootstrap sample; equal sizes of one data set, or with a seed, share resamples."""
    groups: dict[tuple[int, int, int], list[int]] = {}
    for number, outcome in enumerate(outcomes):
        own_seed = crc32(outcome.dataset.encode()) if seed is None else seed
        groups.setdefault((own_seed, *outcome.table.shape[:2]), []).append(number)
    samples: dict[int, Array] = {}
    for (group_seed, _, _), numbers in groups.items():

        def report(drawn: int, before: int = len(samples), members: int = len(numbers)) -> None:
            progress("resampling", before * count + drawn * members, len(outcomes) * count)

        evidence = [(outcomes[number].statistic, outcomes[number].table) for number in numbers]
        for number, values in zip(numbers, _bootstrap_together(evidence, group_seed, count, report), strict=True):
            samples[number] = values * outcomes[number].scale
    return [samples[number] for number in range(len(outcomes))]


def compute_per_run(statistic: Statistic, evidence: Evidence) -> Array:
    """Compute a statistic of every run from evidence (runs, examples, parts).

    'mean' is that of one part; 'ratio' that of the sums of two parts (numerator, denominator); 'macro ratio' the mean
    over several such pairs, where a pair whose denominator is 0 counts as 0 (unless that is only so in a bootstrap
    sample: a rare label that was not sampled is left out); 'log ratio' the logarithm of a ratio; 'spearman' and
    'pearson' are correlations of two parts; 'auroc' and 'fpr95' those of a score (higher: more likely positive) and a
    label (0 or 1).
    """
    columns = _DistinctColumns(evidence.shape[1])
    compute = _prepare(statistic, evidence, columns)
    weights = _Weights(np.ones((1, evidence.shape[1])))
    with np.errstate(invalid="ignore", divide="ignore"):
        return cast(Array, compute(weights, weights.values @ columns.as_matrix())[0])


def _bootstrap_together(
    evidence: Sequence[tuple[Statistic, Evidence]], seed: int, count: int, report: Callable[[int], None]
) -> list[Array]:
    """Compute statistics (NaN: undefined) of evidence of equal runs and examples, with the same resamples for all."""
    runs, examples, _ = evidence[0][1].shape
    columns = _DistinctColumns(examples)
    statistics = [_prepare(statistic, values, columns) for statistic, values in evidence]
    matrix = columns.as_matrix()
    random = np.random.default_rng(seed)
    run_weights = random.multinomial(runs, np.full(runs, 1 / runs), count) / runs
    samples = np.empty((len(evidence), count, runs))
    block = max(1, _MAX_WEIGHTS // examples)
    for first in range(0, count, block):
        drawn = min(block, count - first)
        sampled = random.integers(0, examples, (drawn, examples)) + np.arange(drawn)[:, None] * examples
        counts = np.bincount(sampled.ravel(), minlength=drawn * examples)
        weights = _Weights(counts.reshape(drawn, examples).astype(np.float64))
        sums = weights.values @ matrix
        with np.errstate(invalid="ignore", divide="ignore"):
            for number, compute in enumerate(statistics):
                samples[number, first : first + block] = compute(weights, sums)
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


@dataclass(frozen=True)  # no slots: the counts are cached in the instance
class _Weights:
    """How often each bootstrap sample has each example."""

    values: Array  # (samples, examples)

    @cached_property
    def counts(self) -> npt.NDArray[np.float32]:
        """The same as (examples, samples); 32 bits are exact up to 16 million examples."""
        return self.values.T.astype(np.float32, order="C")


#: Computes a statistic of every run in every bootstrap sample (samples, runs), from the weights or the columns' sums.
_Compute = Callable[[_Weights, Array], Array]

_ComputeRun = Callable[[_Weights], Array]  # computes a statistic of one run in every bootstrap sample: (samples,)


class _DistinctColumns:
    """Columns of evidence that are summed in each bootstrap sample; equal ones, such as denominators, once."""

    def __init__(self, examples: int) -> None:
        self._examples = examples
        self._place_of: dict[bytes, int] = {}
        self._columns: list[Array] = []

    def add(self, values: Array) -> npt.NDArray[np.int64]:
        """Add evidence (runs, examples, parts); return where its columns are: (runs, parts)."""
        places = []
        for column in np.ascontiguousarray(values.transpose(0, 2, 1)).reshape(-1, self._examples):
            key = blake2b(column.tobytes(), digest_size=16).digest()
            if key not in self._place_of:
                self._place_of[key] = len(self._columns)
                self._columns.append(column)
            places.append(self._place_of[key])
        return np.array(places, np.int64).reshape(values.shape[0], values.shape[2])

    def as_matrix(self) -> Array:
        """Return the distinct columns: (examples, columns)."""
        return np.array(self._columns, np.float64).reshape(-1, self._examples).T


def _prepare(statistic: Statistic, evidence: Evidence, columns: _DistinctColumns) -> _Compute:
    """Do what is the same for all bootstrap samples, such as sorting, for evidence (runs, examples, parts)."""
    values = evidence.astype(np.float64, copy=False)
    if statistic in _STATISTICS_OF_SUMS:
        places, totals, examples = columns.add(values), values.sum(1), values.shape[1]
        of_sums = _STATISTICS_OF_SUMS[statistic]
        return lambda weights, sums: of_sums(sums[:, places], totals, examples)
    prepare = _STATISTICS_OF_PAIRS[statistic]
    # NaN cannot be ranked
    runs = [None if np.isnan(run).any() else prepare(run[:, 0], run[:, 1]) for run in values]

    def compute(weights: _Weights, sums: Array) -> Array:
        undefined = np.full(len(weights.values), np.nan)
        return np.stack([undefined if run is None else run(weights) for run in runs], 1)

    return compute


# ---- statistics of sums (samples, runs, parts), given those of all examples (runs, parts) and how many there are


def _macro_ratio(sums: Array, totals: Array, examples: int) -> Array:
    numerators, denominators = sums[..., 0::2], sums[..., 1::2]
    ratios = np.divide(numerators, denominators, out=np.zeros_like(numerators), where=denominators > 0)
    not_sampled = (denominators == 0) & (totals[..., 1::2] > 0)
    return cast(Array, ratios.sum(-1) / (~not_sampled).sum(-1))


_STATISTICS_OF_SUMS: dict[str, Callable[[Array, Array, int], Array]] = {
    "mean": lambda sums, totals, examples: sums[..., 0] / examples,
    "ratio": lambda sums, totals, examples: sums[..., 0] / sums[..., 1],
    "macro ratio": _macro_ratio,
    "log ratio": lambda sums, totals, examples: np.log(sums[..., 0] / sums[..., 1]),
}


# ---- correlations of two parts (examples,)


def _correlation(first: Array, second: Array, weights: Array) -> Array:
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


def _ranks(part: Array) -> Callable[[Array], Array]:
    """Return a function from weights to the ranks among sampled examples, both (samples, examples); ties share one."""
    order = np.argsort(part, kind="stable")
    _, starts, place = np.unique(part[order], return_index=True, return_inverse=True)

    def compute(weights: Array) -> Array:
        equal = np.add.reduceat(weights[:, order], starts, axis=1)
        ranks = np.empty_like(weights)
        ranks[:, order] = (np.cumsum(equal, 1) - (equal - 1) / 2)[:, place]
        return ranks

    return compute


def _prepare_spearman(first: Array, second: Array) -> _ComputeRun:
    ranks = _ranks(first), _ranks(second)
    return lambda weights: _correlation(ranks[0](weights.values), ranks[1](weights.values), weights.values)


# ---- statistics of a score and a label (examples,)


def _count_up_to(counts: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """Return how many there are among the first 0, 1, 2, … examples, in each sample: (examples + 1, samples)."""
    sums = np.zeros((len(counts) + 1, counts.shape[1]), counts.dtype)
    np.cumsum(counts, 0, out=sums[1:])
    return sums


def _by_label(score: Array, label: Array) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return the positive and the negative examples, each by increasing score."""
    order = np.argsort(score, kind="stable")
    return order[label[order] > 0.5], order[label[order] <= 0.5]


def _prepare_auroc(score: Array, label: Array) -> _ComputeRun:
    """Compute the AUROC: how many negatives are below each positive; ties count half."""
    from scipy.sparse import csr_array  # here, because testing an intent classifier needs neither AUROC nor SciPy

    positives, negatives = _by_label(score, label)
    # (numbers of negatives, examples): how many negatives are below each positive; if some tie with it, half of it has
    # them below, and half has not
    below = np.concatenate([np.searchsorted(score[negatives], score[positives], side) for side in ("left", "right")])
    halves = np.full(len(below), 0.5, np.float32)
    shape = len(negatives) + 1, len(score)
    count_positives = csr_array((halves, (below, np.tile(positives, 2))), shape)

    def compute(weights: _Weights) -> Array:
        positive_counts = count_positives @ weights.counts
        negative_counts = _count_up_to(weights.counts[negatives])
        above = np.einsum("ns,ns->s", positive_counts, negative_counts, dtype=np.float64)
        return cast(Array, above / (positive_counts.sum(0, np.float64) * negative_counts[-1]))

    return compute


def _prepare_fpr95(score: Array, label: Array) -> _ComputeRun:
    """Return the false positive rate at the highest threshold that at least 95% of the positives pass."""
    positives, negatives = _by_label(score, label)
    is_positive = (label > 0.5).astype(np.float32)

    def compute(weights: _Weights) -> Array:
        total = (is_positive @ weights.counts).astype(np.float64)
        if not len(positives):
            return np.full(len(total), np.nan)
        may_fail = total - np.ceil(0.95 * total)
        # the lowest positives are enough, unless few of the others were sampled
        count = len(positives) // 10
        while True:
            failing = _count_up_to(weights.counts[positives[:count]])
            if count == len(positives) or (failing[-1] > may_fail).all():
                break
            count = min(2 * count + 1, len(positives))
        threshold = score[positives][np.minimum((failing <= may_fail).sum(0) - 1, len(positives) - 1)]
        below = _count_up_to(weights.counts[negatives])
        rejected = below[np.searchsorted(score[negatives], threshold), np.arange(len(threshold))]
        negative_total = below[-1].astype(np.float64)
        return np.where(total > 0, (negative_total - rejected) / negative_total, np.nan)

    return compute


_STATISTICS_OF_PAIRS: dict[str, Callable[[Array, Array], _ComputeRun]] = {
    "spearman": _prepare_spearman,
    "pearson": lambda first, second: lambda weights: _correlation(first, second, weights.values),
    "auroc": _prepare_auroc,
    "fpr95": _prepare_fpr95,
}
