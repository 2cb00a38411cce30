"""Fine-tuning: learning, determinism, early stopping, and the final weights."""

import copy
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.nn.functional import cross_entropy

from tests.helpers import tiny
from turnwise.core.errors import TrainingError
from turnwise.models.encoder import Encoder
from turnwise.objectives.losses import simclr
from turnwise.training.finetuning import (
    BatchLoss,
    FineTuningResult,
    FineTuningSettings,
    ValidationScore,
    WeightSnapshot,
    compute_outputs,
    fine_tune,
    linear_head,
)

SETTINGS = FineTuningSettings(10, 4, 5e-3, evaluate_every=5, patience=5, max_length=16, dropout=0.1)


@pytest.fixture(scope="module")
def loaded(tiny_folder: Callable[[str], Path]) -> Encoder:
    return Encoder.load(tiny_folder("bert"), device="cpu")


@pytest.fixture
def encoder(loaded: Encoder) -> Encoder:
    """Return a copy for every test."""
    return copy.deepcopy(loaded)


def texts(count: int, seed: int) -> tuple[list[str], list[int]]:
    """Return texts of two classes that differ in one word: hotel or taxi."""
    random = np.random.default_rng(seed)
    labels = random.integers(0, 2, count).tolist()
    words = ["hotel", "taxi"]
    return [
        f"{' '.join(random.choice(['i', 'want', 'please', 'a', 'now'], 4))} {words[label]}" for label in labels
    ], labels


def classification(encoder: Encoder, count: int = 24) -> tuple[list[tuple[np.ndarray]], BatchLoss]:
    actual, labels = texts(count, 1)
    targets = torch.tensor(labels)

    def loss(outputs: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
        return cross_entropy(outputs[0], targets[rows])

    return [(sequence,) for sequence in encoder.tokenise(actual, 16)], loss


def accuracy(count: int, seed: int) -> Callable[[Encoder, nn.Module], float]:
    actual, labels = texts(count, seed)

    def score(encoder: Encoder, head: nn.Module) -> float:
        return float(
            (compute_outputs(encoder, head, encoder.tokenise(actual)).argmax(1) == torch.tensor(labels)).float().mean()
        )

    return score


def state(*modules: nn.Module) -> list[torch.Tensor]:
    return [value.clone() for module in modules for value in module.state_dict().values()]


def equal(first: list[torch.Tensor], second: list[torch.Tensor]) -> bool:
    return all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


def scripted(scores: list[float], seen: list[list[torch.Tensor]] | None = None) -> ValidationScore:
    """Return a validation score with given values, which also records the weights."""
    left = iter(scores)

    def score(encoder: Encoder, head: nn.Module) -> float:
        assert not encoder.training
        assert not head.training
        assert torch.is_inference_mode_enabled()
        if seen is not None:
            with torch.inference_mode(False):
                seen.append(state(encoder, head))
        return next(left)

    return score


def test_separable_texts_are_learnt(encoder: Encoder) -> None:
    examples, loss = classification(encoder)
    head = linear_head(encoder.hidden, 2, 0.1, 0)
    test = accuracy(60, 3)
    before = test(encoder, head)
    result = fine_tune(encoder, head, examples, loss, settings=SETTINGS, score=accuracy(24, 2), seed=0)
    assert before < 0.8
    assert result.score > 0.9
    assert test(encoder, head) > 0.9
    assert not encoder.training


def test_equal_seeds_give_equal_weights() -> None:
    ends = []
    for seed in (0, 0, 1):
        own = Encoder.load(tiny.backbone(), device="cpu")  # with dropout, so that chance has a part in it
        examples, loss = classification(own)
        head = linear_head(own.hidden, 2, 0.1, 0)
        torch.manual_seed(len(ends))  # what happened before must not matter
        fine_tune(own, head, examples, loss, settings=replace(SETTINGS, steps=3), score=scripted([0.0, 1.0]), seed=seed)
        ends.append(state(own, head))
    assert equal(ends[0], ends[1])
    assert not equal(ends[0], ends[2])


def test_the_best_weights_are_restored(encoder: Encoder) -> None:
    examples, loss = classification(encoder)
    head = linear_head(encoder.hidden, 2, 0.1, 0)
    seen: list[list[torch.Tensor]] = []
    scores = [0.1, 0.2, 0.5, 0.4, 0.5]
    chosen = replace(SETTINGS, steps=20)
    result = fine_tune(encoder, head, examples, loss, settings=chosen, score=scripted(scores, seen), seed=0)
    assert result == FineTuningResult(0.5, 10, 20)  # the first of equals
    assert len(seen) == 5
    assert equal(state(encoder, head), seen[2])
    assert not equal(seen[2], seen[4])


def test_without_a_validation_set_the_last_weights_are_kept(encoder: Encoder) -> None:
    """The weights equal those of a run whose last validation is the best."""
    chosen = replace(SETTINGS, steps=7)
    ends = []
    for score in (None, scripted([0.0, 0.1, 0.2])):
        own = copy.deepcopy(encoder)
        examples, loss = classification(own)
        head = linear_head(own.hidden, 2, 0.1, 0)
        result = fine_tune(own, head, examples, loss, settings=chosen, score=score, seed=0)
        assert (result.best, result.steps) == (7, 7)
        ends.append(state(own, head))
    assert equal(*ends)


def test_initial_weights_are_restored_if_nothing_improves(encoder: Encoder) -> None:
    examples, loss = classification(encoder)
    head = linear_head(encoder.hidden, 2, 0.1, 0)
    before = state(encoder, head)
    result = fine_tune(encoder, head, examples, loss, settings=SETTINGS, score=lambda *_: 0.5, seed=0)
    assert result.best == 0
    assert equal(before, state(encoder, head))


@pytest.mark.parametrize(
    ("every", "examples", "patience", "stops"),
    [
        (5, 4, 2, 15),  # an epoch a step: validations count, and the third without improvement is one too many
        (1, 16, 2, 9),  # four steps an epoch: two epochs are waited for
        (3, 16, 2, 9),
        (5, 16, 100, 80),  # patience outlasts the run of 20 epochs
    ],
)
def test_early_stopping(encoder: Encoder, every: int, examples: int, patience: int, stops: int) -> None:
    sequences, loss = classification(encoder, examples)
    chosen = replace(SETTINGS, epochs=20, evaluate_every=every, patience=patience)
    head = linear_head(encoder.hidden, 2, 0.1, 0)
    result = fine_tune(encoder, head, sequences, loss, settings=chosen, score=lambda *_: 0.5, seed=0)
    assert (result.best, result.steps) == (0, stops)


def test_the_last_of_limited_steps_is_validated(encoder: Encoder) -> None:
    examples, loss = classification(encoder)
    head = linear_head(encoder.hidden, 2, 0.1, 0)
    score = scripted([0.0, 0.1, 0.2])
    result = fine_tune(encoder, head, examples, loss, settings=replace(SETTINGS, steps=7), score=score, seed=0)
    assert result == FineTuningResult(0.2, 7, 7)


def test_every_example_is_used_once_per_epoch(encoder: Encoder) -> None:
    sequences, loss = classification(encoder, 10)
    seen: list[list[int]] = []

    def recording_loss(outputs: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
        seen.append(rows.tolist())
        return loss(outputs, rows)

    chosen = replace(SETTINGS, epochs=2)
    fine_tune(
        encoder,
        linear_head(encoder.hidden, 2, 0, 0),
        sequences,
        recording_loss,
        settings=chosen,
        score=lambda *_: 0.0,
        seed=0,
    )
    assert [len(rows) for rows in seen] == [4, 4, 2, 4, 4, 2]
    first, second = ([row for rows in epoch for row in rows] for epoch in (seen[:3], seen[3:]))
    assert sorted(first) == sorted(second) == list(range(10))
    assert first != second


def test_the_loss_receives_both_sequences_of_a_pair(encoder: Encoder) -> None:
    """Without dropout, the first step's outputs equal the encoder's vectors."""
    left, right = (
        encoder.tokenise(["a hotel now", "taxi", "yes"]),
        encoder.tokenise(["no", "where is the train", "one two"]),
    )
    expected = torch.stack([compute_outputs(encoder, nn.Identity(), side) for side in (left, right)])
    seen: list[tuple[torch.Tensor, torch.Tensor]] = []

    def loss(outputs: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
        seen.append((outputs.detach(), rows))
        return simclr(outputs[0], outputs[1], 0.05)

    pairs = list(zip(left, right, strict=True))
    fine_tune(encoder, nn.Identity(), pairs, loss, settings=replace(SETTINGS, steps=1), score=lambda *_: 0.0, seed=0)
    outputs, rows = seen[0]
    torch.testing.assert_close(outputs, expected[:, rows])


def test_invalid_training_data_and_losses_are_rejected(encoder: Encoder) -> None:
    examples, loss = classification(encoder)
    head = linear_head(encoder.hidden, 2, 0.1, 0)
    with pytest.raises(TrainingError, match="no examples"):
        fine_tune(encoder, head, [], loss, settings=SETTINGS, score=lambda *_: 0.0, seed=0)
    with pytest.raises(TrainingError, match="loss of fine-tuning is nan"):
        fine_tune(
            encoder,
            head,
            examples,
            lambda outputs, _: outputs.mean() * np.nan,
            settings=SETTINGS,
            score=lambda *_: 0.0,
            seed=0,
        )
    with pytest.raises(TrainingError, match="the validation score is not a number"):
        fine_tune(encoder, head, examples, loss, settings=SETTINGS, score=lambda *_: np.nan, seed=0)


@pytest.mark.parametrize(("requested", "expected"), [(0.0, 0.0), (None, 0.1)])
def test_attention_dropout_is_off_by_default(requested: float | None, expected: float) -> None:
    own = Encoder.load(tiny.backbone(), device="cpu")
    examples, loss = classification(own)
    chosen = replace(SETTINGS, steps=1, attention_dropout=requested)
    fine_tune(own, linear_head(own.hidden, 2, 0.1, 0), examples, loss, settings=chosen, score=lambda *_: 0.0, seed=0)
    assert own.backbone.attention_dropout == expected
    assert own.backbone.config.hidden_dropout_prob == 0.1


def test_inputs_are_truncated(encoder: Encoder) -> None:
    """A text loses its end, at the requested length or at that of the model."""
    text = "i want to book a table now please"
    assert np.array_equal(encoder.encode([text], max_length=5), encoder.encode(["i want to"]))
    assert len(encoder.tokenise([text * 20], 1_000)[0]) == encoder.max_length


def test_a_snapshot_can_be_restored_repeatedly(encoder: Encoder) -> None:
    start = WeightSnapshot(encoder)
    before = state(encoder)
    for _ in range(2):
        with torch.no_grad():
            for parameter in encoder.parameters():
                parameter.add_(1)
        assert not equal(before, state(encoder))
        start.restore()
        assert equal(before, state(encoder))


def test_outputs_are_in_input_order(encoder: Encoder) -> None:
    sequences = encoder.tokenise(["a b c hotel", "taxi", "where is the train", "no"])
    head = linear_head(encoder.hidden, 3, 0.5, 0)
    together = compute_outputs(encoder, head, sequences)
    torch.testing.assert_close(together, torch.cat([compute_outputs(encoder, head, [each]) for each in sequences]))


@given(st.integers(1, 6), st.integers(0, 99), st.sampled_from([0.05, 0.5, 1.0]))
def test_simclr_equals_a_direct_implementation(pairs: int, seed: int, temperature: float) -> None:
    random = np.random.default_rng(seed)
    first, second = random.normal(size=(2, pairs, 5))
    vectors = np.concatenate([first, second])
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    losses = []
    for anchor in range(2 * pairs):
        terms = {
            other: np.exp(vectors[anchor] @ vectors[other] / temperature)
            for other in range(2 * pairs)
            if other != anchor
        }
        losses.append(-np.log(terms[(anchor + pairs) % (2 * pairs)] / sum(terms.values())))
    actual = simclr(torch.from_numpy(first), torch.from_numpy(second), temperature)
    assert float(actual) == pytest.approx(np.mean(losses), abs=1e-9)
