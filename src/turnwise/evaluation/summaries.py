"""The few figures that sum up a suite: what curves over many models show, and tables of many models hold.

A summary is the mean of all its parts on all data sets on which they were measured, stand-ins and sample worlds included; what was
not measured is left out, so that a mean says of which data sets it is.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from turnwise.evaluation.outcomes import COUNTS, Outcome, lower_is_better, mean_drawings
from turnwise.evaluation.results import Results, ResultsError
from turnwise.evaluation.statistics import interval
from turnwise.evaluation.suites import SUITES, MetricKey, Summary


@dataclass(frozen=True)  # without slots, which leave no room for the drawings
class Summarised:
    """A summary of one model.

    Attributes:
        suite: which suite, or the tasks.
        name: of the summary.
        members: the figures that it is the mean of.
    """

    suite: str
    name: str
    members: tuple[Outcome, ...]

    @property
    def value(self) -> float:
        """The mean of the figures."""
        return float(np.mean([outcome.value for outcome in self.members]))

    @property
    def parts(self) -> tuple[MetricKey, ...]:
        """Which figures, whatever the data set."""
        return tuple(dict.fromkeys((outcome.task, outcome.setting, outcome.metric) for outcome in self.members))

    @property
    def datasets(self) -> tuple[str, ...]:
        """The data sets of the figures, by name: in which order they were measured makes no difference."""
        return tuple(sorted({outcome.dataset for outcome in self.members}))

    @property
    def lower_is_better(self) -> bool:
        """Whether less is better; the metrics of a summary agree on that."""
        return lower_is_better(self.members[0].metric)

    @cached_property
    def _drawn(self) -> npt.NDArray[np.float64]:
        # whoever watches an experiment asks for them after every point
        return mean_drawings(self.members)

    def drawings(self) -> npt.NDArray[np.float64]:
        """The mean in every drawing of the bootstrap; two models seen on the same examples get the same drawings."""
        return self._drawn

    def interval(self) -> tuple[float, float]:
        """The 95% interval."""
        return interval(self.drawings())

    def obstacle(self, other: "Summarised") -> str:
        """Why the two cannot be paired; empty where they can."""
        ours, theirs = ({outcome.key: outcome for outcome in each.members} for each in (self, other))
        if unpaired := ours.keys() ^ theirs.keys():
            return f"only one of the two has {', '.join(min(unpaired))}"
        for key, outcome in ours.items():
            shapes = outcome.table.shape[:2], theirs[key].table.shape[:2]
            if shapes[0] != shapes[1]:
                first, second = (f"{runs:,} × {examples:,}" for runs, examples in shapes)
                return f"{first} and {second} runs and test examples of {', '.join(key)}"
        return ""

    def difference(self, other: "Summarised") -> tuple[float, float, float]:
        """By how much this mean exceeds the other, with the 95% interval of that; paired: what is hard for both cancels out.

        Raises:
            ResultsError: if the two are not of the same figures on the same examples.
        """
        if obstacle := self.obstacle(other):
            raise ResultsError(f"{self.suite}, {self.name} cannot be compared: {obstacle}")
        return self.value - other.value, *interval(self.drawings() - other.drawings())


def summarise(results: Results) -> list[Summarised]:
    """What sums up an evaluation.

    A registered suite has its own summaries; single tasks have one for every task, setting and metric, counts of the data left out. What has no
    figure at all is left out.
    """
    return [
        Summarised(results.suite, summary.name, members)
        for summary in (SUITES[results.suite].summaries if results.suite in SUITES else _each(results))
        if (members := tuple(_members(summary, results)))
    ]


def _each(results: Results) -> list[Summary]:
    """A summary for every task, setting and metric."""
    parts = dict.fromkeys((outcome.task, outcome.setting, outcome.metric) for outcome in results.outcomes)
    return [Summary(", ".join(part), (part,)) for part in parts if part[2] not in COUNTS]


def _members(summary: Summary, results: Results) -> Iterator[Outcome]:
    return (outcome for outcome in results.outcomes if (outcome.task, outcome.setting, outcome.metric) in summary.parts)
