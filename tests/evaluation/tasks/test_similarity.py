"""Tasks by cosine: correlations against SciPy, MAP and MRR against scikit-learn, entailment against a plain loop."""

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy.stats import pearsonr, spearmanr
from sklearn.metrics import average_precision_score

from tests.helpers.encoders import RandomEncoder
from turnwise.evaluation.datasets.retrieval import RetrievalData, RetrievalQuery
from turnwise.evaluation.datasets.sentence_pairs import SimilarityData, SimilarityPair, Triplet, TripletData
from turnwise.evaluation.metrics import compute_per_run
from turnwise.evaluation.tasks.responses import NLI_MAX_LENGTH, evaluate_nli, evaluate_retrieval, evaluate_similarity

TEXTS = st.text("abcd", min_size=1, max_size=3)
PAIRS = st.lists(
    st.builds(SimilarityPair, TEXTS, TEXTS, st.sampled_from([1.0, 2.0, 2.5, 5.0])), min_size=3, max_size=30
)


@settings(deadline=None, max_examples=40)
@given(PAIRS)
def test_correlations_equal_scipys(pairs: list[SimilarityPair]) -> None:
    encoder = RandomEncoder()
    gold = [pair.score for pair in pairs]
    # rounded, so that equal pairs are equal whatever the order of their texts
    cosines = [round(float(encoder.unit(pair.first) @ encoder.unit(pair.second)), 5) for pair in pairs]
    outcomes = evaluate_similarity(encoder, SimilarityData("toy", test=tuple(pairs)))
    assert [outcome.key for outcome in outcomes] == [
        ("sts", "toy", "cosine", "Spearman"),
        ("sts", "toy", "cosine", "Pearson"),
    ]
    assert outcomes[0].evidence[0] == pytest.approx(np.array([cosines, gold]).T, abs=2e-5)
    if len(set(gold)) > 1 and len(set(cosines)) > 1:
        values = {outcome.metric: compute_per_run(outcome.statistic, outcome.table)[0] for outcome in outcomes}
        assert values["Spearman"] == pytest.approx(spearmanr(outcomes[0].evidence[0, :, 0], gold).statistic)
        assert values["Pearson"] == pytest.approx(pearsonr(cosines, gold).statistic, abs=1e-3)


def test_equal_pairs_have_equal_cosines() -> None:
    """Rounding does not order what is equal, whichever of the texts comes first."""
    pairs = [
        SimilarityPair("a", "b", 1.0),
        SimilarityPair("b", "a", 2.0),
        SimilarityPair("c", "d", 3.0),
        SimilarityPair("a", "b", 4.0),
    ]
    encoder = RandomEncoder(size=33)
    evidence = evaluate_similarity(encoder, SimilarityData("toy", test=tuple(pairs)))[0].evidence
    assert evidence[0, 0, 0] == evidence[0, 1, 0] == evidence[0, 3, 0]
    assert sorted(encoder.encoded) == ["a", "b", "c", "d"]


def test_only_test_pairs_count_and_the_length_is_the_papers() -> None:
    test = tuple(SimilarityPair(f"a{number}", f"b{number}", number % 3) for number in range(5))
    encoder = RandomEncoder()
    outcomes = evaluate_similarity(encoder, SimilarityData("dsts_ecd", (), (SimilarityPair("v", "w", 1.0),), test))
    assert "v" not in encoder.encoded
    assert encoder.lengths == [50]
    assert outcomes[0].row().n == 5


@settings(deadline=None)
@given(st.lists(st.builds(Triplet, TEXTS, TEXTS, TEXTS), min_size=1, max_size=20))
def test_nli_equals_a_plain_loop(triplets: list[Triplet]) -> None:
    encoder = RandomEncoder()
    closeness = [
        [float(encoder.unit(each.anchor) @ encoder.unit(text)) for text in (each.entailment, each.contradiction)]
        for each in triplets
    ]
    assume(all(one == two or abs(one - two) > 1e-5 for one, two in closeness))
    (outcome,) = evaluate_nli(encoder, TripletData("toy", test=tuple(triplets)))
    assert outcome.key == ("nli", "toy", "entailment nearer than contradiction", "accuracy")
    assert outcome.evidence.tolist() == [[float(one > two) for one, two in closeness]]
    assert len(set(encoder.encoded)) == len(encoder.encoded)
    assert encoder.lengths == [NLI_MAX_LENGTH]


CANDIDATES = st.lists(st.text("abcdef", min_size=1, max_size=3), min_size=1, max_size=8).map(tuple)
QUERIES = st.lists(
    st.builds(RetrievalQuery, st.text("abcdef", min_size=1, max_size=3), CANDIDATES, CANDIDATES), min_size=1, max_size=5
)


@settings(deadline=None)
@given(QUERIES)
def test_retrieval_equals_scikit_learn_without_ties(queries: list[RetrievalQuery]) -> None:
    """Where a text is both a positive and a negative there is a tie: those go to the plain loop below."""
    queries = [query for query in queries if not set(query.positives) & set(query.negatives)]
    # scikit-learn gives equal positives the precision of their last one
    queries = [query for query in queries if len(set(query.positives)) == len(query.positives)]
    if not queries:
        return
    encoder = RandomEncoder()
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
def test_ties_of_candidates_go_against_the_model(queries: list[RetrievalQuery]) -> None:
    encoder = RandomEncoder(size=3, axes=True)
    outcomes = evaluate_retrieval(encoder, RetrievalData("toy", test=tuple(queries)))
    for number, query in enumerate(queries):
        scored = [(float(encoder.unit(query.text) @ encoder.unit(text)), 1) for text in query.positives]
        scored += [(float(encoder.unit(query.text) @ encoder.unit(text)), 0) for text in query.negatives]
        ranked = [right for _, right in sorted(scored, key=lambda pair: (-pair[0], pair[1]))]
        precisions = [sum(ranked[:place]) / place for place, right in enumerate(ranked, start=1) if right]
        assert outcomes[0].evidence[0, number] == pytest.approx(np.mean(precisions))
        assert outcomes[1].evidence[0, number] == 1 / (ranked.index(1) + 1)


def test_retrieval_encodes_each_text_once_and_only_test_queries_count() -> None:
    query = RetrievalQuery("q", ("a", "b"), ("c", "q2"))
    other = RetrievalQuery("q2", ("c",), ("a", "q"))
    encoder = RandomEncoder()
    validation = RetrievalQuery("v", ("w",), ("x",))
    outcomes = evaluate_retrieval(encoder, RetrievalData("retrieval_ecd", (), (validation,), (query, other)))
    assert sorted(encoder.encoded) == ["a", "b", "c", "q", "q2"]
    assert encoder.lengths == [50]
    assert [outcome.key for outcome in outcomes] == [
        ("retrieval", "retrieval_ecd", "cosine", "MAP"),
        ("retrieval", "retrieval_ecd", "cosine", "MRR"),
    ]
    assert outcomes[0].row().n == 2
