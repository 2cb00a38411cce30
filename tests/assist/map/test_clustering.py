"""Clusters: topics are found, outliers are assigned, names and representatives describe a cluster."""

from collections import Counter
from dataclasses import replace
from itertools import combinations
from math import log

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.helpers.topic_texts import TOPICS, TopicEncoder, texts_about
from turnwise.assist.map.clustering import (
    NO_CLUSTER,
    compute_centroids,
    default_min_cluster_size,
    describe_clusters,
    find_clusters,
    separate_small_talk,
)
from turnwise.assist.map.reduction import DimensionReduction, MapSettings
from turnwise.core.errors import MapError

TEXTS = [text for count, topic in zip((60, 50, 40, 30), TOPICS, strict=True) for text in texts_about(topic, count)]
TOPIC_OF = np.repeat(np.arange(4), (60, 50, 40, 30))
VECTORS = TopicEncoder().encode(TEXTS)


def test_topics_are_found_and_numbered_by_size() -> None:
    labels = find_clusters(DimensionReduction(VECTORS, MapSettings("tsne", 15)))
    assert labels.dtype == np.int32
    assert (labels == TOPIC_OF).mean() > 0.97
    assert (find_clusters(DimensionReduction(VECTORS, MapSettings("tsne", 15))) == labels).all()


def test_outliers_are_assigned_as_requested() -> None:
    unrelated = np.random.default_rng(0).normal(size=(12, VECTORS.shape[1])).astype(np.float32)
    unrelated /= np.linalg.norm(unrelated, axis=1, keepdims=True)
    vectors = np.concatenate([VECTORS, unrelated])
    reduction, found = DimensionReduction(vectors, MapSettings("tsne", 15)), []
    for outliers in ("none", "near", "all"):
        reduction.settings = replace(reduction.settings, outliers=outliers)
        found.append(find_clusters(reduction))
    strict, near, everything = found
    assert (everything != NO_CLUSTER).all()
    assert (near == NO_CLUSTER).sum() <= (strict == NO_CLUSTER).sum()
    # assigning outliers changes nothing else but the numbers of clusters
    for assigned in (near, everything):
        pairs = set(zip(strict[strict != NO_CLUSTER], assigned[strict != NO_CLUSTER], strict=True))
        assert len(pairs) == len({number for number, _ in pairs}) == len({number for _, number in pairs})
    # near outliers are as close to the centroid as nine in ten of the members
    centroids = compute_centroids(vectors, strict)
    for row in np.flatnonzero((strict == NO_CLUSTER) & (near != NO_CLUSTER)):
        name = strict[(near == near[row]) & (strict != NO_CLUSTER)][0]
        limit = np.quantile(vectors[strict == name] @ centroids[name], 0.1)
        assert vectors[row] @ centroids[name] >= limit - 1e-6


def test_few_texts_form_no_cluster() -> None:
    assert (find_clusters(DimensionReduction(VECTORS[:9], MapSettings("tsne"))) == NO_CLUSTER).all()
    assert find_clusters(DimensionReduction(VECTORS[:0], MapSettings("tsne"))).shape == (0,)
    with pytest.raises(MapError, match="min_cluster_size must be at least 2, got 1"):
        MapSettings(min_cluster_size=1)


@given(st.integers(0, 10**7))
def test_default_cluster_size_grows_with_the_number_of_texts(count: int) -> None:
    assert default_min_cluster_size(count) >= 5
    assert default_min_cluster_size(count) <= default_min_cluster_size(count + 1000)
    assert default_min_cluster_size(50_000) == 56


@settings(deadline=None, max_examples=25)
@given(st.lists(st.integers(-1, 3), min_size=1, max_size=12))
def test_centroids_are_normalised_means(labels: list[int]) -> None:
    result = compute_centroids(VECTORS[: len(labels)], np.array(labels, np.int32))
    assert len(result) == max(labels) + 1
    for number, centroid in enumerate(result):
        members = VECTORS[: len(labels)][np.array(labels) == number]
        if len(members):
            mean = members.mean(0)
            assert np.allclose(centroid, mean / np.linalg.norm(mean), atol=1e-6)
        else:
            assert not centroid.any()


def test_names_are_words_of_the_topic() -> None:
    described = describe_clusters(TEXTS, TOPIC_OF, VECTORS)
    assert [cluster.size for cluster in described] == [60, 50, 40, 30]
    for cluster, words in zip(described, TOPICS.values(), strict=True):
        assert set(cluster.name.replace(",", "").split()) == set(words)
    assert len({cluster.name for cluster in described}) == 4


def test_words_are_sorted_by_weight() -> None:
    texts = ["red apple", "red apple pie", "red wine", "the red car", "the blue car", "the green car", "a car"]
    labels = np.array([0, 0, 0, 1, 1, 1, 1])
    shares = Counter(word for text in texts for word in set(text.split()))

    def weight(word: str, group: int) -> float:
        members = [text.split() for text, label in zip(texts, labels, strict=True) if label == group]
        inside, overall = sum(word in words for words in members) / len(members), shares[word] / len(texts)
        return inside * log(inside / overall) * -log(overall)

    described = describe_clusters(texts, labels, VECTORS[: len(texts)])
    assert described[0].words[0] == max(("red", "apple"), key=lambda word: weight(word, 0))
    assert described[1].words[:2] == tuple(sorted(("car", "the"), key=lambda word: -weight(word, 1)))


def test_names_are_weighted_by_occurrences() -> None:
    texts = ["okay great", "thansk", "thansk a lot", "cancel order", "order cancel", "order"]
    labels = np.array([0, 0, 0, 1, 1, 1])
    described = describe_clusters(texts, labels, VECTORS[: len(texts)], [400, 1, 1, 400, 400, 400])
    assert set(described[0].words[0].split()) <= {"okay", "great"}
    assert describe_clusters(texts, labels, VECTORS[: len(texts)])[0].words[0] == "thansk"


def test_names_of_chinese_are_pairs_of_letters() -> None:
    cancel = ["我想取消我的订单。", "请帮我取消今天的订单", "现在还可以取消吗?", "取消 订单 ABC配送"]
    others = ["我忘记密码了。", "怎么重置密码?", "请帮我查一下密码", "密码 不对"]
    described = describe_clusters([*cancel, *others], np.array([0] * 4 + [1] * 4), VECTORS[:8])
    assert set(described[0].name.split(", ")) == {"取消", "订单"}
    assert described[1].words[0] == "密码"
    for cluster in described:
        letters = "".join(cluster.words)
        assert len(letters) == len(set(letters)), "no two words of a name share a letter"


def test_names_have_no_masks_markup_and_addresses() -> None:
    texts = [
        "call [PHONE] or [NAME_3] <b>now</b>",
        "call [PHONE] see https://shop.example/call?id=7 &nbsp;",
        "call [PHONE] <a href='x'>now</a> www.shop.example",
        "other words",
    ]
    described = describe_clusters(texts, np.array([0, 0, 0, 1]), VECTORS[: len(texts)])
    assert set(" ".join(described[0].words).split()) == {"call", "now"}


def test_names_are_unique() -> None:
    texts = ["same words here"] * 4 + ["12 34", "?!"] * 2
    described = describe_clusters(texts, np.array([0, 0, 1, 1, 2, 2, 3, 3]), VECTORS[: len(texts)])
    assert len({cluster.name for cluster in described}) == 4
    assert described[2].words == () and described[2].name == "cluster 2"
    assert describe_clusters(["1", "2"], np.array([0, 0]), VECTORS[:2])[0].name == "cluster 0", "no text has a word"


def test_representatives_cover_a_cluster() -> None:
    rows = np.arange(14)
    counts = np.random.default_rng(1).integers(1, 9, len(rows))
    chosen = describe_clusters(TEXTS[:14], np.zeros(14, int), VECTORS[:14], counts)[0].representatives
    cosines = VECTORS[:14] @ VECTORS[:14].T

    def coverage(some: tuple[int, ...]) -> float:
        return float((cosines[:, list(some)].max(1) * counts).sum())

    assert len(set(chosen)) == 5
    assert coverage(chosen[:1]) == pytest.approx(max(coverage((row,)) for row in rows), rel=1e-6)
    best = max(coverage(some) for some in combinations(range(14), 5))
    loss = counts.sum() - best
    assert counts.sum() - coverage(chosen) < 1.2 * loss


def test_labels_may_have_gaps_and_counts_are_summed() -> None:
    described = describe_clusters(TEXTS[:6], np.array([7, -1, 7, 3, 3, 7]), VECTORS[:6], [1, 2, 3, 4, 5, 6])
    assert [(cluster.number, cluster.size, cluster.utterances) for cluster in described] == [(3, 2, 9), (7, 3, 10)]
    assert set(described[1].representatives) == {0, 2, 5}
    assert describe_clusters([], np.array([], int), VECTORS[:0]) == []


def test_small_talk_becomes_the_last_cluster() -> None:
    """Goodbyes are last turns, greetings are short and repeated; a menu entry is repeated, but long."""
    orders = [f"cancel the order with number {number}" for number in range(8)]
    others = ["goodbye then", "so long", "hi", "hello", "I would like to speak to a person", "open an account", "well"]
    labels = np.array([*[0] * 8, 1, 1, 2, 2, 3, 4, -1], np.int32)
    counts = np.array([*[2] * 8, 4, 4, 50, 40, 40, 6, 5])
    last = np.array([*[0] * 8, 3, 4, 0, 0, 2, 1, 5])
    separated, found = separate_small_talk([*orders, *others], labels, counts, last)
    assert found
    assert separated.tolist() == [*[0] * 8, 3, 3, 3, 3, 1, 2, -1]


def test_without_small_talk_clusters_stay_as_they_are() -> None:
    texts, labels, counts = ["where is it", "a table for two", "pay"], np.array([0, 1, -1], np.int32), np.ones(3, int)
    for last in (np.zeros(3, int), counts):  # texts without conversations; conversations whose second turn is the last
        separated, found = separate_small_talk(texts, labels, counts, last)
        assert not found and separated.tolist() == labels.tolist()
    outside = np.full(3, NO_CLUSTER, np.int32)
    assert separate_small_talk(texts, outside, counts, counts)[0].tolist() == outside.tolist()
