"""Results of an evaluation, in memory and on disk: `results.json` and `outcomes.parquet`."""

import math
import platform
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from turnwise.core.errors import DatasetError, MissingPackageError, TurnwiseError
from turnwise.core.files import read_json, write_json
from turnwise.evaluation.metrics import MetricRow, Outcome, metric_rows
from turnwise.evaluation.tables import ResultTable
from turnwise.version import describe_environment

_KEY = ("task", "dataset", "setting", "metric")

#: Columns of `outcomes.parquet`; one line per run.
_SCHEMA = pa.schema(
    [
        *((name, pa.string()) for name in (*_KEY, "statistic")),
        ("scale", pa.float64()),
        ("run", pa.int32()),
        ("parts", pa.int32()),
        ("values", pa.list_(pa.float32())),
    ]
)


def evaluation_environment() -> dict[str, str]:
    """Return the versions and the device that metrics are computed with."""
    import torch

    device = torch.cuda.get_device_name() if torch.cuda.is_available() else platform.processor() or platform.machine()
    return {**describe_environment("torch", "transformers", "scikit-learn"), "device": device}


@dataclass(slots=True)
class Results:
    """Results of an evaluation."""

    #: The name of the model, and that of the suite or of the tasks.
    model: str
    suite: str
    #: The metrics with their per-example evidence, and without.
    outcomes: list[Outcome] = field(default_factory=list)
    rows: list[MetricRow] = field(default_factory=list)
    #: Published tables with the measured rows, if a suite was run.
    tables: list[ResultTable] = field(default_factory=list)
    #: For each data set used: name, tasks, hash, licence, whether the hash is the known one, how it differs, and what
    #: the model has seen of it in training.
    data: list[dict[str, Any]] = field(default_factory=list)
    #: Data sets of the suite that the data folder does not hold, and where to get them.
    missing: list[dict[str, str]] = field(default_factory=list)
    #: Fingerprint of the model, seeds, options, what was left out.
    facts: dict[str, Any] = field(default_factory=dict)
    plots: dict[str, str] = field(default_factory=dict)  # SVG plots by file name

    def add(self, outcomes: Sequence[Outcome], seen: str | None = None) -> None:
        """Add metrics; `seen` says how many of their test examples the model has seen in training."""
        known = {outcome.key for outcome in self.outcomes}
        for outcome in outcomes:
            if outcome.key in known:
                raise TurnwiseError(f"two metrics are named {', '.join(outcome.key)}: give them different settings")
            known.add(outcome.key)
        self.outcomes += outcomes
        self.rows += [replace(row, seen=seen) for row in metric_rows(outcomes)]

    def add_plot(self, name: str, draw: Callable[[], str]) -> None:
        """Add a plot under its file name, or the reason why it cannot be drawn to the facts."""
        try:
            self.plots[name] = draw()
        except (DatasetError, MissingPackageError) as error:
            self.facts.setdefault("plots left out", {})[name] = str(error)


def replace_undefined(content: Any) -> Any:
    """Replace numbers that are not finite by None, as JSON has no NaN."""
    if isinstance(content, dict):
        return {name: replace_undefined(value) for name, value in content.items()}
    if isinstance(content, list | tuple):
        return [replace_undefined(value) for value in content]
    return None if isinstance(content, float) and not math.isfinite(content) else content


def describe_source(home: str) -> str:
    """Return where to get a missing data set; a home that is not a URL already says why there is none."""
    return f"get it from {home}" if home.startswith(("https://", "http://")) else home


def describe_seen(entry: dict[str, Any]) -> str:
    """Return how much of the test split of a data set in `Results.data` the model has seen in training."""
    leakage = entry.get("leakage")
    if not leakage:
        return ""
    changes = f" (labels before → after: {leakage['label_changes']})" if leakage.get("label_changes") else ""
    return f"{leakage['summary']}{f', excluded{changes}' if entry['excluded'] else ''}"


def write_outcomes(path: Path, outcomes: Sequence[Outcome]) -> None:
    """Write per-example evidence, one line per run."""
    lines = [
        {
            **dict(zip(_KEY, outcome.key, strict=True)),
            "statistic": outcome.statistic,
            "scale": outcome.scale,
            "run": run,
            "parts": evidence.shape[1],
            "values": evidence.ravel().astype(np.float32),
        }
        for outcome in outcomes
        for run, evidence in enumerate(outcome.table)
    ]
    # zstd alone makes values about as small as a dictionary does, in less time
    names = [*_KEY, "statistic"]
    pq.write_table(pa.Table.from_pylist(lines, _SCHEMA), path, compression="zstd", use_dictionary=names)


def read_outcomes(path: Path) -> list[Outcome]:
    """Read a file of `write_outcomes`; raises TurnwiseError if it is missing or invalid."""
    _require_file(path)
    try:
        table = pq.read_table(path, columns=_SCHEMA.names).select(_SCHEMA.names)
    except (pa.ArrowException, OSError, KeyError) as error:
        raise TurnwiseError(f"{path} does not hold outcomes; evaluate again: {error}") from None
    runs: dict[tuple[Any, ...], list[np.ndarray[Any, np.dtype[np.float32]]]] = {}
    for line, values in zip(table.drop_columns(["values"]).to_pylist(), table.column("values"), strict=True):
        key = tuple(line[name] for name in (*_KEY, "statistic", "scale"))
        runs.setdefault(key, []).append(np.asarray(values.values, np.float32).reshape(-1, line["parts"]))
    return [
        Outcome(task, dataset, setting, metric, np.stack(evidence), statistic, scale)
        for (task, dataset, setting, metric, statistic, scale), evidence in runs.items()
    ]


def write_results(results: Results, folder: Path) -> None:
    """Write `results.json` and `outcomes.parquet`; `reporting.report.write_report` also writes tables and the page."""
    folder.mkdir(parents=True, exist_ok=True)
    write_outcomes(folder / "outcomes.parquet", results.outcomes)
    content = {
        "model": results.model,
        "suite": results.suite,
        "environment": evaluation_environment(),
        "facts": results.facts,
        "data": results.data,
        "missing": results.missing,
        "rows": [asdict(row) for row in results.rows],
    }
    write_json(folder / "results.json", replace_undefined(content))


def read_content(path: Path) -> dict[str, Any]:
    """Read `results.json`; raises TurnwiseError if it is missing or invalid."""
    _require_file(path)
    try:
        content = read_json(path)
    except ValueError as error:
        raise TurnwiseError(f"{path} does not hold results; evaluate again: {error}") from None
    if not isinstance(content, dict) or not {"rows", "data"} <= content.keys():
        raise TurnwiseError(f"{path} does not hold results; evaluate again")
    return content


def _require_file(path: Path) -> None:
    if not path.is_file():
        raise TurnwiseError(f"{path} does not exist: give a folder that `turnwise evaluate --out` wrote")
