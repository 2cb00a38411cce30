"""Clusters: topics are found, outliers are told from members, names and representatives say what a cluster is about."""

from collections import Counter
from itertools import combinations
from math import log

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.helpers.made_up_topics import TOPICS, Topical, texts_about
from turnwise.assist.map.clustering import (
    NONE,
    ClusteringError,
    centroids,
    cluster,
    cluster_reduced,
    describe,
    least_for,
)
from turnwise.assist.map.reduction import Reduction

TEXTS = [text for count, topic in zip((60, 50, 40, 30), TOPICS, strict=True) for text in texts_about(topic, count)]
TOPIC_OF = np.repeat(np.arange(4), (60, 50, 40, 30))
VECTORS = Topical().encode(TEXTS)


def test_topics_are_found_the_largest_first() -> None:
    labels = cluster(VECTORS, method="tsne", least=15)
    assert labels.dtype == np.int32
    assert (labels == TOPIC_OF).mean() > 0.97
    assert (cluster(VECTORS, method="tsne", least=15) == labels).all()


def test_outliers_are_kept_out_or_taken_in() -> None:
    strange = np.random.default_rng(0).normal(size=(12, VECTORS.shape[1])).astype(np.float32)
    strange /= np.linalg.norm(strange, axis=1, keepdims=True)
    vectors = np.concatenate([VECTORS, strange])
    reduction = Reduction(vectors, "tsne")
    strict, near, everything = (cluster_reduced(reduction, least=15, outliers=each) for each in ("none", "near", "all"))
    assert (everything != NONE).all()
    assert (near == NONE).sum() <= (strict == NONE).sum()
    # taking texts in moves nobody who was in a cluster, other than by numbers
    for taken in (near, everything):
        pairs = set(zip(strict[strict != NONE], taken[strict != NONE], strict=True))
        assert len(pairs) == len({number for number, _ in pairs}) == len({number for _, number in pairs})
    # near are those that are as near to the middle as nine in ten of the members
    middles = centroids(vectors, strict)
    for row in np.flatnonzero((strict == NONE) & (near != NONE)):
        name = strict[(near == near[row]) & (strict != NONE)][0]
        limit = np.quantile(vectors[strict == name] @ middles[name], 0.1)
        assert vectors[row] @ middles[name] >= limit - 1e-6


def test_few_texts_are_no_cluster() -> None:
    assert (cluster(VECTORS[:9], method="tsne") == NONE).all()
    assert cluster(VECTORS[:0], method="tsne").shape == (0,)
    with pytest.raises(ClusteringError, match="to hold 1 texts: give 2 or more"):
        cluster(VECTORS, method="tsne", least=1)


@given(st.integers(0, 10**7))
def test_the_smallest_cluster_grows_with_the_texts(count: int) -> None:
    assert least_for(count) >= 5
    assert least_for(count) <= least_for(count + 1000)
    assert least_for(50_000) == 56


@settings(deadline=None, max_examples=25)
@given(st.lists(st.integers(-1, 3), min_size=1, max_size=12))
def test_centroids_are_means_of_length_one(labels: list[int]) -> None:
    found = centroids(VECTORS[: len(labels)], np.array(labels, np.int32))
    assert len(found) == max(labels) + 1
    for number, centroid in enumerate(found):
        members = VECTORS[: len(labels)][np.array(labels) == number]
        if len(members):
            mean = members.mean(0)
            assert np.allclose(centroid, mean / np.linalg.norm(mean), atol=1e-6)
        else:
            assert not centroid.any()


def test_names_are_words_of_the_topic_and_not_of_all() -> None:
    described = describe(TEXTS, TOPIC_OF, VECTORS)
    assert [cluster.size for cluster in described] == [60, 50, 40, 30]
    for cluster_, words in zip(described, TOPICS.values(), strict=True):
        assert set(cluster_.name.replace(",", "").split()) == set(words)
    assert len({cluster_.name for cluster_ in described}) == 4


def test_words_are_ordered_by_their_weight() -> None:
    texts = ["red apple", "red apple pie", "red wine", "the red car", "the blue car", "the green car", "a car"]
    labels = np.array([0, 0, 0, 1, 1, 1, 1])
    shares = Counter(word for text in texts for word in set(text.split()))

    def weight(word: str, group: int) -> float:
        members = [text.split() for text, label in zip(texts, labels, strict=True) if label == group]
        inside, overall = sum(word in words for words in members) / len(members), shares[word] / len(texts)
        return inside * log(inside / overall) * -log(overall)

    described = describe(texts, labels, VECTORS[: len(texts)])
    assert described[0].words[0] == max(("red", "apple"), key=lambda word: weight(word, 0))
    assert described[1].words[:2] == tuple(sorted(("car", "the"), key=lambda word: -weight(word, 1)))


def test_clusters_that_are_worded_alike_have_names_of_their_own() -> None:
    texts = ["same words here"] * 4 + ["12 34", "?!"] * 2
    described = describe(texts, np.array([0, 0, 1, 1, 2, 2, 3, 3]), VECTORS[: len(texts)])
    assert len({cluster_.name for cluster_ in described}) == 4
    assert described[2].words == () and described[2].name == "cluster 2"
    assert describe(["1", "2"], np.array([0, 0]), VECTORS[:2])[0].name == "cluster 0", "no text has a word"


def test_representatives_cover_a_cluster_better_than_others() -> None:
    rows = np.arange(14)
    counts = np.random.default_rng(1).integers(1, 9, len(rows))
    chosen = describe(TEXTS[:14], np.zeros(14, int), VECTORS[:14], counts)[0].representatives
    cosines = VECTORS[:14] @ VECTORS[:14].T

    def covered(some: tuple[int, ...]) -> float:
        return float((cosines[:, list(some)].max(1) * counts).sum())

    assert len(set(chosen)) == 5
    assert covered(chosen[:1]) == pytest.approx(max(covered((row,)) for row in rows), rel=1e-6)
    best = max(covered(some) for some in combinations(range(14), 5))
    loss = counts.sum() - best
    assert counts.sum() - covered(chosen) < 1.2 * loss


def test_labels_may_have_gaps_and_counts_are_summed() -> None:
    described = describe(TEXTS[:6], np.array([7, -1, 7, 3, 3, 7]), VECTORS[:6], [1, 2, 3, 4, 5, 6])
    assert [(cluster_.number, cluster_.size, cluster_.utterances) for cluster_ in described] == [(3, 2, 9), (7, 3, 10)]
    assert set(described[1].representatives) == {0, 2, 5}
    assert describe([], np.array([], int), VECTORS[:0]) == []
    with pytest.raises(ClusteringError, match="6 texts, 5 labels, 6 vectors and 6 counts"):
        describe(TEXTS[:6], np.zeros(5, int), VECTORS[:6])
