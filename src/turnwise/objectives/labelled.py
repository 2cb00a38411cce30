"""Labelled utterances: those of an intent near each other, and near the intent's prototype.

A batch has some intents with a few utterances each. Part of the intents are drawn domain by domain ('banking: freeze
card' belongs to the domain 'banking'), so that intents which are easily confused meet in a batch.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated

import numpy as np
import torch
from pydantic import Field
from torch import Tensor, nn

from turnwise.core.dialogue import Dialogue
from turnwise.core.validation import Fraction, Integer, NonNegative, Positive
from turnwise.objectives import objective as base
from turnwise.objectives.losses import prototype_nt_xent, supervised_contrastive


@dataclass(frozen=True, slots=True)
class Labelled(base.PooledObjective):
    """Utterances with intents: prototypes, and supervised contrast."""

    temperature: Positive = 0.05  # τ
    prototype_weight: NonNegative = 1.0  # of the loss of assigning utterances to prototypes
    contrastive_weight: NonNegative = 0.0  # of the supervised contrastive loss
    #: Of each intent in a batch; half of them make the prototype to which the others are assigned.
    utterances: Annotated[Integer, Field(ge=2)] = 4
    same_domain: Fraction = 0.5  # fraction of a batch's intents that are drawn domain by domain

    def __post_init__(self) -> None:
        if not self.prototype_weight + self.contrastive_weight:
            raise ValueError("prototype_weight and contrastive_weight are both 0: one of them must be positive")

    @property
    def traits(self) -> base.Traits:
        """Batches of intents with a few utterances each."""
        return base.Traits(columns=1, label_sampling=base.LabelSampling(self.utterances, self.same_domain))

    def examples(self, dialogue: Dialogue) -> Iterator[base.Example]:
        """Iterate over the turns that have an intent."""
        for number, turn in enumerate(dialogue.turns):
            if turn.intent is not None:
                yield base.Example(((number, number + 1),), base.intent_label(turn.intent))

    def prepare(self, batch: base.Batch) -> base.PreparedBatch:
        """Return the utterances with their intents, numbered from 0; every other one of an intent is in its support."""
        _, labels, counts = np.unique(batch.labels, return_inverse=True, return_counts=True)
        order = np.argsort(labels, kind="stable")
        places = np.empty_like(order)
        places[order] = np.arange(len(order)) - np.repeat(np.cumsum(counts) - counts, counts)
        return base.PreparedBatch(batch.column(0), len(batch), {"labels": labels, "support": places % 2 == 0})

    def loss(self, vectors: Tensor, inputs: base.Tensors, heads: nn.Module) -> tuple[Tensor, base.Metrics]:
        """Compute the weighted sum of both losses; the metrics are the single ones."""
        labels = inputs["labels"]
        losses: dict[str, Tensor] = {}
        if self.prototype_weight:
            losses["prototype"] = prototype_nt_xent(vectors[0], labels, inputs["support"], self.temperature)
        if self.contrastive_weight:
            losses["contrastive"] = supervised_contrastive(vectors[0], labels, self.temperature)
        weights = {"prototype": self.prototype_weight, "contrastive": self.contrastive_weight}
        total = torch.stack([weights[name] * loss for name, loss in losses.items()]).sum()
        return total, {f"{name}_loss": loss.detach() for name, loss in losses.items()}
