"""Ranking metrics against scikit-learn, and against a plain statement of the worst order that ties allow."""

from itertools import pairwise, permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import average_precision_score

from turnwise.evaluation.tasks.scoring import (
    average_precision,
    correct_ranks,
    recall_at,
    reciprocal_rank,
    single_correct_ranks,
)


def rows(score: st.SearchStrategy[float], unique: bool, largest: int) -> st.SearchStrategy[list[tuple[float, bool]]]:
    pairs = st.lists(
        st.tuples(score, st.booleans()),
        min_size=1,
        max_size=largest,
        unique_by=(lambda row: row[0]) if unique else None,
    )
    return pairs.filter(lambda scored: any(right for _, right in scored))


def split(scored: list[tuple[float, bool]]) -> tuple[np.ndarray, np.ndarray]:
    return np.array([score for score, _ in scored], float), np.array([right for _, right in scored])


@settings(deadline=None)
@given(rows(st.integers(-50, 50), unique=True, largest=20))
def test_without_ties_metrics_are_scikit_learns(scored: list[tuple[float, bool]]) -> None:
    scores, labels = split(scored)
    places = correct_ranks(scores, labels)
    assert average_precision(places) == pytest.approx(average_precision_score(labels, scores))
    ordered = labels[np.argsort(-scores)]
    assert reciprocal_rank(places) == pytest.approx(1 / (1 + ordered.argmax()))
    for cutoff in (1, 2, 5):
        assert recall_at(places, cutoff) == pytest.approx(ordered[:cutoff].sum() / labels.sum())


@settings(deadline=None)
@given(rows(st.integers(0, 2), unique=False, largest=6))
def test_with_ties_metrics_are_those_of_the_worst_order(scored: list[tuple[float, bool]]) -> None:
    """Of all orders that the scores allow, the one in which each metric is lowest."""
    scores, labels = split(scored)
    places = correct_ranks(scores, labels)
    allowed = []
    for order in permutations(range(len(scored))):
        if all(scores[first] >= scores[second] for first, second in pairwise(order)):
            allowed.append([place for place, index in enumerate(order, 1) if labels[index]])
    assert places.tolist() in allowed

    def precision(right: list[int]) -> float:
        return sum(number / place for number, place in enumerate(right, 1)) / len(right)

    assert average_precision(places) == pytest.approx(min(precision(right) for right in allowed))
    assert reciprocal_rank(places) == pytest.approx(min(1 / right[0] for right in allowed))
    for cutoff in (1, 2, 5):
        assert recall_at(places, cutoff) == pytest.approx(
            min(sum(place <= cutoff for place in right) / len(right) for right in allowed)
        )


def test_scores_that_are_no_numbers_count_against_the_model() -> None:
    nan = float("nan")
    assert correct_ranks(np.array([nan, nan, nan]), np.array([False, True, False])).tolist() == [3]
    assert correct_ranks(np.array([nan, 0.5]), np.array([False, True])).tolist() == [2]
    assert correct_ranks(np.array([0.1, nan]), np.array([False, True])).tolist() == [2]
    assert single_correct_ranks(np.array([nan]), np.array([[nan, 0.5]]), np.array([[False, True]])).tolist() == [2]
    assert single_correct_ranks(np.array([0.5]), np.array([[0.5, nan]]), np.array([[False, True]])).tolist() == [2]
