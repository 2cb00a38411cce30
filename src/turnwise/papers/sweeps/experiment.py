"""An experiment: models at several points, how each is evaluated, and the report of all of them.

FOLDER/SUITE/    the results of a suite, as `turnwise evaluate` writes them; those of single tasks are in TASK+TASK
FOLDER/cache/    outcomes and vectors, shared by all suites
"""

import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from turnwise.core import registry
from turnwise.core.errors import MissingPackageError, TurnwiseError
from turnwise.core.files import write_atomic
from turnwise.core.html import format_value, render_page
from turnwise.core.plots import line_chart
from turnwise.core.progress import Progress, silent
from turnwise.evaluation.evaluation_protocols import Effort
from turnwise.evaluation.reporting.report import escape_markdown, markdown_table, write_report
from turnwise.evaluation.results import Results, evaluation_environment, replace_undefined
from turnwise.evaluation.runner import check_available, evaluate
from turnwise.evaluation.suites import SummaryResult, summarise
from turnwise.evaluation.tables import ABSENT, decimals_for, format_difference, format_interval, format_number
from turnwise.models.loading import ModelUnderTest
from turnwise.papers.sweeps.plan import VARIANT

#: The horizontal axis is logarithmic if its largest value is at least this many times its smallest one.
_LOGARITHMIC_RANGE = 20

_INTERVAL_NOTE = "Every result has its 95% interval, from resampling runs and test examples together."
_DIFFERENCE_NOTE = (
    "Each result minus that of the first row, with the 95% interval of the difference, both models resampled alike. "
    "Differences whose interval excludes 0 are bold; intervals are not corrected for multiple comparisons."
)

_SummaryKey = tuple[str, str]  # identifies a summary: suite and name


@dataclass(frozen=True)  # no slots: `summaries` is cached
class SweepPoint:
    """One model of an experiment."""

    name: str  # for tables
    parameters: dict[str, Any]  # its value on every axis of the experiment; empty for the untrained model
    folder: Path | None  # the model's folder; None without one
    results: tuple[Results, ...] = ()  # one for every suite, and one for all single tasks
    failure: str = ""  # why there are no results; empty if nothing failed

    @cached_property
    def summaries(self) -> dict[_SummaryKey, SummaryResult]:
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
        """Raise a TurnwiseError if no model could be evaluated, before one is trained."""
        if not self.suites and not self.tasks:
            raise TurnwiseError("there is nothing to evaluate: name a suite (--suite) or a task (--task)")
        check_available(self.data, self.suites, self.tasks)

    def evaluate(self, model: ModelUnderTest, folder: Path, progress: Progress = silent) -> tuple[Results, ...]:
        """Evaluate a model and write the results to a folder: one for every suite, then one for all tasks."""
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


def write_experiment(
    points: Sequence[SweepPoint], axes: Sequence[str], out: Path, title: str, remarks: Sequence[str] = ()
) -> None:
    """Write `results.json`, `table.md`, `curves/SUITE-NAME.svg` and `report.html`.

    Equal points give equal bytes. Files are replaced atomically, so that they can be read while an experiment runs.
    Differences are to the first point. Curves run along the first axis, with a line for every combination of the
    others; there is no curve along variants.
    """
    experiment = _Experiment(points, axes, title, remarks)
    try:
        curves = _draw_curves(experiment)
    except MissingPackageError as error:
        curves = {}
        experiment.remarks.append(str(error))
    content = replace_undefined(_json_content(experiment, out))
    files = {f"curves/{name}": svg for name, svg in curves.items()} | {
        "results.json": json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False, default=str) + "\n",
        "table.md": _render_markdown(experiment),
        "report.html": _render_html(experiment, curves),
    }
    for name, text in files.items():
        path = out / name
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(path, text)
    for old in (out / "curves").glob("*.svg"):  # of summaries that are no longer evaluated
        if old.name not in curves:
            old.unlink()


def summary_table(points: Sequence[SweepPoint]) -> tuple[list[str], list[list[str]]]:
    """Return the table of summaries as plain text: its header, and a row for every point."""
    experiment = _Experiment(points)
    rows = [[name, *map(str, cells)] for name, cells in experiment.value_rows()]
    return ["model", *experiment.headings.values()], rows


@dataclass(frozen=True, slots=True)
class _SummaryCell:
    """A summary of a point with its 95% interval, compared with that of the first point."""

    summary: SummaryResult
    low: float
    high: float
    #: To the first point, with its interval; None for the first point, or if the two are not comparable.
    difference: tuple[float, float, float] | None = None
    obstacle: str = ""  # why they are not comparable

    @property
    def verdict(self) -> Literal["better", "worse"] | None:
        """Whether it is significantly better or worse than the first point."""
        _, low, high = self.difference or (0, 0, 0)
        if low > 0 or high < 0:  # neither, if they are not defined
            return "better" if (low > 0) != self.summary.lower_is_better else "worse"
        return None


@dataclass(frozen=True, slots=True)
class _TextCell:
    """A table cell as text; `verdict` emphasises it, `note` explains it."""

    value: str
    interval: str = ""
    verdict: str | None = None
    note: str | None = None

    def __str__(self) -> str:
        return f"{self.value} ({self.interval})" if self.interval else self.value


class _Experiment:
    """The points with their summaries and the differences between them."""

    def __init__(
        self, points: Sequence[SweepPoint], axes: Sequence[str] = (), title: str = "", remarks: Sequence[str] = ()
    ):
        self.points, self.axes, self.title = points, axes, title
        self.remarks = list(dict.fromkeys([*remarks, *_shortened_protocols(points)]))
        suites = registry.known_names("suite")
        keys = dict.fromkeys(key for point in points for key in point.summaries)
        self.headings = {(suite, name): f"{suite}: {name}" if suite in suites else name for suite, name in keys}
        #: For every point, its cells by summary.
        self.cells = [
            {key: _compare_summary(point, points[0], key) for key in keys if key in point.summaries} for point in points
        ]
        self.difference_heading = f"Differences to {points[0].name}" if points else "Differences"
        self.failures = [(point.name, point.failure) for point in points if point.failure]

    def rows(self) -> Iterator[tuple[SweepPoint, dict[_SummaryKey, _SummaryCell]]]:
        return zip(self.points, self.cells, strict=True)

    def column(self, key: _SummaryKey) -> list[tuple[SweepPoint, _SummaryCell]]:
        return [(point, cells[key]) for point, cells in self.rows() if key in cells]

    def value_rows(self) -> list[tuple[str, list[_TextCell]]]:
        """Return a row of results for every point."""

        def format_cell(cell: _SummaryCell, digits: int) -> _TextCell:
            return _TextCell(format_number(cell.summary.value, digits), format_interval(cell.low, cell.high, digits))

        return self._text_rows(format_cell)

    def difference_rows(self) -> list[tuple[str, list[_TextCell]]]:
        """Return a row of differences for every point but the first."""

        def format_cell(cell: _SummaryCell, digits: int) -> _TextCell:
            if cell.difference is None:
                return _TextCell("not comparable", note=cell.obstacle)
            value, low, high = cell.difference
            texts = format_difference(value, digits), format_interval(low, high, digits)
            return _TextCell(*texts, cell.verdict, cell.verdict)

        return self._text_rows(format_cell)[1:] if self.headings else []

    def _text_rows(self, format_cell: Callable[[_SummaryCell, int], _TextCell]) -> list[tuple[str, list[_TextCell]]]:
        digits = {
            key: decimals_for(*(x for _, cell in self.column(key) for x in (cell.summary.value, cell.low, cell.high)))
            for key in self.headings
        }
        rows = []
        for point, cells in self.rows():
            absent = _TextCell("failed" if point.failure else ABSENT)
            texts = [format_cell(cells[key], digits[key]) if key in cells else absent for key in self.headings]
            rows.append((point.name, texts))
        return rows

    def average_rows(self) -> list[tuple[str, str, str]]:
        """Return every summary's heading, its metrics by setting, and its data sets (by points, if they differ)."""
        rows = []
        for key, heading in self.headings.items():
            metrics: dict[str, dict[str, None]] = {}
            points: dict[tuple[str, ...], list[str]] = {}
            for point, cell in self.column(key):
                for task, setting, metric in cell.summary.parts:
                    metrics.setdefault(f"{task}, {setting}", {})[metric] = None
                points.setdefault(cell.summary.datasets, []).append(point.name)
            results = "; ".join(f"{setting}: {', '.join(names)}" for setting, names in metrics.items())
            datasets = [f"{', '.join(each)} ({', '.join(names)})" for each, names in points.items()]
            rows.append((heading, results, "; ".join(datasets) if len(points) > 1 else ", ".join(next(iter(points)))))
        return rows


def _compare_summary(point: SweepPoint, first: SweepPoint, key: _SummaryKey) -> _SummaryCell:
    summary, reference = point.summaries[key], first.summaries.get(key)
    bounds = summary.confidence_interval()
    if point is first:
        return _SummaryCell(summary, *bounds)
    obstacle = summary.why_not_paired(reference) if reference else f"{first.name} does not have it"
    difference = None if reference is None or obstacle else summary.difference(reference)
    return _SummaryCell(summary, *bounds, difference, obstacle)


def _shortened_protocols(points: Sequence[SweepPoint]) -> Iterable[str]:
    for results in (results for point in points for results in point.results):
        effort = {name: value for name, value in results.facts.get("effort", {}).items() if value is not None}
        if effort:
            yield f"{results.suite} was shortened: {', '.join(f'{name} {value}' for name, value in effort.items())}"
        for name, reason in results.facts.get("left out", {}).items():
            yield f"{results.suite} without {name}: {reason}"


def _json_content(experiment: _Experiment, out: Path) -> dict[str, Any]:
    return {
        "title": experiment.title,
        "axes": list(experiment.axes),
        "remarks": experiment.remarks,
        "environment": evaluation_environment(),
        "points": [
            {
                "name": point.name,
                "place": point.parameters,
                "folder": point.folder and str(point.folder).removeprefix(f"{out}/"),
                "failure": point.failure,
                "figures": [
                    {
                        "suite": cell.summary.suite,
                        "name": cell.summary.name,
                        "value": cell.summary.value,
                        "low": cell.low,
                        "high": cell.high,
                        "difference": cell.difference
                        and dict(zip(("value", "low", "high"), cell.difference, strict=True)),
                        "not_comparable": cell.obstacle,
                        "datasets": cell.summary.datasets,
                    }
                    for cell in cells.values()
                ],
            }
            for point, cells in experiment.rows()
        ],
    }


def _render_markdown(experiment: _Experiment) -> str:
    header = ["model", *map(escape_markdown, experiment.headings.values())]
    align = "l" + "r" * len(experiment.headings)
    parts = [f"# {escape_markdown(experiment.title)}\n"]
    if experiment.remarks:
        parts.append(_markdown_list(experiment.remarks))
    body = [[escape_markdown(name), *map(str, cells)] for name, cells in experiment.value_rows()]
    parts.append(f"## Results\n\n{markdown_table(header, body, align)}\n{_INTERVAL_NOTE}\n")
    if differences := experiment.difference_rows():
        body = [
            [
                escape_markdown(name),
                *(f"**{cell.value}** ({cell.interval})" if cell.verdict else str(cell) for cell in cells),
            ]
            for name, cells in differences
        ]
        heading = escape_markdown(experiment.difference_heading)
        parts.append(f"## {heading}\n\n{markdown_table(header, body, align)}\n{_DIFFERENCE_NOTE}\n")
        obstacles = [
            f"{point.name}, {experiment.headings[key]}: {cell.obstacle}"
            for point, cells in experiment.rows()
            for key, cell in cells.items()
            if cell.obstacle
        ]
        if obstacles:
            parts.append(f"Not comparable:\n\n{_markdown_list(obstacles)}")
    if averages := experiment.average_rows():
        body = [[escape_markdown(text) for text in row] for row in averages]
        parts.append(f"## Averaged results\n\n{markdown_table(('summary', 'results', 'data sets'), body)}")
    if experiment.failures:
        parts.append(f"## Failures\n\n{_markdown_list(': '.join(failure) for failure in experiment.failures)}")
    return "\n".join(parts)


def _markdown_list(texts: Iterable[str]) -> str:
    return "".join(f"- {escape_markdown(text)}\n" for text in texts)


def _render_html(experiment: _Experiment, curves: dict[str, str]) -> str:
    sections = {
        "curves": "Curves" if curves else "",
        "results": "Results",
        "differences": experiment.difference_heading if experiment.difference_rows() else "",
        "averages": "Averaged results" if experiment.headings else "",
        "failures": "Failures" if experiment.failures else "",
        "environment": "Environment",
    }
    return render_page(
        "papers/sweeps/report.html",
        styles=("core/html/page.css", "papers/sweeps/report.css"),
        experiment=experiment,
        sections={kind: heading for kind, heading in sections.items() if heading},
        columns=[(heading, "number") for heading in experiment.headings.values()],
        curves={name.removesuffix(".svg"): svg for name, svg in curves.items()},
        environment=evaluation_environment(),
        interval_note=_INTERVAL_NOTE,
        difference_note=_DIFFERENCE_NOTE,
    )


def _draw_curves(experiment: _Experiment) -> dict[str, str]:
    """Return a plot for every summary, by file name; none along variants, which have no order."""
    curves: dict[str, str] = {}
    for key in experiment.headings if experiment.axes and experiment.axes[0] != VARIANT else ():
        if svg := _draw_curve(experiment, key):
            name = re.sub(r"[^\w.@+-]+", "-", "-".join(key))
            curves[f"{name}.svg" if f"{name}.svg" not in curves else f"{name}-{len(curves)}.svg"] = svg
    return curves


def _draw_curve(experiment: _Experiment, key: _SummaryKey) -> str:
    """Plot a summary along the first axis; empty if no point has both."""
    axis, *other_axes = experiment.axes
    # of all points, including failed ones, so that all curves of an experiment have the same axis
    values = [point.parameters[axis] for point in experiment.points if axis in point.parameters]
    numeric = all(type(value) in (int, float) and math.isfinite(value) for value in values)
    # numbers by their size, other values one after the other
    distinct = enumerate({format_value(value): value for value in values}.items())
    positions = {label: float(value) if numeric else float(place) for place, (label, value) in distinct}
    lines: dict[str, list[tuple[float, float]]] = {}
    intervals: dict[str, list[tuple[float, float, float]]] = {}
    levels: dict[str, float] = {}
    for point, cell in experiment.column(key):
        if not point.parameters:
            levels[point.name] = cell.summary.value
        elif axis in point.parameters:
            labels = [(other, format_value(point.parameters.get(other))) for other in other_axes]
            name = ", ".join(label if other == VARIANT else f"{_axis_label(other)} {label}" for other, label in labels)
            x = positions[format_value(point.parameters[axis])]
            lines.setdefault(name, []).append((x, cell.summary.value))
            intervals.setdefault(name, []).append((x, cell.low, cell.high))
    if not lines:
        return ""
    return line_chart(
        {name: sorted(line) for name, line in lines.items()},
        experiment.headings[key],
        _axis_label(axis),
        log_x=numeric and min(values) > 0 and max(values) >= _LOGARITHMIC_RANGE * min(values),
        intervals={name: sorted(bounds) for name, bounds in intervals.items()},
        levels=levels,
        x_ticks={x: f"{x:g}" if numeric else label for label, x in positions.items()},
        from_zero=False,
        legend_outside=True,
    )


def _axis_label(key: str) -> str:
    """Return a recipe's key in words, without the objective that it belongs to."""
    return key.rpartition(".")[2].replace("_", " ")
