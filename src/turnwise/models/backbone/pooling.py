"""One vector a sequence out of its token states."""

from typing import Literal, get_args

import torch
from torch import nn

from turnwise.models.backbone.stream import TokenStream, to_device

Pooling = Literal["mean", "cls", "cls-mlp", "max", "first-last"]
POOLINGS: tuple[str, ...] = get_args(Pooling)


def pool(states: torch.Tensor, stream: TokenStream, pooling: Pooling) -> torch.Tensor:
    """Pools token states (tokens, hidden) into vectors (sequences, hidden) in the order in which sequences were given.

    'cls-mlp' gives what 'cls' gives: its layer belongs to the model, not to the pooling. 'first-last' gives what 'mean' gives: that
    the states are the average of the first layer's and the last's is the backbone's affair.
    """
    if pooling in ("cls", "cls-mlp"):
        rows = states[to_device(stream.starts()[:-1], states.device)]
    else:
        lengths = to_device(torch.from_numpy(stream.lengths), states.device)
        # unsafe: it is not looked whether lengths add up, for which a GPU would be waited for
        rows = torch.segment_reduce(states, "max" if pooling == "max" else "mean", lengths=lengths, unsafe=True)
    return stream.restore(rows)


class PoolerLayer(nn.Module):
    """SimCSE's layer on the [CLS] state: linear, then tanh."""

    def __init__(self, hidden: int):
        super().__init__()
        self.linear = nn.Linear(hidden, hidden)

    def forward(self, vectors: torch.Tensor) -> torch.Tensor:
        """(sequences, hidden) → the same shape."""
        return torch.tanh(self.linear(vectors))
