"""The points of an experiment: models that differ in known ways, each with what was measured of it."""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from turnwise.evaluation.results import Results
from turnwise.evaluation.summaries import Summarised, summarise

#: The axis along which an experiment's variants lie.
VARIANT = "variant"


@dataclass(frozen=True)  # without slots, which leave no room for the figures
class Point:
    """One model of an experiment.

    Attributes:
        name: how tables call it.
        place: its value on every axis of the experiment; empty for what all others start from.
        folder: the model's; None where it has none of its own.
        results: what was measured of it, one for every suite.
        failure: why there are no results; empty where nothing failed.
    """

    name: str
    place: dict[str, Any]
    folder: Path | None
    results: tuple[Results, ...] = ()
    failure: str = ""

    @cached_property
    def figures(self) -> dict[tuple[str, str], Summarised]:
        """What sums it up, by suite and name; kept, because an experiment is written anew after every point."""
        return {(found.suite, found.name): found for results in self.results for found in summarise(results)}
