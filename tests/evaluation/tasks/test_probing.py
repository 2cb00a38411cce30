"""A probing layer is as good as scikit-learn's logistic regression, and chosen without the test set."""

import itertools
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import f1_score
from sklearn.preprocessing import StandardScaler
from torch.nn.functional import cross_entropy

from turnwise.core.dialogue import Turn
from turnwise.evaluation.datasets.dialogues import ActionData, ActionExample, InferenceData, InferenceExample
from turnwise.evaluation.metrics import compute_per_run
from turnwise.evaluation.tasks import probing
from turnwise.evaluation.tasks.probing import (
    GRID,
    ProbeData,
    ProbeSettings,
    fit_probe,
    probe_actions,
    probe_inference,
    stratified_split,
)

#: A corner of the grid, for tests that are not about the search, and a few of its points for those that are.
SMALL = (ProbeSettings(0, 0.0, 5e-3, 0.0),)
FEW = GRID[2::7]


@pytest.fixture(autouse=True)
def few_validations(monkeypatch: pytest.MonkeyPatch) -> None:
    """Train each layer for less time."""
    monkeypatch.setattr(probing, "_MAX_VALIDATIONS", 12)


class Lookup:
    """An encoder that reads the vector off the last turn: '0.5 -1.25 …'; it records its calls."""

    def __init__(self) -> None:
        self.requests: list[tuple[int, bool | None, int | None]] = []

    def encode(
        self, inputs: Sequence[Sequence[Turn]], *, normalise: bool | None = None, max_length: int | None = None
    ) -> npt.NDArray[np.float32]:
        self.requests.append((sum(len(turns) for turns in inputs), normalise, max_length))
        return np.array([[float(number) for number in turns[-1].text.split()] for turns in inputs], np.float32)


def turns(vector: npt.NDArray[np.float64]) -> tuple[Turn, ...]:
    return Turn("user", "hello"), Turn("system", " ".join(f"{number:.4f}" for number in vector))


def inference_data(sizes: tuple[int, int, int] = (300, 100, 200), seed: int = 0) -> InferenceData:
    """Three classes that a plane tells apart but for some noise; one column is constant, and scales differ."""
    random = np.random.default_rng(seed)
    planes = random.normal(size=(6, 3))

    def examples(count: int) -> tuple[InferenceExample, ...]:
        points = random.normal(size=(count, 6))
        labels = (points @ planes + 0.3 * random.normal(size=(count, 3))).argmax(1)
        seen = np.concatenate([points * [1, 10, 0.1, 1, 100, 1], np.ones((count, 1))], 1)
        return tuple(
            InferenceExample(turns(vector), f"class {label}") for vector, label in zip(seen, labels, strict=True)
        )

    return InferenceData("toy", *(examples(size) for size in sizes))


def action_data(sizes: tuple[int, int, int] = (300, 100, 200)) -> ActionData:
    random = np.random.default_rng(1)
    planes = random.normal(size=(6, 4))

    def examples(count: int) -> tuple[ActionExample, ...]:
        points = random.normal(size=(count, 6))
        there = points @ planes > 1
        return tuple(
            ActionExample(turns(point), tuple(f"act {action}" for action in np.flatnonzero(flagged)))
            for point, flagged in zip(points, there, strict=True)
        )

    return ActionData("toy", *(examples(size) for size in sizes))


def arrays(split: Sequence[InferenceExample]) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.int64]]:
    vectors = Lookup().encode([example.turns for example in split])
    return vectors, np.array([int(example.label[-1]) for example in split])


def test_inference_is_as_good_as_logistic_regression() -> None:
    data, encoder = inference_data(), Lookup()
    outcome = probe_inference(encoder, data, grid=FEW)[0]
    assert outcome.key == ("inference", "toy", "frozen encoder, MLP", "accuracy")
    assert outcome.evidence.shape == (1, 200)
    assert {point.hidden for point in FEW} == {0, 128}
    assert encoder.requests == [(2 * 600, False, 256)]  # everything at once, and vectors as they are
    (train, classes), (test, truth) = arrays(data.train), arrays(data.test)
    scaler = StandardScaler().fit(train)
    known = LogisticRegression(max_iter=1000).fit(scaler.transform(train), classes).score(scaler.transform(test), truth)
    assert known > 0.8
    assert outcome.evidence.mean() > known - 0.03


def test_actions_are_as_good_as_logistic_regressions() -> None:
    data, encoder = action_data(), Lookup()
    micro, macro = probe_actions(encoder, data, grid=FEW)
    assert micro.key == ("actions", "toy", "frozen encoder, MLP", "Micro F1")
    train, test = (Lookup().encode([example.turns for example in split]) for split in (data.train, data.test))
    predicted, truth = [], []
    for action in data.actions:
        learnt, requests = (
            np.array([action in example.actions for example in split]) for split in (data.train, data.test)
        )
        predicted.append(LogisticRegression(max_iter=1000).fit(train, learnt).predict(test))
        truth.append(requests)
    for outcome, average in ((micro, "micro"), (macro, "macro")):
        known = f1_score(np.stack(truth, 1), np.stack(predicted, 1), average=average, zero_division=0)
        assert compute_per_run(outcome.statistic, outcome.table)[0] > known - 0.03


def test_what_a_plane_cannot_tell_apart_takes_a_hidden_layer() -> None:
    """Exclusive or: the search finds that the linear points of the grid will not do."""
    random = np.random.default_rng(0)

    def examples(count: int) -> ProbeData:
        points = random.normal(size=(count, 2)).astype(np.float32)
        return points, (points[:, 0] * points[:, 1] > 0).astype(np.int64)

    train, valid, test = examples(600), examples(200), examples(200)
    probe = fit_probe(train, valid, 2, cross_entropy, accuracy, grid=FEW)
    assert probe.settings.hidden
    assert (probe.logits(test[0]).argmax(1) == test[1]).mean() > 0.85


def accuracy(logits: torch.Tensor, targets: torch.Tensor) -> float:
    return float((logits.argmax(1) == targets).float().mean())


def test_the_point_is_chosen_by_validation() -> None:
    """A rate of nearly nothing cannot win, wherever it stands; of equals the first is taken."""
    (train, classes), (valid, requests) = (arrays(split) for split in (inference_data().train, inference_data().valid))
    good, idle = SMALL[0], ProbeSettings(0, 0.0, 1e-9, 0.0)
    for grid in ((good, idle), (idle, good)):
        probe = fit_probe((train, classes), (valid, requests), 3, cross_entropy, accuracy, grid=grid)
        assert probe.settings == good
        assert probe.score == pytest.approx((probe.logits(valid).argmax(1) == requests).mean())
    level = fit_probe((train, classes), (valid, requests), 3, cross_entropy, lambda *_: 0.5, grid=(idle, good))
    assert level.settings == idle


@pytest.mark.parametrize(("steps", "made"), [(1, 1), (70, 70), (None, 12 * 50)])
def test_so_many_steps_are_made_at_most(steps: int | None, made: int) -> None:
    """Of a layer that is better at every validation, each after 50 steps."""
    (train, classes), (valid, requests) = (arrays(split) for split in (inference_data().train, inference_data().valid))
    better = itertools.count()
    losses = 0

    def loss(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        nonlocal losses
        losses += 1
        return cross_entropy(logits, targets)

    grid = (ProbeSettings(0, 0.0, 1e-3, 0.0),)
    fit_probe((train, classes), (valid, requests), 3, loss, lambda *_: float(next(better)), grid=grid, steps=steps)
    assert losses == made


def test_the_test_set_has_no_say() -> None:
    """With its labels exchanged, exactly the same is predicted: what was right is wrong."""
    data = inference_data()
    data = replace(
        data,
        **{
            name: tuple(example for example in getattr(data, name) if example.label != "class 2")
            for name in ("train", "valid", "test")
        },
    )
    grid = (ProbeSettings(0, 0.0, 5e-2, 0.0), ProbeSettings(16, 0.2, 5e-2, 0.0))
    exchanged = {"class 0": "class 1", "class 1": "class 0"}
    other = replace(data, test=tuple(InferenceExample(each.turns, exchanged[each.label]) for each in data.test))
    first, second = (probe_inference(Lookup(), each, grid=grid)[0].evidence for each in (data, other))
    assert np.array_equal(first, 1 - second)


def test_equal_seeds_give_equal_metrics() -> None:
    data = inference_data()
    grid = (ProbeSettings(16, 0.2, 5e-2, 0.0),)
    torch.manual_seed(1)
    first = probe_inference(Lookup(), data, grid=grid)[0].evidence
    torch.manual_seed(2)
    assert np.array_equal(first, probe_inference(Lookup(), data, grid=grid)[0].evidence)


def test_without_a_validation_set_a_tenth_is_held_out() -> None:
    data = inference_data((300, 0, 100))
    assert probe_inference(Lookup(), data, grid=SMALL)[0].evidence.mean() > 0.75
    few = probe_actions(Lookup(), action_data((300, 0, 100)), grid=SMALL)
    assert few[0].evidence.shape == (1, 100, 2)


@settings(deadline=None)
@given(st.lists(st.sampled_from("abc"), min_size=10, max_size=200), st.integers(0, 9))
def test_held_out_examples_are_stratified(labels: list[str], seed: int) -> None:
    kept, held_out = stratified_split(labels, seed)
    assert sorted([*kept, *held_out]) == list(range(len(labels)))
    assert len(held_out) in (len(labels) // 10, -(-len(labels) // 10))
    held_out_labels = Counter(labels[row] for row in held_out)
    for label, count in Counter(labels).items():
        assert abs(held_out_labels[label] - count / 10) < 1
