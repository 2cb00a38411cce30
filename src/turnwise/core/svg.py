"""Line and scatter charts as SVG text: small pictures for reports that need no plotting library."""

import colorsys
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from html import escape
from itertools import pairwise
from typing import Literal

BLACK, BLUE, RED = "#222222", "#1f4e79", "#b3261e"
_COLOURS = (BLUE, RED, "#2e7d32", "#7b1fa2", "#b26a00", "#00838f")
_WIDTH, _HEIGHT, _MARGIN = 560, 340, 52

#: A scatter chart's square, what is above and around it, and the legend at its right: width, height of a line, letters of a name.
_SQUARE, _TOP, _AROUND = 480, 36, 14
_LEGEND, _LINE, _LETTERS = 230, 17, 30

#: A line chart's dashes, how wide a letter is, about, how much of a slanting text's length is across and down, letters of a name,
#: and how far apart the whiskers of several lines stand.
_DASHED = ' stroke-dasharray="6 4"'
_LETTER, _SLANT, _LONG, _APART = 6.2, 0.71, 60, 5

Mark = Literal["circle", "triangle", "ring"]


@dataclass(frozen=True, slots=True)
class Cloud:
    """Points of a scatter chart that look alike.

    Attributes:
        points: where they are.
        colour: as SVG says it.
        mark: a filled circle, a filled triangle, or a ring.
        name: in the legend; without one the legend leaves them out.
    """

    points: Sequence[tuple[float, float]]
    colour: str
    mark: Mark = "circle"
    name: str = ""


def palette(count: int) -> list[str]:
    """So many colours: hues evenly around the circle, every other one lighter, so that neighbours can be told apart."""
    shades = ((0.40, 0.75), (0.58, 0.60))
    mixed = [colorsys.hls_to_rgb(number / count, *shades[number % 2]) for number in range(count)]
    return ["#" + "".join(f"{round(255 * part):02x}" for part in colour) for colour in mixed]


def line_chart(
    series: Mapping[str, Sequence[tuple[float, float]]],
    title: str,
    across: str,
    *,
    logarithmic: bool = False,
    percent: bool = False,
    intervals: Mapping[str, Sequence[tuple[float, float, float]]] | None = None,
    levels: Mapping[str, float] | None = None,
    ticks: Mapping[float, str] | None = None,
    from_zero: bool = True,
    beside: bool = False,
) -> str:
    """A chart of one or several lines.

    Args:
        series: name → points.
        title: above the chart.
        across: what the horizontal axis shows.
        logarithmic: the horizontal axis, by powers of ten.
        percent: the axes show percentages from 0 to 100.
        intervals: name of a line → x, lowest and highest of its points: whiskers, in a band where there is but one line, and
            marks on the points; several lines are moved aside a little each, so that their whiskers can be told apart.
        levels: name → height of a dashed line across the chart.
        ticks: what is written where below the horizontal axis, instead of numbers at even distances.
        from_zero: whether 0 is on the vertical axis, wherever the points lie.
        beside: the names of the lines at the right of the chart instead of in it; a line without a name has none.
    """
    lines = {name: list(filter(_finite, line)) for name, line in series.items()}
    intervals = {name: list(filter(_finite, line)) for name, line in (intervals or {}).items()}
    levels = {name: height for name, height in (levels or {}).items() if math.isfinite(height)}
    ends = [point for line in intervals.values() for x, low, high in line for point in ((x, low), (x, high))]
    points = [*(point for line in lines.values() for point in line), *ends]
    heights = [*(y for _, y in points), *levels.values()]
    plot = _Plot(
        *_extent(
            [_scaled(x, logarithmic) for x in (*(x for x, _ in points), *(ticks or ()))],
            inset=None if ticks is None else 0.06,
        ),
        *((0.0, 100.0) if percent else _extent(heights, from_zero, inset=None if from_zero else 0.04)),
        logarithmic,
    )
    unit = "%" if percent else ""
    marks = _even_rules(plot, unit) if percent or from_zero else _round_rules(plot)
    below, height = (_even_numbers(plot, unit), _HEIGHT) if ticks is None else _labels(plot, ticks)
    marks += below
    marks += [
        _segment(_MARGIN, plot.up(level), _WIDTH - _MARGIN, plot.up(level), BLACK, _DASHED) for level in levels.values()
    ]
    colours = palette(len(lines)) if beside and len(lines) > len(_COLOURS) else _COLOURS
    legend = []
    for number, (name, line) in enumerate(lines.items()):
        colour = colours[number % len(colours)]
        # whiskers of several lines stand side by side, where those at one place could not be told apart
        shifted = replace(
            plot, aside=(number - (len(lines) - 1) / 2) * min(_APART, 24 / len(lines)) if intervals else 0.0
        )
        marks += _spans(shifted, intervals.get(name, ()), colour, len(lines) == 1)
        marks.append(f'<polyline points="{_path(shifted, line)}" fill="none" stroke="{colour}" stroke-width="2"/>')
        marks += [_mark(shifted.along(x), plot.up(y), "circle", colour) for x, y in line if name in intervals]
        legend.append((name, colour, ""))
    legend += [(name, BLACK, _DASHED) for name in levels]
    named = [entry for entry in legend if entry[0]] if beside else []
    marks += _beside(named) if beside else _inside(legend)
    marks.append(f'<text x="{_WIDTH / 2}" y="{height - 10}" text-anchor="middle">{escape(across)}</text>')
    if not named:
        return _picture(_WIDTH, height, _WIDTH / 2, title, marks)
    width = _WIDTH - _MARGIN + 50 + math.ceil(_LETTER * min(_LONG, max(len(name) for name, _, _ in named)))
    return _picture(width, max(height, _MARGIN + _LINE * len(named)), _WIDTH / 2, title, marks)


@dataclass(frozen=True, slots=True)
class _Plot:
    """Where numbers lie in a line chart: what its frame spans, horizontally in powers of ten where that axis is logarithmic.

    Attributes:
        aside: by how much a line is moved to the right.
    """

    left: float
    right: float
    low: float
    high: float
    logarithmic: bool
    aside: float = 0.0

    def along(self, x: float) -> float:
        share = (_scaled(x, self.logarithmic) - self.left) / (self.right - self.left)
        return _MARGIN + share * (_WIDTH - 2 * _MARGIN) + self.aside

    def up(self, y: float) -> float:
        return _HEIGHT - _MARGIN - (y - self.low) / (self.high - self.low) * (_HEIGHT - 2 * _MARGIN)


def _finite(numbers: tuple[float, ...]) -> bool:
    return all(map(math.isfinite, numbers))


def _extent(values: Sequence[float], from_zero: bool = False, inset: float | None = None) -> tuple[float, float]:
    """What an axis spans: all values, 0 perhaps, and a share of the whole more at both ends where there is an inset."""
    values = [*values, *([0.0] if from_zero else [])] if values else [0.0, 1.0]
    low, high = min(values), max(values)
    if inset is None:
        return low, max(high, low + 1e-9)
    more = inset * (high - low) or inset * abs(low) or 0.5
    return low - more, high + more


# ---- rules and what is written beside the axes


def _even_rules(plot: _Plot, unit: str) -> list[str]:
    return _rules(
        plot, {y: f"{y:.3g}{unit}" for y in (plot.low + (plot.high - plot.low) * tick / 4 for tick in range(5))}
    )


def _round_rules(plot: _Plot) -> list[str]:
    """At multiples of 1, 2 or 5 times a power of ten, four to eleven of them."""
    rough = (plot.high - plot.low) / 4
    power = math.floor(math.log10(rough))
    step = next(factor * 10.0**power for factor in (5, 2, 1) if factor * 10.0**power <= rough)
    multiples = range(math.ceil(plot.low / step), math.floor(plot.high / step) + 1)
    return _rules(plot, {multiple * step: f"{multiple * step:.{max(0, -power)}f}" for multiple in multiples})


def _rules(plot: _Plot, labels: Mapping[float, str]) -> list[str]:
    marks = []
    for y, label in labels.items():
        height = plot.up(y)
        marks.append(_segment(_MARGIN, height, _WIDTH - _MARGIN, height, "#ddd"))
        marks.append(f'<text x="{_MARGIN - 6}" y="{height + 4:.1f}" text-anchor="end">{label}</text>')
    return marks


def _even_numbers(plot: _Plot, unit: str) -> list[str]:
    marks = []
    for tick in range(5):
        x = plot.left + (plot.right - plot.left) * tick / 4
        value = 10**x if plot.logarithmic else x
        marks.append(_below(plot.along(value), f"{value:.4g}{unit}"))
    return marks


def _below(along: float, label: str) -> str:
    return f'<text x="{along:.1f}" y="{_HEIGHT - _MARGIN + 16}" text-anchor="middle">{escape(label)}</text>'


def _labels(plot: _Plot, ticks: Mapping[float, str]) -> tuple[list[str], int]:
    """What is written below the axis, upright or slanting, and how high the picture is then."""
    places = sorted((plot.along(x), label) for x, label in ticks.items())
    marks = [_segment(along, _HEIGHT - _MARGIN, along, _HEIGHT - _MARGIN + 4, "#999") for along, _ in places]
    half = [len(label) * _LETTER / 2 for _, label in places]
    edges = [
        (-_LETTER, 0.0),
        *((along, width) for (along, _), width in zip(places, half, strict=True)),
        (_WIDTH + _LETTER, 0.0),
    ]
    if all(first + half + _LETTER <= second - other for (first, half), (second, other) in pairwise(edges)):
        return marks + [_below(along, label) for along, label in places], _HEIGHT
    top, last, deepest = _HEIGHT - _MARGIN + 14, -math.inf, 0.0
    for along, label in places:
        if along - last < _LINE:  # on top of the last one neither could be read
            continue
        last = along
        written = _shortened(label, min(_LETTERS, int(along / _LETTER / _SLANT)))
        deepest = max(deepest, len(written) * _LETTER * _SLANT)
        turned = f'transform="rotate(-45 {along:.1f} {top})"'
        marks.append(f'<text x="{along:.1f}" y="{top}" text-anchor="end" {turned}>{escape(written)}</text>')
    return marks, math.ceil(_HEIGHT - _MARGIN + 40 + deepest)


# ---- lines and their names


def _segment(x: float, y: float, to_x: float, to_y: float, colour: str, style: str = "") -> str:
    return f'<line x1="{x:.4g}" y1="{y:.1f}" x2="{to_x:.4g}" y2="{to_y:.1f}" stroke="{colour}"{style}/>'


def _path(plot: _Plot, points: Iterable[tuple[float, float]]) -> str:
    return " ".join(f"{plot.along(x):.1f},{plot.up(y):.1f}" for x, y in points)


def _spans(plot: _Plot, ends: Sequence[tuple[float, float, float]], colour: str, band: bool) -> list[str]:
    """The intervals of a line's points: a whisker each, and a band from each to the next where it is asked for."""
    around = [*((x, high) for x, _, high in ends), *((x, low) for x, low, _ in reversed(ends))]
    whiskers = [_segment(plot.along(x), plot.up(low), plot.along(x), plot.up(high), colour) for x, low, high in ends]
    return [
        *([f'<polygon points="{_path(plot, around)}" fill="{colour}" fill-opacity="0.13"/>'] if band and ends else []),
        *whiskers,
    ]


def _inside(legend: Sequence[tuple[str, str, str]]) -> list[str]:
    """The names of lines in the chart's upper right corner."""
    return [
        f'<text x="{_WIDTH - _MARGIN - 4}" y="{_MARGIN + 14 * number}" text-anchor="end" fill="{colour}">{escape(name)}</text>'
        for number, (name, colour, _) in enumerate(legend)
    ]


def _beside(legend: Sequence[tuple[str, str, str]]) -> list[str]:
    """The names of lines at the right of the chart."""
    left, marks = _WIDTH - _MARGIN + 14, []
    for number, (name, colour, style) in enumerate(legend):
        height = _MARGIN + _LINE * number
        marks.append(_segment(left, height, left + 20, height, colour, style or ' stroke-width="2"'))
        marks.append(f'<text x="{left + 26}" y="{height + 4}">{escape(_shortened(name, _LONG))}</text>')
    return marks


def scatter_chart(clouds: Sequence[Cloud], title: str) -> str:
    """Points on a plane whose axes mean nothing, as t-SNE's: a frame without ticks, one scale for both directions.

    Args:
        clouds: points by how they look; the later ones lie on top.
        title: above the chart.
    """
    finite = [[point for point in cloud.points if all(map(math.isfinite, point))] for cloud in clouds]
    every = [point for points in finite for point in points] or [(0.0, 0.0)]
    middle = [(min(values) + max(values)) / 2 for values in zip(*every, strict=True)]
    extent = max(max(values) - min(values) for values in zip(*every, strict=True)) or 1.0
    scale = (_SQUARE - 2 * _AROUND) / extent
    centre = (_AROUND + _SQUARE / 2, _TOP + _SQUARE / 2)
    drawn = [f'<rect x="{_AROUND}" y="{_TOP}" width="{_SQUARE}" height="{_SQUARE}" fill="none" stroke="#999"/>']
    for cloud, points in zip(clouds, finite, strict=True):
        drawn.append('<g class="points">')
        drawn += [
            _mark(centre[0] + (x - middle[0]) * scale, centre[1] - (y - middle[1]) * scale, cloud.mark, cloud.colour)
            for x, y in points
        ]
        drawn.append("</g>")
    left = _AROUND + _SQUARE + 20
    drawn.append('<g class="legend">')
    for number, cloud in enumerate(cloud for cloud in clouds if cloud.name):
        height = _TOP + 12 + _LINE * number
        drawn.append(_mark(left, height, cloud.mark, cloud.colour))
        drawn.append(f'<text x="{left + 12}" y="{height + 4}">{escape(_shortened(cloud.name))}</text>')
    drawn.append("</g>")
    named = sum(bool(cloud.name) for cloud in clouds)
    height = _TOP + max(_SQUARE, _LINE * named) + _AROUND
    return _picture(_AROUND + _SQUARE + _LEGEND, height, centre[0], title, drawn)


def _mark(x: float, y: float, mark: Mark, colour: str) -> str:
    # a thin white edge keeps marks that touch apart on paper
    if mark == "triangle":
        corners = f"{x:.1f},{y - 5:.1f} {x + 4.6:.1f},{y + 3.4:.1f} {x - 4.6:.1f},{y + 3.4:.1f}"
        return f'<polygon points="{corners}" fill="{colour}" stroke="white" stroke-width="0.6"/>'
    if mark == "ring":
        return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="none" stroke="{colour}" stroke-width="0.9"/>'
    return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.6" fill="{colour}" stroke="white" stroke-width="0.6"/>'


def _shortened(name: str, letters: int = _LETTERS) -> str:
    return name if len(name) <= letters else f"{name[: letters - 1]}…"


def _picture(width: int, height: int, middle: float, title: str, drawn: Sequence[str]) -> str:
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}"'
        ' font-family="sans-serif" font-size="11">\n'
        f'<rect width="{width}" height="{height}" fill="white"/>\n'
        f'<text x="{middle}" y="20" text-anchor="middle" font-size="13">{escape(title)}</text>\n'
        + "\n".join(drawn)
        + "\n</svg>\n"
    )


def _scaled(value: float, logarithmic: bool) -> float:
    return math.log10(value) if logarithmic else value
