"""The report on intents: cross-validation that never judges what it has seen, figures that add up, a page that asks for nothing."""

import json
import re
from collections.abc import Sequence
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from turnwise.assist.intents.classifier import IntentClassifier
from turnwise.assist.intents.examples import Examples, IntentError
from turnwise.assist.intents.page import page, write_report
from turnwise.assist.intents.report import Report, report
from turnwise.assist.intents.tuning import Tuning
from turnwise.assist.intents.validation import Kept, cross_validate

#: Intents by words of their own; the last two are one thing under two names.
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
    """Counts of words; remembers what it was asked to encode."""

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
def made() -> Report:
    texts, intents = examples()
    # a mistake, and an intent with a single text, twice
    texts += ["hello hi morning", "Pay the bill", " pay the bill"]
    intents += ["cancel", "pay", "pay"]
    return report(texts, intents, IntentClassifier(Bag(), head="prototypes"), out_of_scope=OUTSIDE, folds=4)


# ---- cross-validation


class Spy(IntentClassifier):
    """Fails where something is judged that was learnt from; counts what is judged."""

    judged: list[str] = []  # noqa: RUF012  shared by the folds' own copies

    def fit(self, texts: Sequence[str], intents: Sequence[str], **settings: Any) -> "Spy":
        self.known = {*texts, *settings["out_of_scope"]}
        return super().fit(texts, intents, **settings)

    def decide(self, texts: Sequence[str], **settings: Any) -> list[Any]:
        assert not self.known & set(texts)
        self.judged.extend(texts)
        return super().decide(texts, **settings)


def test_everything_is_judged_once_by_a_classifier_that_has_not_seen_it() -> None:
    texts, intents = examples(5)
    pairs = [*zip(texts, intents, strict=True), ("alone", "single"), *((text, "out_of_scope") for text in OUTSIDE)]
    encoder = Bag()
    told = Examples.of(pairs, encoder.encode([text for text, _ in pairs]))
    Spy.judged.clear()
    found = cross_validate(Spy(encoder), encoder, told, folds=3)
    assert sorted(Spy.judged) == sorted([*texts, *OUTSIDE])
    assert [told.pairs[row][0] for row in found.rows] == [text for text, intent in told.pairs if intent in WORDS]
    assert found.probabilities.shape == (25, 6)
    assert found.probabilities.sum(1) == pytest.approx(np.ones(25))
    assert len(found.outside) == len(OUTSIDE)


def test_folds_are_judged_as_by_hand() -> None:
    """With as many folds as examples an intent: leave one out of each."""
    texts, intents = examples(4)
    encoder = Bag()
    vectors = encoder.encode(texts)
    told = Examples.of(list(zip(texts, intents, strict=True)), vectors)
    found = cross_validate(IntentClassifier(encoder), encoder, told, folds=4, seed=5)
    from turnwise.assist.intents.logistic import folds_of

    folds = folds_of(told.labels, 4, 5)
    for fold in range(4):
        known = [pair for pair, own in zip(told.pairs, folds, strict=True) if own != fold]
        asked = [pair[0] for pair, own in zip(told.pairs, folds, strict=True) if own == fold]
        own = IntentClassifier(encoder).fit([text for text, _ in known], [intent for _, intent in known])
        assert found.probabilities[folds == fold] == pytest.approx(own.predict_proba(asked))
        assert [bool(each) for each in found.rejected[folds == fold]] == [
            decision.abstained for decision in own.decide(asked)
        ]


def test_kept_vectors_are_those_of_their_texts() -> None:
    encoder = Bag()
    kept = Kept(["hello", "stop"], encoder.encode(["hello", "stop"]))
    assert np.array_equal(kept.encode(["stop", "hello", "stop"]), encoder.encode(["stop", "hello", "stop"]))


# ---- the report


def test_the_report_finds_what_was_planted(made: Report) -> None:
    assert (made.examples, made.judged, made.folds, made.alone) == (62, 61, 4, ("pay",))
    assert [row.intent for row in made.intents] == ["balance", "cancel", "greet", "pay", "trace", "track"]
    assert (made.overlaps[0].first, made.overlaps[0].second) == ("trace", "track") and made.overlaps[0].overlap > 0.5
    assert (made.confusions[0].first, made.confusions[0].second) == ("trace", "track")
    planted = [suspect for suspect in made.suspects if suspect.text == "hello hi morning"]
    assert [(each.row, each.intent, each.proposed) for each in planted] == [(60, "cancel", "greet")]
    assert made.out_of_scope == 6 and made.out_of_scope_recall is not None and made.out_of_scope_recall > 0.5


def test_its_figures_add_up(made: Report) -> None:
    judged = {row.intent: row.judged for row in made.intents}
    assert sum(judged.values()) == made.judged and judged["pay"] == 0
    right = sum(row.recall * row.judged for row in made.intents if row.judged)
    assert made.accuracy == pytest.approx(right / made.judged)
    wrong = sum(each.first_as_second + each.second_as_first for each in made.confusions)
    assert wrong == made.judged - round(right)
    away = sum(row.rejected * row.judged for row in made.intents if row.judged)
    assert made.false_rejection == pytest.approx(away / made.judged)
    assert len(made.turned_away) == round(away)
    assert made.reliability.count.sum() == made.judged
    assert made.reliability.accuracy @ made.reliability.count == pytest.approx(right)


def test_texts_are_encoded_once_whatever_the_folds() -> None:
    encoder = Bag()
    texts, intents = examples(5)
    report(texts, intents, IntentClassifier(encoder), folds=5)
    assert sorted(encoder.seen) == sorted(texts)


def test_a_classifier_that_tunes_its_encoder_is_tuned_in_every_fold(monkeypatch: pytest.MonkeyPatch) -> None:
    """Folds are given the encoder itself: kept vectors would not move."""
    seen: list[Any] = []

    def judged(classifier: Any, encoder: Any, told: Examples, **_: Any) -> Any:
        seen.append(encoder)
        return cross_validate(IntentClassifier(encoder), encoder, told, folds=4)

    monkeypatch.setattr("turnwise.assist.intents.report.cross_validate", judged)
    encoder = Bag()
    found = report(*examples(4), IntentClassifier(encoder, tuning=Tuning(epochs=3)), folds=4)
    assert seen == [encoder]
    assert found.settings["tuning"]["epochs"] == 3 and found.settings["encoder"] == "Bag"


def test_it_is_json(made: Report) -> None:
    content = json.loads(json.dumps(made.as_json()))
    assert content["settings"]["head"] == "prototypes"
    assert content["suspects"][0].keys() == {
        "row",
        "text",
        "intent",
        "proposed",
        "probability",
        "own_probability",
        "same_text",
    }
    assert sum(content["reliability"]["count"]) == content["judged"]


@pytest.mark.parametrize(
    ("texts", "intents", "settings", "message"),
    [
        (["a b", "a c"], ["x", "x"], {}, "there is but one intent"),
        (["a b", "c d"], ["x", "y"], {}, "fewer than two intents have a second example"),
        (["a b", "A B ", "c d", "c e"], ["x", "x", "y", "y"], {}, "fewer than two intents have a second example"),
        (
            ["a b", "a c", "c d", "c e"],
            ["x", "x", "y", "y"],
            {},
            "no intent has more than 2 examples: without a fold of 5",
        ),
        (["a b", "a c"], ["x"], {}, "2 texts and 1 intents"),
        (["a b", " "], ["x", "y"], {}, "the text of example 2"),
        (["a b", "a c"], ["x", "y"], {"folds": 1}, "1 folds: cross-validation takes two at least"),
    ],
)
def test_what_cannot_be_reported_on_is_said(
    texts: list[str], intents: list[str], settings: dict[str, int], message: str
) -> None:
    with pytest.raises(IntentError, match=message):
        report(texts, intents, IntentClassifier(Bag()), **settings)


# ---- the page


class Outline(HTMLParser):
    """Tags with their attributes, and text; fails where elements are not closed as they were opened."""

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


def test_the_page_holds_the_findings_and_asks_nothing_of_the_network(made: Report, tmp_path: Path) -> None:
    write_report(made, tmp_path / "report.html")
    text = (tmp_path / "report.html").read_text(encoding="utf-8")
    outline = Outline(text)
    said = " ".join(outline.text)
    for expected in (
        "6 intents, 62 examples",
        "hello hi morning",
        "single text could not: pay",
        "61",
        "4-fold",
        "Report on intents",
    ):
        assert expected in said, expected
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


def test_what_users_wrote_cannot_become_markup() -> None:
    texts, intents = examples(4)
    texts += ["<script>alert(1)</script> hello", "hello \"quoted\" & 'so'"]
    intents += ["<b>greet</b>", "<b>greet</b>"]
    text = page(report(texts, intents, IntentClassifier(Bag(), false_rejection=0.4), folds=2))
    assert "<script>alert" not in text and "<b>greet" not in text
    assert "&lt;b&gt;greet&lt;/b&gt;" in text


def test_a_page_of_a_classifier_that_never_abstains_and_never_errs() -> None:
    texts = [f"{words[0]} {words[1]} {number}" for words in list(WORDS.values())[:3] for number in range(4)]
    intents = [name for name in list(WORDS)[:3] for _ in range(4)]
    found = report(texts, intents, IntentClassifier(Bag(), false_rejection=None), folds=2)
    assert found.accuracy == 1.0 and found.confusions == () and found.overlaps == () and found.turned_away == ()
    text = page(found)
    Outline(text)
    assert "this classifier never abstains" in text and "every judged example" in text and "None stands out" in text
