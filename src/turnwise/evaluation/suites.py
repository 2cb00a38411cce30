"""Suites (protocols and data sets with their tables, plots and summaries), and summaries of results."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from turnwise.core import registry
from turnwise.core.errors import TurnwiseError
from turnwise.evaluation.datasets.dataset import Dataset
from turnwise.evaluation.evaluation_protocols import Effort
from turnwise.evaluation.metrics import (
    DESCRIPTIVE_METRICS,
    Outcome,
    bootstrap_mean,
    confidence_interval,
    lower_is_better,
)
from turnwise.evaluation.results import Results
from turnwise.models.loading import ModelUnderTest

SummaryPart = tuple[str, str, str]  # a metric on any data set: task, setting, metric

#: Adds tables to the results, and published values to their rows. Gets the data sets used, by task and name, the model,
#: and how much of the protocols was run.
AddTables = Callable[[Results, Mapping[tuple[str, str], Dataset[Any]], ModelUnderTest, Effort], None]

#: Loads a data set by protocol and name; returns None if the data folder does not hold it.
LoadDataset = Callable[[str, str], Any]

AddPlots = Callable[[ModelUnderTest, LoadDataset, Results], None]  # adds plots to the results


@dataclass(frozen=True, slots=True)
class SuiteStep:
    """A protocol and the data sets it is run on."""

    protocol: str
    datasets: tuple[str, ...]  # reported as missing if the data folder does not hold them
    alternatives: tuple[str, ...] = ()  # other data sets, used where present


@dataclass(frozen=True, slots=True)
class Summary:
    """A named mean over several metrics, which summarises part of a suite."""

    name: str
    parts: tuple[SummaryPart, ...]


@dataclass(frozen=True, slots=True)
class Suite:
    """A suite as evaluation runs it; `find_suite` returns one by its name."""

    name: str
    steps: tuple[SuiteStep, ...]
    add_tables: AddTables
    add_plots: AddPlots
    summaries: tuple[Summary, ...] = ()


def find_suite(name: str) -> Suite:
    """Return a registered suite; raises a TurnwiseError if there is none of that name."""
    suite: Suite = registry.find("suite", name)(name)
    return suite


@dataclass(frozen=True)  # no slots: the bootstrap samples are cached in the instance
class SummaryResult:
    """The value of a summary for one model, over all data sets on which its parts were measured."""

    suite: str
    name: str
    outcomes: tuple[Outcome, ...]

    @property
    def value(self) -> float:
        """Return the mean of the metrics."""
        return float(np.mean([outcome.value for outcome in self.outcomes]))

    @property
    def parts(self) -> tuple[SummaryPart, ...]:
        """Return the distinct metrics, whatever the data set."""
        return tuple(dict.fromkeys((outcome.task, outcome.setting, outcome.metric) for outcome in self.outcomes))

    @property
    def datasets(self) -> tuple[str, ...]:
        """Return the names of the data sets, sorted."""
        return tuple(sorted({outcome.dataset for outcome in self.outcomes}))

    @property
    def lower_is_better(self) -> bool:
        """Return whether lower is better; all metrics of a summary agree on that."""
        return lower_is_better(self.outcomes[0].metric)

    @cached_property
    def bootstrap(self) -> npt.NDArray[np.float64]:
        """The mean in each bootstrap sample; paired between models that were evaluated on the same examples."""
        return bootstrap_mean(self.outcomes)

    def confidence_interval(self) -> tuple[float, float]:
        """Return the 95% confidence interval."""
        return confidence_interval(self.bootstrap)

    def why_not_paired(self, other: "SummaryResult") -> str:
        """Return why the two cannot be compared; empty if they can."""
        ours, theirs = ({outcome.key: outcome for outcome in each.outcomes} for each in (self, other))
        if unpaired := ours.keys() ^ theirs.keys():
            return f"only one of the two has {', '.join(min(unpaired))}"
        for key, outcome in ours.items():
            shapes = outcome.table.shape[:2], theirs[key].table.shape[:2]
            if shapes[0] != shapes[1]:
                first, second = (f"{runs:,} × {examples:,}" for runs, examples in shapes)
                return f"{first} and {second} runs and test examples of {', '.join(key)}"
        return ""

    def difference(self, other: "SummaryResult") -> tuple[float, float, float]:
        """Return by how much this mean exceeds the other, with the 95% confidence interval of the paired difference."""
        if reason := self.why_not_paired(other):
            raise TurnwiseError(f"{self.suite}, {self.name} cannot be compared: {reason}")
        return self.value - other.value, *confidence_interval(self.bootstrap - other.bootstrap)


def summarise(results: Results) -> list[SummaryResult]:
    """Summarise results as their suite does; single tasks by task, setting and metric, except descriptive ones."""
    summaries: Iterable[Summary]
    if results.suite in registry.known_names("suite"):
        summaries = find_suite(results.suite).summaries
    else:
        keys = dict.fromkeys((outcome.task, outcome.setting, outcome.metric) for outcome in results.outcomes)
        summaries = [Summary(", ".join(key), (key,)) for key in keys if key[2] not in DESCRIPTIVE_METRICS]
    summarised = []
    for summary in summaries:
        outcomes = tuple(
            outcome for outcome in results.outcomes if (outcome.task, outcome.setting, outcome.metric) in summary.parts
        )
        if outcomes:
            summarised.append(SummaryResult(results.suite, summary.name, outcomes))
    return summarised
