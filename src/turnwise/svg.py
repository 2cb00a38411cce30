"""Line charts as SVG text: small pictures for reports that need no plotting library."""

import math
from collections.abc import Mapping, Sequence
from html import escape

_COLOURS = ("#1f4e79", "#b3261e", "#2e7d32", "#7b1fa2", "#b26a00", "#00838f")
_WIDTH, _HEIGHT, _MARGIN = 560, 340, 52


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
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{_HEIGHT}" viewBox="0 0 {_WIDTH} {_HEIGHT}"'
        ' font-family="sans-serif" font-size="11">\n'
        f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="white"/>\n'
        f'<text x="{_WIDTH / 2}" y="20" text-anchor="middle" font-size="13">{escape(title)}</text>\n'
        + "\n".join(marks)
        + f'\n<text x="{_WIDTH / 2}" y="{_HEIGHT - 10}" text-anchor="middle">{escape(across)}</text>\n</svg>\n'
    )


def _scaled(value: float, logarithmic: bool) -> float:
    return math.log10(value) if logarithmic else value
