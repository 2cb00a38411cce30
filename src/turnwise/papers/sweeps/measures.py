"""What every model of an experiment is measured by.

FOLDER/SUITE/    what a suite found, as `turnwise evaluate` writes it; that of the tasks is called TASK+TASK
FOLDER/cache/    what was measured and encoded once, for all of them
"""

from dataclasses import dataclass, field
from pathlib import Path

from turnwise.core.progress import Progress, silent
from turnwise.evaluation.evaluation_protocols import Effort, task_names
from turnwise.evaluation.reporting.report import write_report
from turnwise.evaluation.results import Results
from turnwise.evaluation.runner import EvaluationError, evaluate
from turnwise.evaluation.suites import SUITES
from turnwise.models.loading import ModelUnderTest
from turnwise.papers.registration import register


@dataclass(frozen=True, slots=True)
class Measures:
    """Suites and tasks, and what they are run on.

    Attributes:
        data: a folder of data sets in their authors' layouts, or a sample world's.
        suites: 'dse', 'diaeval', ….
        tasks: besides the suites or without any: 'intents', 'responses', ….
        datasets: these alone; none: all that are there.
        fine_tuning: whether to run what trains the encoder further.
        effort: less than the whole protocols; results say so.
    """

    data: Path
    suites: tuple[str, ...] = ()
    tasks: tuple[str, ...] = ()
    datasets: tuple[str, ...] = ()
    fine_tuning: bool = False
    effort: Effort = field(default_factory=Effort)

    def __post_init__(self) -> None:
        register()  # so that suites are known by their names

    def check(self) -> None:
        """Refuses what no model could be measured by, before one is made.

        Raises:
            EvaluationError: if nothing is asked for, there is no such suite or task, or no folder of data.
        """
        if not self.suites and not self.tasks:
            raise EvaluationError("nothing is measured: name a suite (--suite) or a task (--task)")
        for kind, names, known in (("suite", self.suites, SUITES), ("task", self.tasks, task_names())):
            for name in names:
                if name not in known:
                    raise EvaluationError(f"there is no {kind} {name!r}: choose from {', '.join(known)}")
        if not self.data.is_dir():
            raise EvaluationError(
                f"{self.data} is no folder: give one that holds data sets in their authors' layouts, or a sample world"
            )

    def results(self, model: ModelUnderTest, folder: Path, progress: Progress = silent) -> tuple[Results, ...]:
        """What a model measures: one for every suite, then one for all tasks.

        What suites and tasks have in common is measured once, and what was measured before is not measured again.

        Args:
            model: under the name that reports call it by.
            folder: where the results and what is kept of them are written.
            progress: told what is under way.

        Raises:
            EvaluationError: if there is nothing to run a suite or a task on.
        """
        parts: list[tuple[str | None, tuple[str, ...]]] = [(suite, ()) for suite in self.suites]
        if self.tasks:
            parts.append((None, self.tasks))
        return tuple(self._part(model, folder, suite, tasks, progress) for suite, tasks in parts)

    def _part(
        self, model: ModelUnderTest, folder: Path, suite: str | None, tasks: tuple[str, ...], progress: Progress
    ) -> Results:
        results = evaluate(
            model,
            self.data,
            suite=suite,
            tasks=tasks,
            datasets=self.datasets,
            out=folder,
            fine_tuning=self.fine_tuning,
            effort=self.effort,
            pictures=False,
            progress=progress,
        )
        write_report(results, folder / results.suite)
        return results
