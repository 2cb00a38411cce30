"""A map as a self-contained HTML page."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from turnwise.assist.map.clustering import NO_CLUSTER, Cluster
from turnwise.assist.map.utterance_map import UtteranceMap
from turnwise.core.html import render_page

#: Coordinates are scaled to integers up to this: precise enough for any screen.
_RESOLUTION = 10_000

_METHODS = {"umap": "UMAP", "tsne": "t-SNE"}


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
    utterances = utterance_map.utterances
    return {
        "points": _scale_points(utterance_map).tolist(),
        "texts": utterance_map.texts,
        "dialogues": [utterance.dialogue for utterance in utterances],
        "turns": [utterance.turn for utterance in utterances],
        "speakers": [utterance.speaker for utterance in utterances],
        "counts": utterance_map.counts.tolist(),
        "groups": utterance_map.labels.tolist(),
        "new": None if utterance_map.new is None else utterance_map.new.tolist(),
        "before": 0 if utterance_map.comparison is None else utterance_map.comparison.utterances,
        "clusters": [
            {
                "number": cluster.number,
                "name": cluster.name,
                "words": cluster.words,
                "size": cluster.size,
                "utterances": cluster.utterances,
                "representatives": cluster.representatives,
                "new": new,
                "before": before,
            }
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


def _scale_points(utterance_map: UtteranceMap) -> npt.NDArray[np.int64]:
    points = utterance_map.points
    lowest = points.min(0)
    extent = max(float((points.max(0) - lowest).max()), 1e-9)
    scaled: npt.NDArray[np.int64] = np.rint((points - lowest) / extent * _RESOLUTION).astype(np.int64)
    return scaled
