"""PairSupCon (Zhang et al., 2021): NLI pairs, entailment by a hard-negative contrastive loss, and all by classification."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from turnwise.core.dialogue import Dialogue
from turnwise.models.backbone.inputs import TurnStyle
from turnwise.objectives.dse import DSE
from turnwise.objectives.losses import hard_negative_nt_xent
from turnwise.objectives.objective import Batch, Example, Figures, ForEncoders, Prepared


@dataclass(frozen=True, slots=True)
class PairSupCon(ForEncoders):
    """Premise and hypothesis; neutral pairs are left out.

    Attributes:
        temperature: τ of the contrastive loss.
        classification_weight: of the loss that tells entailment from contradiction by [u, v, |u − v|].
        head_size: of the vectors that the contrastive loss compares.
    """

    temperature: float = 0.05
    classification_weight: float = 1.0
    head_size: int = 128

    needs: ClassVar[Literal["pooled"]] = "pooled"
    labels_in_turn: ClassVar[tuple[int, ...]] = ()
    columns: ClassVar[int] = 2
    style: ClassVar[TurnStyle] = "separator"
    special_tokens: ClassVar[tuple[str, ...]] = ()
    slot_names: ClassVar[None] = None
    unique: ClassVar[bool] = False

    def examples(self, dialogue: Dialogue) -> Iterator[Example]:
        """A pair that entails (label 1) or contradicts (label 0)."""
        if len(dialogue.turns) == 2 and dialogue.turns[1].intent in ("entailment", "contradiction"):
            yield Example(((0, 1), (1, 2)), int(dialogue.turns[1].intent == "entailment"))

    def heads(self, hidden: int) -> nn.Module:
        """The contrastive head that DSE shares, and a classifier without bias."""
        return nn.ModuleDict(
            {
                "contrast": DSE(head_size=self.head_size).heads(hidden),
                "classify": nn.Linear(3 * hidden, 2, bias=False),
            }
        )

    def prepare(self, batch: Batch) -> Prepared:
        """Premises, then hypotheses."""
        return Prepared(batch.columns(), len(batch), {"entails": np.stack([batch.labels, batch.labels])})

    def loss(
        self, vectors: torch.Tensor, facts: dict[str, torch.Tensor], heads: nn.Module
    ) -> tuple[torch.Tensor, Figures]:
        """The contrastive loss over entailing pairs plus the weighted classification loss over all."""
        assert isinstance(heads, nn.ModuleDict)
        entails = facts["entails"][0]
        first, second = vectors[0], vectors[1]
        logits = heads["classify"](torch.cat([first, second, (first - second).abs()], dim=1))
        classification = cross_entropy(logits.float(), entails)
        pairs = entails.nonzero()[:, 0]
        projected = heads["contrast"](vectors[:, pairs])
        contrast = (
            hard_negative_nt_xent(projected[0], projected[1], self.temperature) if len(pairs) > 1 else 0 * logits.sum()
        )
        logs = {"contrast": contrast.detach(), "classification": classification.detach()}
        return contrast + self.classification_weight * classification, logs
