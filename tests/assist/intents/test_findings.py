"""Confusions, label issues and overlaps: each against a plain restatement, and on planted cases."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnwise.assist.intents.examples import IntentExamples
from turnwise.assist.intents.findings import (
    MAX_ENTRIES,
    IntentPredictions,
    find_confident_mistakes,
    find_confusions,
    find_label_issues,
    find_overlaps,
    find_rejected,
)
from turnwise.assist.intents.testing import intent_results
from turnwise.core.dialogue import OUT_OF_SCOPE


def make_examples(labels: list[int], vectors: np.ndarray | None = None, seed: int = 0) -> IntentExamples:
    """Return examples of intents 'a', 'b', … with distinct texts."""
    values = np.random.default_rng(seed).normal(size=(len(labels), 3)) if vectors is None else vectors
    unit = (values / np.linalg.norm(values, axis=1, keepdims=True)).astype(np.float32)
    return IntentExamples.from_pairs([(f"text {row}", "abcdefgh"[label]) for row, label in enumerate(labels)], unit)


def make_predictions(
    labels: list[int], probabilities: np.ndarray, rejected: list[bool] | None = None
) -> IntentPredictions:
    """Return predictions for distinct texts; label and decision are those of an out-of-scope text if out of range."""
    classes = [f"{index:02}" for index in range(probabilities.shape[1])]
    names = [*classes, OUT_OF_SCOPE]
    best = probabilities.argmax(1)
    decided = best if rejected is None else np.where(rejected, len(classes), best)
    pairs = [(f"text {row}", names[label]) for row, label in enumerate(labels)]
    return IntentPredictions(
        classes, pairs, range(len(pairs)), np.array(labels), probabilities, probabilities.max(1), decided
    )


LABELS = st.lists(st.integers(0, 3), min_size=4, max_size=24).filter(lambda labels: len(set(labels)) > 1)


@st.composite
def classified_texts(draw: st.DrawFn) -> IntentPredictions:
    """Texts of up to three intents, and out-of-scope texts (label 3)."""
    labels = draw(LABELS)
    random = np.random.default_rng(draw(st.integers(0, 10_000)))
    probabilities = random.dirichlet(np.full(3, 0.5), len(labels))
    return make_predictions(labels, probabilities, (random.random(len(labels)) < 0.3).tolist())


# ---- metrics and confusions


@given(classified_texts())
def test_intent_results_match_a_restatement(predictions: IntentPredictions) -> None:
    names = [*predictions.classes, OUT_OF_SCOPE]
    truth, decided = [names[label] for label in predictions.labels], [names[label] for label in predictions.decided]
    results = intent_results(predictions)
    assert [each.intent for each in results] == [name for name in names if name in truth or name in decided]
    for each in results:
        own = [place for place, intent in enumerate(truth) if intent == each.intent]
        correct = sum(decided[place] == each.intent for place in own)
        assert (each.texts, each.predicted) == (len(own), decided.count(each.intent))
        assert each.precision == (correct / each.predicted if each.predicted else None)
        assert each.recall == (correct / len(own) if own else None)
        assert each.rejected == (pytest.approx(np.mean(predictions.rejected[own])) if own else None)
        wrong = [names[predictions.best[place]] for place in own if each.intent != OUT_OF_SCOPE]
        wrong = [name for name in wrong if name != each.intent]
        assert (each.confused_with is None) == (not wrong)
        assert not wrong or wrong.count(str(each.confused_with)) == max(map(wrong.count, wrong))


@given(classified_texts())
def test_confusions_contain_every_mistake_once(predictions: IntentPredictions) -> None:
    names = [*predictions.classes, OUT_OF_SCOPE]
    wrong = []
    for (_, intent), best, decided in zip(predictions.pairs, predictions.best, predictions.decided, strict=True):
        guess = names[decided if intent == OUT_OF_SCOPE else best]  # abstention is ignored in scope
        if guess != intent:
            wrong.append((intent, guess))
    confusions = find_confusions(predictions)
    sizes = [each.first_as_second + each.second_as_first for each in confusions]
    assert sum(sizes) == len(wrong) and sizes == sorted(sizes, reverse=True)
    intent_of = dict(predictions.pairs)
    for each in confusions:
        assert names.index(each.first) < names.index(each.second)
        assert each.first_as_second == wrong.count((each.first, each.second))
        assert each.second_as_first == wrong.count((each.second, each.first))
        assert 1 <= len(each.texts) <= 3 and {intent_of[text] for text in each.texts} <= {each.first, each.second}


def test_long_lists_are_truncated() -> None:
    labels = [row // 2 for row in range(80)]
    assert len(find_confusions(make_predictions(labels, np.eye(40)[[(each + 1) % 40 for each in labels]]))) == (
        MAX_ENTRIES
    )


# ---- label issues


def restated_mistakes(probabilities: np.ndarray, labels: list[int]) -> dict[int, int]:
    """Return the mistakes found by confident learning, example by example."""
    mistakes = {}
    for row, label in enumerate(labels):
        likely = []
        for other in set(labels):
            members = [place for place, own in enumerate(labels) if own == other]
            if probabilities[row, other] >= sum(probabilities[place, other] for place in members) / len(members):
                likely.append(other)
        if likely and (best := max(likely, key=lambda other: (probabilities[row, other], -other))) != label:
            mistakes[row] = best
    return mistakes


@given(LABELS, st.integers(0, 10_000))
def test_mistakes_match_confident_learning(labels: list[int], seed: int) -> None:
    # multiples of 1/8 make means exact; one class has no labels
    probabilities = np.random.default_rng(seed).multinomial(8, np.full(5, 0.2), len(labels)) / 8
    mistakes = find_confident_mistakes(probabilities, np.array(labels))
    expected = restated_mistakes(probabilities, labels)
    close = {
        row
        for row in range(len(labels))
        for other in set(labels)
        if abs(
            probabilities[row, other]
            - np.mean([probabilities[each, other] for each, own in enumerate(labels) if own == other])
        )
        < 1e-9
    }
    assert {row: best for row, best in mistakes if row not in close} == {
        row: best for row, best in expected.items() if row not in close
    }
    margins = [probabilities[row, best] - probabilities[row, labels[row]] for row, best in mistakes]
    assert margins == sorted(margins, reverse=True)


def test_label_issues_have_their_input_row_and_report_duplicates() -> None:
    pairs = [("Stop it", "cancel"), ("drop the order", "cancel"), (" stop it ", "pause"), ("wait a bit", "pause")]
    probabilities = np.array([[0.2, 0.8], [0.9, 0.1], [0.3, 0.7], [0.2, 0.8]])
    labels, scores = np.array([0, 0, 1, 1]), probabilities.max(1)
    predictions = IntentPredictions(["cancel", "pause"], pairs, [40, 30, 20, 10], labels, probabilities, scores, labels)
    (issue,) = find_label_issues(predictions)
    assert (issue.row, issue.text, issue.intent, issue.proposed) == (40, "Stop it", "cancel", "pause")
    assert (issue.probability, issue.own_probability, issue.same_text) == (0.8, 0.2, True)


def test_rejected_texts_in_scope_are_sorted_by_score() -> None:
    probabilities = np.array([[0.6, 0.4], [0.9, 0.1], [0.3, 0.7], [0.45, 0.55], [0.5, 0.5]])
    rejected = find_rejected(make_predictions([0, 0, 1, 1, 2], probabilities, [True, False, True, True, True]))
    assert [(each.row, each.intent, each.score) for each in rejected] == [
        (3, "01", 0.55),
        (0, "00", 0.6),
        (2, "01", 0.7),
    ]


# ---- overlaps


@given(LABELS, st.integers(0, 10_000))
def test_overlaps_match_a_restatement(labels: list[int], seed: int) -> None:
    names = sorted(set(labels))
    examples = make_examples(sorted(names.index(label) for label in labels), seed=seed)
    expected = {}
    vectors = examples.in_scope_vectors.astype(np.float64)
    for one in range(len(names)):
        for other in range(one + 1, len(names)):
            sides = [np.flatnonzero(examples.labels == side) for side in (one, other)]
            if min(map(len, sides)) < 2:
                continue
            fractions, chances, crossings = [], [], []
            for own, across in (sides, sides[::-1]):
                crossed = 0
                for row in own:
                    nearest = max(
                        (each for each in [*own, *across] if each != row), key=lambda each: vectors[row] @ vectors[each]
                    )
                    if nearest in across:
                        crossed += 1
                        crossings.append({row, nearest})
                fractions.append(crossed / len(own))
                chances.append(len(across) / (len(own) + len(across) - 1))
            if crossings and not set.intersection(*crossings):
                expected[examples.classes[one], examples.classes[other]] = (
                    min(1.0, sum(fractions) / sum(chances)),
                    len(crossings),
                )
    overlaps = {(each.first, each.second): (each.overlap, each.crossing) for each in find_overlaps(examples)}
    assert overlaps.keys() == expected.keys()
    for pair, (overlap, crossing) in expected.items():
        assert overlaps[pair] == (pytest.approx(overlap), crossing)


def test_a_single_wrong_label_is_no_overlap() -> None:
    random = np.random.default_rng(0)
    labels = np.repeat([0, 1], 10)
    vectors = np.eye(3)[labels] + 0.05 * random.normal(size=(20, 3))
    vectors[15] = vectors[:5].mean(0)  # clearly of the first intent
    assert find_overlaps(make_examples(labels.tolist(), vectors)) == ()
    vectors[16:18] = vectors[5:7] + 0.01
    assert len(find_overlaps(make_examples(labels.tolist(), vectors))) == 1
