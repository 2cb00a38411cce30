"""SimCSE (Gao et al., 2021): the same sentence twice under dropout, or NLI triplets with contradictions as hard negatives."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
import torch
from torch import nn

from turnwise.core.dialogue import Dialogue
from turnwise.models.backbone.inputs import TurnStyle
from turnwise.objectives.losses import nt_xent
from turnwise.objectives.objective import Batch, Example, Figures, ForEncoders, Prepared, words


@dataclass(frozen=True, slots=True)
class SimCSE(ForEncoders):
    """SimCSE.

    Attributes:
        supervised: from NLI triplets (premise, entailment, contradiction) instead of single sentences.
        temperature: τ.
        minimum_words: sentences have more words than this.
        mask_equal: equal texts in a batch are no negatives of each other; the paper leaves them in.
    """

    supervised: bool = False
    temperature: float = 0.05
    minimum_words: int = 0
    mask_equal: bool = False

    needs: ClassVar[Literal["pooled"]] = "pooled"
    labels_in_turn: ClassVar[tuple[int, ...]] = ()
    style: ClassVar[TurnStyle] = "separator"
    special_tokens: ClassVar[tuple[str, ...]] = ()
    slot_names: ClassVar[None] = None

    @property
    def columns(self) -> int:
        """Sentence, positive and, where there is one, negative."""
        return 3 if self.supervised else 2

    @property
    def unique(self) -> bool:
        """A sentence is taken once."""
        return not self.supervised

    def examples(self, dialogue: Dialogue) -> Iterator[Example]:
        """Each sentence with itself, or a triplet."""
        if not self.supervised:
            for turn, said in enumerate(dialogue.turns):
                if words(said.text) > self.minimum_words:
                    yield Example(((turn, turn + 1), (turn, turn + 1)))
        elif len(dialogue.turns) == 3:
            yield Example(((0, 1), (1, 2), (2, 3)))

    def heads(self, hidden: int) -> nn.Module:
        """The layer with tanh on the pooled vector, which the authors drop at test time in the unsupervised form."""
        return nn.Sequential(nn.Linear(hidden, hidden), nn.Tanh())

    def prepare(self, batch: Batch) -> Prepared:
        """Column after column."""
        identities = np.stack([batch.identities(column) for column in range(self.columns)])
        return Prepared(batch.columns(), len(batch), {"identities": identities})

    def loss(
        self, vectors: torch.Tensor, facts: dict[str, torch.Tensor], heads: nn.Module
    ) -> tuple[torch.Tensor, Figures]:
        """Eq. 1 (unsupervised) or Eq. 5 (supervised) of the paper."""
        projected = heads(vectors)
        candidates = facts["identities"][1:].flatten()
        same = facts["identities"][1][:, None] == candidates[None, :]
        loss = nt_xent(
            projected[0],
            projected[1],
            self.temperature,
            negatives=projected[2] if self.supervised else None,
            same=same if self.mask_equal else None,
        )
        return loss, {"equal_texts": same.sum() - len(same)}
