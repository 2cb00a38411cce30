"""TOD-BERT (Wu et al., 2020): contexts and the responses of the system."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from torch import Tensor, nn

from turnwise.core.dialogue import SYSTEM, Dialogue
from turnwise.core.validation import PositiveInt
from turnwise.models.backbone.ragged import RaggedTokens
from turnwise.objectives import objective as base
from turnwise.objectives.losses import nt_xent


@dataclass(frozen=True, slots=True)
class TODBERT(base.PooledObjective):
    """TOD-BERT's response contrastive loss (Wu et al., 2020); its masked language model is another objective.

    A dialogue is flattened as `[USR] u₁ [SYS] s₁ …`. Each time it is used, a system turn is drawn: the turns before it
    are the context, and the other responses of the batch are negatives. As in the authors' code, vectors are compared
    by dot product and in one direction.
    """

    context_length: PositiveInt = 256  # tokens of a context; the newest are kept
    mask_equal: bool = False  # equal responses in a batch are no negatives of each other; the authors use them

    traits: ClassVar = base.Traits(columns=1, style="roles")

    def examples(self, dialogue: Dialogue) -> Iterator[base.Example]:
        """Yield the whole dialogue if a system turn has a context; the response is drawn later."""
        if any(turn.speaker == SYSTEM for turn in dialogue.turns[1:]):
            yield base.Example(((0, len(dialogue.turns)),))

    def prepare(self, batch: base.Batch) -> base.PreparedBatch:
        """Draw the responses; return contexts, then responses."""
        contexts, responses, identities = [], [], []
        for first, last in batch.windows[:, 0].tolist():
            candidates = [turn for turn in range(first + 1, last) if batch.texts.speaker(turn) == SYSTEM]
            response = candidates[int(batch.random.integers(len(candidates)))]
            contexts.append(batch.sequence(first, response, self.context_length))
            responses.append(batch.sequence(response, response + 1))
            identities.append(batch.texts.identity(response))
        return base.PreparedBatch(
            RaggedTokens.of(contexts + responses), len(batch), {"identities": np.array(identities)}
        )

    def loss(self, vectors: Tensor, inputs: base.Tensors, heads: nn.Module) -> tuple[Tensor, base.Metrics]:
        """Compute the cross-entropy of each context over the batch's responses."""
        same = base.equal_texts(inputs["identities"])
        loss = nt_xent(vectors[0], vectors[1], 1.0, similarity="dot", same=same if self.mask_equal else None)
        return loss, {"equal_texts": same.sum() / 2}
