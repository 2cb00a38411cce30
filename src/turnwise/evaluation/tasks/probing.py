"""What a frozen encoder's vectors hold, as DiaEval measures it: one layer is trained on top of them, the encoder is left alone.

The layer's size, dropout, learning rate and weight decay are searched on the validation set, as in SentEval; a data set without one
gives a tenth of its training set, drawn label by label. Vectors are not normalised, but standardised by the training set's mean and
deviation. The test set is looked at once, by the chosen layer.
"""

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from sklearn.preprocessing import StandardScaler
from torch import nn
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy

from turnwise.core.dialogue import Turn
from turnwise.core.types import SupportsEncode
from turnwise.evaluation.datasets.actions import ActionData
from turnwise.evaluation.datasets.inference import InferenceData
from turnwise.evaluation.metrics import Outcome
from turnwise.evaluation.tasks.multilabel import f1_outcomes, f1_scores, flags
from turnwise.training.finetuning import WeightSnapshot

SETTING = "frozen encoder, MLP"

#: Tokens of a history.
MAX_LENGTH = 256

#: Rows a step. A validation comes after every epoch, but not before so many steps: small data sets have short epochs. So many
#: validations are made at most, and more than so many without improvement end the training.
_BATCH = 256
_STEPS = 50
_VALIDATIONS = 50
_PATIENCE = 3

#: One of so many training examples is held out where a data set has no validation set.
_HELD_OUT = 10

Vectors = npt.NDArray[np.float32]
Rows = npt.NDArray[np.int64]
Loss = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
Measure = Callable[[torch.Tensor, torch.Tensor], float]


@dataclass(frozen=True, slots=True)
class Point:
    """What is searched for.

    Attributes:
        hidden: units of the layer between the vector and the labels; 0: none, labels are a linear function of the vector.
        dropout: before the labels.
        learning_rate: Adam's.
        weight_decay: as a penalty on squared weights.
    """

    hidden: int
    dropout: float
    learning_rate: float
    weight_decay: float


#: Every combination, the simplest first.
GRID = tuple(Point(*values) for values in itertools.product((0, 128), (0.0, 0.2), (1e-3, 5e-3), (0.0, 1e-3)))


@dataclass(frozen=True, slots=True)
class Examples:
    """Vectors (examples, size) and what is to be said of them: classes (examples,) or flags (examples, labels)."""

    vectors: Vectors
    targets: npt.NDArray[np.float32] | Rows


@dataclass(frozen=True, slots=True)
class Probe:
    """A trained layer.

    Attributes:
        point: what was chosen.
        score: on the validation set.
    """

    point: Point
    score: float
    _scaler: StandardScaler
    _layers: nn.Module

    def logits(self, vectors: Vectors) -> npt.NDArray[np.float32]:
        """What it says of vectors (examples, labels)."""
        with torch.inference_mode():
            said = self._layers(_tensor(self._scaler.transform(vectors)))
        return np.asarray(said.cpu().numpy(), np.float32)


def probe_actions(
    encoder: SupportsEncode,
    data: ActionData,
    *,
    grid: Sequence[Point] = GRID,
    seeds: int = 1,
    steps: int | None = None,
    max_length: int = MAX_LENGTH,
    turns: int | None = None,
) -> list[Outcome]:
    """Micro and Macro F1 of the next system actions; an action is predicted where its sigmoid is above 0.5.

    The layer is chosen by Macro F1, the benchmark's measure of this task.

    Args:
        encoder: gives the vectors.
        data: histories and the actions that follow.
        grid: what to search.
        seeds: runs, each with a search of its own.
        steps: of training a layer at most, for trials; None: until its validation tells.
        max_length: tokens of a history, the newest.
        turns: of a history at most, the newest; None: all.
    """
    splits = (data.train, data.valid, data.test)
    actions = [[example.actions for example in split] for split in splits]
    strata = [" ".join(sorted(each)) for each in actions[0]]
    vectors = _encoded(encoder, [[example.turns for example in split] for split in splits], max_length, turns)
    targets = [flags(each, data.actions).astype(np.float32) for each in actions]
    truth = targets[2] > 0
    predicted = np.empty((seeds, *truth.shape), np.bool_)
    for seed in range(seeds):
        train, valid = _splits(vectors, targets, strata, seed)
        probe = fit_probe(
            train, valid, truth.shape[1], binary_cross_entropy_with_logits, _macro_f1, grid=grid, seed=seed, steps=steps
        )
        predicted[seed] = probe.logits(vectors[2]) > 0
    return f1_outcomes("actions", data.name, SETTING, predicted, truth)


def probe_inference(
    encoder: SupportsEncode,
    data: InferenceData,
    *,
    grid: Sequence[Point] = GRID,
    seeds: int = 1,
    steps: int | None = None,
    max_length: int = MAX_LENGTH,
) -> list[Outcome]:
    """Accuracy of what is to be inferred from a conversation, such as whether its last turn contradicts the others.

    Args:
        encoder: gives the vectors.
        data: conversations and their labels.
        grid: what to search.
        seeds: runs, each with a search of its own.
        steps: of training a layer at most, for trials; None: until its validation tells.
        max_length: tokens of a conversation, the newest.
    """
    splits = (data.train, data.valid, data.test)
    labels = [[example.label for example in split] for split in splits]
    number = {label: index for index, label in enumerate(data.labels)}
    vectors = _encoded(encoder, [[example.turns for example in split] for split in splits], max_length, None)
    targets = [np.array([number[label] for label in each], np.int64) for each in labels]
    right = np.empty((seeds, len(targets[2])))
    for seed in range(seeds):
        train, valid = _splits(vectors, targets, labels[0], seed)
        probe = fit_probe(train, valid, len(number), cross_entropy, _accuracy, grid=grid, seed=seed, steps=steps)
        right[seed] = probe.logits(vectors[2]).argmax(1) == targets[2]
    return [Outcome("inference", data.name, SETTING, "accuracy", right)]


def fit_probe(
    train: Examples,
    valid: Examples,
    labels: int,
    loss: Loss,
    measure: Measure,
    *,
    grid: Sequence[Point] = GRID,
    seed: int = 0,
    steps: int | None = None,
) -> Probe:
    """The layer with the best validation of all points of a grid, the earliest of equals.

    Each is trained by Adam until the validation has not improved a few times, and keeps the weights of the best.

    Args:
        train: to learn from.
        valid: to stop and to choose by.
        labels: how many there are.
        loss: of logits and targets.
        measure: of logits and targets; higher is better.
        grid: what to search.
        seed: of first weights, order and dropout.
        steps: of each at most, for trials; None: until its validation tells.
    """
    scaler = StandardScaler().fit(train.vectors)
    tensors = [_tensor(each) for part in (train, valid) for each in (scaler.transform(part.vectors), part.targets)]
    probes = []
    for point in grid:
        torch.manual_seed(seed)
        layers, score = _trained(point, *tensors, labels=labels, loss=loss, measure=measure, steps=steps)
        probes.append(Probe(point, score, scaler, layers))
    return max(probes, key=lambda probe: probe.score)


def _trained(
    point: Point,
    vectors: torch.Tensor,
    targets: torch.Tensor,
    valid: torch.Tensor,
    asked: torch.Tensor,
    *,
    labels: int,
    loss: Loss,
    measure: Measure,
    steps: int | None,
) -> tuple[nn.Module, float]:
    """The layer of one point, and how good it is on the validation set."""
    size = vectors.shape[1]
    hidden = [nn.Linear(size, point.hidden), nn.ReLU()] if point.hidden else []
    layers = nn.Sequential(*hidden, nn.Dropout(point.dropout), nn.Linear(point.hidden or size, labels)).to(
        vectors.device
    )
    optimizer = torch.optim.Adam(layers.parameters(), point.learning_rate, weight_decay=point.weight_decay, fused=True)
    best, score, waited, made = WeightSnapshot(layers), -np.inf, 0, 0
    epochs = math.ceil(_STEPS / math.ceil(len(vectors) / _BATCH))
    for _ in range(_VALIDATIONS):
        layers.train()
        batches = [
            rows for _ in range(epochs) for rows in torch.randperm(len(vectors), device=vectors.device).split(_BATCH)
        ]
        for rows in batches if steps is None else batches[: steps - made]:
            made += 1
            optimizer.zero_grad(set_to_none=True)
            loss(layers(vectors[rows]), targets[rows]).backward()
            optimizer.step()
        layers.eval()
        with torch.inference_mode():
            found = measure(layers(valid), asked)
        if found > score:
            score, waited = found, 0
            best.update()
        elif (waited := waited + 1) > _PATIENCE:
            break
        if made == steps:
            break
    best.restore()
    return layers, score


def _encoded(
    encoder: SupportsEncode, splits: Sequence[Sequence[Sequence[Turn]]], max_length: int, turns: int | None
) -> list[Vectors]:
    """The vectors of each split's histories, from one call."""
    histories = [list(history[-turns:] if turns else history) for split in splits for history in split]
    vectors = encoder.encode(histories, normalise=False, max_length=max_length)
    return np.split(vectors, np.cumsum([len(split) for split in splits])[:-1])


def _splits(
    vectors: Sequence[Vectors], targets: Sequence[npt.NDArray[np.float32] | Rows], strata: Sequence[str], seed: int
) -> tuple[Examples, Examples]:
    """Training and validation examples, the latter of the former where the data set has none."""
    if len(vectors[1]):
        return Examples(vectors[0], targets[0]), Examples(vectors[1], targets[1])
    kept, held_out = stratified(strata, seed)
    return Examples(vectors[0][kept], targets[0][kept]), Examples(vectors[0][held_out], targets[0][held_out])


def stratified(strata: Sequence[str], seed: int) -> tuple[Rows, Rows]:
    """Nine tenths and one tenth of examples, each stratum's share in both as near to its share in all as can be."""
    random = np.random.default_rng(seed)
    # side by side by stratum, in random order within: every tenth of the row then holds a tenth of each stratum
    order = np.lexsort((random.random(len(strata)), np.unique(np.asarray(strata), return_inverse=True)[1]))
    held_out = order[random.integers(_HELD_OUT) :: _HELD_OUT]
    return np.setdiff1d(order, held_out), np.sort(held_out)


def _tensor(values: npt.NDArray[np.float32] | Rows) -> torch.Tensor:
    return torch.as_tensor(values, device="cuda" if torch.cuda.is_available() else "cpu")


def _macro_f1(logits: torch.Tensor, targets: torch.Tensor) -> float:
    return f1_scores((logits > 0).cpu().numpy(), (targets > 0).cpu().numpy())[1]


def _accuracy(logits: torch.Tensor, targets: torch.Tensor) -> float:
    return float((logits.argmax(1) == targets).float().mean())
