"""The points of an experiment, and how every one of their models is evaluated.

FOLDER/SUITE/    the results of a suite, as `turnwise evaluate` writes them; those of single tasks are in TASK+TASK
FOLDER/cache/    outcomes and vectors, shared by all suites
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from turnwise.core.errors import EvaluationError
from turnwise.core.progress import Progress, silent
from turnwise.evaluation.evaluation_protocols import Effort
from turnwise.evaluation.reporting.report import write_report
from turnwise.evaluation.results import Results
from turnwise.evaluation.runner import check_available, evaluate
from turnwise.evaluation.suites import SummaryResult, summarise
from turnwise.models.loading import ModelUnderTest


@dataclass(frozen=True)  # no slots: `summaries` is cached
class SweepPoint:
    """One model of an experiment."""

    name: str  # for tables
    parameters: dict[str, Any]  # its value on every axis of the experiment; empty for the untrained model
    folder: Path | None  # the model's folder; None without one
    results: tuple[Results, ...] = ()  # one for every suite, and one for all single tasks
    failure: str = ""  # why there are no results; empty if nothing failed

    @cached_property
    def summaries(self) -> dict[tuple[str, str], SummaryResult]:
        """The summaries of its results, by suite and name; cached, because reports are rewritten after every point."""
        return {(summary.suite, summary.name): summary for results in self.results for summary in summarise(results)}


@dataclass(frozen=True, slots=True)
class EvaluationPlan:
    """The suites and tasks that evaluate every model of an experiment, and their data, as `evaluate` takes them."""

    data: Path
    suites: Sequence[str] = ()
    tasks: Sequence[str] = ()  # in addition to the suites, or without any
    datasets: Sequence[str] = ()
    fine_tuning: bool = False
    effort: Effort = field(default_factory=Effort)

    def check(self) -> None:
        """Raise an EvaluationError if no model could be evaluated, before one is trained."""
        if not self.suites and not self.tasks:
            raise EvaluationError("there is nothing to evaluate: name a suite (--suite) or a task (--task)")
        check_available(self.data, self.suites, self.tasks)

    def evaluate(self, model: ModelUnderTest, folder: Path, progress: Progress = silent) -> tuple[Results, ...]:
        """Evaluate a model and write the results to a folder: one for every suite, then one for all tasks.

        Protocols that several suites share run once, and existing outcomes are reused.
        """
        evaluated = []
        for suite in (*self.suites, *([None] if self.tasks else [])):
            results = evaluate(
                model,
                self.data,
                suite=suite,
                tasks=self.tasks if suite is None else (),
                datasets=self.datasets,
                out=folder,
                fine_tuning=self.fine_tuning,
                effort=self.effort,
                plots=False,
                progress=progress,
            )
            write_report(results, folder / results.suite)
            evaluated.append(results)
        return tuple(evaluated)
