"""What a task found: a figure, what it is made of, and what a reader has to know of it."""

from collections.abc import Sequence
from dataclasses import dataclass
from zlib import crc32

import numpy as np
import numpy.typing as npt

from turnwise.evaluation.statistics import DRAWINGS, Statistic, drawings, figures, interval

#: Metrics of which less is better, by how their names begin; of all others more is.
LOWER_IS_BETTER = (
    "adversary first",
    "alignment",
    "fpr95",
    "mean cosine",
    "share of the first principal component",
    "uniformity",
)

#: λ of semantic compression, as it was chosen.
TEMPLATE_SHARE = "share of the template"

#: Time that a model takes, on the machine that the results name.
MILLISECONDS = "milliseconds a context"

#: What a model that draws its answers at random gets.
CHANCE = "chance"

#: The share of in-scope utterances that are turned away: not less is better, but what was named.
FALSE_REJECTION = "false rejection"

#: What says nothing good or bad of a model, or not of a model alone, so that no two models are compared by it.
COUNTS = ("contexts without a right response", TEMPLATE_SHARE, MILLISECONDS, CHANCE, FALSE_REJECTION)


def lower_is_better(metric: str) -> bool:
    """Whether a lower figure of a metric is the better one."""
    return metric.casefold().startswith(LOWER_IS_BETTER)


@dataclass(frozen=True, slots=True)
class Row:
    """One figure.

    Attributes:
        task: 'intents', 'responses', ….
        dataset: by its plain name.
        setting: as the paper's tables say it: '1-shot prototypes'.
        metric: what is measured.
        value: the figure, in the unit that the paper's table prints.
        std: over the runs.
        low: of the 95% interval.
        high: of the 95% interval.
        runs: how many.
        n: test examples of a run.
        table: the paper's table that has it.
        published: what is printed there, where something is.
        comparable: why the published figure is not like for like; None where it is, or where there is none.
    """

    task: str
    dataset: str
    setting: str
    metric: str
    value: float
    std: float
    low: float
    high: float
    runs: int
    n: int
    table: str | None = None
    published: float | None = None
    comparable: str | None = None


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a figure is made of.

    Attributes:
        task: 'intents', 'responses', ….
        dataset: by its plain name.
        setting: as the paper's tables say it.
        metric: what is measured.
        evidence: (runs, examples) or (runs, examples, parts), in the order of the test set.
        statistic: how the figure comes of it.
        scale: 100 where the paper's table prints percentages.
    """

    task: str
    dataset: str
    setting: str
    metric: str
    evidence: npt.NDArray[np.floating]
    statistic: Statistic = "mean"
    scale: float = 100.0

    def __post_init__(self) -> None:
        if self.evidence.ndim not in (2, 3) or 0 in self.evidence.shape:
            raise ValueError(f"evidence is (runs, examples) or (runs, examples, parts), not {self.evidence.shape}")

    @property
    def key(self) -> tuple[str, str, str, str]:
        """Which figure this is."""
        return self.task, self.dataset, self.setting, self.metric

    @property
    def table(self) -> npt.NDArray[np.floating]:
        """The evidence as (runs, examples, parts)."""
        return self.evidence if self.evidence.ndim == 3 else self.evidence[..., None]

    @property
    def value(self) -> float:
        """The figure: the mean over runs."""
        return float(figures(self.statistic, self.table).mean() * self.scale)

    def drawings(self, seed: int = 0, count: int = DRAWINGS) -> npt.NDArray[np.float64]:
        """The figure in every drawing of the bootstrap; equal seeds and shapes draw alike, so that two models are paired."""
        return drawings(self.statistic, self.table, seed, count) * self.scale

    def row(self) -> Row:
        """The figure, with its interval."""
        values = figures(self.statistic, self.table) * self.scale
        low, high = interval(self.drawings())
        spread = float(values.std(ddof=1)) if len(values) > 1 else 0.0
        return Row(*self.key, self.value, spread, low, high, *self.evidence.shape[:2])


def mean_drawings(members: Sequence[Outcome]) -> npt.NDArray[np.float64]:
    """Bootstrap drawings of a mean: figures of one data set share its drawings, those of different ones do not."""
    drawn = [outcome.drawings(crc32(outcome.dataset.encode())) for outcome in members]
    return np.asarray(np.mean(drawn, axis=0))
