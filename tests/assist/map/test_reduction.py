"""Dimension reduction: neighbours stay together, seeds make results reproducible, invalid input raises errors."""

import sys

import numpy as np
import pytest

from tests.helpers.topic_texts import TOPICS, TopicEncoder, texts_about
from turnwise.assist.map.reduction import DimensionReduction, MapSettings, Method
from turnwise.core.errors import MapError

TEXTS = [text for topic in TOPICS for text in texts_about(topic, 30)]
VECTORS = TopicEncoder().encode(TEXTS)
TOPIC_OF = np.repeat(np.arange(len(TOPICS)), 30)


def same_topic_fraction(points: np.ndarray) -> float:
    """Return the fraction of texts whose nearest other text on the map has the same topic."""
    distances = ((points[:, None] - points[None]) ** 2).sum(2)
    np.fill_diagonal(distances, np.inf)
    return float((TOPIC_OF[distances.argmin(1)] == TOPIC_OF).mean())


@pytest.mark.parametrize("method", ["umap", pytest.param("tsne", marks=pytest.mark.full)])
def test_topics_stay_together_and_results_are_reproducible(method: Method) -> None:
    descriptions: list[str] = []
    reduction = DimensionReduction(
        VECTORS, MapSettings(method, seed=3), progress=lambda what, done, total=None: descriptions.append(what)
    )
    points = reduction.lay_out()
    assert points.shape == (len(TEXTS), 2) and points.dtype == np.float32
    assert same_topic_fraction(points) > 0.98
    assert reduction.lay_out() is points, "computed once"
    again = DimensionReduction(VECTORS, MapSettings(method, seed=3))
    assert again.reduce_for_clustering().shape == (len(TEXTS), 5 if method == "umap" else 2)
    assert (again.lay_out() == points).all()
    assert "laying out the map" in descriptions


@pytest.mark.full
def test_a_map_resembles_the_one_it_starts_from() -> None:
    first = DimensionReduction(VECTORS, MapSettings("tsne", seed=0)).lay_out()
    turned = first @ np.array([[0, 1], [-1, 0]], np.float32)

    def correlation(points: np.ndarray, other: np.ndarray) -> float:
        centres = [
            np.array([each[topic == TOPIC_OF].mean(0) for topic in range(len(TOPICS))]) for each in (points, other)
        ]
        return float(np.corrcoef(centres[0].ravel(), centres[1].ravel())[0, 1])

    assert correlation(DimensionReduction(VECTORS, MapSettings("tsne", seed=1)).lay_out(turned), turned) > 0.9
    assert correlation(DimensionReduction(VECTORS, MapSettings("tsne", seed=1)).lay_out(), turned) < 0.9


@pytest.mark.parametrize("count", [0, 1, 2, 9, 10])
def test_few_texts_are_laid_out(count: int) -> None:
    points = DimensionReduction(VECTORS[:count], MapSettings("tsne")).lay_out()
    assert points.shape == (count, 2) and np.isfinite(points).all()


def test_invalid_input_raises_errors(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(MapError, match="no method 'pca': choose umap or tsne"):
        MapSettings("pca")  # type: ignore[arg-type]
    with pytest.raises(MapError, match="not finite"):
        DimensionReduction(np.full((12, 3), np.nan, np.float32), MapSettings("tsne"))
    monkeypatch.setitem(sys.modules, "umap", None)
    with pytest.raises(MapError, match=r"pip install 'turnwise\[map\]'"):
        DimensionReduction(VECTORS)
