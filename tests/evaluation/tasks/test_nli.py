"""Entailments evaluate_nli than contradictions: against a plain loop; a tie is wrong."""

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tests.helpers.drawn import Constant, Drawn
from turnwise.evaluation.datasets.sentence_pairs import Triplet, TripletData
from turnwise.evaluation.tasks.similarity import evaluate_nli

TEXTS = st.text("abcd", min_size=1, max_size=3)


@settings(deadline=None)
@given(st.lists(st.builds(Triplet, TEXTS, TEXTS, TEXTS), min_size=1, max_size=20))
def test_equals_a_plain_loop(triplets: list[Triplet]) -> None:
    encoder = Drawn()
    closeness = [
        [float(encoder.unit(each.anchor) @ encoder.unit(text)) for text in (each.entailment, each.contradiction)]
        for each in triplets
    ]
    assume(all(one == two or abs(one - two) > 1e-5 for one, two in closeness))
    (outcome,) = evaluate_nli(encoder, TripletData("toy", test=tuple(triplets)))
    assert outcome.key == ("nli", "toy", "entailment nearer than contradiction", "accuracy")
    assert outcome.evidence.tolist() == [[float(one > two) for one, two in closeness]]
    assert len(set(encoder.encoded)) == len(encoder.encoded)


def test_a_tie_is_wrong() -> None:
    triplets = tuple(Triplet(f"a{number}", f"e{number}", f"c{number}") for number in range(50))
    assert evaluate_nli(Constant(), TripletData("toy", test=triplets))[0].row().value == 0.0


def test_each_text_is_encoded_once_and_the_length_is_passed_on() -> None:
    encoder = Drawn()
    data = TripletData("toy", test=(Triplet("a", "b", "c"), Triplet("d", "d", "e")))
    (outcome,) = evaluate_nli(encoder, data, max_length=9)
    assert sorted(encoder.encoded) == ["a", "b", "c", "d", "e"]
    assert encoder.lengths == [9]
    # a text is nearest to itself
    assert outcome.evidence[0, 1] == 1.0
    assert outcome.row().value == pytest.approx(100 * outcome.evidence.mean())
