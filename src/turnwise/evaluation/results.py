"""Results on disk: figures with what it takes to trust them and to compare them."""

import json
import math
import platform
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from turnwise.core.environment import environment
from turnwise.core.errors import TurnwiseError
from turnwise.core.plots import MissingPlotsError
from turnwise.evaluation.datasets.dataset import DatasetError
from turnwise.evaluation.outcomes import Outcome, Row
from turnwise.evaluation.tables import FilledTable

#: What `outcomes.parquet` holds: a line a run.
_COLUMNS = pa.schema(
    [
        *((name, pa.string()) for name in ("task", "dataset", "setting", "metric", "statistic")),
        ("scale", pa.float64()),
        ("run", pa.int32()),
        ("parts", pa.int32()),
        ("values", pa.list_(pa.float32())),
    ]
)


class ResultsError(TurnwiseError):
    """Results cannot be read or compared."""


def taken_with() -> dict[str, str]:
    """What the figures were taken with, the device included."""
    import torch

    device = torch.cuda.get_device_name() if torch.cuda.is_available() else platform.processor() or platform.machine()
    return {**environment("torch", "transformers", "scikit-learn"), "device": device}


@dataclass(slots=True)
class Results:
    """What an evaluation found.

    Attributes:
        model: its name.
        suite: which suite, or the tasks.
        outcomes: what was seen, figure by figure.
        rows: the figures.
        tables: the paper's tables with ours in them, where a suite was run.
        data: of every data set that was used: name, tasks, hash, licence, whether the hash is the known one, how it differs.
        missing: data sets that the suite asks for and the folder does not hold, and where to get them.
        facts: what else a reader has to know: fingerprint of the model, seeds, options, the command.
        figures: pictures by file name, as SVG.
    """

    model: str
    suite: str
    outcomes: list[Outcome] = field(default_factory=list)
    rows: list[Row] = field(default_factory=list)
    tables: list[FilledTable] = field(default_factory=list)
    data: list[dict[str, Any]] = field(default_factory=list)
    missing: list[dict[str, str]] = field(default_factory=list)
    facts: dict[str, Any] = field(default_factory=dict)
    figures: dict[str, str] = field(default_factory=dict)

    def add(self, outcomes: Sequence[Outcome]) -> None:
        """Adds figures and what they are made of.

        Raises:
            ResultsError: if there is a figure of that name already: on disk the two could not be told apart.
        """
        names = {outcome.key for outcome in self.outcomes}
        for outcome in outcomes:
            if outcome.key in names:
                raise ResultsError(
                    f"there are two figures named {', '.join(outcome.key)}: give each a setting of its own"
                )
            names.add(outcome.key)
        self.outcomes += outcomes
        self.rows += [outcome.row() for outcome in outcomes]

    def add_plot(self, name: str, draw: Callable[[], str]) -> None:
        """Add a plot under its file name, or the reason why it cannot be drawn to the facts."""
        try:
            self.figures[name] = draw()
        except (DatasetError, MissingPlotsError) as error:
            self.facts.setdefault("pictures left out", {})[name] = str(error)

    def content(self) -> dict[str, Any]:
        """What `results.json` holds."""
        return {
            "model": self.model,
            "suite": self.suite,
            "environment": taken_with(),
            "facts": self.facts,
            "data": self.data,
            "missing": self.missing,
            "rows": [asdict(row) for row in self.rows],
        }


def defined(content: Any) -> Any:
    """The same with null for numbers that are undefined: JSON has no NaN."""
    if isinstance(content, dict):
        return {name: defined(value) for name, value in content.items()}
    if isinstance(content, list | tuple):
        return [defined(value) for value in content]
    return None if isinstance(content, float) and not math.isfinite(content) else content


def whence(home: str) -> str:
    """Where a missing data set is to be had, in words; a home that is no address says why there is none."""
    return f"get it from {home}" if home.startswith(("https://", "http://")) else home


def write_outcomes(path: Path, outcomes: Sequence[Outcome]) -> None:
    """Writes what every run said of every example: a line a run, for paired tests."""
    lines = [
        {
            **dict(zip(("task", "dataset", "setting", "metric"), outcome.key, strict=True)),
            "statistic": outcome.statistic,
            "scale": outcome.scale,
            "run": run,
            "parts": evidence.shape[1],
            "values": evidence.ravel().astype(np.float32),
        }
        for outcome in outcomes
        for run, evidence in enumerate(outcome.table)
    ]
    pq.write_table(pa.Table.from_pylist(lines, _COLUMNS), path, compression="zstd")


def read_outcomes(path: Path) -> list[Outcome]:
    """Reads what `write_outcomes` wrote.

    Raises:
        ResultsError: if there is no such file, or it is not one of ours.
    """
    _expect(path)
    grouped: dict[tuple[Any, ...], list[np.ndarray[Any, np.dtype[np.float32]]]] = {}
    try:
        table = pq.read_table(path, columns=_COLUMNS.names)
    except (pa.ArrowException, OSError) as error:
        raise ResultsError(f"{path} does not hold outcomes; evaluate anew: {error}") from None
    if table.column_names != _COLUMNS.names:
        raise ResultsError(f"{path} does not hold outcomes; evaluate anew")
    for line, values in zip(table.drop_columns(["values"]).to_pylist(), table.column("values"), strict=True):
        key = tuple(line[name] for name in ("task", "dataset", "setting", "metric", "statistic", "scale"))
        grouped.setdefault(key, []).append(np.asarray(values.values, np.float32).reshape(-1, line["parts"]))
    return [
        Outcome(task, dataset, setting, metric, np.stack(runs), statistic, scale)
        for (task, dataset, setting, metric, statistic, scale), runs in grouped.items()
    ]


def write_results(results: Results, folder: Path) -> None:
    """Writes `results.json` and `outcomes.parquet`; tables and the report are `turnwise.evaluation.reporting.report`'s."""
    folder.mkdir(parents=True, exist_ok=True)
    write_outcomes(folder / "outcomes.parquet", results.outcomes)
    text = json.dumps(defined(results.content()), indent=2, allow_nan=False)
    (folder / "results.json").write_text(text + "\n", encoding="utf-8")


def read_content(path: Path) -> dict[str, Any]:
    """Reads `results.json`.

    Raises:
        ResultsError: if there is no such file, or it is not one of ours.
    """
    _expect(path)
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ResultsError(f"{path} does not hold results; evaluate anew: {error}") from None
    if not isinstance(content, dict) or not {"rows", "data"} <= content.keys():
        raise ResultsError(f"{path} does not hold results; evaluate anew")
    return content


def _expect(path: Path) -> None:
    if not path.is_file():
        raise ResultsError(f"{path} is not there: give a folder that `turnwise evaluate --out` wrote")
