"""Testing classifiers: metrics against a restatement, unbiased cross-validation, leakage, unknown intents, pages."""

import json
import re
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.metrics import precision_recall_fscore_support

from tests.helpers.bag_of_words import BagOfWords
from tests.helpers.intent_examples import EXAMPLES, OUTSIDE, pairs
from turnwise.assist.intents.classifier import IntentClassifier
from turnwise.assist.intents.examples import IntentExamples
from turnwise.assist.intents.heads import assign_folds
from turnwise.assist.intents.model import IntentModel
from turnwise.assist.intents.testing import (
    IntentTestResult,
    cross_validate,
    predict_folds,
    render_result,
    run_test,
    write_result,
)
from turnwise.assist.intents.tuning import TuningSettings
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
    assert sum(result.reliability.count) == inside.sum()
    assert len(result.rejected) == (inside & rejected).sum()
    assert result.folds is None and result.overlaps == () and result.settings["false_rejection"] == 0.2


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
    json.dumps(asdict(outside), allow_nan=False)


# ---- cross-validation


#: Intents by their characteristic words; the last two are the same intent under two names.
WORDS = {
    "balance": ["balance", "account", "left", "money"],
    "cancel": ["cancel", "stop", "drop", "undo"],
    "greet": ["hello", "hi", "morning", "hey"],
    "track": ["parcel", "track", "where", "arrive"],
    "trace": ["parcel", "track", "where", "arrive"],
}
FILLER = ["please", "my", "the", "now", "can", "you", "i"]
VOCABULARY = sorted({*FILLER, *(word for words in WORDS.values() for word in words), "weather", "rain", "joke", "song"})


class Bag:
    """Encodes texts as word counts and records what it encodes."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    def encode(
        self, inputs: Sequence[str], *, normalise: bool | None = None, max_length: int | None = None
    ) -> np.ndarray:
        self.seen += inputs
        counts = (
            np.array([[text.lower().split().count(word) for word in VOCABULARY] for text in inputs], np.float32) + 1e-3
        )
        counts[:, [VOCABULARY.index(word) for word in FILLER]] *= 0.3
        return counts / np.linalg.norm(counts, axis=1, keepdims=True)


def examples(count: int = 12, seed: int = 0) -> tuple[list[str], list[str]]:
    random = np.random.default_rng(seed)
    intents = [name for name in WORDS for _ in range(count)]
    texts = [
        " ".join([*random.choice(FILLER, 3), *random.choice(WORDS[name], 2), f"{random.integers(10**6)}"])
        for name in intents
    ]
    return texts, intents


OFF_TOPIC = ["weather rain please 1", "rain now 2", "joke please 3", "a song 4", "weather joke 5", "song song 6"]


@pytest.fixture(scope="module")
def made() -> IntentTestResult:
    texts, intents = examples()
    # a wrong label, and an intent with a single example, given twice
    texts += ["hello hi morning", "Pay the bill", " pay the bill", *OFF_TOPIC]
    intents += ["cancel", "pay", "pay", *[OUT_OF_SCOPE] * len(OFF_TOPIC)]
    return cross_validate(texts, intents, IntentClassifier(Bag(), head="prototypes"), folds=4)


def test_every_example_is_classified_by_a_classifier_that_was_not_fitted_on_it() -> None:
    """With as many folds as examples per intent, one of each is left out; a single example is never."""
    texts, intents = examples(4)
    labelled = [*zip(texts, intents, strict=True), ("alone", "single"), *((text, OUT_OF_SCOPE) for text in OFF_TOPIC)]
    encoder = Bag()
    examples_ = IntentExamples.from_pairs(labelled, encoder.encode([text for text, _ in labelled]))
    result = predict_folds(IntentClassifier(encoder), encoder, examples_, folds=4, seed=5)
    assert [pair for pair in examples_.pairs if pair[1] != "single"] == result.pairs
    assert len(result.rejected[~result.in_scope]) == len(OFF_TOPIC)
    outside_folds = np.random.default_rng(5).permutation(len(OFF_TOPIC)) % 4
    folds = np.concatenate([assign_folds(examples_.labels, 4, 5), outside_folds])
    for fold in range(4):
        seen = [pair for pair, own in zip(examples_.pairs, folds, strict=True) if own != fold]
        left_out = [pair[0] for pair, own in zip(examples_.pairs, folds, strict=True) if own == fold]
        classifier = IntentClassifier(encoder).fit([text for text, _ in seen], [intent for _, intent in seen])
        own = folds[folds >= 0] == fold
        decisions = classifier.decide(left_out)
        assert result.probabilities[own] == pytest.approx(classifier.predict_proba(left_out))
        assert result.scores[own] == pytest.approx([decision.score for decision in decisions])
        names = [*examples_.classes, None]
        assert [names[place] for place in result.decided[own]] == [decision.intent for decision in decisions]


def test_cross_validation_finds_planted_problems(made: IntentTestResult) -> None:
    assert (made.in_scope, made.out_of_scope, made.folds, made.not_evaluated) == (61, 6, 4, ("pay",))
    assert {row.intent for row in made.intents} >= {"balance", "cancel", "greet", "trace", "track"}
    assert (made.overlaps[0].first, made.overlaps[0].second) == ("trace", "track") and made.overlaps[0].overlap > 0.5
    assert (made.confusions[0].first, made.confusions[0].second) == ("trace", "track")
    planted = [issue for issue in made.label_issues if issue.text == "hello hi morning"]
    assert [(each.row, each.intent, each.proposed) for each in planted] == [(60, "cancel", "greet")]
    assert made.out_of_scope_recall.value is not None and made.out_of_scope_recall.value > 0.5
    assert sum(made.reliability.count) == made.in_scope
    assert np.dot(made.reliability.accuracy, made.reliability.count) == pytest.approx(
        made.accuracy.value * made.in_scope
    )
    content = json.loads(json.dumps(asdict(made)))
    assert content["settings"]["head"] == "prototypes" and sum(content["reliability"]["count"]) == 61


def test_texts_are_encoded_once_for_all_folds() -> None:
    encoder = Bag()
    texts, intents = examples(5)
    cross_validate(texts, intents, IntentClassifier(encoder, use_names=False), folds=5)
    assert sorted(encoder.seen) == sorted(texts)


def test_encoder_is_tuned_in_every_fold(monkeypatch: pytest.MonkeyPatch) -> None:
    """Folds get the encoder itself, not vectors that were computed before."""
    tuned: list[Any] = []

    def tune(encoder: Any, pairs: Any, settings: Any, *_: Any) -> Any:
        tuned.append(encoder)
        vectors = encoder.encode([text for text, _ in pairs])
        return Bag(), IntentModel.fit(IntentExamples.from_pairs(pairs, vectors), settings), None

    monkeypatch.setattr("turnwise.assist.intents.tuning.fit_with_tuning", tune)
    encoder = Bag()
    classifier = IntentClassifier(encoder, head="neighbours", tuning=TuningSettings(epochs=3))
    report = cross_validate(*examples(4), classifier, folds=4)
    assert tuned == [encoder] * 4
    assert report.settings["tuning"]["epochs"] == 3 and report.settings["encoder"] == "Bag"


@pytest.mark.parametrize(
    ("texts", "intents", "settings", "message"),
    [
        (["a b", "c d"], ["x", "y"], {}, "fewer than two intents have a second example"),
        (
            ["a b", "a c", "c d", "c e"],
            ["x", "x", "y", "y"],
            {},
            "no intent has more than 2 examples: without one of 5 folds",
        ),
        (["a b", "a c"], ["x", "y"], {"folds": 1}, "folds must be at least 2, got 1"),
    ],
)
def test_invalid_examples_raise_errors(
    texts: list[str], intents: list[str], settings: dict[str, int], message: str
) -> None:
    with pytest.raises(IntentError, match=message):
        cross_validate(texts, intents, IntentClassifier(Bag()), **settings)


# ---- pages


def written(result: IntentTestResult, path: Path) -> str:
    write_result(result, path)
    return path.read_text(encoding="utf-8")


def test_page_shows_the_results_and_is_self_contained(made: IntentTestResult, tmp_path: Path) -> None:
    text = written(made, tmp_path / "report.html")
    for expected in ("67 labelled texts", "hello hi morning", "cannot be evaluated: pay", "4-fold", "Intent report"):
        assert expected in text, expected
    assert not re.search(r"(?:src|href)=\"(?!data:image/svg\+xml;base64,|#)", text)
    assert re.findall(r"Content-Security-Policy[^>]*content=\"(default-src 'none')", text) == ["default-src 'none'"]
    assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)", text)
    anchors = set(re.findall(r'<a href="#([^"]+)"', text))
    assert anchors == set(re.findall(r'<h2 id="([^"]+)"', text)) and re.search(r'<img [^>]*alt="[^"]', text)


def test_page_of_a_perfect_classifier_that_never_abstains() -> None:
    texts = [f"{words[0]} {words[1]} {number}" for words in list(WORDS.values())[:3] for number in range(4)]
    intents = [name for name in list(WORDS)[:3] for _ in range(4)]
    report = cross_validate(texts, intents, IntentClassifier(Bag(), false_rejection=None), folds=2)
    assert report.accuracy.value == 1.0 and report.confusions == () and report.overlaps == () and report.rejected == ()
    text = render_result(report)
    assert (
        "this classifier never abstains" in text
        and "the intent of every text is ranked first" in text
        and "None found" in text
    )


def test_pages_are_self_contained_and_escape_texts(classifier, tmp_path):
    texts, intents = labelled()
    result = run_test(classifier, [*texts, "<b>my money</b>"], [*intents, "track_order"])
    page = written(result, tmp_path / "test.html")
    assert f"{result.texts} labelled texts" in page and "20.0% requested" in page
    assert "<b>my money" not in page and "&lt;b&gt;my money" in page
    assert not re.search(r"(?:src|href)=\"(?!data:|#)", page)
    assert json.loads(written(result, tmp_path / "test.json")) == json.loads(json.dumps(asdict(result)))
    known = run_test(classifier, *pairs())
    assert "12 of these texts are also examples of the classifier" in written(known, tmp_path / "test.html")
