"""A small synthetic map: topics with characteristic words, and matching vectors."""

from pathlib import Path

import numpy as np
import pytest

from turnwise.assist.map import reduction
from turnwise.assist.map.clustering import describe_clusters
from turnwise.assist.map.utterance_map import MapUtterance, UtteranceMap

TOPICS = ("boat", "garden", "clock", "bread")


def texts_and_vectors(rows: int, seed: int = 0, spread: float = 0.4) -> tuple[list[str], np.ndarray, np.ndarray]:
    """Return texts, their normalised vectors, and the topic of each."""
    random = np.random.default_rng(seed)
    topics = np.arange(rows) % len(TOPICS)
    texts = [f"please see to the {TOPICS[topic]} number {row}" for row, topic in enumerate(topics)]
    vectors = np.eye(len(TOPICS), 8)[topics] + spread * random.normal(size=(rows, 8))
    return texts, (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32), topics


def small_map(rows: int = 24, seed: int = 0) -> UtteranceMap:
    """Return a map in which every sixth text is in no cluster."""
    texts, vectors, topics = texts_and_vectors(rows, seed)
    labels = np.where(np.arange(rows) % 6 == 5, -1, topics).astype(np.int32)
    counts = 1 + np.arange(rows) % 3
    return UtteranceMap(
        [
            MapUtterance(text, f"dialogue {row}", row, "user", int(count))
            for row, (text, count) in enumerate(zip(texts, counts, strict=True))
        ],
        vectors,
        vectors[:, :2].copy(),
        labels,
        describe_clusters(texts, labels, vectors, counts),
        "made-up",
    )


def save_map(folder: Path, rows: int = 24, seed: int = 0) -> Path:
    """Save such a map and return its folder."""
    small_map(rows, seed).save(folder)
    return folder


def reduce_by_components(patch: pytest.MonkeyPatch) -> None:
    """Make maps and clusters of principal components: compiling UMAP takes half a minute, t-SNE 15 seconds per map."""
    patch.setattr(reduction, "_MIN_TEXTS", 10**9)
    patch.setattr(reduction, "_import_umap", lambda: None)
