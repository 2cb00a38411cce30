"""TOD-BERT's response contrastive loss (Wu et al., 2020); its masked language model is `masked_language` beside it in a recipe.

A dialogue is flattened as `[USR] u₁ [SYS] s₁ …`. At every visit one system turn is drawn: what came before it is the context, the
turn is the response, and the other responses of the batch are wrong.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
import torch
from torch import nn

from turnwise.core.dialogue import SYSTEM, Dialogue
from turnwise.models.backbone.inputs import ROLE_TOKENS, TurnStyle
from turnwise.models.backbone.stream import RaggedTokens
from turnwise.objectives.losses import nt_xent
from turnwise.objectives.objective import Batch, Example, Figures, ForEncoders, Prepared


@dataclass(frozen=True, slots=True)
class TODBERT(ForEncoders):
    """Context and response, by plain dot product of their vectors, in one direction, as the authors do it.

    Attributes:
        context_length: tokens of a context; the newest are kept.
        mask_equal: equal responses in a batch are no negatives of each other; the authors leave them in.
    """

    context_length: int = 256
    mask_equal: bool = False

    needs: ClassVar[Literal["pooled"]] = "pooled"
    labels_in_turn: ClassVar[tuple[int, ...]] = ()
    columns: ClassVar[int] = 1
    style: ClassVar[TurnStyle] = "roles"
    special_tokens: ClassVar[tuple[str, ...]] = tuple(ROLE_TOKENS.values())
    slot_names: ClassVar[None] = None
    unique: ClassVar[bool] = False

    def examples(self, dialogue: Dialogue) -> Iterator[Example]:
        """The whole dialogue, where some system turn has a context; the split point is drawn later."""
        if any(turn.speaker == SYSTEM for turn in dialogue.turns[1:]):
            yield Example(((0, len(dialogue.turns)),))

    def heads(self, hidden: int) -> nn.Module:
        """None."""
        return nn.Identity()

    def prepare(self, batch: Batch) -> Prepared:
        """Contexts, then responses."""
        contexts, responses, identities = [], [], []
        for first, last in batch.windows[:, 0].tolist():
            answers = [turn for turn in range(first + 1, last) if batch.texts.speaker(turn) == SYSTEM]
            answer = answers[int(batch.random.integers(len(answers)))]
            contexts.append(batch.sequence(first, answer, self.context_length))
            responses.append(batch.sequence(answer, answer + 1))
            identities.append(batch.texts.identity(answer))
        return Prepared(
            RaggedTokens.of(contexts + responses),
            len(batch),
            {"identities": np.array([identities, identities], np.int64)},
        )

    def loss(
        self, vectors: torch.Tensor, facts: dict[str, torch.Tensor], heads: nn.Module
    ) -> tuple[torch.Tensor, Figures]:
        """Cross-entropy of each context over the batch's responses."""
        responses = facts["identities"][1]
        same = responses[:, None] == responses[None, :]
        loss = nt_xent(vectors[0], vectors[1], 1.0, similarity="dot", same=same if self.mask_equal else None)
        return loss, {"equal_texts": (same.sum() - len(same)) / 2}
