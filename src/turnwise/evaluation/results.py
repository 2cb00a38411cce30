"""Figures with what it takes to trust them: spread over runs, intervals, the outcome of every example, the environment."""

import json
import platform
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from turnwise.version import __version__

#: Bootstrap replicates of an interval.
REPLICATES = 1_000


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
        comparable: why the published figure is not like for like; empty where it is.
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
    """What a figure is the mean of: (runs, examples), in the order of the test set."""

    task: str
    dataset: str
    setting: str
    metric: str
    values: npt.NDArray[np.float64]

    def row(self, scale: float = 100.0, **published: Any) -> Row:
        """The figure, with an interval from resampling runs and examples together."""
        means = self.values.mean(axis=1) * scale
        low, high = interval(self.values)
        return Row(
            self.task,
            self.dataset,
            self.setting,
            self.metric,
            float(means.mean()),
            float(means.std(ddof=1)) if len(means) > 1 else 0.0,
            low * scale,
            high * scale,
            *self.values.shape,
            **published,
        )


def interval(values: npt.NDArray[np.float64], replicates: int = REPLICATES, seed: int = 0) -> tuple[float, float]:
    """The 95% bootstrap interval of the mean of (runs, examples), runs and examples drawn anew together.

    Runs of one test set share its examples, so the two are resampled as rows and columns of one table.
    """
    random = np.random.default_rng(seed)
    runs, examples = values.shape
    row_weights = random.multinomial(runs, np.full(runs, 1 / runs), replicates) / runs
    column_weights = random.multinomial(examples, np.full(examples, 1 / examples), replicates) / examples
    means = np.einsum("br,re,be->b", row_weights, values, column_weights, optimize=True)
    low, high = np.percentile(means, [2.5, 97.5])
    return float(low), float(high)


@dataclass(slots=True)
class Results:
    """What an evaluation found."""

    model: str
    suite: str
    rows: list[Row] = field(default_factory=list)
    outcomes: list[Outcome] = field(default_factory=list)

    def add(self, outcomes: Sequence[Outcome], scale: float = 100.0) -> None:
        """Adds figures and their outcomes."""
        self.outcomes += outcomes
        self.rows += [outcome.row(scale) for outcome in outcomes]

    def write(self, folder: Path) -> None:
        """Writes `results.json`, `tables.md` and, for paired tests, `outcomes.parquet`."""
        folder.mkdir(parents=True, exist_ok=True)
        content = {
            "model": self.model,
            "suite": self.suite,
            "environment": {"turnwise": __version__, "python": platform.python_version(), "machine": platform.machine()},
            "rows": [asdict(row) for row in self.rows],
        }
        (folder / "results.json").write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
        (folder / "tables.md").write_text(self.table(), encoding="utf-8")
        pq.write_table(
            pa.Table.from_pylist(
                [
                    {
                        "task": outcome.task,
                        "dataset": outcome.dataset,
                        "setting": outcome.setting,
                        "metric": outcome.metric,
                        "run": run,
                        "values": values.tolist(),
                    }
                    for outcome in self.outcomes
                    for run, values in enumerate(outcome.values)
                ]
            ),
            folder / "outcomes.parquet",
        )

    def table(self) -> str:
        """The figures as a Markdown table."""
        lines = [
            f"# {self.model}",
            "",
            "| task | data set | setting | metric | value | 95% interval | runs |",
            "|---|---|---|---|---|---|---|",
        ]
        for row in self.rows:
            figures = f"{row.value:.2f} | {row.low:.2f} to {row.high:.2f} | {row.runs}"
            lines.append(f"| {row.task} | {row.dataset} | {row.setting} | {row.metric} | {figures} |")
        return "\n".join(lines) + "\n"
