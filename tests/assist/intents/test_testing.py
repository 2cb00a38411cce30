"""Testing a classifier on labelled texts: metrics against a restatement, leakage, unknown intents, a page."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
from sklearn.metrics import precision_recall_fscore_support

from tests.helpers.bag_of_words import BagOfWords
from tests.helpers.intent_examples import EXAMPLES, OUTSIDE, pairs
from turnwise.assist.intents.classifier import IntentClassifier
from turnwise.assist.intents.testing import ClassifierTest, run_test, write_test
from turnwise.core.dialogue import OUT_OF_SCOPE
from turnwise.core.errors import IntentError

#: New texts: some are clear, some have words of another intent, some of none.
TEXTS = {
    "track_order": ["where is my parcel now", "is my parcel here", "my money is in the parcel", "purple elephants"],
    "cancel_order": ["please cancel it", "cancel order", "cancel my parcel"],
    "refund": ["money back please", "my money", "please send me back"],
    OUT_OF_SCOPE: [*sorted(set(OUTSIDE)), "where is my money and my parcel"],
}


@pytest.fixture(scope="module")
def classifier() -> IntentClassifier:
    return IntentClassifier(BagOfWords(), false_rejection=0.2).fit(*pairs())


def labelled() -> tuple[list[str], list[str]]:
    rows = [(text, intent) for intent, texts in TEXTS.items() for text in texts]
    return [text for text, _ in rows], [intent for _, intent in rows]


def test_metrics_are_those_of_the_predictions(classifier):
    texts, intents = labelled()
    result = run_test(classifier, texts, intents)
    truth, predicted = np.array(intents), classifier.predict(texts)
    inside, rejected = truth != OUT_OF_SCOPE, predicted == OUT_OF_SCOPE
    best = classifier.classes_[classifier.predict_proba(texts).argmax(1)]
    assert 0 < rejected[inside].sum() < inside.sum()  # the texts contain every case
    assert (predicted != truth)[inside & ~rejected].any()
    assert (result.texts, result.in_scope, result.out_of_scope) == (len(texts), inside.sum(), (~inside).sum())
    for estimate, expected in (
        (result.correct, (predicted == truth).mean()),
        (result.accuracy, (best == truth)[inside].mean()),
        (result.accepted_accuracy, (predicted == truth)[inside & ~rejected].mean()),
        (result.coverage, (~rejected).mean()),
        (result.false_rejection, rejected[inside].mean()),
        (result.out_of_scope_recall, rejected[~inside].mean()),
        (result.out_of_scope_precision, (~inside)[rejected].mean()),
    ):
        assert estimate.value == pytest.approx(expected)
        assert estimate.low <= estimate.value <= estimate.high and estimate.low < estimate.high
    names = [each.intent for each in result.intents]
    assert names == [*classifier.classes_, OUT_OF_SCOPE]
    expected = precision_recall_fscore_support(truth, predicted, labels=names)
    for each, values in zip(result.intents, zip(*expected, strict=True), strict=True):
        assert (each.precision, each.recall, each.f1, each.texts) == pytest.approx(values)
    assert result.macro_f1 == pytest.approx(np.mean(expected[2][:-1]))
    assert result.reliability.count.sum() == inside.sum()
    wrong = sum(each.count for each in result.confusions)
    assert wrong == (predicted != truth).sum()
    assert [each.count for each in result.confusions] == sorted((e.count for e in result.confusions), reverse=True)
    for each in result.confusions:
        assert set(each.texts) <= {
            t for t, i, p in zip(texts, intents, predicted, strict=True) if (i, p) == (each.intent, each.predicted)
        }


def test_examples_among_the_texts_are_counted_and_can_be_left_out(classifier):
    texts, intents = labelled()
    known = [f" {EXAMPLES['refund'][0].upper()} ", EXAMPLES["track_order"][1]]
    texts, intents = [*texts, *known], [*intents, "refund", "track_order"]
    with_examples = run_test(classifier, texts, intents)
    assert (with_examples.in_examples, with_examples.texts) == (2, len(texts))
    without = run_test(classifier, texts, intents, exclude_examples=True)
    assert (without.in_examples, without.texts, without.examples_excluded) == (2, len(texts) - 2, True)
    assert without.accuracy == run_test(classifier, *labelled()).accuracy
    with pytest.raises(IntentError, match="every text is also an example"):
        run_test(classifier, known, ["refund", "track_order"], exclude_examples=True)


def test_intents_without_examples_are_an_error_or_out_of_scope(classifier):
    texts, intents = ["where is my parcel now", "when do you open", "are you open"], ["track_order", "hours", "hours"]
    with pytest.raises(IntentError, match=r"no examples of 'hours' \(2 texts\): correct the names"):
        run_test(classifier, texts, intents)
    result = run_test(classifier, texts, intents, unknown_out_of_scope=True)
    assert (result.in_scope, result.out_of_scope, result.unknown_intents) == (1, 2, {"hours": 2})
    assert "hours" not in [each.intent for each in result.intents]


def test_undefined_fractions_are_none(classifier):
    inside = run_test(classifier, ["where is my parcel now"], ["track_order"])
    assert inside.out_of_scope_recall.value is None and inside.out_of_scope_precision.value is None
    outside = run_test(classifier, ["tell me a joke"], [OUT_OF_SCOPE])
    assert outside.accuracy.value is None and outside.macro_f1 == 0
    json.dumps(outside.to_json(), allow_nan=False)


def test_a_classifier_that_never_abstains_accepts_everything():
    classifier = IntentClassifier(BagOfWords(), false_rejection=None).fit(*pairs())
    result = run_test(classifier, *labelled())
    assert (result.requested_false_rejection, result.coverage.value, result.false_rejection.value) == (None, 1, 0)


def write(result: ClassifierTest, path: Path) -> str:
    write_test(result, path)
    return path.read_text(encoding="utf-8")


def test_pages_are_self_contained_and_escape_texts(classifier, tmp_path):
    texts, intents = labelled()
    result = run_test(classifier, [*texts, "<b>my money</b>"], [*intents, "track_order"])
    page = write(result, tmp_path / "test.html")
    assert f"{result.texts} labelled texts" in page and "20.0% requested" in page
    assert "<b>my money" not in page and "&lt;b&gt;my money" in page
    assert not re.search(r"(?:src|href)=\"(?!data:|#)", page)
    assert json.loads(write(result, tmp_path / "test.json")) == json.loads(json.dumps(result.to_json()))
    known = run_test(classifier, *pairs())
    assert "12 of these texts are also examples of the classifier" in write(known, tmp_path / "test.html")
