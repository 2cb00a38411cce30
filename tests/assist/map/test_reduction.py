"""Fewer dimensions: neighbours stay neighbours, a seed says all, and small or odd input is taken or refused in words."""

import sys

import numpy as np
import pytest

from tests.helpers.made_up_topics import TOPICS, Topical, texts_about
from turnwise.assist.map.reduction import Reduction, ReductionError, lay_out
from turnwise.assist.search.neighbours import nearest_neighbours

TEXTS = [text for topic in TOPICS for text in texts_about(topic, 30)]
VECTORS = Topical().encode(TEXTS)
TOPIC_OF = np.repeat(np.arange(len(TOPICS)), 30)


def kept_together(points: np.ndarray) -> float:
    """The share of texts whose nearest other on the map is about the same topic."""
    distances = ((points[:, None] - points[None]) ** 2).sum(2)
    np.fill_diagonal(distances, np.inf)
    return float((TOPIC_OF[distances.argmin(1)] == TOPIC_OF).mean())


@pytest.mark.parametrize("method", ["umap", "tsne"])
def test_topics_stay_together_and_a_seed_says_all(method: str) -> None:
    told: list[str] = []
    reduction = Reduction(VECTORS, method, seed=3, progress=lambda what, done, total=None: told.append(what))  # type: ignore[arg-type]
    points = reduction.for_map()
    assert points.shape == (len(TEXTS), 2) and points.dtype == np.float32
    assert kept_together(points) > 0.98
    assert reduction.for_map() is points, "laid out once"
    again = Reduction(VECTORS, method, seed=3)  # type: ignore[arg-type]
    assert again.for_clusters().shape == (len(TEXTS), 5 if method == "umap" else 2)
    assert (again.for_map() == points).all()
    assert "laying out the map" in told


def test_a_map_that_starts_from_another_resembles_it() -> None:
    first = lay_out(VECTORS, "tsne", seed=0)
    turned = first @ np.array([[0, 1], [-1, 0]], np.float32)

    def alike(points: np.ndarray, other: np.ndarray) -> float:
        middles = [
            np.array([each[topic == TOPIC_OF].mean(0) for topic in range(len(TOPICS))]) for each in (points, other)
        ]
        return float(np.corrcoef(middles[0].ravel(), middles[1].ravel())[0, 1])

    assert alike(Reduction(VECTORS, "tsne", seed=1).for_map(turned), turned) > 0.9
    assert alike(Reduction(VECTORS, "tsne", seed=1).for_map(), turned) < 0.9


@pytest.mark.parametrize("count", [0, 1, 2, 9, 10])
def test_few_texts_are_laid_out_too(count: int) -> None:
    points = lay_out(VECTORS[:count], "tsne")
    assert points.shape == (count, 2) and np.isfinite(points).all()


def test_neighbours_are_the_nearest_of_all() -> None:
    told: list[tuple[int, int | None]] = []
    found = nearest_neighbours(
        VECTORS[:7], VECTORS, 3, progress=lambda what, done, total=None: told.append((done, total))
    )
    cosines = VECTORS[:7].astype(np.float64) @ VECTORS.T
    assert np.allclose(found.similarities, -np.sort(-cosines, 1)[:, :3])
    assert (found.rows[:, 0] == np.arange(7)).all()
    assert told == [(7, 7)]
    assert nearest_neighbours(VECTORS[:2], VECTORS[:2], 5).rows.shape == (2, 2)


def test_what_cannot_be_reduced_is_refused_in_words(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ReductionError, match="no method 'pca': take umap or tsne"):
        Reduction(VECTORS, "pca")  # type: ignore[arg-type]
    with pytest.raises(ReductionError, match="a table"):
        lay_out(VECTORS[0], "tsne")
    with pytest.raises(ReductionError, match="not numbers"):
        lay_out(np.full((12, 3), np.nan, np.float32), "tsne")
    monkeypatch.setitem(sys.modules, "umap", None)
    with pytest.raises(ReductionError, match=r"pip install 'turnwise\[map\]'"):
        lay_out(VECTORS)
