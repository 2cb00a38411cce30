"""Likeness against a restatement that goes text by text, and what leaving an example out comes to."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.helpers.made_up_intents import world
from turnwise.assist.intents.likeness import Likeness


def _restated(query, members, k, typical):
    densities = []
    for row, member in enumerate(members):
        cosines = sorted((float(member @ other) for place, other in enumerate(members) if place != row), reverse=True)[
            :k
        ]
        densities.append((sum(cosines) + typical) / (len(cosines) + 1))
    terms = sorted(
        (2 * float(query @ member) - density for member, density in zip(members, densities, strict=True)), reverse=True
    )
    return float(np.mean(terms[:k]))


def _vectors(seed, counts, size=5):
    random = np.random.default_rng(seed)
    vectors = random.normal(size=(sum(counts), size)).astype(np.float32)
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True), np.repeat(np.arange(len(counts)), counts)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 999), st.lists(st.integers(1, 7), min_size=1, max_size=4), st.sampled_from([None, 1, 2, 3, 20]))
def test_scores_are_those_of_every_text_by_itself(seed, counts, k):
    vectors, labels = _vectors(seed, counts)
    likeness = Likeness.of(vectors, labels, k)
    queries, _ = _vectors(seed + 1, [3])
    expected = [
        [_restated(query, vectors[labels == label], k, likeness.typical) for label in range(len(counts))]
        for query in queries
    ]
    np.testing.assert_allclose(likeness.scores(queries), expected, atol=1e-5)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 999), st.lists(st.integers(1, 7), min_size=1, max_size=4), st.sampled_from([None, 1, 2, 3, 20]))
def test_an_example_left_out_is_scored_as_if_it_had_never_been_there(seed, counts, k):
    vectors, labels = _vectors(seed, counts)
    likeness = Likeness.of(vectors, labels, k)
    found = likeness.left_out(np.arange(len(labels)))
    for row, label in enumerate(labels):
        if counts[label] == 1:
            assert np.isnan(found[row, label])
            continue
        keep = np.arange(len(labels)) != row
        without = replace(Likeness.of(vectors[keep], labels[keep], k), typical=likeness.typical)
        assert found[row, label] == pytest.approx(without.scores(vectors[row : row + 1])[0, label], abs=1e-5)
        others = np.arange(len(counts)) != label
        np.testing.assert_allclose(found[row, others], likeness.scores(vectors[row : row + 1])[0, others], atol=1e-5)


def test_over_all_examples_it_is_the_distance_from_the_centre():
    vectors, labels = _vectors(3, [6])
    likeness = Likeness.of(vectors, labels, None)
    query = _vectors(4, [1])[0]
    cosines = vectors @ vectors.T
    apart = cosines[~np.eye(6, dtype=bool)].mean()
    assert likeness.typical == pytest.approx(apart)
    centre = vectors.mean(0)
    # the square of the centre's length, without what few examples add to it
    assert likeness.scores(query)[0, 0] == pytest.approx(float(2 * query[0] @ centre - apart), abs=1e-5)


@pytest.mark.parametrize("examples", [2, 3, 5, 20])
def test_what_a_new_text_scores_does_not_depend_on_how_many_examples_there_are(examples):
    asked, truth = world(40, 50, 1)
    own = np.arange(len(truth)), truth
    many = Likeness.of(*world(40, 200, 2), None).scores(asked)[own].mean()
    few = np.mean([Likeness.of(*world(40, examples, 10 + draw), None).scores(asked)[own].mean() for draw in range(5)])
    assert few == pytest.approx(many, abs=0.015)
    # and neither does what an example scores that is left out
    left = []
    for draw in range(5):
        vectors, labels = world(40, examples, 20 + draw)
        left.append(
            Likeness.of(vectors, labels, None).left_out(np.arange(len(labels)))[np.arange(len(labels)), labels].mean()
        )
    assert np.mean(left) == pytest.approx(many, abs=0.03)
    # the squared distance from the plain mean would
    if examples < 5:
        vectors, labels = world(40, examples, 3)
        plain = np.stack([vectors[labels == label].mean(0) for label in range(40)])
        distances = 2 * (asked @ plain.T) - (plain**2).sum(1)
        assert distances[own].mean() < many - 0.05


def test_a_block_at_a_time_comes_to_the_same(monkeypatch):
    vectors, labels = _vectors(5, [9, 4, 7])
    rows = np.arange(len(labels))
    whole = [Likeness.of(vectors, labels, k) for k in (None, 3)]
    expected = [(each.scores(vectors), each.left_out(rows)) for each in whole]
    monkeypatch.setattr("turnwise.assist.intents.likeness._BLOCK", 10)
    for k, (scores, left) in zip((None, 3), expected, strict=True):
        small = Likeness.of(vectors, labels, k)
        np.testing.assert_allclose(small.scores(vectors), scores, atol=1e-6)
        np.testing.assert_allclose(small.left_out(rows), left, atol=1e-6)
