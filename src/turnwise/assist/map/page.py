"""A map as a self-contained HTML page and as a picture, and the folder of a map with both."""

import colorsys
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from turnwise.assist.map.clustering import NO_CLUSTER, Cluster
from turnwise.assist.map.reduction import MapSettings
from turnwise.assist.map.utterance_map import UtteranceMap, collect_utterances, make_map, sample_utterances
from turnwise.core.files import write_atomic
from turnwise.core.html import render_page
from turnwise.core.plots import chart_style, shorten_label, to_svg, write_chart
from turnwise.core.progress import Progress, silent
from turnwise.core.types import SupportsEncode
from turnwise.corpus.storage.corpus import Corpus

#: The page and the picture in a map's folder.
PAGE, PICTURE = "map.html", "map.svg"

#: Coordinates are scaled to integers up to this: precise enough for any screen.
_RESOLUTION = 10_000

_METHODS = {"umap": "UMAP", "tsne": "t-SNE"}


def write_map(
    encoder: SupportsEncode,
    corpus: Corpus,
    folder: Path,
    settings: MapSettings | None = None,
    *,
    title: str,
    speakers: Sequence[str] | None = None,
    limit: int | None = None,
    model: str = "",
    earlier: UtteranceMap | None = None,
    progress: Progress = silent,
) -> UtteranceMap:
    """Map the distinct utterances of a corpus, or a sample of `limit`; write the map, its page and its picture."""
    settings = settings or MapSettings()
    utterances = collect_utterances(corpus, speakers, total=len(corpus), progress=progress)
    if limit is not None:
        utterances = sample_utterances(utterances, limit, settings.seed)
    result = make_map(encoder, utterances, settings, model=model, earlier=earlier, progress=progress)
    result.save(folder)
    write_atomic(folder / PAGE, map_page(result, title))
    write_chart(folder / PICTURE, lambda: map_svg(result, title))
    return result


def map_page(utterance_map: UtteranceMap, title: str) -> str:
    """Return a page to view and search a map by mouse, keyboard and screen reader; `title` names the corpus."""
    return render_page(
        "assist/map/map.html",
        styles=["assist/map/map.css"],
        scripts=["assist/map/map.js", "assist/map/page.js"],
        title=title,
        map=utterance_map,
        summary=summarise_map(utterance_map),
        clusters=list(_clusters_with_changes(utterance_map)),
        occurrences=max(1, int(utterance_map.counts.sum())),
        data=page_data(utterance_map),
    )


def page_data(utterance_map: UtteranceMap) -> dict[str, Any]:
    """Return the data of the page's script, with the names that the service uses for a map."""
    utterances, points = utterance_map.utterances, utterance_map.points
    lowest = points.min(0)
    extent = max(float((points.max(0) - lowest).max()), 1e-9)
    return {
        "points": np.rint((points - lowest) / extent * _RESOLUTION).astype(np.int64).tolist(),
        "texts": utterance_map.texts,
        "dialogues": [utterance.dialogue for utterance in utterances],
        "turns": [utterance.turn for utterance in utterances],
        "speakers": [utterance.speaker for utterance in utterances],
        "counts": utterance_map.counts.tolist(),
        "groups": utterance_map.labels.tolist(),
        "new": None if utterance_map.new is None else utterance_map.new.tolist(),
        "before": 0 if utterance_map.comparison is None else utterance_map.comparison.utterances,
        "clusters": [
            asdict(cluster) | {"new": new, "before": before}
            for cluster, new, before in _clusters_with_changes(utterance_map)
        ],
    }


def summarise_map(utterance_map: UtteranceMap) -> str:
    """Return a one-line summary of a map."""
    total = int(utterance_map.counts.sum())
    outside = int(utterance_map.counts[utterance_map.labels == NO_CLUSTER].sum()) / max(1, total)
    facts = [
        f"{len(utterance_map):,} texts, {total:,} occurrences",
        f"{len(utterance_map.clusters):,} clusters",
        f"{outside:.0%} in no cluster",
    ]
    if utterance_map.new is not None:
        facts.append(f"{int(utterance_map.new.sum()):,} new")
    return " · ".join([*facts, *([utterance_map.model] if utterance_map.model else []), _METHODS[utterance_map.method]])


def _clusters_with_changes(utterance_map: UtteranceMap) -> Iterator[tuple[Cluster, int | None, int | None]]:
    """Yield clusters with their number of new texts and of earlier utterances; None without an earlier map."""
    for index, cluster in enumerate(utterance_map.clusters):
        if utterance_map.new is None or utterance_map.comparison is None:
            yield cluster, None, None
        else:
            new = int(utterance_map.new[utterance_map.labels == cluster.number].sum())
            yield cluster, new, utterance_map.comparison.before[index]


# ---- picture

#: The size of the picture and of its letters in points, the width of a letter relative to that, and letters of a name.
_WIDTH, _HEIGHT, _FONT_SIZE, _LETTER_WIDTH, _MAX_NAME_LENGTH = 864, 648, 9.5, 0.56, 34

_NO_CLUSTER_COLOUR = "#9aa3ab"


def map_svg(utterance_map: UtteranceMap, title: str) -> str:
    """Draw a map as SVG: points coloured by cluster, and the names of as many clusters as fit."""
    with chart_style():
        from matplotlib.figure import Figure
        from matplotlib.patches import PathPatch
        from matplotlib.path import Path as Outline

        figure = Figure(figsize=(_WIDTH / 72, _HEIGHT / 72))
        axes = figure.add_axes((0.02, 0.02, 0.96, 0.92))
        axes.set_title(shorten_label(title, 100))
        axes.set_axis_off()
        line_width = float(np.clip(0.22 * np.sqrt(_WIDTH * _HEIGHT / max(1, len(utterance_map))), 1.6, 5.8))
        for number in [NO_CLUSTER, *(cluster.number for cluster in utterance_map.clusters)]:
            points = utterance_map.points[utterance_map.labels == number]
            # all points of a cluster are one path of lines without length but with round ends
            outline = Outline(np.repeat(points, 2, 0), np.tile([Outline.MOVETO, Outline.LINETO], len(points)))
            patch = PathPatch(outline, fill=False, edgecolor=_cluster_colour(number), linewidth=line_width, alpha=0.8)
            patch.set(capstyle="round", gid=f"cluster-{number}")
            axes.add_patch(patch)
        axes.autoscale_view()
        axes.set_aspect("equal", adjustable="datalim")
        axes.apply_aspect()
        _draw_names(axes, utterance_map)
        return to_svg(figure)


def _cluster_colour(number: int) -> str:
    """Return the colour of a cluster: consecutive numbers differ by the golden angle in hue."""
    if number == NO_CLUSTER:
        return _NO_CLUSTER_COLOUR
    lightness = (0.45, 0.55, 0.37)[number % 3]
    parts = colorsys.hls_to_rgb((25 + number * 137.508) % 360 / 360, lightness, 0.58)
    return "#" + "".join(f"{round(255 * part):02x}" for part in parts)


def _draw_names(axes: Any, utterance_map: UtteranceMap) -> None:
    """Write names at the medians of clusters, the largest first, unless they would overlap another name."""
    written: list[tuple[float, float, float]] = []
    for cluster in sorted(utterance_map.clusters, key=lambda cluster: -cluster.size):
        centre = np.median(utterance_map.points[utterance_map.labels == cluster.number], 0)
        name = shorten_label(cluster.name, _MAX_NAME_LENGTH)
        x, y = axes.transData.transform(centre) * 72 / axes.figure.dpi
        half = len(name) * _FONT_SIZE * _LETTER_WIDTH / 2
        if any(
            abs(x - other) < half + width and abs(y - height) < 1.4 * _FONT_SIZE for other, height, width in written
        ):
            continue
        written.append((x, y, half))
        background = {"facecolor": "white", "edgecolor": "none", "alpha": 0.75, "pad": 1}
        axes.text(*centre, name, size=_FONT_SIZE, weight="bold", ha="center", va="center", bbox=background)
