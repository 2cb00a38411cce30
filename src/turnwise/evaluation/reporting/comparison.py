"""Comparison of models on the same test examples: is one better, or was it luck?

For every metric that two models have, runs and examples are resampled (the bootstrap), the same ones for both models,
and the difference is computed in each sample, so that what is hard for both cancels out. The p-value is twice the
smaller proportion of samples in which the difference is at most, or at least, zero. Means over data sets are compared
likewise, over the metrics that can be compared between the two. Holm's correction accounts for the number of
comparisons.
"""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import combinations
from math import ceil
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from turnwise.core.errors import TurnwiseError
from turnwise.core.progress import Progress, silent
from turnwise.evaluation.metrics import (
    BOOTSTRAP_SAMPLES,
    DESCRIPTIVE_METRICS,
    MetricKey,
    Outcome,
    bootstrap_outcomes,
    confidence_interval,
    lower_is_better,
)
from turnwise.evaluation.reporting.report import escape_markdown, markdown_table
from turnwise.evaluation.results import Results, read_content, read_outcomes, replace_undefined
from turnwise.evaluation.suites import summarise
from turnwise.evaluation.tables import decimals_for, format_difference, format_number

SIGNIFICANCE_LEVEL = 0.05  # corrected p-values below this are a clear difference

Verdict = Literal["better", "worse", "no clear difference", "not comparable"]


@dataclass(frozen=True, slots=True)
class Comparison:
    """One metric of two models; where they are not comparable, everything from the difference on is None."""

    #: The folders of the reference model, and of the model that is compared with it.
    base: str
    other: str
    task: str
    dataset: str
    setting: str
    metric: str
    #: The values of the base and of the other; None if it has none.
    first: float | None
    second: float | None
    #: Second minus first, with the bounds of its 95% interval, which is not corrected.
    difference: float | None = None
    low: float | None = None
    high: float | None = None
    #: The two-sided p-value, and the same after Holm's correction over all comparisons.
    p: float | None = None
    corrected: float | None = None
    verdict: Verdict = "not comparable"  # on the other model; which direction is better depends on the metric
    reason: str = ""  # why the two are not comparable; empty if they are


def compare(*folders: Path, all_pairs: bool = False, progress: Progress = silent) -> list[Comparison]:
    """Compare the results in several folders with those in the first one, or all pairs of them, metric by metric.

    Returns:
        For each two folders: every metric that one of them has, in the order of the base, then those that only the
        other has, then the means of metrics that both have.
    """
    if len(folders) < 2:
        raise TurnwiseError("a comparison needs at least two folders of results")
    base, *others = read = [_ResultFolder.read(folder) for folder in folders]
    pairs = combinations(read, 2) if all_pairs else ((base, other) for other in others)
    tests = [test for pair in pairs for test in _paired_tests(*pair)]
    # enough samples for the smallest possible p-value to stay significant after the correction
    count = max(BOOTSTRAP_SAMPLES, 2 * ceil(2 * sum(bool(test.keys) for test in tests) / SIGNIFICANCE_LEVEL))
    needed = {(id(each), key): (each, key) for test in tests for each in (test.base, test.other) for key in test.keys}
    metrics = list(needed.values())
    samples = bootstrap_outcomes([folder.outcomes[key] for folder, key in metrics], count, progress)
    for (folder, key), values in zip(metrics, samples, strict=True):
        folder.samples[key] = values
    comparisons = [test.run() for test in tests]
    corrected = iter(holm([comparison.p for comparison in comparisons if comparison.p is not None]))
    return [each if each.p is None else _with_verdict(each, next(corrected)) for each in comparisons]


def holm(probabilities: Sequence[float]) -> list[float]:
    """Correct p-values for their number: the smallest times all of them, the next times one less, …, in their order."""
    order = np.argsort(probabilities, kind="stable")
    factors = np.arange(len(order), 0, -1)
    corrected = np.empty(len(order))
    corrected[order] = np.maximum.accumulate(np.minimum(1.0, np.asarray(probabilities)[order] * factors))
    return [float(value) for value in corrected]


def p_value(differences: npt.NDArray[np.float64]) -> float:
    """Return the two-sided p-value of bootstrapped differences, with 1 added to the counts so that it is never 0."""
    smaller = min(int((differences <= 0).sum()), int((differences >= 0).sum()))
    return min(1.0, 2 * (smaller + 1) / (len(differences) + 1))


def comparison_text(comparisons: Sequence[Comparison]) -> str:
    """Return comparisons as Markdown: a sentence and a table for each model, and what could not be compared."""
    corrected = sum(comparison.corrected is not None for comparison in comparisons)
    pairs: dict[tuple[str, str], list[Comparison]] = {}
    for comparison in comparisons:
        pairs.setdefault((comparison.base, comparison.other), []).append(comparison)
    parts = [_sentence(each, corrected) for each in pairs.values()]
    for (base, other), each in pairs.items():
        heading = f"## {escape_markdown(other)} compared with {escape_markdown(base)}\n"
        parts += [heading if len(pairs) > 1 else "", _table(each), _not_comparable(each)]
    return "\n".join(filter(None, parts))


def comparison_json(comparisons: Sequence[Comparison]) -> list[dict[str, Any]]:
    """Return comparisons as JSON values; undefined numbers are null."""
    return [replace_undefined(asdict(comparison)) for comparison in comparisons]


@dataclass(frozen=True, slots=True)
class _ResultFolder:
    """Results on disk: outcomes by key, and hashes of the data and of excluded examples by task and data set."""

    name: str
    suite: str
    outcomes: dict[MetricKey, Outcome]
    hashes: dict[tuple[str, str], set[str]]
    samples: dict[MetricKey, npt.NDArray[np.float64]] = field(default_factory=dict)  # of the bootstrap

    @classmethod
    def read(cls, folder: Path) -> "_ResultFolder":
        content = read_content(folder / "results.json")
        outcomes = read_outcomes(folder / "outcomes.parquet")
        # one name may stand for several data sets of a task: sample data have questions and contexts for 'responses'
        hashes: dict[tuple[str, str], set[str]] = {}
        for entry in content["data"]:
            for task in entry["tasks"]:
                hashes.setdefault((task, entry["name"]), set()).add(entry["sha256"] + entry.get("excluded", ""))
        comparable = {outcome.key: outcome for outcome in outcomes if outcome.metric not in DESCRIPTIVE_METRICS}
        return cls(str(folder), content.get("suite", ""), comparable, hashes)

    def mean(self, keys: Sequence[MetricKey]) -> float:
        """Return the mean of some metrics."""
        return float(np.mean([self.outcomes[key].value for key in keys]))

    def summaries(self, keys: Sequence[MetricKey]) -> list[list[MetricKey]]:
        """Return the metrics that each mean of the suite or the tasks is over, as far as they are among the keys."""
        summaries = summarise(Results(self.name, self.suite, [self.outcomes[key] for key in keys]))
        return [[outcome.key for outcome in summary.outcomes] for summary in summaries if len(summary.outcomes) > 1]


@dataclass(frozen=True, slots=True)
class _PairedTest:
    """A comparison of two folders by a metric, or by the mean of several; without keys they are not comparable."""

    comparison: Comparison
    base: _ResultFolder
    other: _ResultFolder
    keys: Sequence[MetricKey] = ()

    def run(self) -> Comparison:
        """Return the comparison without corrected p-value and verdict."""
        if not self.keys:
            return self.comparison
        differences = np.mean([self.other.samples[key] - self.base.samples[key] for key in self.keys], 0)
        differences = differences[np.isfinite(differences)]
        low, high = confidence_interval(differences)
        difference = self.other.mean(self.keys) - self.base.mean(self.keys)
        return replace(self.comparison, difference=difference, low=low, high=high, p=p_value(differences))


def _paired_tests(base: _ResultFolder, other: _ResultFolder) -> Iterator[_PairedTest]:
    """Yield the comparisons of single metrics, then those of their means."""
    comparable: list[MetricKey] = []
    for key in base.outcomes | other.outcomes:
        first, second = (folder.mean([key]) if key in folder.outcomes else None for folder in (base, other))
        reason = _why_not_comparable(base, other, key)
        comparable += [] if reason else [key]
        comparison = Comparison(base.name, other.name, *key, first, second, reason=reason)
        yield _PairedTest(comparison, base, other, () if reason else (key,))
    for keys in base.summaries(comparable):
        # a mean over several data sets or metrics has the names of all of them
        tasks, datasets, settings, metrics = (list(dict.fromkeys(names)) for names in zip(*keys, strict=True))
        dataset, metric = (each[0] if len(each) == 1 else f"mean of {', '.join(each)}" for each in (datasets, metrics))
        names = ", ".join(tasks), dataset, " and ".join(settings), metric
        comparison = Comparison(base.name, other.name, *names, base.mean(keys), other.mean(keys))
        yield _PairedTest(comparison, base, other, keys)


def _why_not_comparable(base: _ResultFolder, other: _ResultFolder, key: MetricKey) -> str:
    """Return why a metric of two folders cannot be compared; empty if it can."""
    for folder, missing in ((base, other), (other, base)):
        if key not in missing.outcomes:
            return f"only {folder.name} has it"
    ours, theirs = (folder.hashes.get(key[:2], set()) for folder in (base, other))
    if (ours or theirs) and not ours & theirs:
        return f"the files of {key[1]}, or the examples that were excluded, differ"
    first, second = base.outcomes[key], other.outcomes[key]
    if (first.statistic, first.scale) != (second.statistic, second.scale):
        return "it is not the same statistic"
    for what, one, two in zip(("runs", "test examples", "parts"), first.table.shape, second.table.shape, strict=True):
        if one != two:
            return f"{one:,} and {two:,} {what}"
    labelled = first.statistic in ("auroc", "fpr95", "spearman", "pearson")
    if labelled and not np.array_equal(first.table[..., 1], second.table[..., 1]):
        return "the test examples are not the same"
    if not np.isfinite([first.value, second.value]).all():
        return "a value is undefined"
    return ""


def _with_verdict(comparison: Comparison, corrected: float) -> Comparison:
    verdict: Verdict = "no clear difference"
    if corrected < SIGNIFICANCE_LEVEL:
        higher = (comparison.difference or 0.0) > 0
        verdict = "better" if higher != lower_is_better(comparison.metric) else "worse"
    return replace(comparison, corrected=corrected, verdict=verdict)


def _sentence(comparisons: Sequence[Comparison], corrected: int) -> str:
    base, other = escape_markdown(comparisons[0].base), escape_markdown(comparisons[0].other)
    verdicts = [comparison.verdict for comparison in comparisons]
    compared = len(verdicts) - verdicts.count("not comparable")
    if not compared:
        return f"None of the metrics of {other} can be compared with those of {base}.\n"
    return (
        f"{other} is better than {base} in {verdicts.count('better')} of {compared} metrics, worse in"
        f" {verdicts.count('worse')}, no clear difference in {verdicts.count('no clear difference')};"
        f" corrected for {corrected} comparisons by Holm.\n"
    )


def _table(comparisons: Sequence[Comparison]) -> str:
    names = ("task", "data set", "setting", "metric", "base", "this", "difference", "95% interval", "p", "corrected p")
    body = []
    for each in comparisons:
        if each.difference is None:
            continue
        digits = decimals_for(each.first, each.second)
        low, high = (format_number(value, digits) for value in (each.low, each.high))
        body.append(
            [
                *map(escape_markdown, (each.task, each.dataset, each.setting, each.metric)),
                *(format_number(value, digits) for value in (each.first, each.second)),
                format_difference(each.difference, digits),
                f"{low} to {high}",
                *(format_number(value, 4) for value in (each.p, each.corrected)),
                f"**{each.verdict}**" if each.verdict in ("better", "worse") else each.verdict,
            ]
        )
    return markdown_table((*names, "verdict"), body, "llllrrrrrrl") if body else ""


def _not_comparable(comparisons: Sequence[Comparison]) -> str:
    lines = [
        f"- {escape_markdown(', '.join((each.task, each.dataset, each.setting, each.metric)))}: "
        f"{escape_markdown(each.reason)}\n"
        for each in comparisons
        if each.reason
    ]
    return "Not comparable:\n\n" + "".join(lines) if lines else ""
