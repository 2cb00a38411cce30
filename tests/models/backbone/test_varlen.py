"""On a GPU in half precision, the varlen kernel equals attention by length groups and the padded forward pass."""

import numpy as np
import pytest
import torch

from turnwise.models.backbone.attention import StreamShape, unpadded_attention
from turnwise.models.backbone.stream import TokenStream

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU: the varlen kernel runs on CUDA only")


@pytest.mark.parametrize("window", [None, 8])
@pytest.mark.parametrize("causal", [False, True])
def test_varlen_equals_length_groups(window: int | None, causal: bool) -> None:
    """The outputs and gradients of one stream agree within the precision of bf16."""
    random = np.random.default_rng(0)
    stream = TokenStream.of([random.integers(5, 99, length).astype(np.int32) for length in (3, 17, 5, 5, 40, 1, 17)])
    device = torch.device("cuda")
    shapes = {"varlen": StreamShape.of(stream, device, varlen=True), "groups": StreamShape.of(stream, device)}
    torch.manual_seed(0)
    states = [torch.randn(1, 4, stream.tokens, 32, device=device, dtype=torch.bfloat16) for _ in range(3)]
    outputs: dict[str, list[torch.Tensor]] = {}
    for name, shape in shapes.items():
        inputs = [each.clone().requires_grad_() for each in states]
        output = _attend(inputs, shape, window, causal)
        output.float().square().sum().backward()
        outputs[name] = [output.detach(), *(each.grad for each in inputs if each.grad is not None)]
    for first, second in zip(outputs["varlen"], outputs["groups"], strict=True):
        assert torch.allclose(first.float(), second.float(), atol=3e-2, rtol=3e-2)


def _attend(inputs: list[torch.Tensor], shape: StreamShape, window: int | None, causal: bool) -> torch.Tensor:
    output, _ = unpadded_attention(
        torch.nn.Identity(),
        *inputs,
        None,
        stream_shape=shape,
        scaling=32**-0.5,
        sliding_window=window,
        is_causal=causal,
    )
    return output
