"""WMDC: windows of several sizes before a response, and less weight for frequent answers.

From "Dialogue Representation Learning: A New Benchmark and Weighted Contrastive Learning Approach", the paper of DiaEval. A pair
is the last one, two, three, … turns of a conversation and the turn that answers them. A batch holds windows of one size, the sizes
taken in turn, so that a context is told apart from others of its length. One linear layer d×d a size maps contexts and responses
alike, in training only. A pair counts by the inverse frequency of its response over the whole training corpus
(`losses.inverse_response_frequency`), where case and surrounding space make no difference ("yes." and "yes" are two answers, as in
the paper's Table 5).
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
import torch
from torch import nn

from turnwise.core.dialogue import Dialogue
from turnwise.core.errors import TurnwiseError
from turnwise.models.backbone.inputs import TurnStyle
from turnwise.objectives.losses import inverse_response_frequency, symmetric_nt_xent
from turnwise.objectives.objective import Batch, Example, Figures, ForEncoders, Prepared


@dataclass(frozen=True, slots=True)
class WMDC(ForEncoders):
    """Windows of several sizes, weighted by inverse response frequency.

    Attributes:
        temperature: τ.
        windows: W, how many turns before the response make a context; each size has batches and a head of its own.
        reweight: whether pairs count by the inverse frequency of their response; else all alike.
        mask_equal: pairs of the same context or the same response are no negatives of each other; the paper leaves them in.
        heads_start: 'random', as transformers begins its layers; or 'identity', from the encoder's own space. The paper does not
            say which.
    """

    temperature: float = 0.05
    windows: tuple[int, ...] = (1, 2, 3)
    reweight: bool = True
    mask_equal: bool = False
    heads_start: Literal["random", "identity"] = "random"

    needs: ClassVar[Literal["pooled"]] = "pooled"
    columns: ClassVar[int] = 2
    style: ClassVar[TurnStyle] = "separator"
    special_tokens: ClassVar[tuple[str, ...]] = ()
    slot_names: ClassVar[None] = None
    unique: ClassVar[bool] = False

    def __post_init__(self) -> None:
        sizes = self.windows
        if not sizes or len(set(sizes)) < len(sizes) or not all(0 < size < 128 for size in sizes):
            raise TurnwiseError(
                f"windows={list(sizes)}: expected different numbers of turns from 1 to 127, such as [1, 2, 3]"
            )

    @property
    def labels_in_turn(self) -> tuple[int, ...]:
        """The sizes."""
        return self.windows

    def examples(self, dialogue: Dialogue) -> Iterator[Example]:
        """Each turn that answers enough others, once for every size; the size is the label."""
        for response in range(1, len(dialogue.turns)):
            for size in self.windows:
                if size <= response:
                    yield Example(((response - size, response), (response, response + 1)), size)

    def heads(self, hidden: int) -> nn.Module:
        """A linear layer a size, for both sides."""
        layers = {str(size): nn.Linear(hidden, hidden, bias=False) for size in self.windows}
        for layer in layers.values():
            if self.heads_start == "identity":
                nn.init.eye_(layer.weight)
            else:
                nn.init.normal_(layer.weight, std=0.02)
        return nn.ModuleDict(layers)

    def prepare(self, batch: Batch) -> Prepared:
        """Contexts, then responses; with which texts are equal, how often each response is given, and the windows' size."""
        facts = {
            "identities": np.stack([batch.identities(0), batch.identities(1)]),
            "frequencies": np.array(
                [batch.texts.frequency(first) for first in batch.windows[:, 1, 0].tolist()], np.int64
            ),
            "size": batch.labels[0],
        }
        return Prepared(batch.columns(), len(batch), facts)

    def loss(
        self, vectors: torch.Tensor, facts: dict[str, torch.Tensor], heads: nn.Module
    ) -> tuple[torch.Tensor, Figures]:
        """Eq. 5 on the outputs of the size's head."""
        assert isinstance(heads, nn.ModuleDict)
        size = int(facts["size"])
        projected = heads[str(size)](vectors)
        equal = facts["identities"][:, :, None] == facts["identities"][:, None, :]
        same = equal.any(0)
        weights = inverse_response_frequency(facts["frequencies"]) if self.reweight else None
        loss = symmetric_nt_xent(
            projected[0], projected[1], self.temperature, weights=weights, same=same if self.mask_equal else None
        )
        logs: Figures = {"window": float(size), "equal_texts": (same.sum() - len(same)) / 2}
        return loss, logs if weights is None else {**logs, "weight": weights.mean()}
