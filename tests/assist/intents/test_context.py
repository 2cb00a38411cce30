"""Utterances in context: how they are kept, chosen by cross-validation, stored, and used for prediction."""

import json
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.helpers.bag_of_words import BagOfWords
from turnwise import Dialogue, IntentClassifier, Turn
from turnwise.assist.intents.context import MAX_CONTEXT, SEPARATOR, join_turns, last_turn, read_utterance, split_turns
from turnwise.assist.intents.examples import read_labelled
from turnwise.assist.intents.storage import IntentFolder
from turnwise.assist.intents.testing import cross_validate, run_test
from turnwise.core.errors import IntentError

#: What the system asks before an answer that says nothing itself.
QUESTIONS = {
    "book_flight": [
        "shall I book the flight",
        "do you want this flight",
        "is the flight to Rome right",
        "book flight now",
    ],
    "cancel_order": [
        "shall I cancel the order",
        "do you want to cancel it",
        "cancel the whole order",
        "cancel order now",
    ],
}
ANSWERS = ["yes please", "sure go ahead", "okay", "that is right"]
TEXTS = [[question, answer] for each in QUESTIONS.values() for question, answer in zip(each, ANSWERS, strict=True)]
INTENTS = [intent for intent, each in QUESTIONS.items() for _ in each]


def fit(**settings) -> IntentClassifier:
    return IntentClassifier(BagOfWords(), use_names=False, **settings).fit(TEXTS, INTENTS)


TURN = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1, max_size=20).filter(
    lambda text: bool(text.strip())
)


@given(st.lists(TURN, min_size=1, max_size=9))
def test_a_conversation_is_kept_as_its_last_turns(turns: list[str]) -> None:
    kept = [turn.replace(SEPARATOR, " ") for turn in turns]
    text = join_turns(turns)
    assert last_turn(text) == kept[-1]
    before = [turn for turn in kept[:-1] if turn.strip()][-MAX_CONTEXT:]
    assert split_turns(text) == [*before, kept[-1]]
    assert join_turns([Turn("user", turn) for turn in turns]) == join_turns(tuple(turns)) == text
    assert join_turns("plain") == "plain"


def test_the_context_decides_where_the_text_does_not() -> None:
    classifier = fit()
    selection = classifier.context_selection_
    assert selection is not None and selection.used and selection.evaluated == len(TEXTS)
    assert selection.accuracy["context"] > selection.accuracy["alone"]
    asked = [["the flight to Rome", "yes please"], ["cancel the order", "yes please"]]
    assert classifier.predict(asked).tolist() == ["book_flight", "cancel_order"]
    turns = [Dialogue(str(row), (Turn("system", one), Turn("user", two))) for row, (one, two) in enumerate(asked)]
    assert classifier.predict(turns).tolist() == ["book_flight", "cancel_order"]
    decision = classifier.decide(asked)[0]
    assert decision.text == "yes please"
    assert decision.nearest[0].text in {f"{ANSWERS[0]} (after '{question}')" for question in QUESTIONS["book_flight"]}


def test_vectors_of_inputs_give_the_same_decisions() -> None:
    classifier = fit()
    texts = [*TEXTS, "cancel order", ["a flight", "book it and cancel the order"]]
    for several in (False, True):
        vectors = BagOfWords().encode(classifier.inputs(texts, several=several), normalise=True)
        assert classifier.decide(texts, several=several, vectors=vectors) == classifier.decide(texts, several=several)


def test_useless_context_is_left_out() -> None:
    random = np.random.default_rng(0)
    words = [f"word{number}" for number in range(200)]
    texts = [
        [" ".join(random.choice(words, 8)), " ".join(["flight", "book"][: 1 + row % 2] if row < 20 else ["cancel"] * 2)]
        for row in range(40)
    ]
    intents = ["book_flight"] * 20 + ["cancel_order"] * 20
    classifier = IntentClassifier(BagOfWords(), use_names=False).fit(texts, intents)
    assert classifier.context_selection_ is not None and not classifier.uses_context
    alone = IntentClassifier(BagOfWords(), use_names=False).fit([text for _, text in texts], intents)
    queries = ["book flight", "cancel", "something else"]
    assert classifier.decide(queries) == alone.decide(queries)
    assert classifier.decide([["whatever comes before", query] for query in queries]) == alone.decide(queries)
    assert classifier.model_.examples.pairs == alone.model_.examples.pairs


def test_a_classifier_without_context_reads_the_last_turn() -> None:
    classifier = IntentClassifier(BagOfWords()).fit(["book a flight", "cancel it", "book flights"], ["a", "b", "a"])
    assert classifier.context_selection_ is None
    assert classifier.decide([["cancel it", "book a flight"]]) == classifier.decide(["book a flight"])


def test_classifiers_are_stored_with_context(tmp_path: Path) -> None:
    classifier = fit()
    classifier.encoder = "unused"
    classifier.save(tmp_path / "intents", encoder_name="unused")
    queries = [["cancel", "yes please"], "book a flight"]
    loaded = IntentClassifier.load(tmp_path / "intents", encoder=BagOfWords())
    assert loaded.context_selection_ == classifier.context_selection_
    assert loaded.decide(queries) == classifier.decide(queries)
    with IntentFolder.open(tmp_path / "intents", encoder=BagOfWords()) as opened:
        new = (["shall I cancel the parcel", "do it"], "cancel_order")
        assert opened.add([new]) == 1 and opened.add([new]) == 0
        assert opened.classifier.decide([new[0]])[0].intent == "cancel_order"
        assert opened.remove([new]) == 1
        assert len(opened.examples) == len(TEXTS)


def test_reports_show_the_turns() -> None:
    result = run_test(fit(), [*TEXTS, ["nothing known", "purple elephants"]], [*INTENTS, "cancel_order"])
    assert result.accuracy.value is not None and result.accuracy.value >= 8 / 9
    report = cross_validate(TEXTS, INTENTS, IntentClassifier(BagOfWords(), use_names=False), folds=4)
    assert report.texts == len(TEXTS) and report.accuracy.value is not None
    assert "\\u001e" not in json.dumps(asdict(report))


@pytest.mark.parametrize(
    "context",
    [
        ["one", "two"],
        '["one", "two"]',
        "one\ntwo",
        [{"role": "user", "content": "one"}, {"speaker": "user", "text": "two"}],
    ],
)
def test_files_may_have_a_column_of_context(context: object) -> None:
    assert read_utterance({"text": "yes", "context": context}, "text", "row 1") == join_turns(["one", "two", "yes"])
    assert read_utterance({"text": " ", "context": context}, "text", "row 1") == ""
    with pytest.raises(IntentError, match="row 1: 'context' must be a list of turns"):
        read_utterance({"text": "yes", "context": [1]}, "text", "row 1")
    assert read_utterance({"text": "yes", "context": "[not JSON"}, "text", "") == join_turns(["[not JSON", "yes"])


def test_labelled_files_and_stores_carry_context(tmp_path: Path) -> None:
    path = tmp_path / "examples.jsonl"
    rows = [
        {"text": turns[-1], "context": turns[:-1], "intent": intent}
        for turns, intent in zip(TEXTS, INTENTS, strict=True)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    assert read_labelled(path) == [(join_turns(turns), intent) for turns, intent in zip(TEXTS, INTENTS, strict=True)]


def test_bad_conversations_are_refused() -> None:
    for bad, message in (
        ([[]], "at least one turn"),
        ([["a", " "]], "must be a string"),
        ([[1]], "a turn is a string"),
    ):
        with pytest.raises(IntentError, match=message):
            fit().predict(bad)
    with pytest.raises(IntentError, match="vectors cannot be given for texts with context"):
        IntentClassifier(BagOfWords()).fit(TEXTS, INTENTS, vectors=BagOfWords().encode(TEXTS, normalise=True))


def test_a_log_of_dialogues_is_read_in_context() -> None:
    log = [
        Dialogue(str(row), (Turn("system", question), Turn("user", answer)))
        for row, (question, answer) in enumerate(TEXTS * 3)
    ]
    classifier = IntentClassifier(BagOfWords()).fit(TEXTS, INTENTS, log=log)
    assert classifier.support_selection_ is not None and classifier.support_selection_.log_size == len(log)
    assert classifier.predict(TEXTS).tolist() == INTENTS
