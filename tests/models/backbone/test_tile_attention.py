"""Tiled attention equals attention by length, forward and backward; without a GPU, Triton interprets the kernel."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

pytest.importorskip("triton", reason="no Triton: the kernel needs it (it comes with the extra 'dev' on Linux)")

from tests.helpers.families import random_bert
from turnwise.core.errors import ModelError
from turnwise.models.backbone import tile_attention as kernels
from turnwise.models.backbone.attention import (
    StreamShape,
    padded_attention,
    plan_tiles,
    smallest_tile,
    unpadded_attention,
)
from turnwise.models.backbone.backbone import Backbone
from turnwise.models.backbone.load import load_backbone
from turnwise.models.backbone.stream import TokenStream

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
LENGTHS = (1, 2, 2, 5, 5, 5, 16, 17, 33, 40)


def stream_of(*lengths: int) -> TokenStream:
    return TokenStream.of([np.arange(1, length + 1, dtype=np.int32) for length in lengths])


def states(stream: TokenStream, heads: int, size: int, dtype: torch.dtype = torch.float32) -> list[torch.Tensor]:
    """Queries, keys and values (1, heads, tokens, size) as transformers hands them on."""
    generator = torch.Generator().manual_seed(stream.tokens)
    return [
        torch.randn(1, stream.tokens, heads, size, generator=generator)
        .to(DEVICE, dtype)
        .transpose(1, 2)
        .detach()
        .requires_grad_()
        for _ in range(3)
    ]


def relative_bias(by_distance: torch.Tensor) -> torch.Tensor:
    """A bias (heads, size, size), given that of every distance of two positions (heads, 2 * size - 1)."""
    size = (by_distance.shape[1] + 1) // 2
    positions = torch.arange(size, device=by_distance.device)
    return by_distance[:, positions[None, :] - positions[:, None] + size - 1]


def attended(given: list[torch.Tensor], shape: StreamShape, **settings: object) -> list[torch.Tensor]:
    """What attention gives, and the gradients of query, key, value, and of a bias by distance if it is given."""
    settings |= {"bias": relative_bias(given[3])} if len(given) > 3 else {}
    output, _ = unpadded_attention(nn.Module(), *given[:3], None, stream_shape=shape, scaling=0.2, **settings)  # type: ignore[arg-type]
    gradient = torch.linspace(-1, 1, output.numel(), device=DEVICE).reshape(output.shape).to(output.dtype)
    return [output.detach(), *torch.autograd.grad(output, given, gradient)]


WINDOW = {"sliding_window": 4}


@pytest.mark.parametrize(
    ("lengths", "settings"),
    [
        (LENGTHS, {}),
        (LENGTHS, {"is_causal": True}),
        (LENGTHS, WINDOW),
        (LENGTHS, {**WINDOW, "is_causal": True}),
        ((70, 9, 9, 128), WINDOW),
    ],
)
def test_tiles_equal_groups(lengths: tuple[int, ...], settings: dict[str, object]) -> None:
    stream = stream_of(*lengths)
    given = states(stream, 2, 16)
    expect_tiles_equal_groups(stream, given, **settings)


@pytest.mark.parametrize(("lengths", "tile"), [(LENGTHS, 64), ((70, 9, 9, 128), 128)])
def test_bias_in_tiles_equals_groups(lengths: tuple[int, ...], tile: int) -> None:
    stream = stream_of(*lengths)
    bias = torch.randn(2, 2 * tile - 1, generator=torch.Generator().manual_seed(tile)).to(DEVICE).requires_grad_()
    expect_tiles_equal_groups(stream, [*states(stream, 2, 16), bias])


def expect_tiles_equal_groups(stream: TokenStream, given: list[torch.Tensor], **settings: object) -> None:
    tiled, grouped = StreamShape.of(stream, DEVICE, tiled=True), StreamShape.of(stream, DEVICE)
    assert tiled.tiles is not None and grouped.tiles is None
    for one, other in zip(attended(given, tiled, **settings), attended(given, grouped, **settings), strict=True):
        assert torch.allclose(one, other, atol=1e-5)


def test_padded_attention_with_a_bias_equals_groups() -> None:
    """What a GPU does with sequences that are too long for tiles."""
    stream = stream_of(3, 5, 5, 130, 139)
    bias = torch.randn(2, 2 * 139 - 1, generator=torch.Generator().manual_seed(1)).requires_grad_()
    given = [each.detach().cpu().requires_grad_() for each in states(stream, 2, 16)]
    shape = StreamShape.of(stream, torch.device("cpu"))
    padded = padded_attention(*given, relative_bias(bias), shape, scale=0.2, dropout_p=0.0)[None]
    gradient = torch.linspace(-1, 1, padded.numel()).reshape(padded.shape)
    grouped, _ = unpadded_attention(
        nn.Module(), *given, None, stream_shape=shape, scaling=0.2, bias=relative_bias(bias)
    )
    inputs = [*given, bias]
    pairs = zip(
        [padded, *torch.autograd.grad(padded, inputs, gradient)],
        [grouped, *torch.autograd.grad(grouped, inputs, gradient)],
        strict=True,
    )
    assert all(torch.allclose(one, other, atol=1e-5) for one, other in pairs)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU: half precision is what the kernel is for there")
@pytest.mark.parametrize("size", [32, 64])
def test_half_precision_is_as_accurate_as_groups(size: int) -> None:
    stream = stream_of(*LENGTHS * 40)
    exact = attended(states(stream, 12, size), StreamShape.of(stream, DEVICE))
    half = states(stream, 12, size, torch.bfloat16)
    tiled, grouped = (attended(half, StreamShape.of(stream, DEVICE, tiled=tiled)) for tiled in (True, False))
    for one, other, expected in zip(tiled, grouped, exact, strict=True):
        errors = [float((actual.float() - expected).abs().mean()) for actual in (one, other)]
        assert errors[0] < 1.5 * errors[1]


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU: the varlen kernel runs on CUDA only")
@pytest.mark.parametrize("settings", [{}, {"is_causal": True}, {"sliding_window": 8}])
def test_varlen_kernel_equals_groups(settings: dict[str, object]) -> None:
    """The outputs and gradients agree within the precision of bf16."""
    stream = stream_of(3, 17, 5, 5, 40, 1, 17)
    given = states(stream, 4, 32, torch.bfloat16)
    varlen, grouped = (StreamShape.of(stream, DEVICE, varlen=varlen) for varlen in (True, False))
    for one, other in zip(attended(given, varlen, **settings), attended(given, grouped, **settings), strict=True):
        assert torch.allclose(one.float(), other.float(), atol=3e-2, rtol=3e-2)


@given(st.lists(st.integers(1, 128), min_size=1, max_size=60))
def test_every_token_is_in_one_tile_with_its_whole_sequence(lengths: list[int]) -> None:
    stream = stream_of(*lengths)
    tile = smallest_tile(max(lengths))
    assert tile is not None
    starts, ends, sizes = plan_tiles(stream.groups, tile).T.tolist()
    assert [place for start, end in zip(starts, ends, strict=True) for place in range(start, end)] == list(
        range(stream.tokens)
    )
    begun = set(stream.starts().tolist())
    for start, end, size in zip(starts, ends, sizes, strict=True):
        assert 0 < end - start <= tile
        assert set(range(start, end + 1, size)) <= begun


def dropped(stream: TokenStream, seed: int, rate: float = 0.3) -> torch.Tensor:
    """The attention weights of one head after dropout, for sequences of sixteen tokens with one-hot values."""
    shape = StreamShape.of(stream, DEVICE, tiled=True)
    assert shape.tiles is not None
    query, key = torch.zeros(2, stream.tokens, 1, 16, device=DEVICE)  # every key gets a sixteenth
    value = torch.eye(16, device=DEVICE).repeat(stream.tokens // 16, 1)[:, None]
    torch.manual_seed(seed)
    return kernels.tile_attention(query, key, value, shape.tiles, shape.tile_size, 1.0, rate)[:, 0]


def test_dropout_rate_and_scale() -> None:
    stream = stream_of(*[16] * 64)
    weights = dropped(stream, 1)
    assert np.unique(weights.cpu().numpy().round(5)) == pytest.approx([0.0, 1 / 16 / 0.7], abs=1e-5)
    assert float((weights == 0).float().mean()) == pytest.approx(0.3, abs=0.02)
    assert torch.equal(weights, dropped(stream, 1))
    assert not torch.equal(weights, dropped(stream, 2))
    # tiles and the sequences within one draw apart
    rows = weights.reshape(-1, 256)
    assert len(torch.unique(rows, dim=0)) == len(rows)


def test_gradient_respects_dropout() -> None:
    stream = stream_of(3, 5, 5, 9)
    shape = StreamShape.of(stream, DEVICE, tiled=True)
    assert shape.tiles is not None
    seed = torch.tensor([7], device=DEVICE)
    given = [each.squeeze(0).transpose(0, 1).detach().requires_grad_() for each in states(stream, 1, 16)]
    direction = [torch.randn_like(each) for each in given]

    def value(step: float) -> torch.Tensor:
        moved = [each + step * way for each, way in zip(given, direction, strict=True)]
        return torch.as_tensor(
            kernels.attend(*moved, None, shape.tiles, seed, shape.tile_size, 0.5, 0.4, False, shape.tile_size)
            .square()
            .sum()
        )

    gradients = torch.autograd.grad(value(0.0), given)
    along = sum(float((gradient * way).sum()) for gradient, way in zip(gradients, direction, strict=True))
    assert along == pytest.approx(float((value(5e-3) - value(-5e-3)).detach()) / 1e-2, rel=2e-2)


#: Compiles a kernel for a GPU, which need not be present, with scalars of a given precision, and prints how often the
#: code uses double precision.
COMPILE = """
import re, sys, triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from turnwise.models.backbone import tile_attention

constants = {"TILE": 64, "SIZE": 64, "DROPOUT": True, "CAUSAL": False, "WINDOW": 64, "BIAS": True}
constants |= {f"{name}_{axis}": step for name in "QKVG" for axis, step in (("TOKEN", 768), ("HEAD", 64))}
kernel = getattr(tile_attention, sys.argv[1])
kinds = {"tiles": "*i32", "seed": "*i64", "scale": sys.argv[2], "dropout": sys.argv[2]}
kinds |= {"bias": "*fp32", "bias_gradient": "*fp32"}
signature = {name: "constexpr" if name in constants else kinds.get(name, "*bf16") for name in kernel.arg_names}
values = {(place,): constants[name] for place, name in enumerate(kernel.arg_names) if name in constants}
target = GPUTarget("cuda", 90, 32)
compiled = triton.compile(ASTSource(kernel, signature, values), target=target, options={"num_warps": 4})
print(len(re.findall(r"[.]f64", compiled.asm["ptx"])))
"""


@pytest.mark.full
@pytest.mark.parametrize("kernel", ["_forward_kernel", "_backward_kernel"])
def test_double_precision_scalars_do_not_spread(kernel: str) -> None:
    """Compiled code passes numbers as doubles; a GPU would be four times slower if the tile were computed in them."""
    plain = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}

    def doubles(kind: str) -> int:
        command = [sys.executable, "-W", "ignore", "-c", COMPILE, kernel, kind]
        return int(subprocess.run(command, env=plain, capture_output=True, text=True, check=True).stdout)

    assert doubles("fp32") == 0
    # two numbers are loaded and rounded
    assert 0 < doubles("fp64") <= 8


def bert(tiled: bool) -> Backbone:
    torch.manual_seed(0)
    backbone = random_bert(hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
    backbone._use_tiles = lambda: tiled  # type: ignore[method-assign]
    return backbone.to(DEVICE).train()


def test_tiled_model_gives_the_same_states_and_gradients() -> None:
    stream, outputs = stream_of(*LENGTHS), []
    for tiled in (True, False):
        backbone = bert(tiled)
        given = backbone(stream)
        given.square().mean().backward()
        outputs.append([given.detach(), *(value.grad for value in backbone.parameters() if value.grad is not None)])
    for one, other in zip(*outputs, strict=True):
        assert torch.allclose(one, other, atol=1e-5)


@pytest.mark.full
def test_compiled_model_is_one_graph_for_any_number_of_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    counters, times = torch._dynamo.utils.counters, torch._dynamo.utils.compilation_time_metrics
    torch._dynamo.reset()
    counters.clear()
    times.clear()
    if not torch.cuda.is_available():  # an interpreted kernel cannot be compiled into a graph: a formula replaces it
        monkeypatch.setattr(
            kernels, "tile_attention", lambda query, key, value, tiles, *_: query * key.mean() + value * len(tiles)
        )
    backbone, plain = bert(True), bert(True)
    backbone.compile(**({} if torch.cuda.is_available() else {"backend": "aot_eager"}))
    for lengths in (LENGTHS, LENGTHS[:9], LENGTHS * 3):
        assert torch.allclose(backbone(stream_of(*lengths)), plain(stream_of(*lengths)), atol=1e-4)
    assert counters["stats"]["unique_graphs"] == 1
    assert [name for name in times if name.startswith("compile_attempt")] == ["compile_attempt_0"]
    backbone.eval()  # outside of training nothing is compiled
    backbone(stream_of(*LENGTHS))
    assert counters["stats"]["unique_graphs"] == 1


def test_bucketed_family_cannot_be_compiled(tiny_folder: Callable[[str], Path]) -> None:
    with pytest.raises(ModelError, match="compile=false"):
        load_backbone(tiny_folder("t5")).compile()
