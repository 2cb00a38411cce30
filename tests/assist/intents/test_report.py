"""The intent report: unbiased cross-validation, consistent metrics, a self-contained page."""

import json
import re
from collections.abc import Sequence
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from turnwise.assist.intents.classifier import IntentClassifier
from turnwise.assist.intents.examples import IntentExamples
from turnwise.assist.intents.model import IntentModel, assign_folds
from turnwise.assist.intents.report import (
    IntentReport,
    cross_validate,
    make_report,
    render_report,
    write_report,
)
from turnwise.assist.intents.tuning import TuningSettings
from turnwise.core.errors import IntentError

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


OUTSIDE = ["weather rain please 1", "rain now 2", "joke please 3", "a song 4", "weather joke 5", "song song 6"]


@pytest.fixture(scope="module")
def made() -> IntentReport:
    texts, intents = examples()
    # a wrong label, and an intent with a single example, given twice
    texts += ["hello hi morning", "Pay the bill", " pay the bill"]
    intents += ["cancel", "pay", "pay"]
    return make_report(texts, intents, IntentClassifier(Bag(), head="prototypes"), out_of_scope=OUTSIDE, folds=4)


# ---- cross-validation


class Spy(IntentClassifier):
    """Fails if an example is classified that was fitted on; records what is classified."""

    classified: list[str] = []  # noqa: RUF012  shared by the copies of the folds

    def fit(self, texts: Sequence[str], intents: Sequence[str], **settings: Any) -> "Spy":
        self.seen = set(texts)
        return super().fit(texts, intents, **settings)

    def decide(self, texts: Sequence[str], **settings: Any) -> list[Any]:
        assert not self.seen & set(texts)
        self.classified.extend(texts)
        return super().decide(texts, **settings)


def test_every_example_is_classified_once_by_a_classifier_not_fitted_on_it() -> None:
    texts, intents = examples(5)
    pairs = [*zip(texts, intents, strict=True), ("alone", "single"), *((text, "out_of_scope") for text in OUTSIDE)]
    encoder = Bag()
    examples_ = IntentExamples.from_pairs(pairs, encoder.encode([text for text, _ in pairs]))
    Spy.classified.clear()
    result = cross_validate(Spy(encoder), encoder, examples_, folds=3)
    assert sorted(Spy.classified) == sorted([*texts, *OUTSIDE])
    assert [examples_.pairs[row][0] for row in result.rows] == [
        text for text, intent in examples_.pairs if intent in WORDS
    ]
    assert result.probabilities.shape == (25, 6)
    assert result.probabilities.sum(1) == pytest.approx(np.ones(25))
    assert len(result.outside_rejected) == len(OUTSIDE)


def test_cross_validation_matches_a_restatement() -> None:
    """With as many folds as examples per intent, one of each is left out."""
    texts, intents = examples(4)
    encoder = Bag()
    vectors = encoder.encode(texts)
    examples_ = IntentExamples.from_pairs(list(zip(texts, intents, strict=True)), vectors)
    result = cross_validate(IntentClassifier(encoder), encoder, examples_, folds=4, seed=5)
    folds = assign_folds(examples_.labels, 4, 5)
    for fold in range(4):
        seen = [pair for pair, own in zip(examples_.pairs, folds, strict=True) if own != fold]
        left_out = [pair[0] for pair, own in zip(examples_.pairs, folds, strict=True) if own == fold]
        classifier = IntentClassifier(encoder).fit([text for text, _ in seen], [intent for _, intent in seen])
        assert result.probabilities[folds == fold] == pytest.approx(classifier.predict_proba(left_out))
        assert [bool(each) for each in result.rejected[folds == fold]] == [
            decision.abstained for decision in classifier.decide(left_out)
        ]


# ---- the report


def test_report_finds_planted_problems(made: IntentReport) -> None:
    assert (made.examples, made.evaluated, made.folds, made.not_evaluated) == (62, 61, 4, ("pay",))
    assert [row.intent for row in made.intents] == ["balance", "cancel", "greet", "pay", "trace", "track"]
    assert (made.overlaps[0].first, made.overlaps[0].second) == ("trace", "track") and made.overlaps[0].overlap > 0.5
    assert (made.confusions[0].first, made.confusions[0].second) == ("trace", "track")
    planted = [issue for issue in made.label_issues if issue.text == "hello hi morning"]
    assert [(each.row, each.intent, each.proposed) for each in planted] == [(60, "cancel", "greet")]
    assert made.out_of_scope == 6 and made.out_of_scope_recall is not None and made.out_of_scope_recall > 0.5


def test_metrics_are_consistent(made: IntentReport) -> None:
    evaluated = {row.intent: row.evaluated for row in made.intents}
    assert sum(evaluated.values()) == made.evaluated and evaluated["pay"] == 0
    right = sum(row.recall * row.evaluated for row in made.intents if row.evaluated)
    assert made.accuracy == pytest.approx(right / made.evaluated)
    wrong = sum(each.first_as_second + each.second_as_first for each in made.confusions)
    assert wrong == made.evaluated - round(right)
    away = sum(row.rejected * row.evaluated for row in made.intents if row.evaluated)
    assert made.false_rejection == pytest.approx(away / made.evaluated)
    assert len(made.rejected) == round(away)
    assert made.reliability.count.sum() == made.evaluated
    assert made.reliability.accuracy @ made.reliability.count == pytest.approx(right)


def test_texts_are_encoded_once_for_all_folds() -> None:
    encoder = Bag()
    texts, intents = examples(5)
    make_report(texts, intents, IntentClassifier(encoder), folds=5)
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
    report = make_report(*examples(4), classifier, folds=4)
    assert tuned == [encoder] * 4
    assert report.settings["tuning"]["epochs"] == 3 and report.settings["encoder"] == "Bag"


def test_report_is_json(made: IntentReport) -> None:
    content = json.loads(json.dumps(made.to_json()))
    assert content["settings"]["head"] == "prototypes"
    assert content["label_issues"][0].keys() == {
        "row",
        "text",
        "intent",
        "proposed",
        "probability",
        "own_probability",
        "same_text",
    }
    assert sum(content["reliability"]["count"]) == content["evaluated"]


@pytest.mark.parametrize(
    ("texts", "intents", "settings", "message"),
    [
        (["a b", "a c"], ["x", "x"], {}, "at least two intents"),
        (["a b", "c d"], ["x", "y"], {}, "fewer than two intents have a second example"),
        (["a b", "A B ", "c d", "c e"], ["x", "x", "y", "y"], {}, "fewer than two intents have a second example"),
        (
            ["a b", "a c", "c d", "c e"],
            ["x", "x", "y", "y"],
            {},
            "no intent has more than 2 examples: without one of 5 folds",
        ),
        (["a b", "a c"], ["x"], {}, "2 texts and 1 intents"),
        (["a b", " "], ["x", "y"], {}, "the text of example 2"),
        (["a b", "a c"], ["x", "y"], {"folds": 1}, "folds must be at least 2, got 1"),
    ],
)
def test_invalid_examples_raise_errors(
    texts: list[str], intents: list[str], settings: dict[str, int], message: str
) -> None:
    with pytest.raises(IntentError, match=message):
        make_report(texts, intents, IntentClassifier(Bag()), **settings)


# ---- the page


class Outline(HTMLParser):
    """Collects tags with attributes, and text; fails if elements are not properly nested."""

    def __init__(self, text: str):
        super().__init__()
        self.seen: list[tuple[str, dict[str, str | None]]] = []
        self.text: list[str] = []
        self._open: list[str] = []
        self.feed(text)
        assert not self._open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append((tag, dict(attrs)))
        if tag not in ("meta", "img"):
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text.append(data)


def test_page_shows_the_results_and_is_self_contained(made: IntentReport, tmp_path: Path) -> None:
    write_report(made, tmp_path / "report.html")
    text = (tmp_path / "report.html").read_text(encoding="utf-8")
    outline = Outline(text)
    content = " ".join(outline.text)
    for expected in (
        "6 intents, 62 examples",
        "hello hi morning",
        "intents with a single example cannot be evaluated: pay",
        "61",
        "4-fold",
        "Intent report",
    ):
        assert expected in content, expected
    sources = [values[name] for _, values in outline.seen for name in ("src", "href") if values.get(name)]
    assert all(source.startswith(("data:image/svg+xml;base64,", "#")) for source in sources if source)
    policies = [
        values["content"] for tag, values in outline.seen if values.get("http-equiv") == "Content-Security-Policy"
    ]
    assert len(policies) == 1 and str(policies[0]).startswith("default-src 'none'")
    assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)", text)
    anchors = {values["href"] for tag, values in outline.seen if tag == "a"}
    assert anchors == {f"#{values['id']}" for tag, values in outline.seen if tag == "h2"}
    assert all(values.get("alt") for tag, values in outline.seen if tag == "img")


def test_examples_are_escaped() -> None:
    texts, intents = examples(4)
    texts += ["<script>alert(1)</script> hello", "hello \"quoted\" & 'so'"]
    intents += ["<b>greet</b>", "<b>greet</b>"]
    text = render_report(make_report(texts, intents, IntentClassifier(Bag(), false_rejection=0.4), folds=2))
    assert "<script>alert" not in text and "<b>greet" not in text
    assert "&lt;b&gt;greet&lt;/b&gt;" in text


def test_page_of_a_perfect_classifier_that_never_abstains() -> None:
    texts = [f"{words[0]} {words[1]} {number}" for words in list(WORDS.values())[:3] for number in range(4)]
    intents = [name for name in list(WORDS)[:3] for _ in range(4)]
    report = make_report(texts, intents, IntentClassifier(Bag(), false_rejection=None), folds=2)
    assert report.accuracy == 1.0 and report.confusions == () and report.overlaps == () and report.rejected == ()
    text = render_report(report)
    Outline(text)
    assert "this classifier never abstains" in text and "every evaluated example" in text and "None found" in text
