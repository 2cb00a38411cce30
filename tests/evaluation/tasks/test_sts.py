"""Textual similarity: correlations of cosine and gold against SciPy, with ties."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import pearsonr, spearmanr

from tests.helpers.drawn import Drawn
from turnwise.evaluation.datasets.sentence_pairs import SimilarityData, SimilarityPair
from turnwise.evaluation.metrics import compute_per_run
from turnwise.evaluation.tasks.similarity import evaluate_similarity

TEXTS = st.text("abcd", min_size=1, max_size=2)
PAIRS = st.lists(
    st.builds(SimilarityPair, TEXTS, TEXTS, st.sampled_from([1.0, 2.0, 2.5, 5.0])), min_size=3, max_size=30
)


@settings(deadline=None)
@given(PAIRS)
def test_equals_scipy(pairs: list[SimilarityPair]) -> None:
    encoder = Drawn()
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
        figure = {outcome.metric: compute_per_run(outcome.statistic, outcome.table)[0] for outcome in outcomes}
        assert figure["Spearman"] == pytest.approx(spearmanr(outcomes[0].evidence[0, :, 0], gold).statistic)
        assert figure["Pearson"] == pytest.approx(pearsonr(cosines, gold).statistic, abs=1e-3)


def test_equal_pairs_have_equal_cosines() -> None:
    """Rounding does not order what is equal, whichever of the texts comes first."""
    pairs = [
        SimilarityPair("a", "b", 1.0),
        SimilarityPair("b", "a", 2.0),
        SimilarityPair("c", "d", 3.0),
        SimilarityPair("a", "b", 4.0),
    ]
    encoder = Drawn(size=33)
    evidence = evaluate_similarity(encoder, SimilarityData("toy", test=tuple(pairs)))[0].evidence
    assert evidence[0, 0, 0] == evidence[0, 1, 0] == evidence[0, 3, 0]
    assert sorted(encoder.encoded) == ["a", "b", "c", "d"]


def test_only_tests_count_and_the_length_is_passed_on() -> None:
    test = tuple(SimilarityPair(f"a{number}", f"b{number}", number % 3) for number in range(5))
    encoder = Drawn()
    outcomes = evaluate_similarity(
        encoder, SimilarityData("toy", (), (SimilarityPair("v", "w", 1.0),), test), max_length=7
    )
    assert "v" not in encoder.encoded
    assert encoder.lengths == [7]
    assert outcomes[0].row().n == 5
