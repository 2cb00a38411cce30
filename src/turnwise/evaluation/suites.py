"""The registry of suites: named sets of protocols and data sets, with the tables, plots and summaries that belong to them.

Suites are defined by the packages above this one, which register them here with `register_suite`.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from turnwise.evaluation.datasets.dataset import Dataset
from turnwise.evaluation.evaluation_protocols import Effort
from turnwise.evaluation.results import Results
from turnwise.models.loading import ModelUnderTest

#: A metric on any data set: task, setting, metric.
MetricKey = tuple[str, str, str]

#: Adds tables to the results, and published values to their rows. Gets the data sets used, by task and name, and how the model differs
#: from the ones in the published tables.
AddTables = Callable[[Results, Mapping[tuple[str, str], Dataset[Any]], str, Effort], None]

#: Loads a data set by protocol and name; returns None if the data folder does not hold it.
LoadDataset = Callable[[str, str], Any]

#: Adds plots to the results.
AddPlots = Callable[[ModelUnderTest, LoadDataset, Results], None]


@dataclass(frozen=True, slots=True)
class SuiteStep:
    """A protocol and the data sets it is run on.

    Attributes:
        protocol: its name in the registry of protocols.
        datasets: reported as missing if the data folder does not hold them.
        alternatives: other data sets, used where present.
    """

    protocol: str
    datasets: tuple[str, ...]
    alternatives: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Summary:
    """A named mean over several metrics, which summarises part of a suite."""

    name: str
    parts: tuple[MetricKey, ...]


@dataclass(frozen=True, slots=True)
class Suite:
    """A registered suite."""

    name: str
    steps: tuple[SuiteStep, ...]
    add_tables: AddTables
    add_plots: AddPlots
    summaries: tuple[Summary, ...] = ()


#: The registered suites by name.
SUITES: dict[str, Suite] = {}


def register_suite(suite: Suite) -> None:
    """Make a suite available to `evaluate`; registering it again replaces it."""
    SUITES[suite.name] = suite
