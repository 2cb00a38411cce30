"""The intent classifier: scikit-learn conventions, decisions, changes of examples, saving."""

import json
import shutil
from dataclasses import replace

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.model_selection import cross_val_predict, cross_val_score

from tests.helpers.bag_of_words import BagOfWords
from tests.helpers.families import nudged
from tests.helpers.intent_examples import EXAMPLES, OUTSIDE, pairs
from turnwise import Encoder, IntentClassifier
from turnwise.assist.intents.storage import IntentFolder
from turnwise.core.dialogue import OUT_OF_SCOPE
from turnwise.core.errors import EncoderMismatchError, IntentError

HEADS = ("prototypes", "neighbours", "logistic")
NUMBERS = {"track_order": 10, "cancel_order": 9, "refund": 2}


def _fit(**settings):
    return IntentClassifier(BagOfWords(), **settings).fit(*pairs())


# ---- scikit-learn


@pytest.mark.parametrize("head", HEADS)
def test_follows_scikit_learn_conventions(head):
    classifier = IntentClassifier(BagOfWords(), head=head, false_rejection=None)
    copy = clone(classifier)
    assert copy.get_params(deep=False) == classifier.get_params(deep=False)
    assert copy is not classifier
    with pytest.raises(IntentError, match="not fitted yet"):
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


@pytest.mark.parametrize(("kind", "labels"), [(list, {}), (list, NUMBERS), (np.array, {}), (np.array, NUMBERS)])
def test_labels_of_each_kind_are_cross_validated(kind, labels):
    texts, names = pairs()
    intents = kind([labels.get(name, name) for name in names])
    # scikit-learn predicts probabilities of numbered labels, which have no names
    classifier = IntentClassifier(BagOfWords(), false_rejection=None, use_names=False)
    probabilities = cross_val_predict(classifier, texts, intents, cv=4, method="predict_proba")
    best = np.unique(intents)[probabilities.argmax(1)]
    assert (best == cross_val_predict(classifier, texts, intents, cv=4)).all()
    assert (best == intents).mean() > 0.9


def test_integer_labels_are_predicted_and_kept(tmp_path):
    texts, names = pairs()
    intents = np.array([NUMBERS[name] for name in names])
    classifier = IntentClassifier(BagOfWords()).fit([*texts, *OUTSIDE], [*intents, *[-1] * len(OUTSIDE)])
    classifier.save(tmp_path, encoder_name="bag")
    queries = ["where is my parcel now", "money back", "purple elephants dance tonight"]
    for each in (classifier, IntentClassifier.load(tmp_path, encoder=BagOfWords())):
        assert each.classes_.tolist() == [2, 9, 10]
        assert each.predict(queries).tolist() == [10, 2, -1]
        assert each.classes_[each.predict_proba(queries[:2]).argmax(1)].tolist() == [10, 2]
        assert each.score(texts, intents) == 1.0
        each.calibrate(["the parcel", "the money back"], [10, 2], out_of_scope=["hm"])
        assert each.add(3, ["when do you open", "are you open on sunday"]) == 2
        assert each.predict(["are you open on sunday"]).tolist() == [3]
        assert each.remove(3) == 2
        for name in ("hours", "-1", "07"):
            with pytest.raises(IntentError, match="labels of this classifier are integers, got"):
                each.add(name, ["when do you open"])
    with IntentFolder.open(tmp_path, encoder=BagOfWords()) as opened:
        with pytest.raises(IntentError, match="are integers"):
            opened.add([("when do you open", "hours")])
        assert opened.add([("when do you open", "3")]) == 1
        assert opened.classifier.predict(["when do you open"]).tolist() == [3]


@pytest.mark.parametrize("head", HEADS)
def test_abstains_from_texts_unlike_any_example(head):
    classifier = _fit(head=head)
    queries = ["where is my parcel now", "please cancel this order", "purple elephants dance tonight"]
    assert classifier.predict(queries).tolist() == ["track_order", "cancel_order", OUT_OF_SCOPE]
    assert len(classifier.predict([])) == 0
    assert classifier.decide([]) == []


# ---- decisions


@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize("per_intent", [False, True])
def test_decisions_are_consistent_and_explained(head, per_intent):
    classifier = _fit(head=head, per_intent=per_intent)
    classes = classifier.classes_
    thresholds = dict(zip(classes, classifier.calibration_.thresholds(len(classes)), strict=True))
    encoder = BagOfWords()
    queries = ["where is my parcel now", "cancel the parcel", "purple elephants dance tonight"]
    for text, decision, predicted in zip(
        queries, classifier.decide(queries, neighbours=2), classifier.predict(queries), strict=True
    ):
        assert decision.text == text
        assert decision.abstained == (decision.score < decision.threshold)
        assert (decision.intent or OUT_OF_SCOPE) == predicted
        assert decision.intents == (() if decision.abstained else (decision.intent,))
        best = decision.ranked[0]
        assert (best.score, decision.runner_up) == (decision.score, decision.ranked[1])
        assert decision.threshold == pytest.approx(thresholds[best.intent])
        if not decision.abstained:
            assert best.intent == decision.intent
        expected = dict(zip(classifier.classes_, classifier.predict_proba([text])[0], strict=True))
        assert {each.intent: pytest.approx(each.probability) for each in decision.ranked} == expected
        texts = [text for text, _ in classifier.model_.examples.pairs]
        cosines = (encoder.encode([text], normalise=True) @ encoder.encode(texts, normalise=True).T)[0]
        order = np.argsort(-cosines, kind="stable")[:2]
        assert [near.text for near in decision.nearest] == [texts[row] for row in order]
        assert [near.similarity for near in decision.nearest] == pytest.approx(cosines[order].tolist(), abs=1e-5)
        for word in (best.intent, f"{decision.score:.2f}", f"{decision.threshold:.2f}", decision.nearest[0].text):
            assert word in decision.reason


def test_known_vectors_are_not_encoded_again():
    encoder = BagOfWords()
    texts, intents = pairs()
    classifier = IntentClassifier(encoder).fit(texts, intents, vectors=encoder.encode(texts, normalise=True))
    queries = ["where is my parcel", "elephants"]
    vectors = encoder.encode(queries, normalise=True)
    encoder.encoded = 0
    given = classifier.decide(queries, vectors=vectors)
    assert encoder.encoded == 0
    assert given == _fit().decide(queries)
    for wrong, message in (
        (vectors[:1], "one row per text"),
        (vectors * 2, "length 1"),
        (vectors * np.nan, "not finite"),
    ):
        with pytest.raises(IntentError, match=message):
            classifier.decide(queries, vectors=wrong)


def test_never_abstains_without_a_rate():
    classifier = _fit(false_rejection=None)
    decision = classifier.decide(["purple elephants dance tonight"])[0]
    assert (decision.abstained, decision.threshold) == (False, None)
    assert decision.intent in EXAMPLES
    json.dumps(decision.score, allow_nan=False)


def test_several_intents_in_one_text():
    classifier = _fit()
    both = "please cancel my order and give me my money back"
    assert classifier.decide([both])[0].intents != ("cancel_order", "refund")
    decision = classifier.decide([both], several=True)[0]
    assert decision.intents == ("cancel_order", "refund")
    assert decision.intent in decision.intents
    assert decision.text == both
    assert "'give me my money back'" in decision.reason
    # a single intent stays single, and none stays none
    assert classifier.decide(["where is my parcel"], several=True) == classifier.decide(["where is my parcel"])
    unrelated = "purple elephants dance, and green tigers sing"
    assert classifier.decide([unrelated], several=True)[0].abstained
    # a segment with an intent is found among others without
    mixed = "purple elephants dance wildly tonight over yonder. cancel my order"
    assert classifier.decide([mixed], several=True)[0].intents == ("cancel_order",)


# ---- changes


@pytest.mark.parametrize("head", HEADS)
def test_added_intents_are_equivalent_to_fitted_ones(head):
    classifier = _fit(head=head, use_names=False)
    before = classifier.model_
    new = ["when do you open", "are you open on sunday", "the opening times of the shop you open"]
    assert classifier.add("hours", new) == 3
    assert classifier.predict(["do you open on sunday"]).tolist() == ["hours"]
    texts, intents = pairs()
    whole = IntentClassifier(BagOfWords(), head=head, use_names=False).fit([*texts, *new], [*intents, *["hours"] * 3])
    queries = ["where is my parcel", "open", "money", "elephants"]
    for ours, theirs in zip(classifier.decide(queries), whole.decide(queries), strict=True):
        assert (ours.intent, ours.score, ours.threshold) == (
            theirs.intent,
            pytest.approx(theirs.score),
            pytest.approx(theirs.threshold),
        )
    assert classifier.add("hours", [new[0].upper(), f" {new[1]} "]) == 0
    assert classifier.remove("hours", [new[0], "not an example"]) == 1
    assert classifier.remove("hours") == 2
    assert classifier.remove("hours") == 0
    after = classifier.decide(queries)
    for ours, theirs in zip(after, with_model(classifier, before).decide(queries), strict=True):
        assert (ours.intent, ours.score) == (theirs.intent, pytest.approx(theirs.score))


def with_model(classifier, model):
    other = clone(classifier)
    other.encoder_, other.model_ = classifier.encoder_, model
    return other


def test_out_of_scope_examples_are_added_and_removed_by_label():
    classifier = _fit()
    assert classifier.add(OUT_OF_SCOPE, OUTSIDE) == 5
    assert classifier.classes_.tolist() == sorted(EXAMPLES)
    assert len(classifier.model_.examples.out_of_scope_vectors) == 5
    texts, intents = pairs()
    labelled = IntentClassifier(BagOfWords()).fit([*texts, *OUTSIDE], [*intents, *[OUT_OF_SCOPE] * len(OUTSIDE)])
    given = IntentClassifier(BagOfWords()).fit(texts, intents, out_of_scope=OUTSIDE)
    for each in (labelled, given):
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


def test_held_out_calibration_is_kept():
    classifier = _fit(per_intent=True)
    texts = ["where is the parcel", "when will it arrive", "cancel it", "cancel that order now", "money", "paid back"]
    intents = ["track_order"] * 2 + ["cancel_order"] * 2 + ["refund"] * 2
    calibration = classifier.calibrate(texts, intents, out_of_scope=OUTSIDE, false_rejection=0.3)
    assert (calibration.held_out, calibration.texts, calibration.false_rejection) == (True, 6, 0.3)
    assert classifier.false_rejection == 0.3
    rejected = np.mean([decision.abstained for decision in classifier.decide(texts)])
    assert rejected == pytest.approx(0.3, abs=0.17)
    classifier.add("hours", ["when do you open", "opening times"])
    assert classifier.calibration_ == replace(calibration, offsets=classifier.calibration_.offsets)
    offsets = dict(zip(classifier.classes_, classifier.calibration_.offsets, strict=True))
    assert offsets.pop("hours") == 0
    assert tuple(offsets.values()) == calibration.offsets
    with pytest.raises(IntentError, match="'flying'"):
        classifier.calibrate(["fly me"], ["flying"])
    for seen in ([], pairs()[0]):
        with pytest.raises(IntentError, match="no text is in scope and not an example itself"):
            classifier.calibrate(seen, pairs()[1][: len(seen)], out_of_scope=["x"])


# ---- saving


@pytest.mark.parametrize("head", HEADS)
def test_saved_classifier_returns_equal_decisions(head, tmp_path):
    classifier = IntentClassifier("named", head=head, per_intent=True, max_length=32)
    classifier.load_encoder = BagOfWords  # type: ignore[method-assign]
    classifier.fit(*pairs(), out_of_scope=OUTSIDE)
    classifier.save(tmp_path / "saved")
    loaded = IntentClassifier.load(tmp_path / "saved", encoder=BagOfWords())
    queries = ["where is my parcel", "cancel it all", "elephants"]
    assert loaded.decide(queries) == classifier.decide(queries)
    assert loaded.get_params() == classifier.get_params()
    assert loaded.calibration_ == classifier.calibration_
    assert not [*(tmp_path / "saved").rglob("*.pkl")]
    # saving again removes files that are no longer needed
    loaded.add("hours", ["when do you open"])
    loaded.save(tmp_path / "saved")
    assert len([*(tmp_path / "saved").iterdir()]) == 2
    with pytest.raises(EncoderMismatchError, match="made with another encoder"):
        IntentClassifier.load(tmp_path / "saved", encoder=BagOfWords("other"))


def test_classifier_of_a_model_that_was_trained_further_is_refused(tmp_path, tiny_folder):
    folder = tmp_path / "model"
    shutil.copytree(tiny_folder("bert"), folder)
    IntentClassifier(str(folder)).fit(*pairs()).save(tmp_path / "intents")
    IntentClassifier.load(tmp_path / "intents")
    IntentClassifier.load(tmp_path / "intents", encoder=Encoder.load(tiny_folder("bert"), device="cpu"))
    with pytest.raises(EncoderMismatchError, match=r"made with another encoder: .*turnwise intents fit FILE --out"):
        IntentClassifier.load(tmp_path / "intents", encoder=nudged(folder))
    nudged(folder).save(folder)
    with pytest.raises(EncoderMismatchError, match="made with another encoder"):
        IntentClassifier.load(tmp_path / "intents")


def test_encoder_is_saved_unless_given_by_name(tmp_path):
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
    named.load_encoder = lambda: encoder  # type: ignore[method-assign]
    named.fit(*pairs()).save(tmp_path / "moved")
    assert json.loads((tmp_path / "moved" / "intents.json").read_text())["encoder"] == "minilm"
    assert not (tmp_path / "moved" / "encoder").exists()


def test_packaged_encoder_is_saved_by_name_beside_a_folder_of_that_name(tmp_path, monkeypatch):
    (tmp_path / "minilm").mkdir()
    monkeypatch.chdir(tmp_path)
    for encoder, stored in (("minilm", "minilm"), ("./minilm", str(tmp_path / "minilm"))):
        named = IntentClassifier(encoder)
        named.load_encoder = BagOfWords  # type: ignore[method-assign]
        named.fit(*pairs()).save(tmp_path / "saved")
        assert json.loads((tmp_path / "saved" / "intents.json").read_text())["encoder"] == stored


def test_missing_and_damaged_classifiers_raise_errors(tmp_path):
    with pytest.raises(IntentError, match="holds no intent classifier"):
        IntentClassifier.load(tmp_path)
    with pytest.raises(IntentError, match="BagOfWords cannot be saved"):
        _fit().save(tmp_path / "a")
    classifier = IntentClassifier("named")
    classifier.load_encoder = BagOfWords  # type: ignore[method-assign]
    classifier.fit(*pairs()).save(tmp_path / "b")
    next((tmp_path / "b").glob("*.safetensors")).write_bytes(b"cut off")
    with pytest.raises(IntentError, match="damaged"):
        IntentClassifier.load(tmp_path / "b", encoder=BagOfWords())
    (tmp_path / "b" / "intents.json").write_text("{}")
    with pytest.raises(IntentError, match="damaged"):
        IntentClassifier.load(tmp_path / "b", encoder=BagOfWords())


# ---- errors


@pytest.mark.parametrize(
    ("texts", "intents", "settings", "message"),
    [
        (["a"], ["x", "y"], {}, "1 texts and 2 intents"),
        ("a", "x", {}, "got a single string"),
        (["a", " "], ["x", "x"], {}, "text of example 2"),
        (["a", "b"], ["x", ""], {}, "intent of example 2"),
        (["a", None], ["x", "x"], {}, "text of example 2 must be a non-blank string, got None"),
        ([], [], {}, "no example of any intent"),
        (["a"], [OUT_OF_SCOPE], {}, "no example of any intent"),
        (["a", "b"], ["x", "y"], {}, "no intent has a second example"),
        (["a", "A "], ["x", "x"], {}, "no intent has a second example"),
        (["a", "b"], ["x", "x"], {"head": "logistic"}, "at least two intents"),
        (["a", "b"], ["x", "x"], {"head": "forest"}, "no head 'forest'"),
        (["a", "b"], ["x", "x"], {"false_rejection": 1.5}, "between 0 and 1"),
        (["a", "b"], ["x", "x"], {"neighbours": 0}, "neighbours must be at least 1"),
        (["a", "b"], ["x", "x"], {"tuning": object()}, "BagOfWords cannot be tuned"),
    ],
)
def test_invalid_input_raises_errors(texts, intents, settings, message):
    with pytest.raises(IntentError, match=message):
        IntentClassifier(BagOfWords(), **settings).fit(texts, intents)


def test_texts_that_are_not_strings_are_reported_with_their_position():
    classifier = IntentClassifier(BagOfWords()).fit(*pairs())
    for predict in (classifier.predict, classifier.predict_proba, classifier.decide):
        with pytest.raises(IntentError, match=r"texts\[1\] is None: every text must be a string"):
            predict(["where is my parcel", None])
        with pytest.raises(IntentError, match=r"texts\[0\] is ' '.*not blank"):
            predict([" "])
    with pytest.raises(IntentError, match=r"\[text\]"):
        classifier.predict("where is my parcel")


def test_one_example_per_intent_is_enough_without_abstention():
    classifier = IntentClassifier(BagOfWords(), false_rejection=None).fit(
        ["my parcel", "my money"], ["track_order", "refund"]
    )
    assert classifier.predict(["parcel", "money"]).tolist() == ["track_order", "refund"]
    calibration = classifier.calibrate(
        ["the parcel", "money here", "parcel"], ["track_order", "refund", "track_order"], false_rejection=0.05
    )
    assert calibration.threshold is not None
