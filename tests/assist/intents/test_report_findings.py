"""Confusions, label issues and overlaps: each against a plain restatement, and on planted cases."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnwise.assist.intents.examples import IntentExamples
from turnwise.assist.intents.report import (
    MAX_ENTRIES,
    CrossValidation,
    compute_intent_metrics,
    find_confident_mistakes,
    find_confusions,
    find_label_issues,
    find_overlaps,
    find_rejected,
)


def make_examples(labels: list[int], vectors: np.ndarray | None = None, seed: int = 0) -> IntentExamples:
    """Return examples of intents 'a', 'b', … with distinct texts."""
    values = np.random.default_rng(seed).normal(size=(len(labels), 3)) if vectors is None else vectors
    unit = (values / np.linalg.norm(values, axis=1, keepdims=True)).astype(np.float32)
    return IntentExamples.from_pairs([(f"text {row}", "abcdefgh"[label]) for row, label in enumerate(labels)], unit)


def make_result(probabilities: np.ndarray, rejected: list[bool] | None = None) -> CrossValidation:
    rows = np.arange(len(probabilities))
    rejections = np.zeros(len(rows), np.bool_) if rejected is None else np.array(rejected)
    return CrossValidation(rows, probabilities, probabilities.max(1), rejections, np.empty(0, np.bool_))


LABELS = st.lists(st.integers(0, 3), min_size=4, max_size=24).filter(lambda labels: len(set(labels)) > 1)


@st.composite
def classified_examples(draw: st.DrawFn) -> tuple[IntentExamples, CrossValidation]:
    labels = sorted(draw(LABELS))
    names = sorted(set(labels))
    examples = make_examples([names.index(label) for label in labels])
    random = np.random.default_rng(draw(st.integers(0, 10_000)))
    probabilities = random.dirichlet(np.full(len(names), 0.5), len(labels))
    return examples, make_result(probabilities, (random.random(len(labels)) < 0.3).tolist())


# ---- metrics and confusions


@given(classified_examples())
def test_intent_metrics_match_a_restatement(case: tuple[IntentExamples, CrossValidation]) -> None:
    examples, result = case
    truth = [intent for _, intent in examples.pairs]
    predictions = [examples.classes[place] for place in result.probabilities.argmax(1)]
    for row in compute_intent_metrics(examples, result):
        own = [place for place, intent in enumerate(truth) if intent == row.intent]
        predicted = [place for place, intent in enumerate(predictions) if intent == row.intent]
        assert row.examples == row.evaluated == len(own)
        assert row.recall == pytest.approx(np.mean([predictions[place] == row.intent for place in own]))
        assert row.rejected == pytest.approx(np.mean([result.rejected[place] for place in own]))
        column = examples.classes.index(row.intent)
        assert row.confidence == pytest.approx(np.mean([result.probabilities[place, column] for place in own]))
        if predicted:
            assert row.precision == pytest.approx(np.mean([truth[place] == row.intent for place in predicted]))
        else:
            assert np.isnan(row.precision)
        wrong = [predictions[place] for place in own if predictions[place] != row.intent]
        assert (
            row.confused_with is None
            if not wrong
            else wrong.count(row.confused_with or "") == max(map(wrong.count, wrong))
        )


@given(classified_examples())
def test_confusions_contain_every_mistake_once(case: tuple[IntentExamples, CrossValidation]) -> None:
    examples, result = case
    predictions = [examples.classes[place] for place in result.probabilities.argmax(1)]
    wrong = [(intent, guess) for (_, intent), guess in zip(examples.pairs, predictions, strict=True) if intent != guess]
    confusions = find_confusions(examples, result)
    assert sum(each.first_as_second + each.second_as_first for each in confusions) == len(wrong)
    sizes = [each.first_as_second + each.second_as_first for each in confusions]
    assert sizes == sorted(sizes, reverse=True)
    intent_of = dict(examples.pairs)
    for each in confusions:
        assert each.first < each.second
        assert each.first_as_second == wrong.count((each.first, each.second))
        assert each.second_as_first == wrong.count((each.second, each.first))
        assert 1 <= len(each.texts) <= 3 and {intent_of[text] for text in each.texts} <= {each.first, each.second}


def test_long_lists_are_truncated() -> None:
    classes = 9
    vectors = np.ones((classes * 2, 2), np.float32) / np.sqrt(2)
    examples = IntentExamples.from_pairs([(f"{row}", f"{row // 2}") for row in range(classes * 2)], vectors)
    # everything is predicted as one of the next two intents
    predictions = [(row // 2 + 1 + row % 2) % classes for row in range(classes * 2)]
    confusions = find_confusions(examples, make_result(np.eye(classes)[predictions]))
    assert len(confusions) == 18 < MAX_ENTRIES
    many = IntentExamples.from_pairs([(f"{row}", f"{row // 2:02}") for row in range(80)], np.tile(vectors[:1], (80, 1)))
    assert (
        len(find_confusions(many, make_result(np.eye(40)[[(row // 2 + 1) % 40 for row in range(80)]]))) == MAX_ENTRIES
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


def test_planted_mistakes_are_found() -> None:
    random = np.random.default_rng(3)
    truth = np.repeat(np.arange(4), 50)
    labels = truth.copy()
    planted = random.choice(200, 10, replace=False)
    labels[planted] = (labels[planted] + 1) % 4
    logits = random.normal(size=(200, 4)) + 4 * np.eye(4)[truth]
    probabilities = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    mistakes = dict(find_confident_mistakes(probabilities, labels))
    right = {row for row in planted.tolist() if mistakes.get(row) == truth[row]}
    assert len(right) >= 8
    assert len(mistakes) - len(right) <= 1


def test_label_issues_have_their_input_row_and_report_duplicates() -> None:
    pairs = [("Stop it", "cancel"), ("drop the order", "cancel"), (" stop it ", "pause"), ("wait a bit", "pause")]
    examples = IntentExamples.from_pairs(pairs, np.eye(4, dtype=np.float32))
    probabilities = np.array([[0.2, 0.8], [0.9, 0.1], [0.3, 0.7], [0.2, 0.8]])
    (issue,) = find_label_issues(examples, make_result(probabilities), [40, 30, 20, 10])
    assert (issue.row, issue.text, issue.intent, issue.proposed) == (40, "Stop it", "cancel", "pause")
    assert (issue.probability, issue.own_probability, issue.same_text) == (0.8, 0.2, True)


def test_rejected_examples_are_sorted_by_score() -> None:
    examples = make_examples([0, 0, 1, 1])
    probabilities = np.array([[0.6, 0.4], [0.9, 0.1], [0.3, 0.7], [0.45, 0.55]])
    rejected = find_rejected(examples, make_result(probabilities, [True, False, True, True]), [0, 1, 2, 3])
    assert [(each.row, each.intent, each.score) for each in rejected] == [(3, "b", 0.55), (0, "a", 0.6), (2, "b", 0.7)]


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
            shares, chances, ways = [], [], []
            for own, across in (sides, sides[::-1]):
                crossed = 0
                for row in own:
                    nearest = max(
                        (each for each in [*own, *across] if each != row), key=lambda each: vectors[row] @ vectors[each]
                    )
                    if nearest in across:
                        crossed += 1
                        ways.append({row, nearest})
                shares.append(crossed / len(own))
                chances.append(len(across) / (len(own) + len(across) - 1))
            if ways and not set.intersection(*ways):
                expected[examples.classes[one], examples.classes[other]] = (
                    min(1.0, sum(shares) / sum(chances)),
                    len(ways),
                )
    overlaps = {(each.first, each.second): (each.overlap, each.crossing) for each in find_overlaps(examples)}
    assert overlaps.keys() == expected.keys()
    for pair, (overlap, crossing) in expected.items():
        assert overlaps[pair] == (pytest.approx(overlap), crossing)


def test_identical_intents_overlap_and_others_do_not() -> None:
    random = np.random.default_rng(0)
    centres = np.array([[1, 0, 0], [1, 0, 0], [0, 1, 0]])
    labels = np.repeat([0, 1, 2], 40)
    vectors = centres[labels] + 0.05 * random.normal(size=(120, 3))
    (overlap,) = find_overlaps(make_examples(labels.tolist(), vectors))
    assert (overlap.first, overlap.second) == ("a", "b")
    assert overlap.overlap > 0.8
    assert overlap.similarity > 0.99


def test_a_single_wrong_label_is_no_overlap() -> None:
    random = np.random.default_rng(0)
    labels = np.repeat([0, 1], 10)
    vectors = np.eye(3)[labels] + 0.05 * random.normal(size=(20, 3))
    vectors[15] = vectors[:5].mean(0)  # clearly of the first intent
    assert find_overlaps(make_examples(labels.tolist(), vectors)) == ()
    vectors[16:18] = vectors[5:7] + 0.01
    assert len(find_overlaps(make_examples(labels.tolist(), vectors))) == 1


def test_intents_with_one_example_never_overlap() -> None:
    vectors = np.tile(np.array([[1.0, 0.0, 0.0]]), (4, 1))
    assert find_overlaps(make_examples([0, 1, 1, 2], vectors)) == ()
