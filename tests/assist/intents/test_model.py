"""The similarity scorer: equal to a restatement text by text, also for left-out examples."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.helpers.intent_examples import world
from turnwise.assist.intents.heads import SimilarityScorer


def _restate(query, members, k, mean_density):
    densities = []
    for row, member in enumerate(members):
        cosines = sorted((float(member @ other) for place, other in enumerate(members) if place != row), reverse=True)[
            :k
        ]
        densities.append((sum(cosines) + mean_density) / (len(cosines) + 1))
    terms = sorted(
        (2 * float(query @ member) - density for member, density in zip(members, densities, strict=True)), reverse=True
    )
    return float(np.mean(terms[:k]))


def _vectors(seed, counts, size=5):
    random = np.random.default_rng(seed)
    vectors = random.normal(size=(sum(counts), size)).astype(np.float32)
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True), np.repeat(np.arange(len(counts)), counts)


@given(st.integers(0, 999), st.lists(st.integers(1, 7), min_size=1, max_size=4), st.sampled_from([None, 1, 2, 3, 20]))
def test_scores_match_a_restatement_text_by_text(seed, counts, k):
    vectors, labels = _vectors(seed, counts)
    scorer = SimilarityScorer.fit(vectors, labels, k)
    queries, _ = _vectors(seed + 1, [3])
    expected = [
        [_restate(query, vectors[labels == label], k, scorer.mean_density) for label in range(len(counts))]
        for query in queries
    ]
    np.testing.assert_allclose(scorer.score(queries), expected, atol=1e-5)


@given(st.integers(0, 999), st.lists(st.integers(1, 7), min_size=1, max_size=4), st.sampled_from([None, 1, 2, 3, 20]))
def test_left_out_examples_are_scored_as_if_never_added(seed, counts, k):
    vectors, labels = _vectors(seed, counts)
    scorer = SimilarityScorer.fit(vectors, labels, k)
    scores = scorer.score_left_out(np.arange(len(labels)))
    for row, label in enumerate(labels):
        if counts[label] == 1:
            assert np.isnan(scores[row, label])
            continue
        keep = np.arange(len(labels)) != row
        without = replace(SimilarityScorer.fit(vectors[keep], labels[keep], k), mean_density=scorer.mean_density)
        assert scores[row, label] == pytest.approx(without.score(vectors[row : row + 1])[0, label], abs=1e-5)
        others = np.arange(len(counts)) != label
        np.testing.assert_allclose(scores[row, others], scorer.score(vectors[row : row + 1])[0, others], atol=1e-5)


def test_similarity_to_all_examples_is_the_distance_from_the_centroid():
    vectors, labels = _vectors(3, [6])
    scorer = SimilarityScorer.fit(vectors, labels, None)
    query = _vectors(4, [1])[0]
    cosines = vectors @ vectors.T
    mean_cosine = cosines[~np.eye(6, dtype=bool)].mean()
    assert scorer.mean_density == pytest.approx(mean_cosine)
    centre = vectors.mean(0)
    # the squared length of the centroid, without the bias of few examples
    assert scorer.score(query)[0, 0] == pytest.approx(float(2 * query[0] @ centre - mean_cosine), abs=1e-5)


@pytest.mark.parametrize("examples", [2, 3, 5, 20])
def test_scores_of_new_texts_do_not_depend_on_the_number_of_examples(examples):
    queries, truth = world(40, 50, 1)
    own = np.arange(len(truth)), truth
    many = SimilarityScorer.fit(*world(40, 200, 2), None).score(queries)[own].mean()
    few = np.mean(
        [SimilarityScorer.fit(*world(40, examples, 10 + draw), None).score(queries)[own].mean() for draw in range(5)]
    )
    assert few == pytest.approx(many, abs=0.015)


def test_blocks_do_not_change_results(monkeypatch):
    vectors, labels = _vectors(5, [9, 4, 7])
    rows = np.arange(len(labels))
    whole = [SimilarityScorer.fit(vectors, labels, k) for k in (None, 3)]
    expected = [(each.score(vectors), each.score_left_out(rows)) for each in whole]
    monkeypatch.setattr("turnwise.assist.intents.heads._BLOCK", 10)
    for k, (scores, left) in zip((None, 3), expected, strict=True):
        small = SimilarityScorer.fit(vectors, labels, k)
        np.testing.assert_allclose(small.score(vectors), scores, atol=1e-6)
        np.testing.assert_allclose(small.score_left_out(rows), left, atol=1e-6)
