"""Two models on the same test examples: is the one better, or was it luck?

For every figure that both have, runs and examples are drawn anew (the bootstrap), the same ones for both models, and the difference
is taken in each drawing: what is hard for both then cancels out. The p-value is twice the smaller share of drawings in which the
difference is at most, or at least, nothing. Many comparisons at once find differences by luck alone; Holm's correction makes up for
that.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from math import ceil
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from turnwise.evaluation.outcomes import COUNTS, Outcome, lower_is_better
from turnwise.evaluation.reporting.cells import digits_of, number, signed
from turnwise.evaluation.reporting.markdown import escaped, grid
from turnwise.evaluation.results import ResultsError, defined, read_content, read_outcomes
from turnwise.evaluation.statistics import DRAWINGS, interval

#: Corrected p-values below this are a clear difference.
LEVEL = 0.05

_Key = tuple[str, str, str, str]
Verdict = Literal["better", "worse", "no clear difference", "not comparable"]


@dataclass(frozen=True, slots=True)
class Comparison:
    """One figure of two models.

    Attributes:
        base: the folder of the model that the other is compared with.
        other: the folder of the model in question.
        task: 'intents', 'responses', ….
        dataset: by its plain name.
        setting: as the paper's tables say it.
        metric: what is measured.
        first: the base's figure; None where it has none.
        second: the other's; None where it has none.
        difference: the second less the first; None where the two are not comparable, as are all that follow.
        low: of the difference's 95% interval, which is not corrected.
        high: of that interval.
        p: how probable so large a difference would be by luck.
        corrected: the same, after Holm's correction over all comparisons.
        verdict: of the other model; what is better depends on the metric.
        reason: why the two are not comparable; empty where they are.
    """

    base: str
    other: str
    task: str
    dataset: str
    setting: str
    metric: str
    first: float | None
    second: float | None
    difference: float | None = None
    low: float | None = None
    high: float | None = None
    p: float | None = None
    corrected: float | None = None
    verdict: Verdict = "not comparable"
    reason: str = ""


def compare(first: Path, second: Path) -> list[Comparison]:
    """Compares the results of two folders, figure by figure; the first is the base.

    Raises:
        ResultsError: if a folder does not hold results.
    """
    return compare_all([first, second])


def compare_all(folders: Sequence[Path]) -> list[Comparison]:
    """Compares results with those of the first folder, figure by figure.

    Args:
        folders: the base, and one or several others, each of which is compared with it; the correction is over all.

    Returns:
        Every figure that one of two has, in the order of the base, then those that only the other has.

    Raises:
        ResultsError: if a folder does not hold results, or there is nothing to compare the first one with.
    """
    if len(folders) < 2:
        raise ResultsError("a comparison takes two folders of results or more")
    base, *others = (_Folder.read(folder) for folder in folders)
    pairs = [(base, other, key) for other in others for key in base.outcomes | other.outcomes]
    obstacles = [_obstacle(*pair) for pair in pairs]
    # so many that the smallest p-value can still be clear after the correction, with room to spare
    count = max(DRAWINGS, 2 * ceil(2 * obstacles.count("") / LEVEL))
    return _judged([_compared(*pair, obstacle, count) for pair, obstacle in zip(pairs, obstacles, strict=True)])


def holm(probabilities: Sequence[float]) -> list[float]:
    """P-values corrected for their number: the smallest times all of them, the next times one fewer, …; their order stays."""
    order = np.argsort(probabilities, kind="stable")
    factors = np.arange(len(order), 0, -1)
    corrected = np.empty(len(order))
    corrected[order] = np.maximum.accumulate(np.minimum(1.0, np.asarray(probabilities)[order] * factors))
    return [float(value) for value in corrected]


def probability(differences: npt.NDArray[np.float64]) -> float:
    """The two-sided p-value of drawn differences; counts are one too high on either side, so that it is never 0."""
    count = len(differences)
    smaller = min(int((differences <= 0).sum()), int((differences >= 0).sum()))
    return min(1.0, 2 * (smaller + 1) / (count + 1))


def comparison_text(comparisons: Sequence[Comparison]) -> str:
    """Comparisons as Markdown: a sentence for each model, then for each a table, and what could not be compared."""
    corrected = sum(found.corrected is not None for found in comparisons)
    folders: dict[str, list[Comparison]] = {}
    for found in comparisons:
        folders.setdefault(found.other, []).append(found)
    parts = [_sentence(ours, corrected) for ours in folders.values()]
    for other, ours in folders.items():
        parts += [f"## {escaped(other)}\n" if len(folders) > 1 else "", _table(ours), _unlike(ours)]
    return "\n".join(filter(None, parts))


def comparison_json(comparisons: Sequence[Comparison]) -> list[dict[str, Any]]:
    """Comparisons as JSON has them: a number that is undefined is null."""
    return [defined(asdict(found)) for found in comparisons]


@dataclass(frozen=True, slots=True)
class _Folder:
    """Results as they lie on disk: figures by their names, hashes by tasks and data sets."""

    name: str
    outcomes: dict[_Key, Outcome]
    hashes: dict[tuple[str, str], set[str]]

    @classmethod
    def read(cls, folder: Path) -> "_Folder":
        content = read_content(folder / "results.json")
        read = read_outcomes(folder / "outcomes.parquet")
        outcomes = {outcome.key: outcome for outcome in read if outcome.metric not in COUNTS}
        # a name may stand for several sets of one task: a sample world has questions and contexts for 'responses'
        hashes: dict[tuple[str, str], set[str]] = {}
        for entry in content["data"]:
            for task in entry["tasks"]:
                hashes.setdefault((task, entry["name"]), set()).add(entry["sha256"])
        return cls(str(folder), outcomes, hashes)


def _obstacle(base: _Folder, other: _Folder, key: _Key) -> str:
    """Why a figure of two folders cannot be compared; empty where it can."""
    for folder, missing in ((base, other), (other, base)):
        if key not in missing.outcomes:
            return f"only {folder.name} has it"
    dataset = key[1]
    ours, theirs = (folder.hashes.get(key[:2], set()) for folder in (base, other))
    if (ours or theirs) and not ours & theirs:
        return f"the files of {dataset} differ"
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
        return "a figure is undefined"
    return ""


def _compared(base: _Folder, other: _Folder, key: _Key, obstacle: str, count: int) -> Comparison:
    """A comparison, without its verdict."""
    first, second = base.outcomes.get(key), other.outcomes.get(key)
    ours, theirs = (outcome.value if outcome else None for outcome in (first, second))
    found = Comparison(base.name, other.name, *key, ours, theirs, reason=obstacle)
    if obstacle or first is None or second is None:
        return found
    differences = second.drawings(count=count) - first.drawings(count=count)
    differences = differences[np.isfinite(differences)]
    low, high = interval(differences)
    return replace(found, difference=second.value - first.value, low=low, high=high, p=probability(differences))


def _judged(comparisons: list[Comparison]) -> list[Comparison]:
    """The same, with corrected p-values and verdicts."""
    corrected = iter(holm([found.p for found in comparisons if found.p is not None]))
    judged = []
    for found in comparisons:
        if found.p is None or found.difference is None:
            judged.append(found)
            continue
        chance = next(corrected)
        verdict: Verdict = "no clear difference"
        if chance < LEVEL:
            verdict = "better" if (found.difference > 0) != lower_is_better(found.metric) else "worse"
        judged.append(replace(found, corrected=chance, verdict=verdict))
    return judged


def _sentence(comparisons: Sequence[Comparison], corrected: int) -> str:
    base, other = comparisons[0].base, comparisons[0].other
    verdicts = [found.verdict for found in comparisons]
    compared = len(verdicts) - verdicts.count("not comparable")
    if not compared:
        return f"None of the figures of {escaped(other)} can be compared with those of {escaped(base)}.\n"
    return (
        f"{escaped(other)} is better than {escaped(base)} in {verdicts.count('better')} of {compared} figures, worse in "
        f"{verdicts.count('worse')}, no clear difference in {verdicts.count('no clear difference')}; corrected for {corrected} "
        "comparisons by Holm.\n"
    )


def _table(comparisons: Sequence[Comparison]) -> str:
    columns = (
        "task",
        "data set",
        "setting",
        "metric",
        "base",
        "this",
        "difference",
        "95% interval",
        "p",
        "corrected p",
        "verdict",
    )
    body = [_line(found) for found in comparisons if found.difference is not None]
    return grid(columns, body, "llllrrrrrrl") if body else ""


def _line(found: Comparison) -> list[str]:
    digits = digits_of(found.first, found.second)
    low, high = (number(value, digits) for value in (found.low, found.high))
    return [
        *map(escaped, (found.task, found.dataset, found.setting, found.metric)),
        *(number(value, digits) for value in (found.first, found.second)),
        signed(found.difference or 0.0, digits),
        f"{low} to {high}",
        *(number(value, 4) for value in (found.p, found.corrected)),
        f"**{found.verdict}**" if found.verdict in ("better", "worse") else found.verdict,
    ]


def _unlike(comparisons: Sequence[Comparison]) -> str:
    lines = [
        f"- {escaped(', '.join((found.task, found.dataset, found.setting, found.metric)))}: {escaped(found.reason)}\n"
        for found in comparisons
        if found.reason
    ]
    return "Not comparable:\n\n" + "".join(lines) if lines else ""
