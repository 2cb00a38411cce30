"""Probing of frozen encoders, as DiaEval evaluates them: a layer is trained on the vectors, the encoder is not.

The layer's size, dropout, learning rate and weight decay are searched on the validation set, as in SentEval; a data set
without one gives a tenth of its training set, stratified by label. Vectors are not normalised, but standardised by the
training set's mean and standard deviation. The test set is used once, with the chosen layer.
"""

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import numpy.typing as npt
import torch
from sklearn.preprocessing import StandardScaler
from torch import nn
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy

from turnwise.core.types import SupportsEncode, Vectors
from turnwise.evaluation.datasets.dialogues import ActionData, ActionExample, InferenceData, InferenceExample
from turnwise.evaluation.metrics import Outcome
from turnwise.evaluation.tasks.scoring import accuracy, binarise_labels, f1_outcomes, logit_f1_scores
from turnwise.training.finetuning import WeightSnapshot

SETTING = "frozen encoder, MLP"

MAX_LENGTH = 256  # maximum tokens of a history

#: Training of a layer: a validation after every epoch but not before so many steps (small data sets have short epochs),
#: a maximum number of validations, and how many of them without improvement are tolerated.
_BATCH_SIZE = 256
_MIN_STEPS = 50
_MAX_VALIDATIONS = 50
_PATIENCE = 3

_HELD_OUT = 10  # one in so many training examples is held out if a data set has no validation set

Rows = npt.NDArray[np.int64]
Targets = npt.NDArray[np.float32] | Rows
LossFunction = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
ScoreFunction = Callable[[torch.Tensor, torch.Tensor], float]


@dataclass(frozen=True, slots=True)
class ProbeSettings:
    """Hyperparameters of a probe."""

    hidden: int  # units of the hidden layer; 0: labels are a linear function of the vector
    dropout: float  # before the output layer
    #: Of Adam, with an L2 penalty.
    learning_rate: float
    weight_decay: float


#: Every combination, the simplest first.
GRID = tuple(ProbeSettings(*values) for values in itertools.product((0, 128), (0.0, 0.2), (1e-3, 5e-3), (0.0, 1e-3)))


#: Vectors (examples, size) and targets: classes (examples,) or flags (examples, labels).
ProbeData = tuple[Vectors, Targets]


@dataclass(frozen=True, slots=True)
class Probe:
    """A trained layer, with its settings and its score on the validation set."""

    settings: ProbeSettings
    score: float
    _scaler: StandardScaler
    _layers: nn.Module

    def logits(self, vectors: Vectors) -> npt.NDArray[np.float32]:
        """Return the logits of vectors (examples, labels)."""
        with torch.inference_mode():
            logits = self._layers(_to_tensor(self._scaler.transform(vectors)))
        return np.asarray(logits.cpu().numpy(), np.float32)


def probe_actions(
    encoder: SupportsEncode,
    data: ActionData,
    *,
    grid: Sequence[ProbeSettings] = GRID,
    seeds: int = 1,
    steps: int | None = None,
) -> list[Outcome]:
    """Compute micro and macro F1 of the next system actions, with the layer of the best macro F1 for each seed."""
    actions = [[example.actions for example in split] for split in (data.train, data.valid, data.test)]
    strata = [" ".join(sorted(each)) for each in actions[0]]
    vectors = _encode_histories(encoder, data)
    targets = [binarise_labels(each, data.actions).astype(np.float32) for each in actions]
    truth = targets[2] > 0

    def macro_f1(logits: torch.Tensor, targets: torch.Tensor) -> float:
        return logit_f1_scores(logits, targets)[1]

    fit = partial(fit_probe, labels=truth.shape[1], loss=binary_cross_entropy_with_logits, score=macro_f1)
    probes = [
        fit(*_train_and_valid(vectors, targets, strata, seed), grid=grid, seed=seed, steps=steps)
        for seed in range(seeds)
    ]
    predicted = np.stack([probe.logits(vectors[2]) > 0 for probe in probes])
    return f1_outcomes("actions", data.name, SETTING, predicted, truth)


def probe_inference(
    encoder: SupportsEncode,
    data: InferenceData,
    *,
    grid: Sequence[ProbeSettings] = GRID,
    seeds: int = 1,
    steps: int | None = None,
) -> list[Outcome]:
    """Compute the accuracy of dialogue inference, such as whether the last turn contradicts the others."""
    labels = [[example.label for example in split] for split in (data.train, data.valid, data.test)]
    index = {label: number for number, label in enumerate(data.labels)}
    vectors = _encode_histories(encoder, data)
    targets = [np.array([index[label] for label in each], np.int64) for each in labels]
    fit = partial(fit_probe, labels=len(index), loss=cross_entropy, score=accuracy)
    probes = [
        fit(*_train_and_valid(vectors, targets, labels[0], seed), grid=grid, seed=seed, steps=steps)
        for seed in range(seeds)
    ]
    correct = np.stack([probe.logits(vectors[2]).argmax(1) == targets[2] for probe in probes]).astype(np.float64)
    return [Outcome("inference", data.name, SETTING, "accuracy", correct)]


def fit_probe(
    train: ProbeData,
    valid: ProbeData,
    labels: int,
    loss: LossFunction,
    score: ScoreFunction,
    *,
    grid: Sequence[ProbeSettings] = GRID,
    seed: int = 0,
    steps: int | None = None,
) -> Probe:
    """Train a layer for all settings of a grid and return the (first) one with the best validation score.

    Each is trained by Adam, for at most `steps` steps, until the validation score has not improved a few times, and
    keeps the weights of the best. The layer has `labels` outputs, the logits that loss and score get with the targets.
    """
    scaler = StandardScaler().fit(train[0])
    tensors = [_to_tensor(each) for vectors, targets in (train, valid) for each in (scaler.transform(vectors), targets)]
    probes = []
    for settings in grid:
        torch.manual_seed(seed)
        layers, best = _train_layers(settings, tensors, labels, loss, score, steps)
        probes.append(Probe(settings, best, scaler, layers))
    return max(probes, key=lambda probe: probe.score)


def _train_layers(
    settings: ProbeSettings,
    tensors: Sequence[torch.Tensor],
    labels: int,
    loss: LossFunction,
    score: ScoreFunction,
    steps: int | None,
) -> tuple[nn.Module, float]:
    """Train the layers of one setting; return them with their score on the last two tensors."""
    vectors, targets, valid_vectors, valid_targets = tensors
    size = vectors.shape[1]
    hidden = [nn.Linear(size, settings.hidden), nn.ReLU()] if settings.hidden else []
    output = nn.Linear(settings.hidden or size, labels)
    layers = nn.Sequential(*hidden, nn.Dropout(settings.dropout), output).to(vectors.device)
    optimizer = torch.optim.Adam(
        layers.parameters(), settings.learning_rate, weight_decay=settings.weight_decay, fused=True
    )
    snapshot, best, without_improvement, done = WeightSnapshot(layers), -np.inf, 0, 0
    epochs = math.ceil(_MIN_STEPS / math.ceil(len(vectors) / _BATCH_SIZE))
    for _ in range(_MAX_VALIDATIONS):
        layers.train()
        orders = (torch.randperm(len(vectors), device=vectors.device) for _ in range(epochs))
        batches = [rows for order in orders for rows in order.split(_BATCH_SIZE)]
        for rows in batches if steps is None else batches[: steps - done]:
            done += 1
            optimizer.zero_grad(set_to_none=True)
            loss(layers(vectors[rows]), targets[rows]).backward()
            optimizer.step()
        layers.eval()
        with torch.inference_mode():
            current = score(layers(valid_vectors), valid_targets)
        without_improvement += 1
        if current > best:
            best, without_improvement = current, 0
            snapshot.update()
        if without_improvement > _PATIENCE or done == steps:
            break
    snapshot.restore()
    return layers, best


def _encode_histories(encoder: SupportsEncode, data: ActionData | InferenceData) -> list[Vectors]:
    """Return the vectors of each split's histories, from one call."""
    splits: list[Sequence[ActionExample | InferenceExample]] = [data.train, data.valid, data.test]
    histories = [list(example.turns) for split in splits for example in split]
    vectors = encoder.encode(histories, normalise=False, max_length=MAX_LENGTH)
    return np.split(vectors, np.cumsum([len(split) for split in splits])[:-1])


def _train_and_valid(
    vectors: Sequence[Vectors], targets: Sequence[Targets], strata: Sequence[str], seed: int
) -> tuple[ProbeData, ProbeData]:
    """Return training and validation data; the latter is part of the former if the data set has none."""
    if len(vectors[1]):
        return (vectors[0], targets[0]), (vectors[1], targets[1])
    train, valid = stratified_split(strata, seed)
    return (vectors[0][train], targets[0][train]), (vectors[0][valid], targets[0][valid])


def stratified_split(strata: Sequence[str], seed: int) -> tuple[Rows, Rows]:
    """Split examples into nine tenths and one tenth, with nearly equal proportions of each stratum."""
    random = np.random.default_rng(seed)
    # sorted by stratum, in random order within: taking every tenth gives a tenth of each stratum
    order = np.lexsort((random.random(len(strata)), np.unique(np.asarray(strata), return_inverse=True)[1]))
    held_out = order[random.integers(_HELD_OUT) :: _HELD_OUT]
    return np.setdiff1d(order, held_out), np.sort(held_out)


def _to_tensor(values: Targets) -> torch.Tensor:
    return torch.as_tensor(values, device="cuda" if torch.cuda.is_available() else "cpu")
