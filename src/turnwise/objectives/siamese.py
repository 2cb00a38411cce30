"""SiameseBERT, DialogueCSE's baseline (after Yang et al., 2018, and Henderson et al., 2020): a non-linear layer matches the sides.

`context_turns=1` is SiameseBERT-s; more is SiameseBERT-m, whose context is the turns joined into one sequence.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from turnwise.core.dialogue import Dialogue
from turnwise.models.backbone.inputs import TurnStyle
from turnwise.objectives.objective import Batch, Example, Figures, ForEncoders, Prepared


@dataclass(frozen=True, slots=True)
class Siamese(ForEncoders):
    """Context and response through one encoder, an MLP on the context's side, in-batch negatives by dot product.

    Attributes:
        context_turns: how many turns make a context.
        mask_equal: equal responses in a batch are no negatives of each other.
    """

    context_turns: int = 1
    mask_equal: bool = False

    needs: ClassVar[Literal["pooled"]] = "pooled"
    labels_in_turn: ClassVar[tuple[int, ...]] = ()
    columns: ClassVar[int] = 2
    style: ClassVar[TurnStyle] = "separator"
    special_tokens: ClassVar[tuple[str, ...]] = ()
    slot_names: ClassVar[None] = None
    unique: ClassVar[bool] = False

    def examples(self, dialogue: Dialogue) -> Iterator[Example]:
        """The turns before each response, as many as there are up to the number wanted."""
        for response in range(1, len(dialogue.turns)):
            yield Example(((max(0, response - self.context_turns), response), (response, response + 1)))

    def heads(self, hidden: int) -> nn.Module:
        """The matching layer: linear, ReLU, linear."""
        return nn.Sequential(nn.Linear(hidden, hidden), nn.ReLU(), nn.Linear(hidden, hidden))

    def prepare(self, batch: Batch) -> Prepared:
        """Contexts, then responses."""
        identities = np.stack([batch.identities(0), batch.identities(1)])
        return Prepared(batch.columns(), len(batch), {"identities": identities})

    def loss(
        self, vectors: torch.Tensor, facts: dict[str, torch.Tensor], heads: nn.Module
    ) -> tuple[torch.Tensor, Figures]:
        """Cross-entropy of each matched context over the batch's responses; scaled as attention is."""
        responses = facts["identities"][1]
        same = responses[:, None] == responses[None, :]
        logits = (heads(vectors[0]) @ vectors[1].T).float() / vectors.shape[-1] ** 0.5
        targets = torch.arange(len(logits), device=logits.device)
        equal = (same.sum() - len(same)) / 2
        if self.mask_equal:
            logits = logits.masked_fill(same.fill_diagonal_(False), -1e9)
        return cross_entropy(logits, targets), {"equal_texts": equal}
