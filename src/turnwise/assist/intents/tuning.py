"""Contrastive tuning: fits an encoder to a few examples per intent, and a classifier to the tuned encoder.

A step takes P groups of K examples, each group of one intent, and pulls every example towards all others of its intent
in the batch and away from the rest (supervised contrastive loss). A step compares (P·K)² pairs; no list of all pairs,
which would grow quadratically, is ever built. Every epoch groups each intent's examples anew. A last group that is not
full is filled with other examples of the intent, or with the same ones if there are fewer than K: dropout makes two
different vectors of one text.

A tuned encoder places the examples it was tuned on closer to their intent than new texts, so that leaving out single
examples is not enough for calibration: the encoder is tuned again for every fold, without the examples of the fold.
"""

import copy
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from turnwise.assist.intents import heads
from turnwise.assist.intents.calibration import CalibrationData
from turnwise.assist.intents.examples import IntentExamples, IntentPair, validate_pairs, validate_vectors
from turnwise.assist.intents.model import IntentModel, IntentSettings
from turnwise.assist.intents.selection import (
    COMPARED_HEADS,
    HeadSelection,
    choose_head,
    selection_without_evaluation,
)
from turnwise.core.dialogue import OUT_OF_SCOPE
from turnwise.core.errors import IntentError
from turnwise.core.progress import Progress, silent
from turnwise.core.types import SupportsEncode
from turnwise.models.trainable_encoder import TrainableEncoder
from turnwise.objectives.losses import supervised_contrastive
from turnwise.training.finetuning import FineTuningSettings, fine_tune


@dataclass(frozen=True, slots=True)
class TuningSettings:
    """Settings of contrastive tuning."""

    epochs: int = 15
    groups: int = 16  # P, groups per step
    group_size: int = 2  # K, examples per group, all of one intent
    learning_rate: float = 3e-5  # the peak; linear warm-up over the first 5% of the steps, then linear decay to 0
    temperature: float = 0.1  # τ of the loss
    max_length: int = 64  # tokens per example
    seed: int = 0  # of groups, their order, and dropout

    def __post_init__(self) -> None:
        minimum = {"epochs": 1, "groups": 2, "group_size": 2, "max_length": 1, "seed": 0}
        for name, value in minimum.items():
            if getattr(self, name) < value:
                raise IntentError(f"{name} must be at least {value}, got {getattr(self, name)}")
        for name in ("learning_rate", "temperature"):
            if not 0 < getattr(self, name) < math.inf:
                raise IntentError(f"{name} must be positive, got {getattr(self, name)}")


def tune_encoder(
    encoder: TrainableEncoder,
    texts: Sequence[str],
    intents: Sequence[str],
    settings: TuningSettings | None = None,
    *,
    progress: Progress = silent,
) -> TrainableEncoder:
    """Return a copy of an encoder, tuned on examples of at least two intents; the given encoder is not changed.

    Equal examples and settings give equal weights on one machine.
    """
    settings = TuningSettings() if settings is None else settings
    validate_pairs(texts, intents)
    names, labels = np.unique(np.asarray(intents, str), return_inverse=True)
    if len(names) < 2:
        raise IntentError(f"tuning needs examples of at least two intents, got {len(names)}")
    tuned = copy.deepcopy(encoder)
    sequences = tuned.tokenise(texts, settings.max_length)
    epochs = range(settings.epochs)
    groups = [each for epoch in epochs for each in make_groups(labels, settings.group_size, [settings.seed, epoch])]
    group_labels = torch.tensor([labels[group[0]] for group in groups], device=tuned.backbone.device)
    steps = math.ceil(len(groups) / settings.groups)
    done = 0

    def loss(vectors: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
        nonlocal done
        done += 1
        progress("tuning the encoder", done, steps)
        repeated = group_labels[rows].repeat(settings.group_size)
        return supervised_contrastive(vectors.flatten(0, 1), repeated, settings.temperature)

    fine_tuning = FineTuningSettings(
        epochs=1,  # `groups` holds those of all epochs
        batch_size=settings.groups,
        learning_rate=settings.learning_rate,
        evaluate_every=steps,
        patience=1,
        max_length=settings.max_length,
    )
    examples = [[sequences[row] for row in group] for group in groups]
    fine_tune(tuned, nn.Identity(), examples, loss, settings=fine_tuning, score=None, seed=settings.seed)
    return tuned


def make_groups(labels: Sequence[int] | npt.NDArray[np.int64], size: int, seed: Sequence[int]) -> list[list[int]]:
    """Return rows in groups of one label each: every row at least once, repeated only to fill a label's last group."""
    random = np.random.default_rng(seed)
    groups = []
    for label in np.unique(labels):
        rows = random.permutation(np.flatnonzero(np.asarray(labels) == label))
        groups += np.resize(rows, (math.ceil(len(rows) / size), size)).tolist()
    return groups


# ---- a classifier with a tuned encoder


def fit_with_tuning(
    encoder: SupportsEncode,
    pairs: Sequence[IntentPair],
    settings: IntentSettings,
    tuning: TuningSettings,
    max_length: int,
    progress: Progress,
) -> tuple[TrainableEncoder, IntentModel, HeadSelection | None]:
    """Return a tuned encoder, the model fitted on its vectors, and how the head 'auto' was decided."""
    if not isinstance(encoder, TrainableEncoder):
        raise IntentError(
            f"{type(encoder).__name__} cannot be tuned: use a turnwise Encoder that is not exported, or no tuning"
        )
    # empty vectors: sorting and removing duplicates comes before encoding
    examples = IntentExamples.from_pairs(pairs, np.empty((len(pairs), 0), np.float32))

    def tune_on(is_seen: npt.NDArray[np.bool_]) -> tuple[TrainableEncoder, IntentExamples]:
        """Return an encoder tuned on some of the in-scope examples, and all examples with its vectors."""
        seen = [pair for pair, flag in zip(examples.pairs, is_seen, strict=False) if flag and pair[1] != OUT_OF_SCOPE]
        texts, intents = zip(*seen, strict=True)
        tuned = tune_encoder(encoder, texts, intents, tuning, progress=progress)
        vectors = tuned.encode([text for text, _ in examples.pairs], normalise=True, max_length=max_length)
        return tuned, IntentExamples(examples.pairs, validate_vectors(vectors, len(examples.pairs)))

    tuned, tuned_examples = tune_on(np.ones(len(examples.labels), np.bool_))
    fold_of = heads.assign_folds(examples.labels, heads.FOLDS, settings.seed)
    selection = selection_without_evaluation(examples) if settings.head == "auto" else None
    if selection is not None:
        settings = replace(settings, head=selection.head)
    compared = COMPARED_HEADS if settings.head == "auto" else (settings.head,)
    candidates = {head: replace(settings, head=head) for head in compared}
    parts: dict[str, list[CalibrationData]] = {head: [] for head in candidates}
    for fold in np.unique(fold_of[fold_of >= 0]):
        is_seen = fold_of != fold
        _, fold_examples = tune_on(is_seen)
        rows = np.r_[np.flatnonzero(is_seen), np.arange(len(is_seen), len(fold_examples.pairs))]
        seen_examples = IntentExamples(tuple(fold_examples.pairs[row] for row in rows), fold_examples.vectors[rows])
        left_out = fold_examples.in_scope_vectors[~is_seen]
        for head, candidate in candidates.items():
            model = IntentModel.uncalibrated(seen_examples, candidate)
            data = model.calibration_data(left_out, fold_examples.labels[~is_seen], fold_examples.out_of_scope_vectors)
            oos_similarity = model.left_out_oos_similarity()
            if oos_similarity is not None:  # not similarity of an out-of-scope example to itself
                data = replace(data, outside_oos_similarity=oos_similarity)
            parts[head].append(data)
    joined = {head: CalibrationData.concatenate(data) for head, data in parts.items() if data}
    if not joined:  # raises an error unless the classifier never abstains
        return tuned, IntentModel.fit(tuned_examples, settings), selection
    if settings.head == "auto":
        selection = choose_head({head: data.logits.argmax(1) == data.labels for head, data in joined.items()})
        settings = candidates[selection.head]
    model = IntentModel.uncalibrated(tuned_examples, settings)
    return tuned, model.calibrated(joined[settings.head], held_out=True), selection
