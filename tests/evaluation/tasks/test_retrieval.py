"""Semantic retrieval: MAP and MRR against scikit-learn and a plain loop; ties never favour the model.

The authors' own data.
"""

import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import average_precision_score

from tests.helpers.drawn import Constant, Drawn
from turnwise.evaluation.datasets.retrieval import RetrievalData, RetrievalQuery, retrieval_datasets
from turnwise.evaluation.tasks.similarity import evaluate_retrieval

DATA = os.environ.get("TURNWISE_DATA")
TEXTS = st.lists(st.text("abcdef", min_size=1, max_size=3), min_size=1, max_size=8).map(tuple)
QUERIES = st.lists(
    st.builds(RetrievalQuery, st.text("abcdef", min_size=1, max_size=3), TEXTS, TEXTS), min_size=1, max_size=5
)


@settings(deadline=None)
@given(QUERIES)
def test_equals_scikit_learn_without_ties(queries: list[RetrievalQuery]) -> None:
    """Where a text is both a positive and a negative there is a tie: those go to the plain loop below."""
    queries = [query for query in queries if not set(query.positives) & set(query.negatives)]
    # scikit-learn gives equal positives the precision of their last one
    queries = [query for query in queries if len(set(query.positives)) == len(query.positives)]
    if not queries:
        return
    encoder = Drawn()
    precision, reciprocal = evaluate_retrieval(encoder, RetrievalData("toy", test=tuple(queries)))
    for number, query in enumerate(queries):
        scores = [encoder.unit(query.text) @ encoder.unit(text) for text in (*query.positives, *query.negatives)]
        labels = [True] * len(query.positives) + [False] * len(query.negatives)
        assert precision.evidence[0, number] == pytest.approx(average_precision_score(labels, scores), abs=1e-9)
        assert reciprocal.evidence[0, number] == 1 / (
            1 + sum(score > max(scores[: len(query.positives)]) for score in scores)
        )


@settings(deadline=None)
@given(QUERIES)
def test_ties_go_against_the_model(queries: list[RetrievalQuery]) -> None:
    encoder = Drawn(size=3, axes=True)
    outcomes = evaluate_retrieval(encoder, RetrievalData("toy", test=tuple(queries)))
    for number, query in enumerate(queries):
        scored = [(float(encoder.unit(query.text) @ encoder.unit(text)), 1) for text in query.positives]
        scored += [(float(encoder.unit(query.text) @ encoder.unit(text)), 0) for text in query.negatives]
        ranked = [right for _, right in sorted(scored, key=lambda pair: (-pair[0], pair[1]))]
        precisions = [sum(ranked[:place]) / place for place, right in enumerate(ranked, start=1) if right]
        assert outcomes[0].evidence[0, number] == pytest.approx(np.mean(precisions))
        assert outcomes[1].evidence[0, number] == 1 / (ranked.index(1) + 1)


def test_a_model_that_says_nothing_gets_the_least() -> None:
    query = RetrievalQuery("q", tuple(f"p{number}" for number in range(5)), tuple(f"n{number}" for number in range(20)))
    precision, reciprocal = evaluate_retrieval(Constant(), RetrievalData("toy", test=(query,)))
    assert reciprocal.row().value == pytest.approx(100 / 21)
    assert precision.row().value == pytest.approx(100 * np.mean([place / (20 + place) for place in range(1, 6)]))


def test_each_text_is_encoded_once_and_only_tests_count() -> None:
    query = RetrievalQuery("q", ("a", "b"), ("c", "q2"))
    other = RetrievalQuery("q2", ("c",), ("a", "q"))
    encoder = Drawn()
    outcomes = evaluate_retrieval(
        encoder, RetrievalData("toy", (), (RetrievalQuery("v", ("w",), ("x",)),), (query, other)), max_length=50
    )
    assert sorted(encoder.encoded) == ["a", "b", "c", "q", "q2"]
    assert encoder.lengths == [50]
    assert [outcome.key for outcome in outcomes] == [
        ("retrieval", "toy", "cosine", "MAP"),
        ("retrieval", "toy", "cosine", "MRR"),
    ]
    assert outcomes[0].row().n == 2


@pytest.mark.skipif(DATA is None, reason="TURNWISE_DATA is not set: real data needed")
def test_random_vectors_rank_the_authors_candidates_at_random() -> None:
    data = retrieval_datasets()["retrieval_ecd"].load(Path(str(DATA)))
    precision, reciprocal = evaluate_retrieval(Drawn(size=16), data)
    shares = [len(query.positives) / (len(query.positives) + len(query.negatives)) for query in data.test]
    # in a random order precision is the share of positives, and a little more where the first ones happen to be right
    assert 100 * np.mean(shares) < precision.row().value < 100 * np.mean(shares) + 8
    assert precision.row().value < reciprocal.row().value < 90
