"""What torch models have in common: the device, evaluation mode, and the pooling of token states."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

import torch
from torch import Tensor, nn

from turnwise.core.errors import ModelError
from turnwise.models.backbone.source import Pooling
from turnwise.models.backbone.stream import TokenStream, to_device

#: Which token states are used: the last layer's, or the average of the first transformer layer's and the last's.
Layers = Literal["last", "first-last"]


def choose_device(device: str | torch.device | None) -> torch.device:
    """Return the device to run on; None: a GPU if there is one."""
    chosen = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
    if chosen.type == "cuda" and not torch.cuda.is_available():
        raise ModelError(
            f"the device {chosen} cannot be used: PyTorch finds no CUDA GPU; use device='cpu' or leave it out"
        )
    return chosen


def arrange_weights(module: nn.Module, device: torch.device) -> None:
    """Store the weights of linear layers column-major for a CPU, whose matrix product reads them faster."""
    if device.type == "cpu":
        for layer in module.modules():
            if isinstance(layer, nn.Linear):
                layer.weight.data = layer.weight.data.t().contiguous().t()


@contextmanager
def evaluation_mode(module: nn.Module) -> Iterator[None]:
    """Switch training behaviour such as dropout off for a while."""
    was_training = module.training
    module.eval()
    try:
        yield
    finally:
        module.train(was_training)


def pool(states: Tensor, stream: TokenStream, pooling: Pooling) -> Tensor:
    """Pool token states (tokens, hidden) into vectors (sequences, hidden), in input order.

    'cls-mlp' is pooled like 'cls': its layer belongs to the model. 'first-last' is pooled like 'mean': the backbone
    averages the first layer's and the last layer's states.
    """
    if pooling in ("cls", "cls-mlp"):
        rows = states[to_device(stream.starts()[:-1], states.device)]
    else:
        lengths = to_device(torch.from_numpy(stream.lengths), states.device)
        # unsafe: checking the sum of the lengths would wait for the GPU
        rows = torch.segment_reduce(states, "max" if pooling == "max" else "mean", lengths=lengths, unsafe=True)
    return stream.restore(rows)


class PoolerLayer(nn.Module):
    """SimCSE's layer on the [CLS] state: linear, then tanh."""

    def __init__(self, hidden: int):
        super().__init__()
        self.linear = nn.Linear(hidden, hidden)

    def forward(self, vectors: Tensor) -> Tensor:
        """(sequences, hidden) → the same shape."""
        return torch.tanh(self.linear(vectors))
