"""Contrastive tuning: an encoder fitted to the few examples of each intent, so that those of one intent lie together.

A step takes P groups of K examples, a group being of one intent, and draws every example towards all others of its intent in the
batch and away from the rest (supervised contrastive loss). So a step compares (P·K)² pairs, and nowhere is there a list of pairs,
which would grow with the square of the examples. Every epoch puts each intent's examples into groups anew; where they do not fill
the last one, examples of other groups do, or, where an intent has fewer than K, the same ones again: dropout makes two different
vectors of one text.
"""

import copy
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn

from turnwise.core.errors import TurnwiseError
from turnwise.core.progress import Progress, silent
from turnwise.models.encoder import Encoder
from turnwise.objectives.losses import supervised_contrastive
from turnwise.training.finetuning import FineTuningSettings, fine_tune


class TuningError(TurnwiseError):
    """An encoder cannot be tuned as asked; the message says why and what to do."""


@dataclass(frozen=True, slots=True)
class Tuning:
    """How an encoder is tuned.

    Attributes:
        epochs: how often each example is seen.
        groups: P, groups of a step.
        group_size: K, examples of a group, all of one intent.
        learning_rate: at its peak; it rises over the first 5% of the steps and then falls to 0, both linearly.
        temperature: τ of the loss.
        max_length: tokens of an example.
        seed: of groups, their order, and dropout.
    """

    epochs: int = 15
    groups: int = 16
    group_size: int = 2
    learning_rate: float = 3e-5
    temperature: float = 0.1
    max_length: int = 64
    seed: int = 0

    def __post_init__(self) -> None:
        least = {"epochs": 1, "groups": 2, "group_size": 2, "max_length": 1, "seed": 0}
        for name, value in least.items():
            if getattr(self, name) < value:
                raise TuningError(f"{name} is {getattr(self, name)}: tuning takes at least {value}")
        for name in ("learning_rate", "temperature"):
            if not 0 < getattr(self, name) < math.inf:
                raise TuningError(f"{name} is {getattr(self, name)}: give a number above 0")


def tune(
    encoder: Encoder,
    texts: Sequence[str],
    intents: Sequence[str],
    tuning: Tuning | None = None,
    *,
    progress: Progress = silent,
) -> Encoder:
    """A copy of an encoder, fitted to examples of intents; the encoder that comes in is left as it is.

    Equal examples and settings give equal weights on one machine. For hundreds of examples it takes seconds on a GPU, minutes on a
    CPU.

    Args:
        encoder: where to start.
        texts: the examples.
        intents: of each text.
        tuning: how; None: as `Tuning` has it.
        progress: told how many steps are done.

    Raises:
        TuningError: if texts and intents do not fit together, there are fewer than two intents, or the encoder is compressed.
        TrainingError: if the loss is not a number.
    """
    tuning = Tuning() if tuning is None else tuning
    if len(texts) != len(intents):
        raise TuningError(f"there are {len(texts):,} texts and {len(intents):,} intents: give one intent a text")
    names, labels = np.unique(np.asarray(intents, str), return_inverse=True)
    if len(names) < 2:
        raise TuningError(
            f"there are examples of {len(names)} intents: tuning tells intents apart, give examples of two at least"
        )
    if encoder.compression is not None:
        raise TuningError(
            "this encoder is compressed towards templates, which tuning would not move: load it uncompressed"
        )
    tuned = copy.deepcopy(encoder)
    sequences = tuned.tokenise(texts, tuning.max_length)
    drawn = [
        group for epoch in range(tuning.epochs) for group in grouped(labels, tuning.group_size, [tuning.seed, epoch])
    ]
    of = torch.tensor([labels[group[0]] for group in drawn], device=tuned.backbone.device)
    steps = math.ceil(len(drawn) / tuning.groups)
    done = 0

    def loss(vectors: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
        nonlocal done
        done += 1
        progress("tuning the encoder", done, steps)
        return supervised_contrastive(vectors.flatten(0, 1), of[rows].repeat(tuning.group_size), tuning.temperature)

    settings = FineTuningSettings(
        # the groups of all epochs are there already
        epochs=1,
        batch_size=tuning.groups,
        learning_rate=tuning.learning_rate,
        evaluate_every=steps,
        patience=1,
        max_length=tuning.max_length,
    )
    examples = [[sequences[row] for row in group] for group in drawn]
    fine_tune(tuned, nn.Identity(), examples, loss, settings=settings, score=None, seed=tuning.seed)
    return tuned


def grouped(labels: Sequence[int] | np.typing.NDArray[np.int64], size: int, seed: Sequence[int]) -> list[list[int]]:
    """Rows in groups of one label each: every row is in one at least, in more only to fill up a label's last group.

    Args:
        labels: of the rows.
        size: rows of a group.
        seed: of which rows come together.
    """
    random = np.random.default_rng(seed)
    groups = []
    for label in np.unique(labels):
        rows = random.permutation(np.flatnonzero(np.asarray(labels) == label))
        filled = np.resize(rows, math.ceil(len(rows) / size) * size)
        groups += filled.reshape(-1, size).tolist()
    return groups
