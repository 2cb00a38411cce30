"""An experiment as a folder: figures to compute with, a table to paste, curves, and one page that asks nothing of the network."""

import json
import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from turnwise.core.files import write_whole
from turnwise.core.html.document import contents, document, facts, image, listing, plain, section
from turnwise.core.html.elements import Markup, element, joined
from turnwise.core.svg import line_chart
from turnwise.evaluation.reporting.cells import ABSENT, between, digits_of, number, signed
from turnwise.evaluation.reporting.markdown import escaped, grid
from turnwise.evaluation.results import defined, taken_with
from turnwise.evaluation.suites import SUITES
from turnwise.evaluation.summaries import Summarised
from turnwise.papers.sweeps.points import VARIANT, Point

#: A horizontal axis whose largest number is so many times its smallest is drawn by powers of ten.
_LOGARITHMIC = 20

#: What the page has besides the style of evaluation reports.
_STYLE = ".list .better strong { color: var(--better); } .list .worse strong { color: var(--worse); }\n"

_INTERVALS = "Every figure stands with its 95% interval, for which runs and test examples are drawn anew together."
_DIFFERENCES = (
    "Each less the first line, with the 95% interval of the difference, for which both models get the same drawings. "
    "Those whose interval excludes 0 are bold; intervals are not corrected for many comparisons."
)

#: Which figure: suite and name.
_Key = tuple[str, str]


def write_experiment(
    points: Sequence[Point], axes: Sequence[str], out: Path, title: str, remarks: Sequence[str] = ()
) -> None:
    """Writes `results.json`, `table.md`, `curves/SUITE-NAME.svg` and `report.html`.

    Equal points give equal bytes. Every file is written under another name and renamed, so that whoever watches a long experiment
    never sees half of one.

    Args:
        points: in the order of the table; differences are to the first of them.
        axes: what the points differ in; curves run along the first, and have a line for every combination of the others. Along
            variants alone there is no curve.
        out: the experiment's folder.
        title: of the page.
        remarks: what a reader has to know besides.
    """
    experiment = _Experiment.of(points, axes, title, remarks)
    text = json.dumps(defined(_content(experiment, out)), indent=2, ensure_ascii=False, allow_nan=False, default=str)
    curves = _curves(experiment)
    written = {f"curves/{name}": picture for name, picture in curves.items()}
    written |= {
        "results.json": text + "\n",
        "table.md": _markdown(experiment),
        "report.html": _page(experiment, curves),
    }
    for name, content in written.items():
        place = out / name
        place.parent.mkdir(parents=True, exist_ok=True)
        write_whole(place, content)
    for old in (out / "curves").glob("*.svg"):  # of an experiment that measured something else
        if old.name not in curves:
            old.unlink()


def figure_lines(points: Sequence[Point]) -> tuple[list[str], list[list[str]]]:
    """The table of figures as plain text: its heads, and a line a point."""
    experiment = _Experiment.of(points, (), "", ())
    heads = ["model", *map(_heading, experiment.keys)]
    return heads, [[point.name, *cells] for point, cells in zip(points, _values(experiment), strict=True)]


# ---- what is told in every file


@dataclass(frozen=True, slots=True)
class _Cell:
    """A figure of a point.

    Attributes:
        figure: what was measured.
        low: of its 95% interval.
        high: of its 95% interval.
        difference: to the first point's, with its interval; None for the first point itself, and where it cannot be taken.
        obstacle: why it cannot.
    """

    figure: Summarised
    low: float
    high: float
    difference: tuple[float, float, float] | None = None
    obstacle: str = ""

    @property
    def verdict(self) -> Literal["better", "worse"] | None:
        """Whether it is clearly better or worse than the first point's."""
        if self.difference is None:
            return None
        _, low, high = self.difference
        if not (low > 0 or high < 0):
            return None
        return "better" if (low > 0) != self.figure.lower_is_better else "worse"


@dataclass(frozen=True, slots=True)
class _Experiment:
    """The points with their figures and differences."""

    points: Sequence[Point]
    axes: Sequence[str]
    title: str
    remarks: tuple[str, ...]
    keys: tuple[_Key, ...]
    cells: tuple[dict[_Key, _Cell], ...]

    @classmethod
    def of(cls, points: Sequence[Point], axes: Sequence[str], title: str, remarks: Sequence[str]) -> "_Experiment":
        keys = tuple(dict.fromkeys(key for point in points for key in point.figures))
        cells = tuple({key: _cell(points[0], point, key) for key in keys if key in point.figures} for point in points)
        return cls(points, axes, title, tuple(dict.fromkeys([*remarks, *_shortfalls(points)])), keys, cells)

    def digits(self, key: _Key) -> int:
        """Decimals of a figure."""
        found = [cells[key] for cells in self.cells if key in cells]
        return digits_of(*(value for cell in found for value in (cell.figure.value, cell.low, cell.high)))

    def datasets(self, key: _Key) -> str:
        """What a figure is the mean of; by points where not all have the same."""
        sets: dict[tuple[str, ...], list[str]] = {}
        for point, cells in zip(self.points, self.cells, strict=True):
            if key in cells:
                sets.setdefault(cells[key].figure.datasets, []).append(point.name)
        if len(sets) == 1:
            return ", ".join(next(iter(sets)))
        return "; ".join(f"{', '.join(datasets)} ({', '.join(names)})" for datasets, names in sets.items())

    def parts(self, key: _Key) -> str:
        """The figures that one sums up; metrics that are taken in one setting stand together."""
        metrics: dict[tuple[str, str], list[str]] = {}
        for task, setting, metric in dict.fromkeys(
            part for cells in self.cells if key in cells for part in cells[key].figure.parts
        ):
            metrics.setdefault((task, setting), []).append(metric)
        return "; ".join(f"{task}, {setting}: {', '.join(taken)}" for (task, setting), taken in metrics.items())


def _cell(first: Point, point: Point, key: _Key) -> _Cell:
    figure = point.figures[key]
    bounds = figure.interval()
    if point is first:
        return _Cell(figure, *bounds)
    if key not in first.figures:
        return _Cell(figure, *bounds, obstacle=f"{first.name} does not have it")
    if obstacle := figure.obstacle(first.figures[key]):
        return _Cell(figure, *bounds, obstacle=obstacle)
    return _Cell(figure, *bounds, figure.difference(first.figures[key]))


def _shortfalls(points: Sequence[Point]) -> Iterable[str]:
    """What was not measured as its suite has it."""
    for results in (results for point in points for results in point.results):
        cut = {name: value for name, value in results.facts.get("effort", {}).items() if value is not None}
        if cut:
            yield f"{results.suite} was cut short: {', '.join(f'{name} {value}' for name, value in cut.items())}"
        for name, reason in results.facts.get("left out", {}).items():
            yield f"{results.suite} without {name}: {reason}"


def _differing(experiment: _Experiment) -> str:
    return f"Differences to {experiment.points[0].name}" if experiment.points else "Differences"


def _unlike(experiment: _Experiment) -> list[str]:
    """Why some differences cannot be taken."""
    return [
        f"{point.name}, {_heading(key)}: {cell.obstacle}"
        for point, cells in zip(experiment.points, experiment.cells, strict=True)
        for key, cell in cells.items()
        if cell.obstacle
    ]


def _heading(key: _Key) -> str:
    suite, name = key
    return f"{suite}: {name}" if suite in SUITES else name


def _values(experiment: _Experiment) -> list[list[str]]:
    """A line of figures with their intervals for every point."""
    return [
        [_with_interval(*_value(cells.get(key), point, experiment.digits(key))) for key in experiment.keys]
        for point, cells in zip(experiment.points, experiment.cells, strict=True)
    ]


def _value(cell: _Cell | None, point: Point, digits: int) -> tuple[str, str]:
    """A figure and its interval, as tables print them."""
    if cell is None:
        return ("failed" if point.failure else ABSENT), ""
    return number(cell.figure.value, digits), between(cell.low, cell.high, digits)


def _with_interval(value: str, interval: str) -> str:
    return f"{value} ({interval})" if interval else value


def _change(cell: _Cell | None, point: Point, digits: int) -> tuple[str, str]:
    """A difference and its interval, as tables print them."""
    if cell is None or cell.difference is None:
        return ("not comparable" if cell else "failed" if point.failure else ABSENT), ""
    value, low, high = cell.difference
    return signed(value, digits), between(low, high, digits)


# ---- results.json


def _content(experiment: _Experiment, out: Path) -> dict[str, Any]:
    return {
        "title": experiment.title,
        "axes": list(experiment.axes),
        "remarks": list(experiment.remarks),
        "environment": taken_with(),
        "points": [
            {
                "name": point.name,
                "place": point.place,
                "folder": _folder(point.folder, out),
                "failure": point.failure,
                "figures": [_figure(cell) for cell in cells.values()],
            }
            for point, cells in zip(experiment.points, experiment.cells, strict=True)
        ],
    }


def _folder(folder: Path | None, out: Path) -> str | None:
    """As seen from the experiment's folder, where it lies in there."""
    if folder is None:
        return None
    return folder.relative_to(out).as_posix() if folder.is_relative_to(out) else str(folder)


def _figure(cell: _Cell) -> dict[str, Any]:
    difference = None if cell.difference is None else dict(zip(("value", "low", "high"), cell.difference, strict=True))
    return {
        "suite": cell.figure.suite,
        "name": cell.figure.name,
        "value": cell.figure.value,
        "low": cell.low,
        "high": cell.high,
        "difference": difference,
        "not_comparable": cell.obstacle,
        "datasets": cell.figure.datasets,
    }


# ---- table.md


def _markdown(experiment: _Experiment) -> str:
    keys = experiment.keys
    heads = ["model", *(escaped(_heading(key)) for key in keys)]
    align = "l" + "r" * len(keys)
    parts = [f"# {escaped(experiment.title)}\n"]
    if experiment.remarks:
        parts.append("".join(f"- {escaped(remark)}\n" for remark in experiment.remarks))
    figures = [
        [escaped(point.name), *cells] for point, cells in zip(experiment.points, _values(experiment), strict=True)
    ]
    parts.append(f"## Figures\n\n{grid(heads, figures, align)}\n{_INTERVALS}\n")
    if len(experiment.points) > 1 and keys:
        parts.append(
            f"## {escaped(_differing(experiment))}\n\n{grid(heads, _changes(experiment), align)}\n{_DIFFERENCES}\n"
        )
        if unlike := _unlike(experiment):
            parts.append("Not comparable:\n\n" + "".join(f"- {escaped(text)}\n" for text in unlike))
    if keys:
        body = [
            [escaped(text) for text in (_heading(key), experiment.parts(key), experiment.datasets(key))] for key in keys
        ]
        parts.append(f"## What they are the means of\n\n{grid(('figure', 'figures', 'data sets'), body)}")
    if failures := [point for point in experiment.points if point.failure]:
        lines = "".join(f"- {escaped(point.name)}: {escaped(point.failure)}\n" for point in failures)
        parts.append(f"## Failures\n\n{lines}")
    return "\n".join(parts)


def _changes(experiment: _Experiment) -> Iterable[list[str]]:
    """A line of differences for every point but the first."""
    for point, cells in list(zip(experiment.points, experiment.cells, strict=True))[1:]:
        line = [escaped(point.name)]
        for key in experiment.keys:
            value, interval = _change(cell := cells.get(key), point, experiment.digits(key))
            line.append(_with_interval(f"**{value}**" if cell and cell.verdict else value, interval))
        yield line


# ---- curves


def _curves(experiment: _Experiment) -> dict[str, str]:
    """A picture a figure, by file name."""
    curves: dict[str, str] = {}
    for key in experiment.keys:
        if picture := _curve(experiment, key):
            name = re.sub(r"[^\w.@+-]+", "-", "-".join(key))
            curves[f"{name}.svg" if f"{name}.svg" not in curves else f"{name}-{len(curves)}.svg"] = picture
    return curves


def _curve(experiment: _Experiment, key: _Key) -> str:
    """A figure along the first axis; empty where no point has both, and for variants alone, between which nothing lies."""
    if not experiment.axes or experiment.axes[0] == VARIANT:
        return ""
    across, *others = experiment.axes
    # of all points, failed ones too: the axes of all figures of an experiment are alike
    values = [point.place[across] for point in experiment.points if across in point.place]
    ticks, places = _axis(values)
    lines: dict[str, list[tuple[float, float]]] = {}
    intervals: dict[str, list[tuple[float, float, float]]] = {}
    levels: dict[str, float] = {}
    for point, cells in zip(experiment.points, experiment.cells, strict=True):
        if (cell := cells.get(key)) is None:
            continue
        if not point.place:
            levels[point.name] = cell.figure.value
        elif across in point.place:
            name = ", ".join(_line(axis, plain(point.place.get(axis))) for axis in others)
            x = places[plain(point.place[across])]
            lines.setdefault(name, []).append((x, cell.figure.value))
            intervals.setdefault(name, []).append((x, cell.low, cell.high))
    if not lines:
        return ""
    return line_chart(
        {name: sorted(line) for name, line in lines.items()},
        _heading(key),
        across,
        logarithmic=_logarithmic(values),
        intervals={name: sorted(ends) for name, ends in intervals.items()},
        levels=levels,
        ticks=ticks,
        from_zero=False,
        beside=True,
    )


def _line(axis: str, value: str) -> str:
    """A line's value on an axis, as its name has it; variants have names of their own."""
    return value if axis == VARIANT else f"{axis.rpartition('.')[2]} {value}"


def _axis(values: Sequence[Any]) -> tuple[dict[float, str], dict[str, float]]:
    """What is written where on an axis, and where each of its values lies: numbers at their size, names one after the other."""
    if _numeric(values):
        return {float(value): f"{value:g}" for value in values}, {plain(value): float(value) for value in values}
    names = list(dict.fromkeys(map(plain, values)))
    return {float(place): name for place, name in enumerate(names)}, {
        name: float(place) for place, name in enumerate(names)
    }


def _numeric(values: Sequence[Any]) -> bool:
    return all(
        isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value) for value in values
    )


def _logarithmic(values: Sequence[Any]) -> bool:
    return _numeric(values) and min(values) > 0 and max(values) >= _LOGARITHMIC * min(values)


# ---- report.html


def _page(experiment: _Experiment, curves: dict[str, str]) -> str:
    """The page: curves, figures, differences, what they are the means of, what failed, and what they were taken with."""
    parts = {
        "Curves": joined(_picture(name, picture) for name, picture in curves.items()),
        "Figures": _figures(experiment),
        _differing(experiment): _differences(experiment),
        "What they are the means of": _means(experiment),
        "Failures": _failures(experiment.points),
        "Taken with": facts(taken_with()),
    }
    sections = [(title, content) for title, content in parts.items() if content]
    header = element(
        "header",
        element("p", "Experiment", class_="eyebrow"),
        element("h1", experiment.title),
        element("ul", *(element("li", remark) for remark in experiment.remarks), class_="notes"),
        contents(title for title, _ in sections),
    )
    return document(experiment.title, header, (section(place, *each) for place, each in enumerate(sections)), _STYLE)


def _picture(name: str, picture: str) -> Markup:
    return element("figure", image(picture, name.removesuffix(".svg")))


def _columns(experiment: _Experiment) -> list[tuple[str, str | None]]:
    return [("model", None), *((_heading(key), "number") for key in experiment.keys)]


def _figures(experiment: _Experiment) -> Markup:
    body = []
    for point, cells in zip(experiment.points, experiment.cells, strict=True):
        row = [element("th", point.name, scope="row")]
        for key in experiment.keys:
            value, interval = _value(cells.get(key), point, experiment.digits(key))
            row.append(element("td", element("strong", value), element("small", interval), class_="number"))
        body.append(row)
    table = listing("Figures", _columns(experiment), body)
    return joined([table, element("p", _INTERVALS, class_="remark")])


def _differences(experiment: _Experiment) -> Markup:
    if len(experiment.points) < 2 or not experiment.keys:
        return Markup()
    body = []
    for point, cells in list(zip(experiment.points, experiment.cells, strict=True))[1:]:
        row = [element("th", point.name, scope="row")]
        for key in experiment.keys:
            cell = cells.get(key)
            value, interval = _change(cell, point, experiment.digits(key))
            verdict = cell.verdict if cell else None
            shown = element("strong", value) if verdict else value
            reason = cell.obstacle or verdict if cell else None
            row.append(
                element("td", shown, element("small", interval), class_=f"number {verdict or ''}".strip(), title=reason)
            )
        body.append(row)
    table = listing("Differences", _columns(experiment), body)
    return joined([table, element("p", _DIFFERENCES, class_="remark")])


def _means(experiment: _Experiment) -> Markup:
    if not experiment.keys:
        return Markup()
    body = [
        [
            element("th", _heading(key), scope="row"),
            element("td", experiment.parts(key)),
            element("td", experiment.datasets(key)),
        ]
        for key in experiment.keys
    ]
    return listing("What they are the means of", [("figure", None), ("figures", None), ("data sets", None)], body)


def _failures(points: Sequence[Point]) -> Markup:
    failed = [
        [element("th", point.name, scope="row"), element("td", point.failure)] for point in points if point.failure
    ]
    return listing("Failures", [("model", None), ("why", None)], failed) if failed else Markup()
