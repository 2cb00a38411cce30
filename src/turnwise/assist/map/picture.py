"""A map as an SVG picture: points by cluster, and the names of as many clusters as there is room for."""

import colorsys
from html import escape

import numpy as np
import numpy.typing as npt

from turnwise.assist.map.clustering import NO_CLUSTER
from turnwise.assist.map.utterance_map import UtteranceMap

_Places = npt.NDArray[np.float64]

_WIDTH, _HEIGHT, _MARGIN, _TOP = 1200, 900, 40, 44

#: How large letters are, how wide one is of that, about, and letters of a name.
_SIZE, _LETTER, _LETTERS = 13, 0.56, 34

_GREY = "#9aa3ab"

#: The angle by which the hue of a cluster differs from that of the one before: neighbours in number are never alike.
_TURN = 137.508


def map_svg(drawn: UtteranceMap, title: str) -> str:
    """A picture of a map, on white, that needs nothing but itself.

    Args:
        drawn: the map.
        title: above it.
    """
    places = _places(drawn)
    width = float(np.clip(0.22 * np.sqrt((_WIDTH * _HEIGHT) / max(1, len(drawn))), 2.2, 8))
    numbers = [NO_CLUSTER, *(cluster.number for cluster in drawn.clusters)]
    paths = [_dots(places[drawn.labels == number], _colour(number), width) for number in numbers]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{_HEIGHT}" viewBox="0 0 {_WIDTH} {_HEIGHT}"'
        f' font-family="sans-serif" font-size="{_SIZE}" role="img" aria-label="{escape(title)}">\n'
        f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="white"/>\n'
        f'<text x="{_MARGIN}" y="30" font-size="17" font-weight="600">{escape(title)}</text>\n'
        f'<g fill="none" stroke-linecap="round" stroke-opacity="0.8">\n{"".join(paths)}</g>\n'
        '<g text-anchor="middle" font-weight="600" fill="#1c2228" stroke="white" stroke-width="4" stroke-linejoin="round"'
        f' paint-order="stroke">\n{"".join(_names(drawn, places))}</g>\n</svg>\n'
    )


def _places(drawn: UtteranceMap) -> _Places:
    """Where texts lie in the picture: one scale for both directions, in the middle."""
    points = drawn.points.astype(np.float64)
    low, high = points.min(0), points.max(0)
    room = np.array([_WIDTH - 2 * _MARGIN, _HEIGHT - _TOP - 2 * _MARGIN])
    scale = (room / np.maximum(high - low, 1e-9)).min()
    places: _Places = (points - (low + high) / 2) * scale * np.array([1, -1]) + np.array(
        [_WIDTH / 2, (_TOP + _HEIGHT) / 2]
    )
    return places


def _dots(places: _Places, colour: str, width: float) -> str:
    """Points of one colour as one path: lines of no length with round ends."""
    path = "".join(f"M{x:.1f} {y:.1f}h0" for x, y in places)
    return f'<path d="{path}" stroke="{colour}" stroke-width="{width:.1f}"/>\n' if path else ""


def _colour(number: int) -> str:
    if number == NO_CLUSTER:
        return _GREY
    lightness = (0.45, 0.55, 0.37)[number % 3]
    mixed = colorsys.hls_to_rgb((25 + number * _TURN) % 360 / 360, lightness, 0.58)
    return "#" + "".join(f"{round(255 * part):02x}" for part in mixed)


def _names(drawn: UtteranceMap, places: _Places) -> list[str]:
    """Names at the middle of clusters, the largest first, where they hide no other name."""
    taken: list[tuple[float, float, float]] = []
    written = []
    for cluster in sorted(drawn.clusters, key=lambda cluster: -cluster.size):
        x, y = np.median(places[drawn.labels == cluster.number], 0)
        name = cluster.name if len(cluster.name) <= _LETTERS else f"{cluster.name[: _LETTERS - 1]}…"
        half = len(name) * _SIZE * _LETTER / 2
        x = min(max(x, half + 4), _WIDTH - half - 4)
        if any(abs(x - other) < half + width and abs(y - height) < 1.4 * _SIZE for other, height, width in taken):
            continue
        taken.append((x, y, half))
        written.append(f'<text x="{x:.1f}" y="{y + _SIZE / 3:.1f}">{escape(name)}</text>\n')
    return written
