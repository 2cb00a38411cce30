"""The examples of objectives on random dialogues equal direct implementations of the papers."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.helpers.strategies import dialogues
from turnwise import Dialogue, Turn
from turnwise.objectives.dialoguecse import Siamese
from turnwise.objectives.dse import DSE
from turnwise.objectives.masked_language import MaskedLanguage
from turnwise.objectives.simcse import SimCSE
from turnwise.objectives.tod_bert import TODBERT


def long(turn: Turn) -> bool:
    return len(turn.text.split()) > 3


def talk(*texts: str) -> Dialogue:
    return Dialogue("d", tuple(Turn(("user", "system")[number % 2], text) for number, text in enumerate(texts)))


@settings(deadline=None)
@given(dialogues(), st.sampled_from([(1,), (2,), (3,), (1, 2, 3)]))
def test_dse_uses_each_consecutive_pair_once(dialogue: Dialogue, turns: tuple[int, ...]) -> None:
    actual = [example.windows for example in DSE(query_turns=turns).examples(dialogue)]
    expected = [
        ((response - count, response), (response, response + 1))
        for response in range(1, len(dialogue.turns))
        if long(dialogue.turns[response - 1]) and long(dialogue.turns[response])
        for count in turns
        if count <= response
    ]
    assert actual == expected


def test_dse_pairs_need_more_than_three_words_on_both_sides() -> None:
    dialogue = talk("one two three four", "one two three", "one two three four", "a b c d", "a b c d e")
    assert [example.windows for example in DSE().examples(dialogue)] == [((2, 3), (3, 4)), ((3, 4), (4, 5))]


def test_dropout_pairs_a_sentence_with_itself() -> None:
    assert [example.windows for example in DSE(positives="dropout").examples(talk("a b c d", "a b"))] == [
        ((0, 1), (0, 1))
    ]
    assert DSE(positives="dropout").traits.unique
    assert [example.windows for example in SimCSE().examples(talk("a", "b"))] == [((0, 1), (0, 1)), ((1, 2), (1, 2))]


@settings(deadline=None)
@given(dialogues(), st.integers(1, 4))
def test_siamese_contexts_end_at_the_response(dialogue: Dialogue, turns: int) -> None:
    for example in Siamese(context_turns=turns).examples(dialogue):
        (first, last), (response, behind) = example.windows
        assert last == response == behind - 1
        assert 0 <= first < last
        assert last - first <= turns


def test_tod_bert_needs_a_system_turn_with_a_context() -> None:
    assert not list(TODBERT().examples(Dialogue("d", (Turn("system", "hello"), Turn("user", "hi")))))
    assert [example.windows for example in TODBERT().examples(talk("hi", "hello", "bye"))] == [((0, 3),)]


def test_masked_language_uses_turns_or_dialogues() -> None:
    assert [example.windows for example in MaskedLanguage().examples(talk("a", "b"))] == [((0, 1),), ((1, 2),)]
    assert [example.windows for example in MaskedLanguage(unit="dialogue").examples(talk("a", "b"))] == [((0, 2),)]


def test_dse_head_is_that_of_the_paper() -> None:
    """DSE's head: d×d, ReLU, d×128, no biases (appendix A.2)."""
    shapes = {name: tuple(value.shape) for name, value in DSE().make_heads(32).named_parameters()}
    assert shapes == {"0.weight": (32, 32), "2.weight": (128, 32)}
    assert np.isclose(float(next(DSE().make_heads(256).parameters()).detach().std()), 0.02, rtol=0.1)
