"""Which utterances are asked about: held against the sum written out, and against asking at random."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.helpers.made_up_map import texts_and_vectors
from turnwise.assist.labelling import asking
from turnwise.assist.labelling.asking import Asker
from turnwise.assist.labelling.grouping import Change, Grouping


def judge(state: Grouping, row: int, name: str) -> None:
    """Labels one row as a person would."""
    there = state.named(name)
    number = there[0] if there else state.unused
    state.apply(Change("label", {number: (row,)}, {number: name}, (row,)))


def world(seed: int, rows: int = 240, intents: int = 12) -> tuple[np.ndarray, np.ndarray]:
    """Vectors around the middles of intents, of which the first are far more frequent than the last."""
    random = np.random.default_rng(seed)
    middles = random.normal(size=(intents, 16))
    middles /= np.linalg.norm(middles, axis=1, keepdims=True)
    shares = 1 / np.arange(1, intents + 1)
    truth = random.choice(intents, rows, p=shares / shares.sum())
    vectors = middles[truth] + 0.2 * random.normal(size=(rows, 16))
    return (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32), truth


def accuracy(vectors: np.ndarray, truth: np.ndarray, judged: list[int]) -> float:
    """How often the nearest utterance that was judged has the right intent, each intent counting the same."""
    right = truth[np.array(judged)][(vectors @ vectors[judged].T).argmax(1)] == truth
    return float(np.mean([right[truth == intent].mean() for intent in np.unique(truth)]))


@pytest.mark.parametrize("clustered", [False, True])
def test_asking_teaches_more_than_chance(clustered: bool) -> None:
    asked, drawn = [], []
    for seed in range(6):
        vectors, truth = world(seed)
        groups = (truth % 5 if clustered else np.full(len(truth), -1)).astype(np.int32)  # clusters that mix intents
        state, asker = Grouping(groups), Asker(vectors, np.ones(len(truth), np.int64))
        judged: list[int] = []
        for _ in range(6):
            for question in asker.ask([""] * len(truth), state, 5):
                judge(state, question.row, f"intent {truth[question.row]}")
                judged.append(question.row)
        assert len(set(judged)) == 30
        random = np.random.default_rng(seed)
        asked.append(accuracy(vectors, truth, judged))
        drawn += [accuracy(vectors, truth, random.choice(len(truth), 30, replace=False).tolist()) for _ in range(5)]
    assert np.mean(asked) > np.mean(drawn) + 0.1


def likeness(vectors: np.ndarray, alike: float) -> np.ndarray:
    return np.maximum(0, (vectors.astype(float) @ vectors.T.astype(float) - alike) / (1 - alike))


@settings(max_examples=30, deadline=None)
@given(st.integers(2, 25), st.integers(0, 1000), st.data())
def test_choices_are_the_greedy_ones(rows: int, seed: int, data: st.DataObject) -> None:
    """The sum of the module's docstring, written as loops; all is within the sample here."""
    random = np.random.default_rng(seed)
    vectors = random.normal(size=(rows, 5)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    counts = random.integers(1, 50, rows)
    groups = random.integers(-1, 4, rows).astype(np.int32)
    names = {0: "a", 1: "b", 3: "a"}
    confirmed = np.array(data.draw(st.lists(st.booleans(), min_size=rows, max_size=rows)))
    asker = Asker(vectors, counts)
    pairs = [float(vectors[i] @ vectors[j]) for i in range(rows) for j in range(i)]
    nearest = [max(float(vectors[i] @ vectors[j]) for j in range(rows) if j != i) for i in range(rows)]
    assert asker.alike == pytest.approx(min((np.quantile(pairs, 0.25) + np.median(nearest)) / 2, 0.999), abs=1e-5)
    opinion = asker.opinion(groups, names)
    like = likeness(vectors, asker.alike)
    chosen: list[int] = []
    for place, row in enumerate(asker.choose(opinion, confirmed, 4).tolist()):
        judged = [*np.flatnonzero(confirmed), *chosen]
        worth = {}
        for r in range(rows):
            if r in judged:
                continue
            worth[r] = opinion.unsure[r] * sum(
                opinion.unsure[s]
                * (1 + np.log(counts[s]))
                * max(0.0, like[r, s] - max((like[j, s] for j in judged), default=0.0))
                for s in range(rows)
            )
        assert worth[row] == pytest.approx(max(worth.values()), rel=1e-4, abs=1e-4), place
        chosen.append(row)
    assert len(chosen) == min(4, int((~confirmed).sum()))


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 1000))
def test_opinions_are_margins_of_a_softmax(seed: int) -> None:
    random = np.random.default_rng(seed)
    vectors = random.normal(size=(20, 6)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    groups = random.integers(-1, 5, 20).astype(np.int32)
    names = {0: "x", 2: "y", 4: "x"}
    asker = Asker(vectors, np.ones(20, np.int64))
    opinion = asker.opinion(groups, names)
    members: dict[object, list[int]] = {}
    for row, group in enumerate(groups.tolist()):
        if group >= 0:
            members.setdefault(names.get(group, group), []).append(row)
    for row in range(20):
        logits = {}
        for key, rows in members.items():
            middle = vectors[rows].mean(0)
            logits[key] = float(vectors[row] @ middle / np.linalg.norm(middle))
        logits["none of these"] = asker.alike
        scaled = {key: np.exp(value / (1 - asker.alike) * 8) for key, value in logits.items()}
        chances = {key: value / sum(scaled.values()) for key, value in scaled.items()}
        labels = {key: chances[key] for key in ("x", "y") if key in chances}
        if not labels:
            assert opinion.unsure[row] == 1 and opinion.label(opinion.guess[row]) is None
            continue
        best = max(labels, key=lambda key: labels[key])
        margin = labels[best] - max(value for key, value in chances.items() if key != best)
        assert opinion.unsure[row] == pytest.approx(1 - max(margin, 0), abs=1e-4)
        if abs(margin) > 1e-4:
            assert opinion.label(opinion.guess[row]) == (best if margin > 0 else None)


def test_what_repeats_counts_more_and_is_asked_once() -> None:
    vectors = np.array([[1, 0, 0], [0, 1, 0], [0, 0, 1]], np.float32)
    state = Grouping(np.full(3, -1, np.int32))
    asker = Asker(vectors, np.array([1, 90, 8]))
    assert [question.row for question in asker.ask(["a", "b", "c"], state, 9)] == [1, 2, 0]
    judge(state, 1, "b")
    assert [question.row for question in asker.ask(["a", "b", "c"], state, 9)] == [2, 0]
    for row in (0, 2):
        judge(state, row, "c")
    assert asker.ask(["a", "b", "c"], state, 9) == []


def test_questions_differ_from_each_other() -> None:
    texts, vectors, topics = texts_and_vectors(80, spread=0.1)
    asked = Asker(vectors, np.ones(80, np.int64)).ask(texts, Grouping(np.full(80, -1, np.int32)), 4)
    assert {topics[question.row] for question in asked} == {0, 1, 2, 3}
    assert all(question.text == texts[question.row] and question.guess is None for question in asked)
    assert asked[0].reason.startswith("Nothing like it has a label yet; it stands for")


def test_reasons_say_what_is_in_doubt() -> None:
    texts, vectors, topics = texts_and_vectors(80, spread=0.2)
    middle = vectors[0] + vectors[1]
    vectors[0] = middle / np.linalg.norm(middle)  # as much of the one as of the other
    state = Grouping(topics.astype(np.int32))
    for topic, name in enumerate("abcd"):
        state.apply(Change("name", names={topic: name}))
    asker = Asker(vectors, np.ones(80, np.int64))
    opinion = asker.opinion(state.groups, state.names)
    assert opinion.unsure.argmax() == 0
    assert {opinion.label(opinion.guess[0]), opinion.label(opinion.rival[0])} == {"a", "b"}
    first = asker.ask(texts, state, 80)
    reason = next(question.reason for question in first if question.row == 0)
    assert "a" in reason and "b" in reason
    moved = Grouping(
        np.where(np.arange(80) == 4, 1, topics).astype(np.int32)
    )  # of the first topic, in the group of the second
    for topic, name in enumerate(("boat", "garden", "clock", "bread")):
        moved.apply(Change("name", names={topic: name}))
    wrong = next(question for question in asker.ask(texts, moved, 80) if question.row == 4)
    assert wrong.guess == "boat" and wrong.reason.startswith(
        "It is labelled garden and is more like boat; it stands for"
    )


def test_many_utterances_are_sampled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asking, "SAMPLE", 50)
    texts, vectors, topics = texts_and_vectors(400, spread=0.1)
    asker = Asker(vectors, np.ones(400, np.int64))
    asked = asker.ask(texts, Grouping(np.full(400, -1, np.int32)), 4)
    assert {topics[question.row] for question in asked} == {0, 1, 2, 3}
    again = Asker(vectors, np.ones(400, np.int64)).ask(texts, Grouping(np.full(400, -1, np.int32)), 4)
    assert asked == again


@pytest.mark.parametrize("rows", [1, 2])
def test_vectors_that_are_all_the_same(rows: int) -> None:
    state = Grouping(np.zeros(rows, np.int32))
    asker = Asker(np.ones((rows, 3), np.float32), np.ones(rows, np.int64))
    assert len(asker.ask(["x"] * rows, state, 5)) == rows
