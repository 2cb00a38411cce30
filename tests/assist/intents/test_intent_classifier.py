"""The classifier as its users hold it: scikit-learn's conventions, decisions, additions, saving."""

import json
from dataclasses import replace

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import cross_val_score

from tests.helpers.made_up_intents import EXAMPLES, OUTSIDE, BagOfWords, pairs
from turnwise import Encoder, IntentClassifier
from turnwise.assist.intents.decision import OUT_OF_SCOPE
from turnwise.assist.intents.examples import IntentError

HEADS = ("prototypes", "neighbours", "logistic")


def _fitted(**settings):
    return IntentClassifier(BagOfWords(), **settings).fit(*pairs())


# ---- scikit-learn


@pytest.mark.parametrize("head", HEADS)
def test_it_is_a_classifier_by_scikit_learns_conventions(head):
    classifier = IntentClassifier(BagOfWords(), head=head, false_rejection=None)
    copy = clone(classifier)
    assert copy.get_params(deep=False) == classifier.get_params(deep=False)
    assert copy is not classifier
    with pytest.raises(NotFittedError):
        copy.predict(["x"])
    assert cross_val_score(classifier, *pairs(), cv=4).mean() > 0.9
    fitted = classifier.fit(*pairs())
    assert fitted is classifier
    assert fitted.classes_.tolist() == sorted(EXAMPLES)
    assert fitted.score(*pairs()) == 1.0
    probabilities = fitted.predict_proba(["where is the parcel", "cancel it"])
    assert probabilities.shape == (2, 3)
    np.testing.assert_allclose(probabilities.sum(1), 1)
    assert (
        fitted.classes_[probabilities.argmax(1)].tolist()
        == fitted.predict(["where is the parcel", "cancel it"]).tolist()
    )


@pytest.mark.parametrize("head", HEADS)
def test_it_abstains_from_what_is_like_nothing_it_knows(head):
    classifier = _fitted(head=head)
    asked = ["where is my parcel now", "please cancel this order", "purple elephants dance tonight"]
    assert classifier.predict(asked).tolist() == ["track_order", "cancel_order", OUT_OF_SCOPE]
    assert len(classifier.predict([])) == 0
    assert classifier.decide([]) == []


def test_the_three_heads_agree_about_few_examples():
    asked = ["where is it", "my order", "money please", "elephants"]
    prototypes, neighbours = (
        _fitted(head=head, neighbours=9).predict_proba(asked) for head in ("prototypes", "neighbours")
    )
    np.testing.assert_allclose(prototypes, neighbours)


# ---- decisions


@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize("per_intent", [False, True])
def test_a_decision_says_what_it_rests_on(head, per_intent):
    classifier = _fitted(head=head, per_intent=per_intent)
    encoder = BagOfWords()
    asked = ["where is my parcel now", "cancel the parcel", "purple elephants dance tonight"]
    for text, decision, predicted in zip(
        asked, classifier.decide(asked, neighbours=2), classifier.predict(asked), strict=True
    ):
        assert decision.text == text
        assert decision.abstained == (decision.score < decision.threshold)
        assert (decision.intent or OUT_OF_SCOPE) == predicted
        assert decision.intents == (() if decision.abstained else (decision.intent,))
        best = decision.ranked[0]
        assert (best.score, decision.runner_up) == (decision.score, decision.ranked[1])
        assert decision.threshold == pytest.approx(classifier.thresholds_[best.intent])
        if not decision.abstained:
            assert best.intent == decision.intent
        known = dict(zip(classifier.classes_, classifier.predict_proba([text])[0], strict=True))
        assert {each.intent: pytest.approx(each.probability) for each in decision.ranked} == known
        cosines = (encoder.encode([text], normalise=True) @ encoder.encode(classifier.texts_, normalise=True).T)[0]
        order = np.argsort(-cosines, kind="stable")[:2]
        assert [near.text for near in decision.nearest] == [classifier.texts_[row] for row in order]
        assert [near.similarity for near in decision.nearest] == pytest.approx(cosines[order].tolist(), abs=1e-5)
        for word in (best.intent, f"{decision.score:.2f}", f"{decision.threshold:.2f}", decision.nearest[0].text):
            assert word in decision.reason


def test_vectors_that_are_known_are_not_made_again():
    encoder = BagOfWords()
    texts, intents = pairs()
    classifier = IntentClassifier(encoder).fit(texts, intents, vectors=encoder.encode(texts, normalise=True))
    asked = ["where is my parcel", "elephants"]
    vectors = encoder.encode(asked, normalise=True)
    encoder.encoded = 0
    given = classifier.decide(asked, vectors=vectors)
    classifier.add("refund", ["my money"], vectors=encoder.encode(["my money"], normalise=True))
    assert encoder.encoded == 1
    assert given == _fitted().decide(asked)
    for wrong, message in (
        (vectors[:1], "a row for each text"),
        (vectors * 2, "length 1"),
        (vectors * np.nan, "not a number"),
    ):
        with pytest.raises(IntentError, match=message):
            classifier.decide(asked, vectors=wrong)


def test_it_never_abstains_where_no_rate_is_named():
    classifier = _fitted(false_rejection=None)
    decision = classifier.decide(["purple elephants dance tonight"])[0]
    assert (decision.abstained, decision.threshold, classifier.thresholds_) == (False, None, {})
    assert decision.intent in EXAMPLES
    json.dumps(decision.score, allow_nan=False)


def test_several_intents_in_one_text():
    classifier = _fitted()
    both = "please cancel my order and give me my money back"
    assert classifier.decide([both])[0].intents != ("cancel_order", "refund")
    decision = classifier.decide([both], several=True)[0]
    assert decision.intents == ("cancel_order", "refund")
    assert decision.intent in decision.intents
    assert decision.text == both
    assert "'give me my money back'" in decision.reason
    # what is one request stays one, and what is none stays none
    assert classifier.decide(["where is my parcel"], several=True) == classifier.decide(["where is my parcel"])
    strange = "purple elephants dance, and green tigers sing"
    assert classifier.decide([strange], several=True)[0].abstained
    # a part that asks for something is found among others that do not
    mixed = "purple elephants dance wildly tonight over yonder. cancel my order"
    assert classifier.decide([mixed], several=True)[0].intents == ("cancel_order",)


# ---- changes


@pytest.mark.parametrize("head", HEADS)
def test_a_new_intent_is_told_as_if_it_had_always_been_there(head):
    classifier = _fitted(head=head)
    before = classifier.fitted_
    new = ["when do you open", "are you open on sunday", "the opening times of the shop you open"]
    assert classifier.add("hours", new) == 3
    assert classifier.predict(["do you open on sunday"]).tolist() == ["hours"]
    texts, intents = pairs()
    whole = IntentClassifier(BagOfWords(), head=head).fit([*texts, *new], [*intents, *["hours"] * 3])
    asked = ["where is my parcel", "open", "money", "elephants"]
    for ours, theirs in zip(classifier.decide(asked), whole.decide(asked), strict=True):
        assert (ours.intent, ours.score, ours.threshold) == (
            theirs.intent,
            pytest.approx(theirs.score),
            pytest.approx(theirs.threshold),
        )
    assert classifier.add("hours", [new[0].upper(), f" {new[1]} "]) == 0
    assert classifier.remove("hours", [new[0], "never said"]) == 1
    assert classifier.remove("hours") == 2
    assert classifier.remove("hours") == 0
    after = classifier.decide(asked)
    for ours, theirs in zip(after, replace_fitted(classifier, before).decide(asked), strict=True):
        assert (ours.intent, ours.score) == (theirs.intent, pytest.approx(theirs.score))


def replace_fitted(classifier, fitted):
    other = clone(classifier)
    other.encoder_, other.fitted_ = classifier.encoder_, fitted
    return other


def test_out_of_scope_examples_come_and_go_by_their_name():
    classifier = _fitted()
    assert classifier.add(OUT_OF_SCOPE, OUTSIDE) == 5
    assert classifier.classes_.tolist() == sorted(EXAMPLES)
    assert len(classifier.fitted_.examples.outside) == 5
    texts, intents = pairs()
    told = IntentClassifier(BagOfWords()).fit([*texts, *OUTSIDE], [*intents, *[OUT_OF_SCOPE] * len(OUTSIDE)])
    given = IntentClassifier(BagOfWords()).fit(texts, intents, out_of_scope=OUTSIDE)
    for each in (told, given):
        assert each.calibration_.threshold == classifier.calibration_.threshold
        assert each.calibration_.out_of_scope_recall == classifier.calibration_.out_of_scope_recall == 1.0
    assert classifier.remove(OUT_OF_SCOPE) == 5


def test_the_last_intent_cannot_be_removed():
    classifier = IntentClassifier(BagOfWords()).fit(
        ["hello there", "hello you"], ["greeting", "greeting"], out_of_scope=["a", "b"]
    )
    with pytest.raises(IntentError, match="no example of any intent would be left"):
        classifier.remove("greeting")
    assert classifier.predict(["hello there"]).tolist() == ["greeting"]
    assert classifier.decide(["hello there"])[0].runner_up is None


def test_held_out_calibration_stays_in_force():
    classifier = _fitted(per_intent=True)
    texts = ["where is the parcel", "when will it arrive", "cancel it", "cancel that order now", "money", "paid back"]
    intents = ["track_order"] * 2 + ["cancel_order"] * 2 + ["refund"] * 2
    found = classifier.calibrate(texts, intents, out_of_scope=OUTSIDE, false_rejection=0.3)
    assert (found.held_out, found.texts, found.false_rejection) == (True, 6, 0.3)
    assert classifier.false_rejection == 0.3
    rejected = np.mean([decision.abstained for decision in classifier.decide(texts)])
    assert rejected == pytest.approx(0.3, abs=0.17)
    classifier.add("hours", ["when do you open", "opening times"])
    assert classifier.calibration_ == replace(found, offsets=classifier.calibration_.offsets)
    kept = dict(zip(classifier.classes_, classifier.calibration_.offsets, strict=True))
    assert kept.pop("hours") == 0
    assert tuple(kept.values()) == found.offsets
    with pytest.raises(IntentError, match="'flying'"):
        classifier.calibrate(["fly me"], ["flying"])
    for seen in ([], pairs()[0]):
        with pytest.raises(IntentError, match="none of the texts is in scope and no example itself"):
            classifier.calibrate(seen, pairs()[1][: len(seen)], out_of_scope=["x"])


# ---- saving


@pytest.mark.parametrize("head", HEADS)
def test_what_was_saved_decides_alike(head, tmp_path):
    classifier = IntentClassifier("named", head=head, per_intent=True, max_length=32)
    classifier._loaded = BagOfWords  # type: ignore[method-assign]
    classifier.fit(*pairs(), out_of_scope=OUTSIDE)
    classifier.save(tmp_path / "saved")
    loaded = IntentClassifier.load(tmp_path / "saved", encoder=BagOfWords())
    asked = ["where is my parcel", "cancel it all", "elephants"]
    assert loaded.decide(asked) == classifier.decide(asked)
    assert loaded.get_params() == classifier.get_params()
    assert loaded.thresholds_ == classifier.thresholds_
    assert loaded.calibration_.reliability.ece == classifier.calibration_.reliability.ece
    assert not [*(tmp_path / "saved").rglob("*.pkl")]
    # saved over, what it no longer needs is gone
    loaded.add("hours", ["when do you open"])
    loaded.save(tmp_path / "saved")
    assert len([*(tmp_path / "saved").iterdir()]) == 2
    with pytest.raises(IntentError, match="fitted with another encoder"):
        IntentClassifier.load(tmp_path / "saved", encoder=BagOfWords("other"))


def test_a_real_encoder_goes_with_it_or_is_named(tmp_path):
    encoder = Encoder.load("minilm")
    given = IntentClassifier(encoder).fit(*pairs())
    given.save(tmp_path / "given")
    (tmp_path / "given").rename(tmp_path / "moved")
    loaded = IntentClassifier.load(tmp_path / "moved")
    assert loaded.predict(["is my parcel shipped?", "what is the capital of France?"]).tolist() == [
        "track_order",
        OUT_OF_SCOPE,
    ]
    loaded.save(tmp_path / "moved")
    assert json.loads((tmp_path / "moved" / "intents.json").read_text())["encoder"] is None
    named = IntentClassifier("minilm")
    named._loaded = lambda: encoder  # type: ignore[method-assign]
    named.fit(*pairs()).save(tmp_path / "moved")
    assert json.loads((tmp_path / "moved" / "intents.json").read_text())["encoder"] == "minilm"
    assert not (tmp_path / "moved" / "encoder").exists()


def test_folders_that_hold_none_or_a_damaged_one_are_told(tmp_path):
    with pytest.raises(IntentError, match="holds no classifier of intents"):
        IntentClassifier.load(tmp_path)
    with pytest.raises(IntentError, match="BagOfWords cannot be saved"):
        _fitted().save(tmp_path / "a")
    classifier = IntentClassifier("named")
    classifier._loaded = BagOfWords  # type: ignore[method-assign]
    classifier.fit(*pairs()).save(tmp_path / "b")
    next((tmp_path / "b").glob("*.safetensors")).write_bytes(b"cut off")
    with pytest.raises(IntentError, match="damaged"):
        IntentClassifier.load(tmp_path / "b", encoder=BagOfWords())
    (tmp_path / "b" / "intents.json").write_text("{}")
    with pytest.raises(IntentError, match="damaged"):
        IntentClassifier.load(tmp_path / "b", encoder=BagOfWords())


# ---- what cannot be done


@pytest.mark.parametrize(
    ("texts", "intents", "settings", "message"),
    [
        (["a"], ["x", "y"], {}, "1 texts and 2 intents"),
        ("a", "x", {}, "give a single one as"),
        (["a", " "], ["x", "x"], {}, "text of example 2"),
        (["a", "b"], ["x", ""], {}, "intent of example 2"),
        (["a", None], ["x", "x"], {}, "text of example 2 is None"),
        ([], [], {}, "no example of any intent"),
        (["a"], [OUT_OF_SCOPE], {}, "no example of any intent"),
        (["a", "b"], ["x", "y"], {}, "no intent has a second example"),
        (["a", "A "], ["x", "x"], {}, "no intent has a second example"),
        (["a", "b"], ["x", "x"], {"head": "logistic"}, "there is but one"),
        (["a", "b"], ["x", "x"], {"head": "forest"}, "no head 'forest'"),
        (["a", "b"], ["x", "x"], {"false_rejection": 1.5}, "not a share"),
        (["a", "b"], ["x", "x"], {"neighbours": 0}, "one example at least"),
        (["a", "b"], ["x", "x"], {"tuning": object()}, "BagOfWords cannot be tuned"),
    ],
)
def test_what_cannot_be_learnt_from_is_told(texts, intents, settings, message):
    with pytest.raises(IntentError, match=message):
        IntentClassifier(BagOfWords(), **settings).fit(texts, intents)


def test_one_example_an_intent_is_enough_where_it_never_abstains():
    classifier = IntentClassifier(BagOfWords(), false_rejection=None).fit(
        ["my parcel", "my money"], ["track_order", "refund"]
    )
    assert classifier.predict(["parcel", "money"]).tolist() == ["track_order", "refund"]
    found = classifier.calibrate(
        ["the parcel", "money here", "parcel"], ["track_order", "refund", "track_order"], false_rejection=0.05
    )
    assert found.threshold is not None


def test_a_single_text_is_not_a_list():
    with pytest.raises(IntentError, match=r"\[text\]"):
        _fitted().predict("where is my parcel")
