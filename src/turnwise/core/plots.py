"""Charts as SVG text, drawn with matplotlib (the extra `plots`), imported when needed; equal data give equal bytes."""

import colorsys
import math
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.resources import as_file, files
from io import StringIO
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

from turnwise.core.errors import MissingPackageError
from turnwise.core.text import shorten_text

BLACK, BLUE, RED = "#222222", "#1f4e79", "#b3261e"
_COLOURS = (BLUE, RED, "#2e7d32", "#7b1fa2", "#b26a00", "#00838f")


def write_chart(path: Path, draw: Callable[[], str]) -> None:
    """Write a chart to a file, or warn that matplotlib is missing: no work is lost for want of a picture."""
    try:
        path.write_text(draw(), encoding="utf-8")
    except MissingPackageError as error:
        warnings.warn(f"{path} is not drawn: {error}", stacklevel=2)


def palette(count: int) -> list[str]:
    """Return `count` distinct colours: hues evenly around the circle, every second one lighter."""
    shades = ((0.40, 0.75), (0.58, 0.60))
    colours = [colorsys.hls_to_rgb(number / count, *shades[number % 2]) for number in range(count)]
    return ["#" + "".join(f"{round(255 * part):02x}" for part in colour) for colour in colours]


def line_chart(
    series: Mapping[str, Sequence[tuple[float, float]]],
    title: str,
    x_label: str,
    *,
    log_x: bool = False,
    percent: bool = False,  # the axes show percentages, the vertical one from 0 to 100
    intervals: Mapping[str, Sequence[tuple[float, float, float]]] | None = None,  # name of a line → (x, low, high)
    levels: Mapping[str, float] | None = None,  # name → height of a dashed horizontal line
    x_ticks: Mapping[float, str] | None = None,  # position → label, instead of numbers at even distances
    from_zero: bool = True,  # the vertical axis includes 0
    legend_outside: bool = False,
) -> str:
    """Draw one or several lines, name → points; those without a name have no entry in the legend.

    Points that are not finite are left out. Intervals are error bars, and points with them have markers. A single line
    gets a band as well; several lines are shifted sideways a little so that their error bars do not cover each other.
    """
    intervals = intervals or {}
    colours = palette(len(series)) if len(series) > len(_COLOURS) else _COLOURS
    with chart_style():
        figure, axes = _new_figure(title, 420, 255)
        lines: list[list[Any]] = []
        for number, ((name, points), colour) in enumerate(zip(series.items(), colours, strict=False)):
            (line,) = axes.plot(*_columns(points, 2), color=colour, gid=f"line-{number}")
            line.set_marker("o" if name in intervals else "")
            bars = _columns(intervals.get(name, ()), 3)
            lines.append([line, axes.vlines(*bars, color=colour, linewidth=0.8, gid=f"intervals-{number}")])
            if len(series) == 1 and bars[0]:
                axes.fill_between(*bars, color=colour, alpha=0.13, linewidth=0, gid="band")
        legend = [(name, line) for name, (line, _) in zip(series, lines, strict=True)]
        for name, height in (levels or {}).items():
            if math.isfinite(height):
                legend.append((name, axes.axhline(height, color=BLACK, linestyle="--", linewidth=1, gid="level")))
        axes.set_xlabel(shorten_label(x_label, 100))
        axes.grid(axis="y")
        _scale_axes(axes, log_x, percent, from_zero)
        if x_ticks is not None:
            _set_x_ticks(axes, x_ticks)
        if len(intervals) > 1:
            _shift_sideways(axes, lines)
        _add_legend(axes, legend, legend_outside)
        return to_svg(figure)


@dataclass(frozen=True, slots=True)
class Cloud:
    """Points of a scatter chart that look alike; without a name they have no entry in the legend."""

    points: Sequence[tuple[float, float]]
    colour: str
    marker: Literal["circle", "triangle", "ring"] = "circle"
    name: str = ""


def scatter_chart(clouds: Sequence[Cloud], title: str) -> str:
    """Draw points in a plane whose axes have no meaning, such as t-SNE's; later clouds lie on top."""
    with chart_style():
        figure, axes = _new_figure(title, 360, 360)
        legend: list[tuple[str, Any]] = []
        for number, cloud in enumerate(clouds):
            ring = cloud.marker == "ring"
            (points,) = axes.plot(
                *_columns(cloud.points, 2),
                "^" if cloud.marker == "triangle" else "o",
                markerfacecolor="none" if ring else cloud.colour,
                markeredgecolor=cloud.colour if ring else "white",
                markeredgewidth=0.7,
                gid=f"cloud-{number}",
            )
            legend.append((cloud.name, points))
        axes.set(xticks=[], yticks=[], aspect="equal", adjustable="datalim")
        axes.spines[["top", "right"]].set_visible(True)
        _add_legend(axes, legend, outside=True)
        return to_svg(figure)


@contextmanager
def chart_style() -> Iterator[None]:
    """Draw in the style of all charts; raise a MissingPackageError if matplotlib is not installed."""
    try:
        import matplotlib
    except ImportError:
        raise MissingPackageError("plots need matplotlib: pip install 'turnwise[plots]'") from None
    with as_file(files("turnwise.core") / "plots.mplstyle") as style, matplotlib.rc_context(fname=str(style)):
        yield


def to_svg(figure: Any) -> str:
    """Return a figure as an SVG element without metadata, as large as its contents."""
    text = StringIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # characters that its font lacks, axes without extent
        metadata = dict.fromkeys(("Date", "Creator", "Format", "Type"))
        figure.savefig(text, format="svg", bbox_inches="tight", metadata=metadata)
    return text.getvalue()[text.getvalue().index("<svg") :]


def shorten_label(text: str, length: int = 60) -> str:
    """Return a text on one line, cut off at `length` characters, without the control characters that SVG forbids."""
    line = shorten_text(text, length)
    return "".join(character if character.isprintable() else "\ufffd" for character in line)


def _new_figure(title: str, width: float, height: float) -> tuple[Any, Any]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width / 72, height / 72))
    axes = figure.subplots()
    axes.set_title(shorten_label(title, 100))
    return figure, axes


def _columns(points: Iterable[Sequence[float]], count: int) -> list[list[float]]:
    """Return the coordinates of the finite points, one list per dimension."""
    finite = [point for point in points if all(map(math.isfinite, point))]
    return [[point[place] for point in finite] for place in range(count)]


def _scale_axes(axes: Any, log_x: bool, percent: bool, from_zero: bool) -> None:
    from matplotlib.ticker import LogLocator, NullFormatter

    unit = "%" if percent else ""
    if log_x:
        axes.set_xscale("log")
        low, high = axes.get_xlim()
        axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if high < 1000 * low else (1,)))
        axes.xaxis.set_minor_formatter(NullFormatter())
    if log_x or percent:
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}{unit}")
    if percent:
        axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}{unit}")
        axes.set_ylim(0, 100)
    elif from_zero and axes.dataLim.y0 >= 0:
        axes.set_ylim(bottom=0)
    elif from_zero and axes.dataLim.y1 <= 0:
        axes.set_ylim(top=0)


def _set_x_ticks(axes: Any, ticks: Mapping[float, str]) -> None:
    """Write the labels upright where they fit, else slanted, and leave out those that would still overlap."""
    axes.set_xticks(list(ticks), [""] * len(ticks))
    axes.margins(x=0.06)
    axes.autoscale_view()
    points = {x: float(axes.transData.transform((x, 0))[0]) for x in sorted(ticks)}
    labels = {x: shorten_label(ticks[x], 30) for x in points}
    widths = {x: 5.5 * (len(label) + 1) for x, label in labels.items()}
    if all(points[second] - points[first] > (widths[first] + widths[second]) / 2 for first, second in pairwise(points)):
        axes.set_xticks(list(labels), list(labels.values()))
        return
    shown: list[float] = []
    for x, point in points.items():
        if not shown or point - points[shown[-1]] > 12:
            shown.append(x)
    axes.set_xticks(shown, [labels[x] for x in shown], rotation=45, ha="right", rotation_mode="anchor")


def _shift_sideways(axes: Any, lines: Sequence[Iterable[Any]]) -> None:
    """Move each line by a few points; the axes must be scaled already, which the shift is not to influence."""
    from matplotlib.transforms import ScaledTranslation

    for number, artists in enumerate(lines):
        points = (number - (len(lines) - 1) / 2) * min(3.5, 18 / len(lines))
        for artist in artists:
            artist.set_transform(axes.transData + ScaledTranslation(points / 72, 0, axes.figure.dpi_scale_trans))


def _add_legend(axes: Any, entries: Sequence[tuple[str, Any]], outside: bool) -> None:
    named = [(artist, shorten_label(name)) for name, artist in entries if name]
    if named:
        place: dict[str, Any] = {"loc": "upper left", "bbox_to_anchor": (1.01, 1)} if outside else {"loc": "best"}
        axes.legend(*zip(*named, strict=True), **place)
