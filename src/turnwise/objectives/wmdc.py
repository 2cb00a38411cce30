"""WMDC: contexts of several sizes before a response, and lower weights for frequent responses.

From "Dialogue Representation Learning: A New Benchmark and Weighted Contrastive Learning Approach", the paper of
DiaEval. A pair is the last one, two, three, … turns of a conversation and the turn that responds to them. A batch has
contexts of one size, and the sizes take turns, so that a context is compared with others of its size. One linear layer
d×d per size projects contexts and responses, in training only. A pair is weighted by the inverse frequency of its
response in the whole training corpus (`losses.inverse_response_frequency`), ignoring case and surrounding space ("yes."
and "yes" are two responses, as in the paper's Table 5).
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from torch import Tensor, nn

from turnwise.core.dialogue import Dialogue
from turnwise.core.validation import Positive
from turnwise.objectives import objective as base
from turnwise.objectives.losses import inverse_response_frequency, symmetric_nt_xent


@dataclass(frozen=True, slots=True)
class WMDC(base.PooledObjective):
    """Contexts of several sizes, weighted by inverse response frequency."""

    temperature: Positive = 0.05  # τ
    #: W, the numbers of turns before the response that make a context; each size has its own batches and head.
    windows: tuple[int, ...] = (1, 2, 3)
    reweight: bool = True  # whether pairs are weighted by the inverse frequency of their response
    mask_equal: bool = False  # pairs of equal contexts or responses are no negatives; in the paper they are
    #: 'random', as transformers initialises its layers, or 'identity'. The paper does not say which.
    heads_start: Literal["random", "identity"] = "random"

    def __post_init__(self) -> None:
        sizes = self.windows
        if not sizes or len(set(sizes)) < len(sizes) or not all(0 < size < 128 for size in sizes):
            raise ValueError(
                f"windows must be different numbers of turns from 1 to 127, such as [1, 2, 3]; got {list(sizes)}"
            )

    @property
    def traits(self) -> base.Traits:
        """The sizes take turns."""
        return base.Traits(labels_in_turn=self.windows)

    def examples(self, dialogue: Dialogue) -> Iterator[base.Example]:
        """Iterate over the responses, each with a context of every size that there is; the size is the label."""
        for response in range(1, len(dialogue.turns)):
            for size in self.windows:
                if size <= response:
                    yield base.Example(((response - size, response), (response, response + 1)), size)

    def make_heads(self, hidden: int) -> nn.Module:
        """Create a linear layer per size, for both sides."""
        layers = {str(size): nn.Linear(hidden, hidden, bias=False) for size in self.windows}
        for layer in layers.values():
            if self.heads_start == "identity":
                nn.init.eye_(layer.weight)
            else:
                nn.init.normal_(layer.weight, std=0.02)
        return nn.ModuleDict(layers)

    def prepare(self, batch: base.Batch) -> base.PreparedBatch:
        """Return contexts, then responses, with the responses' frequencies and the contexts' size."""
        frequencies = np.asarray(batch.texts.frequencies[batch.windows[:, 1, 0]], np.int64)
        prepared = base.PooledObjective.prepare(self, batch)
        return replace(prepared, inputs={**prepared.inputs, "frequencies": frequencies, "size": batch.labels[0]})

    def loss(self, vectors: Tensor, inputs: base.Tensors, heads: nn.Module) -> tuple[Tensor, base.Metrics]:
        """Compute Eq. 5 on the outputs of the size's head."""
        assert isinstance(heads, nn.ModuleDict)
        size = int(inputs["size"])
        contexts, responses = heads[str(size)](vectors)
        same = base.equal_texts(inputs["identities"][0]) | base.equal_texts(inputs["identities"][1])
        masked = same if self.mask_equal else None
        weights = inverse_response_frequency(inputs["frequencies"]) if self.reweight else None
        loss = symmetric_nt_xent(contexts, responses, self.temperature, weights=weights, same=masked)
        metrics: base.Metrics = {"window": float(size), "equal_texts": same.sum() / 2}
        return loss, metrics if weights is None else {**metrics, "weight": weights.mean()}
