"""One vector a sequence out of its token states."""

from typing import Literal, get_args

import torch
from torch import nn

from turnwise.backbone.stream import TokenStream

Pooling = Literal["mean", "cls", "cls-mlp", "max", "first-last"]
POOLINGS: tuple[str, ...] = get_args(Pooling)


def pool(states: torch.Tensor, stream: TokenStream, pooling: Pooling) -> torch.Tensor:
    """Pools token states (tokens, hidden) into vectors (sequences, hidden) in the order in which sequences were given.

    'cls-mlp' gives what 'cls' gives: its layer belongs to the model, not to the pooling. 'first-last' gives what 'mean' gives: that
    the states are the average of the first layer's and the last's is the backbone's affair.
    """
    if pooling in ("cls", "cls-mlp"):
        rows = states[stream.starts()[:-1].to(states.device)]
    else:
        pieces = []
        for group in stream.groups:
            rectangle = states[group.start : group.end].unflatten(0, (group.count, group.length))
            pieces.append(rectangle.amax(1) if pooling == "max" else rectangle.mean(1))
        rows = torch.cat(pieces)
    return stream.restore(rows)


class PoolerLayer(nn.Module):
    """SimCSE's layer on the [CLS] state: linear, then tanh."""

    def __init__(self, hidden: int):
        super().__init__()
        self.linear = nn.Linear(hidden, hidden)

    def forward(self, vectors: torch.Tensor) -> torch.Tensor:
        """(sequences, hidden) → the same shape."""
        return torch.tanh(self.linear(vectors))
