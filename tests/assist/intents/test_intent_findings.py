"""Confusions, wrong labels and overlaps: each against a plain restatement, and on examples where the answer is known."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnwise.assist.intents.examples import Examples
from turnwise.assist.intents.findings import (
    MOST,
    confident_mistakes,
    confusions,
    intent_rows,
    overlaps,
    suspects,
    turned_away,
)
from turnwise.assist.intents.validation import Judgement


def made(labels: list[int], vectors: np.ndarray | None = None, seed: int = 0) -> Examples:
    """Examples of intents 'a', 'b', …, of which no two have one text."""
    drawn = np.random.default_rng(seed).normal(size=(len(labels), 3)) if vectors is None else vectors
    unit = (drawn / np.linalg.norm(drawn, axis=1, keepdims=True)).astype(np.float32)
    return Examples.of([(f"text {row}", "abcdefgh"[label]) for row, label in enumerate(labels)], unit)


def judgement(probabilities: np.ndarray, rejected: list[bool] | None = None) -> Judgement:
    rows = np.arange(len(probabilities))
    away = np.zeros(len(rows), np.bool_) if rejected is None else np.array(rejected)
    return Judgement(rows, probabilities, probabilities.max(1), away, np.empty(0, np.bool_))


LABELS = st.lists(st.integers(0, 3), min_size=4, max_size=24).filter(lambda labels: len(set(labels)) > 1)


@st.composite
def judged_examples(draw: st.DrawFn) -> tuple[Examples, Judgement]:
    labels = sorted(draw(LABELS))
    names = sorted(set(labels))
    examples = made([names.index(label) for label in labels])
    random = np.random.default_rng(draw(st.integers(0, 10_000)))
    probabilities = random.dirichlet(np.full(len(names), 0.5), len(labels))
    return examples, judgement(probabilities, (random.random(len(labels)) < 0.3).tolist())


# ---- figures of an intent, and confusions


@given(judged_examples())
def test_figures_of_intents_are_counted(case: tuple[Examples, Judgement]) -> None:
    examples, judged = case
    truth = [intent for _, intent in examples.pairs]
    guesses = [examples.classes[place] for place in judged.probabilities.argmax(1)]
    for row in intent_rows(examples, judged):
        own = [place for place, intent in enumerate(truth) if intent == row.intent]
        said = [place for place, intent in enumerate(guesses) if intent == row.intent]
        assert row.examples == row.judged == len(own)
        assert row.recall == pytest.approx(np.mean([guesses[place] == row.intent for place in own]))
        assert row.rejected == pytest.approx(np.mean([judged.rejected[place] for place in own]))
        column = examples.classes.index(row.intent)
        assert row.confidence == pytest.approx(np.mean([judged.probabilities[place, column] for place in own]))
        if said:
            assert row.precision == pytest.approx(np.mean([truth[place] == row.intent for place in said]))
        else:
            assert np.isnan(row.precision)
        wrong = [guesses[place] for place in own if guesses[place] != row.intent]
        assert row.taken_for is None if not wrong else wrong.count(row.taken_for or "") == max(map(wrong.count, wrong))


@given(judged_examples())
def test_confusions_are_every_wrong_guess_once(case: tuple[Examples, Judgement]) -> None:
    examples, judged = case
    guesses = [examples.classes[place] for place in judged.probabilities.argmax(1)]
    wrong = [(intent, guess) for (_, intent), guess in zip(examples.pairs, guesses, strict=True) if intent != guess]
    found = confusions(examples, judged)
    assert sum(each.first_as_second + each.second_as_first for each in found) == len(wrong)
    sizes = [each.first_as_second + each.second_as_first for each in found]
    assert sizes == sorted(sizes, reverse=True)
    intent_of = dict(examples.pairs)
    for each in found:
        assert each.first < each.second
        assert each.first_as_second == wrong.count((each.first, each.second))
        assert each.second_as_first == wrong.count((each.second, each.first))
        assert 1 <= len(each.texts) <= 3 and {intent_of[text] for text in each.texts} <= {each.first, each.second}


def test_a_long_list_is_cut() -> None:
    classes = 9
    vectors = np.ones((classes * 2, 2), np.float32) / np.sqrt(2)
    examples = Examples.of([(f"{row}", f"{row // 2}") for row in range(classes * 2)], vectors)
    # everything is taken for the next intent but one, or for the next
    guesses = [(row // 2 + 1 + row % 2) % classes for row in range(classes * 2)]
    found = confusions(examples, judgement(np.eye(classes)[guesses]))
    assert len(found) == 18 < MOST
    many = Examples.of([(f"{row}", f"{row // 2:02}") for row in range(80)], np.tile(vectors[:1], (80, 1)))
    assert len(confusions(many, judgement(np.eye(40)[[(row // 2 + 1) % 40 for row in range(80)]]))) == MOST


# ---- wrong labels


def plain_mistakes(probabilities: np.ndarray, labels: list[int]) -> dict[int, int]:
    """Confident learning, example by example."""
    found = {}
    for row, label in enumerate(labels):
        likely = []
        for other in set(labels):
            members = [place for place, own in enumerate(labels) if own == other]
            if probabilities[row, other] >= sum(probabilities[place, other] for place in members) / len(members):
                likely.append(other)
        if likely and (best := max(likely, key=lambda other: (probabilities[row, other], -other))) != label:
            found[row] = best
    return found


@given(LABELS, st.integers(0, 10_000))
def test_mistakes_are_those_of_confident_learning(labels: list[int], seed: int) -> None:
    # eighths, so that means are exact, and one class more than there are labels
    probabilities = np.random.default_rng(seed).multinomial(8, np.full(5, 0.2), len(labels)) / 8
    found = confident_mistakes(probabilities, np.array(labels))
    expected = plain_mistakes(probabilities, labels)
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
    assert {row: best for row, best in found if row not in close} == {
        row: best for row, best in expected.items() if row not in close
    }
    margins = [probabilities[row, best] - probabilities[row, labels[row]] for row, best in found]
    assert margins == sorted(margins, reverse=True)


def test_planted_mistakes_are_found_and_little_else() -> None:
    random = np.random.default_rng(3)
    truth = np.repeat(np.arange(4), 50)
    labels = truth.copy()
    planted = random.choice(200, 10, replace=False)
    labels[planted] = (labels[planted] + 1) % 4
    logits = random.normal(size=(200, 4)) + 4 * np.eye(4)[truth]
    probabilities = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    found = dict(confident_mistakes(probabilities, labels))
    right = {row for row in planted.tolist() if found.get(row) == truth[row]}
    assert len(right) >= 8
    assert len(found) - len(right) <= 1


def test_a_suspect_says_where_it_stands_and_whether_its_text_is_there_twice() -> None:
    pairs = [("Stop it", "cancel"), ("drop the order", "cancel"), (" stop it ", "pause"), ("wait a bit", "pause")]
    examples = Examples.of(pairs, np.eye(4, dtype=np.float32))
    probabilities = np.array([[0.2, 0.8], [0.9, 0.1], [0.3, 0.7], [0.2, 0.8]])
    (found,) = suspects(examples, judgement(probabilities), [40, 30, 20, 10])
    assert (found.row, found.text, found.intent, found.proposed) == (40, "Stop it", "cancel", "pause")
    assert (found.probability, found.own_probability, found.same_text) == (0.8, 0.2, True)


def test_what_is_turned_away_comes_lowest_first() -> None:
    examples = made([0, 0, 1, 1])
    probabilities = np.array([[0.6, 0.4], [0.9, 0.1], [0.3, 0.7], [0.45, 0.55]])
    found = turned_away(examples, judgement(probabilities, [True, False, True, True]), [0, 1, 2, 3])
    assert [(each.row, each.intent, each.score) for each in found] == [(3, "b", 0.55), (0, "a", 0.6), (2, "b", 0.7)]


# ---- overlaps


@given(LABELS, st.integers(0, 10_000))
def test_overlaps_are_counted_pair_by_pair(labels: list[int], seed: int) -> None:
    names = sorted(set(labels))
    examples = made(sorted(names.index(label) for label in labels), seed=seed)
    expected = {}
    vectors = examples.inside.astype(np.float64)
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
    found = {(each.first, each.second): (each.overlap, each.crossing) for each in overlaps(examples)}
    assert found.keys() == expected.keys()
    for pair, (overlap, crossing) in expected.items():
        assert found[pair] == (pytest.approx(overlap), crossing)


def test_intents_that_are_one_overlap_and_others_do_not() -> None:
    random = np.random.default_rng(0)
    centres = np.array([[1, 0, 0], [1, 0, 0], [0, 1, 0]])
    labels = np.repeat([0, 1, 2], 40)
    vectors = centres[labels] + 0.05 * random.normal(size=(120, 3))
    (found,) = overlaps(made(labels.tolist(), vectors))
    assert (found.first, found.second) == ("a", "b")
    assert found.overlap > 0.8
    assert found.similarity > 0.99


def test_one_wrong_label_is_no_overlap() -> None:
    random = np.random.default_rng(0)
    labels = np.repeat([0, 1], 10)
    vectors = np.eye(3)[labels] + 0.05 * random.normal(size=(20, 3))
    vectors[15] = vectors[:5].mean(0)  # of the first intent, by all it says
    assert overlaps(made(labels.tolist(), vectors)) == ()
    vectors[16:18] = vectors[5:7] + 0.01
    assert len(overlaps(made(labels.tolist(), vectors))) == 1


def test_intents_of_one_example_overlap_with_nothing() -> None:
    vectors = np.tile(np.array([[1.0, 0.0, 0.0]]), (4, 1))
    assert overlaps(made([0, 1, 1, 2], vectors)) == ()
