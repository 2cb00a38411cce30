"""DSE: consecutive utterances as positive pairs (Zhou et al., 2022), with its variants.

Each pair (uᵢ, uᵢ₊₁) is taken once, whoever speaks first, where both have more than three words. A two-layer head (d×d, ReLU,
d×128, no biases) serves training only. The loss is `losses.hard_negative_nt_xent` over the 2M vectors of a batch.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
import torch
from torch import nn

from turnwise.core.dialogue import Dialogue
from turnwise.models.backbone.inputs import TurnStyle
from turnwise.objectives.losses import Weighting, hard_negative_nt_xent
from turnwise.objectives.objective import Batch, Example, Figures, ForEncoders, Prepared, equal_texts, words


@dataclass(frozen=True, slots=True)
class DSE(ForEncoders):
    """Consecutive utterances.

    Attributes:
        temperature: τ.
        query_turns: how many turns before the response make a query: (1,) is DSE, (2,) and (3,) are DSE 2-1 and 3-1, (1, 2, 3) is
            DSE 123-1, each joined by the backbone's separator.
        positives: 'consecutive' turns; or 'dropout', the same unique sentence twice (DSE-dropout); or 'entailment', the two texts
            of the pairs in an NLI file (DSE-dianli).
        minimum_words: both sides have more words than this.
        weighting: which form of the loss (`losses.hard_negative_nt_xent`).
        mask_equal: equal texts in a batch are no negatives of each other; the paper leaves them in.
        head_size: of the vectors that the loss compares; 0: no head, the encoder's own vectors.
    """

    temperature: float = 0.05
    query_turns: tuple[int, ...] = (1,)
    positives: Literal["consecutive", "dropout", "entailment"] = "consecutive"
    minimum_words: int = 3
    weighting: Weighting = "outside"
    mask_equal: bool = False
    head_size: int = 128

    needs: ClassVar[Literal["pooled"]] = "pooled"
    labels_in_turn: ClassVar[tuple[int, ...]] = ()
    columns: ClassVar[int] = 2
    style: ClassVar[TurnStyle] = "separator"
    special_tokens: ClassVar[tuple[str, ...]] = ()
    slot_names: ClassVar[None] = None

    @property
    def unique(self) -> bool:
        """DSE-dropout takes each sentence once."""
        return self.positives == "dropout"

    def examples(self, dialogue: Dialogue) -> Iterator[Example]:
        """(query, response) windows."""
        long = [words(turn.text) > self.minimum_words for turn in dialogue.turns]
        if self.positives == "dropout":
            yield from (Example(((turn, turn + 1),) * 2) for turn, enough in enumerate(long) if enough)
            return
        if self.positives == "entailment":
            if dialogue.turns[1].intent == "entailment":
                yield Example(((0, 1), (1, 2)))
            return
        for response in range(1, len(long)):
            # the words that count are those of the turn next to the response, so that all variants see the same pairs
            if long[response - 1] and long[response]:
                for turns in self.query_turns:
                    if turns <= response:
                        yield Example(((response - turns, response), (response, response + 1)))

    def heads(self, hidden: int) -> nn.Module:
        """The contrastive head of the paper's appendix A.2; initialised as transformers does its layers."""
        if not self.head_size:
            return nn.Identity()
        layers = (nn.Linear(hidden, hidden, bias=False), nn.Linear(hidden, self.head_size, bias=False))
        for layer in layers:
            nn.init.normal_(layer.weight, std=0.02)
        return nn.Sequential(layers[0], nn.ReLU(), layers[1])

    def prepare(self, batch: Batch) -> Prepared:
        """Queries, then responses."""
        identities = np.stack([batch.identities(0), batch.identities(1)])
        return Prepared(batch.columns(), len(batch), {"identities": identities})

    def loss(
        self, vectors: torch.Tensor, facts: dict[str, torch.Tensor], heads: nn.Module
    ) -> tuple[torch.Tensor, Figures]:
        """Eqs. 1–3 on the heads' outputs."""
        same = equal_texts(facts["identities"].flatten())
        projected = heads(vectors)
        loss = hard_negative_nt_xent(
            projected[0],
            projected[1],
            self.temperature,
            weighting=self.weighting,
            same=same if self.mask_equal and self.positives != "dropout" else None,
        )
        return loss, {"equal_texts": same.sum() / 2}
