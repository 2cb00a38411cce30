"""Attention over very short sequences: several of them share one tile of a GPU kernel.

A dialogue turn has some sixteen tokens. Kernels for long sequences give each of them a tile of 64 to 128 places, of which most are
empty. Here a tile holds as many sequences of one length as fit: one small matrix product, one mask, one softmax, all in registers.
A tile is complete in itself, so that the backward pass computes it again in place, needs nothing kept but its inputs, and dropout
on the attention weights costs a few random numbers.

Needs Triton, which PyTorch brings along on CUDA.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import library


def tile_attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    tiles: torch.Tensor,
    tile: int,
    scale: float,
    dropout: float = 0.0,
    causal: bool = False,
    window: int | None = None,
) -> torch.Tensor:
    """Attention within each sequence of a stream; (tokens, heads, size) in and out, the last axis without gaps.

    Args:
        query: of all tokens.
        key: of all tokens.
        value: of all tokens.
        tiles: what `tiles.tiles_of` gave, on the device.
        tile: places of a tile.
        scale: of the products.
        dropout: on the attention weights, drawn from torch's own generator.
        causal: whether a token sees none behind it.
        window: how far a token sees, itself counted; None: as far as its sequence goes.
    """
    # a seed that stays on the device: to read it here would wait for the GPU; without dropout it is not looked at
    seed = torch.randint(1 << 31, (1,), device=query.device) if dropout else tiles
    attended: torch.Tensor = attend(query, key, value, tiles, seed, tile, scale, dropout, causal, window or tile)
    return attended


# mypy: disable-error-code="no-untyped-def, untyped-decorator"
# Triton compiles these for the GPU; names in capitals are constants to it. Numbers are made single precision: where torch compiles
# what is around a kernel, it hands double precision in, and all that they meet would be computed so.
# ruff: noqa: N803


@triton.jit
def _load(states, rows, there, TOKEN: tl.constexpr, HEAD: tl.constexpr, SIZE: tl.constexpr):
    """A head's states of the tokens of a tile (TILE, SIZE), zero behind its end."""
    columns = tl.arange(0, SIZE)
    places = rows[:, None] * TOKEN + tl.program_id(1) * HEAD + columns[None, :]
    return tl.load(states + places, mask=there[:, None], other=0.0)


@triton.jit
def _store(states, values, rows, there, SIZE: tl.constexpr):
    """Writes a head's states of the tokens of a tile into a tensor (tokens, heads, size) without gaps."""
    columns = tl.arange(0, SIZE)
    places = (rows[:, None] * tl.num_programs(1) + tl.program_id(1)) * SIZE + columns[None, :]
    tl.store(states + places, values.to(states.dtype.element_ty), mask=there[:, None])


@triton.jit
def _weights(q, k, length, scale, TILE: tl.constexpr, CAUSAL: tl.constexpr, WINDOW: tl.constexpr):
    """The attention weights of a tile (TILE, TILE); a place behind the tile's end attends to its like, which nobody reads."""
    places = tl.arange(0, TILE)
    sees = (places // length)[:, None] == (places // length)[None, :]
    distance = places[:, None] - places[None, :]
    if CAUSAL:
        sees = sees & (distance >= 0)
    if WINDOW < TILE:
        sees = sees & (distance < WINDOW) & (distance > -WINDOW)
    scores = tl.where(sees, tl.dot(q, tl.trans(k), input_precision="ieee") * tl.cast(scale, tl.float32), float("-inf"))
    weights = tl.exp(scores - tl.max(scores, 1)[:, None])
    return weights / tl.sum(weights, 1)[:, None]


@triton.jit
def _kept(seed, dropout, TILE: tl.constexpr):
    """What dropout multiplies the weights of this tile and head by (TILE, TILE): 0, or the inverse of the share that stays."""
    places = tl.arange(0, TILE)
    first = (tl.program_id(0) * tl.num_programs(1) + tl.program_id(1)) * TILE * TILE
    drawn = tl.rand(tl.load(seed), first + places[:, None] * TILE + places[None, :], 7)
    dropout = tl.cast(dropout, tl.float32)
    return tl.where(drawn >= dropout, 1.0 / (1.0 - dropout), 0.0)


@triton.jit
def _forward_kernel(
    query,
    key,
    value,
    out,
    tiles,
    seed,
    scale,
    dropout,
    Q_TOKEN: tl.constexpr,
    Q_HEAD: tl.constexpr,
    K_TOKEN: tl.constexpr,
    K_HEAD: tl.constexpr,
    V_TOKEN: tl.constexpr,
    V_HEAD: tl.constexpr,
    TILE: tl.constexpr,
    SIZE: tl.constexpr,
    DROPOUT: tl.constexpr,
    CAUSAL: tl.constexpr,
    WINDOW: tl.constexpr,
):
    tile = tiles + tl.program_id(0) * 3
    rows = tl.load(tile) + tl.arange(0, TILE)
    there = rows < tl.load(tile + 1)
    q = _load(query, rows, there, Q_TOKEN, Q_HEAD, SIZE)
    k = _load(key, rows, there, K_TOKEN, K_HEAD, SIZE)
    v = _load(value, rows, there, V_TOKEN, V_HEAD, SIZE)
    weights = _weights(q, k, tl.load(tile + 2), scale, TILE, CAUSAL, WINDOW)
    if DROPOUT:
        weights = weights * _kept(seed, dropout, TILE)
    _store(out, tl.dot(weights.to(v.dtype), v, input_precision="ieee"), rows, there, SIZE)


@triton.jit
def _backward_kernel(
    query,
    key,
    value,
    gradient,
    query_gradient,
    key_gradient,
    value_gradient,
    tiles,
    seed,
    scale,
    dropout,
    Q_TOKEN: tl.constexpr,
    Q_HEAD: tl.constexpr,
    K_TOKEN: tl.constexpr,
    K_HEAD: tl.constexpr,
    V_TOKEN: tl.constexpr,
    V_HEAD: tl.constexpr,
    G_TOKEN: tl.constexpr,
    G_HEAD: tl.constexpr,
    TILE: tl.constexpr,
    SIZE: tl.constexpr,
    DROPOUT: tl.constexpr,
    CAUSAL: tl.constexpr,
    WINDOW: tl.constexpr,
):
    tile = tiles + tl.program_id(0) * 3
    rows = tl.load(tile) + tl.arange(0, TILE)
    there = rows < tl.load(tile + 1)
    q = _load(query, rows, there, Q_TOKEN, Q_HEAD, SIZE)
    k = _load(key, rows, there, K_TOKEN, K_HEAD, SIZE)
    v = _load(value, rows, there, V_TOKEN, V_HEAD, SIZE)
    g = _load(gradient, rows, there, G_TOKEN, G_HEAD, SIZE)
    weights = _weights(q, k, tl.load(tile + 2), scale, TILE, CAUSAL, WINDOW)
    weights_gradient = tl.dot(g, tl.trans(v), input_precision="ieee")
    if DROPOUT:
        kept = _kept(seed, dropout, TILE)
        weights_gradient = weights_gradient * kept
        dropped = weights * kept
    else:
        dropped = weights
    _store(value_gradient, tl.dot(tl.trans(dropped.to(g.dtype)), g, input_precision="ieee"), rows, there, SIZE)
    # of the softmax, then of the products
    scores_gradient = (
        weights * (weights_gradient - tl.sum(weights * weights_gradient, 1)[:, None]) * tl.cast(scale, tl.float32)
    )
    scores_gradient = scores_gradient.to(q.dtype)
    _store(query_gradient, tl.dot(scores_gradient, k, input_precision="ieee"), rows, there, SIZE)
    _store(key_gradient, tl.dot(tl.trans(scores_gradient), q, input_precision="ieee"), rows, there, SIZE)


def _constants(tile: int, query: torch.Tensor, dropout: float, causal: bool, window: int) -> dict[str, Any]:
    return {
        "TILE": tile,
        "SIZE": query.shape[2],
        "DROPOUT": dropout > 0,
        "CAUSAL": causal,
        "WINDOW": window,
        "num_warps": tile // 16,
    }


@library.triton_op("turnwise::attend", mutates_args={})
def attend(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    tiles: torch.Tensor,
    seed: torch.Tensor,
    tile: int,
    scale: float,
    dropout: float,
    causal: bool,
    window: int,
) -> torch.Tensor:
    """`tile_attention` for a given seed, as an operator that torch can differentiate and compile."""
    out = torch.empty(query.shape, dtype=query.dtype, device=query.device)
    strides = [stride for states in (query, key, value) for stride in states.stride()[:2]]
    constants = _constants(tile, query, dropout, causal, window)
    library.wrap_triton(_forward_kernel)[(tiles.shape[0], query.shape[1])](
        query, key, value, out, tiles, seed, scale, dropout, *strides, **constants
    )
    return out


@library.triton_op("turnwise::attend_backward", mutates_args={})
def attend_backward(
    gradient: torch.Tensor,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    tiles: torch.Tensor,
    seed: torch.Tensor,
    tile: int,
    scale: float,
    dropout: float,
    causal: bool,
    window: int,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """The gradients of query, key and value."""
    gradients = [torch.empty(states.shape, dtype=states.dtype, device=states.device) for states in (query, key, value)]
    strides = [stride for states in (query, key, value, gradient) for stride in states.stride()[:2]]
    constants = _constants(tile, query, dropout, causal, window)
    library.wrap_triton(_backward_kernel)[(tiles.shape[0], query.shape[1])](
        query, key, value, gradient, *gradients, tiles, seed, scale, dropout, *strides, **constants
    )
    return gradients[0], gradients[1], gradients[2]


def _keep(ctx: Any, inputs: tuple[Any, ...], output: torch.Tensor) -> None:
    query, key, value, tiles, seed, *settings = inputs
    ctx.save_for_backward(query, key, value, tiles, seed)
    ctx.settings = settings


def _differentiate(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
    # the kernel reads rows of a head without gaps; an expanded gradient has none
    found = attend_backward(
        gradient if gradient.stride(-1) == 1 else gradient.contiguous(), *ctx.saved_tensors, *ctx.settings
    )
    return (*found, None, None, None, None, None, None, None)


attend.register_autograd(_differentiate, setup_context=_keep)
