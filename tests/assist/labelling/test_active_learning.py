"""Selection of questions: against a restatement of the formula, and against random selection."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.helpers.small_map import texts_and_vectors
from turnwise.assist.labelling import active_learning
from turnwise.assist.labelling.active_learning import LabelPredictions, QuestionSelector
from turnwise.assist.labelling.changes import GroupAssignment, LabelChange


def label_row(state: GroupAssignment, row: int, name: str) -> None:
    """Label one row."""
    existing = state.groups_named(name)
    number = existing[0] if existing else state.next_number
    state.apply(LabelChange("label", {number: (row,)}, {number: name}, (row,)))


def name_of(label: int, predictions: LabelPredictions) -> str | None:
    return None if label < 0 else predictions.names[label]


def similarity(vectors: np.ndarray, threshold: float) -> np.ndarray:
    return np.maximum(0, (vectors.astype(float) @ vectors.T.astype(float) - threshold) / (1 - threshold))


@settings(max_examples=30, deadline=None)
@given(st.integers(2, 25), st.integers(0, 1000), st.data())
def test_rows_are_selected_greedily(rows: int, seed: int, data: st.DataObject) -> None:
    """The formula of the module's docstring as loops; all rows are within the sample."""
    random = np.random.default_rng(seed)
    vectors = random.normal(size=(rows, 5)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    counts = random.integers(1, 50, rows)
    groups = random.integers(-1, 4, rows).astype(np.int32)
    names = {0: "a", 1: "b", 3: "a"}
    confirmed = np.array(data.draw(st.lists(st.booleans(), min_size=rows, max_size=rows)))
    selector = QuestionSelector(vectors, counts)
    pairs = [float(vectors[i] @ vectors[j]) for i in range(rows) for j in range(i)]
    nearest = [max(float(vectors[i] @ vectors[j]) for j in range(rows) if j != i) for i in range(rows)]
    assert selector.threshold == pytest.approx(
        min((np.quantile(pairs, 0.25) + np.median(nearest)) / 2, 0.999), abs=1e-5
    )
    predictions = selector.predict(groups, names)
    similarities = similarity(vectors, selector.threshold)
    selected: list[int] = []
    groups = selector.select_groups(predictions, confirmed, 4)
    for place, (row, *others) in enumerate(groups):
        labelled = [*np.flatnonzero(confirmed), *selected]
        values = {}
        for r in range(rows):
            if r in labelled:
                continue
            values[r] = predictions.uncertainty[r] * sum(
                predictions.uncertainty[s]
                * (1 + np.log(counts[s]))
                * max(0.0, similarities[r, s] - max((similarities[j, s] for j in labelled), default=0.0))
                for s in range(rows)
            )
        assert values[row] == pytest.approx(max(values.values()), rel=1e-4, abs=1e-4), place
        same = [
            other
            for other in range(rows)
            if other not in (row, *labelled)
            and predictions.best[other] == predictions.best[row]
            and similarities[row, other] >= 0.7
        ]
        same.sort(key=lambda other: -similarities[row, other])
        assert others == same[:9], place
        selected += [row, *others]
    assert len(groups) == 4 or len(selected) == int((~confirmed).sum())


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 1000))
def test_uncertainty_is_the_margin_of_a_softmax(seed: int) -> None:
    random = np.random.default_rng(seed)
    vectors = random.normal(size=(20, 6)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    groups = random.integers(-1, 5, 20).astype(np.int32)
    names = {0: "x", 2: "y", 4: "x"}
    selector = QuestionSelector(vectors, np.ones(20, np.int64))
    predictions = selector.predict(groups, names)
    members: dict[object, list[int]] = {}
    for row, group in enumerate(groups.tolist()):
        if group >= 0:
            members.setdefault(names.get(group, group), []).append(row)
    for row in range(20):
        logits = {}
        for key, rows in members.items():
            centre = vectors[rows].mean(0)
            logits[key] = float(vectors[row] @ centre / np.linalg.norm(centre))
        logits["none of these"] = selector.threshold
        scaled = {key: np.exp(value / (1 - selector.threshold) * 8) for key, value in logits.items()}
        probabilities = {key: value / sum(scaled.values()) for key, value in scaled.items()}
        labels = {key: probabilities[key] for key in ("x", "y") if key in probabilities}
        if not labels:
            assert predictions.uncertainty[row] == 1 and name_of(predictions.best[row], predictions) is None
            continue
        best = max(labels, key=lambda key: labels[key])
        margin = labels[best] - max(value for key, value in probabilities.items() if key != best)
        assert predictions.uncertainty[row] == pytest.approx(1 - max(margin, 0), abs=1e-4)
        if abs(margin) > 1e-4:
            assert name_of(predictions.best[row], predictions) == (best if margin > 0 else None)


def test_frequent_utterances_come_first_and_are_asked_once() -> None:
    vectors = np.array([[1, 0, 0], [0, 1, 0], [0, 0, 1]], np.float32)
    state = GroupAssignment(np.full(3, -1, np.int32))
    selector = QuestionSelector(vectors, np.array([1, 90, 8]))
    assert [question.row for question in selector.select(["a", "b", "c"], state, 9)] == [1, 2, 0]
    label_row(state, 1, "b")
    assert [question.row for question in selector.select(["a", "b", "c"], state, 9)] == [2, 0]
    for row in (0, 2):
        label_row(state, row, "c")
    assert selector.select(["a", "b", "c"], state, 9) == []


def test_reasons_explain_the_uncertainty() -> None:
    texts, vectors, topics = texts_and_vectors(80, spread=0.2)
    centre = vectors[0] + vectors[1]
    vectors[0] = centre / np.linalg.norm(centre)  # between the two topics
    state = GroupAssignment(topics.astype(np.int32))
    for topic, name in enumerate("abcd"):
        state.apply(LabelChange("name", names={topic: name}))
    selector = QuestionSelector(vectors, np.ones(80, np.int64))
    predictions = selector.predict(state.groups, state.names)
    assert predictions.uncertainty.argmax() == 0
    assert {name_of(predictions.best[0], predictions), name_of(predictions.runner_up[0], predictions)} == {"a", "b"}
    first = selector.select(texts, state, 80)
    reason = next(question.reason for question in first if question.row == 0)
    assert "a" in reason and "b" in reason
    moved = GroupAssignment(
        np.where(np.arange(80) == 4, 1, topics).astype(np.int32)
    )  # of the first topic, in the group of the second
    for topic, name in enumerate(("boat", "garden", "clock", "bread")):
        moved.apply(LabelChange("name", names={topic: name}))
    moved.confirmed[np.arange(80) != 4] = True
    (wrong,) = selector.select(texts, moved, 80)
    assert wrong.row == 4
    assert wrong.guess == "boat" and wrong.reason.startswith(
        "It is labelled garden but more similar to boat; it represents"
    )


def test_large_maps_are_sampled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(active_learning, "SAMPLE_SIZE", 50)
    texts, vectors, topics = texts_and_vectors(400, spread=0.1)
    selector = QuestionSelector(vectors, np.ones(400, np.int64))
    questions = selector.select(texts, GroupAssignment(np.full(400, -1, np.int32)), 4)
    assert {topics[question.row] for question in questions} == {0, 1, 2, 3}
    again = QuestionSelector(vectors, np.ones(400, np.int64)).select(
        texts, GroupAssignment(np.full(400, -1, np.int32)), 4
    )
    assert questions == again
    assert all(question.text == texts[question.row] and question.guess is None for question in questions)
    assert questions[0].reason.startswith("No similar utterance is labelled yet; it represents")


@pytest.mark.parametrize("rows", [1, 2, 25])
def test_identical_vectors_are_asked_about_together(rows: int) -> None:
    state = GroupAssignment(np.zeros(rows, np.int32))
    selector = QuestionSelector(np.ones((rows, 3), np.float32), np.ones(rows, np.int64))
    groups = [question.rows for question in selector.select(["x"] * rows, state, 5)]
    assert sorted(row for group in groups for row in group) == list(range(rows))
    assert max(map(len, groups)) == min(rows, 10)


def test_a_question_is_about_one_predicted_label() -> None:
    """Utterances that are as similar as others, but predicted to have another label, are asked about separately."""
    vectors = np.random.default_rng(0).normal(size=(60, 8)) * 0.02
    vectors[:20, 0] += 1
    vectors[20:40, 1] += 1
    vectors[40:, 2] += 1
    state = GroupAssignment(np.repeat(np.arange(3, dtype=np.int32), 20))
    for number, name in enumerate("ab"):
        state.apply(LabelChange("name", names={number: name}))
    selector = QuestionSelector(vectors, np.ones(60, np.int64))
    questions = selector.select(["x"] * 60, state, 60)
    assert {question.guess for question in questions} == {"a", "b", None}
    for question in questions:
        assert question.row == question.rows[0]
        assert {row // 20 for row in question.rows} == {{"a": 0, "b": 1, None: 2}[question.guess]}
    assert sorted(row for question in questions for row in question.rows) == list(range(60))
    assert max(len(question.rows) for question in questions) == 10
