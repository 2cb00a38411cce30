"""Line and scatter charts as SVG text: small pictures for reports that need no plotting library."""

import colorsys
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Literal

BLACK, BLUE, RED = "#222222", "#1f4e79", "#b3261e"
_COLOURS = (BLUE, RED, "#2e7d32", "#7b1fa2", "#b26a00", "#00838f")
_WIDTH, _HEIGHT, _MARGIN = 560, 340, 52

#: A scatter chart's square, what is above and around it, and the legend at its right: width, height of a line, letters of a name.
_SQUARE, _TOP, _AROUND = 480, 36, 14
_LEGEND, _LINE, _LETTERS = 230, 17, 30

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
) -> str:
    """A chart of one or several lines.

    Args:
        series: name → points.
        title: above the chart.
        across: what the horizontal axis shows.
        logarithmic: the horizontal axis, by powers of ten.
        percent: the axes show percentages from 0 to 100.
    """
    points = [point for line in series.values() for point in line if all(map(math.isfinite, point))]
    xs = [_scaled(x, logarithmic) for x, _ in points] or [0.0, 1.0]
    ys = [y for _, y in points] or [0.0, 1.0]
    left, right = min(xs), max(max(xs), min(xs) + 1e-9)
    low, high = (0.0, 100.0) if percent else (min(0.0, *ys), max(max(ys), min(ys) + 1e-9))

    def place(x: float, y: float) -> tuple[float, float]:
        width, height = _WIDTH - 2 * _MARGIN, _HEIGHT - 2 * _MARGIN
        return (
            _MARGIN + (_scaled(x, logarithmic) - left) / (right - left) * width,
            _HEIGHT - _MARGIN - (y - low) / (high - low) * height,
        )

    unit = "%" if percent else ""
    marks = []
    for tick in range(5):
        y = low + (high - low) * tick / 4
        _, height = place(10**left if logarithmic else left, y)
        marks.append(f'<line x1="{_MARGIN}" y1="{height:.1f}" x2="{_WIDTH - _MARGIN}" y2="{height:.1f}" stroke="#ddd"/>')
        marks.append(f'<text x="{_MARGIN - 6}" y="{height + 4:.1f}" text-anchor="end">{y:.3g}{unit}</text>')
        x = left + (right - left) * tick / 4
        value = 10**x if logarithmic else x
        width, _ = place(value, low)
        marks.append(f'<text x="{width:.1f}" y="{_HEIGHT - _MARGIN + 16}" text-anchor="middle">{value:.4g}{unit}</text>')
    for number, (name, line) in enumerate(series.items()):
        colour = _COLOURS[number % len(_COLOURS)]
        drawn = " ".join(f"{x:.1f},{y:.1f}" for x, y in (place(*point) for point in line if all(map(math.isfinite, point))))
        marks.append(f'<polyline points="{drawn}" fill="none" stroke="{colour}" stroke-width="2"/>')
        marks.append(
            f'<text x="{_WIDTH - _MARGIN - 4}" y="{_MARGIN + 14 * number}" text-anchor="end" fill="{colour}">{escape(name)}</text>'
        )
    marks.append(f'<text x="{_WIDTH / 2}" y="{_HEIGHT - 10}" text-anchor="middle">{escape(across)}</text>')
    return _picture(_WIDTH, _HEIGHT, _WIDTH / 2, title, marks)


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


def _shortened(name: str) -> str:
    return name if len(name) <= _LETTERS else f"{name[: _LETTERS - 1]}…"


def _picture(width: int, height: int, middle: float, title: str, drawn: Sequence[str]) -> str:
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}"'
        ' font-family="sans-serif" font-size="11">\n'
        f'<rect width="{width}" height="{height}" fill="white"/>\n'
        f'<text x="{middle}" y="20" text-anchor="middle" font-size="13">{escape(title)}</text>\n' + "\n".join(drawn) + "\n</svg>\n"
    )


def _scaled(value: float, logarithmic: bool) -> float:
    return math.log10(value) if logarithmic else value
