"""Attention over very short sequences: several of them share one tile of a Triton kernel.

A dialogue turn has about sixteen tokens. Kernels for long sequences give each sequence a tile of 64 to 128 positions,
most of which are empty. Here a tile holds as many sequences of one length as fit: one small matrix product, one mask,
one softmax, all in registers. The backward pass recomputes a tile from its inputs.
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
    tile_size: int,
    scale: float,
    dropout: float = 0.0,
    causal: bool = False,
    window: int | None = None,
    bias: torch.Tensor | None = None,
) -> torch.Tensor:
    """Attend within each sequence of a stream; (tokens, heads, size) in and out, contiguous along the last axis.

    `tiles` is the result of `attention.plan_tiles`. Dropout on the attention weights is drawn from torch's generator.
    `window` is how far a token sees, itself included; None: its whole sequence. `bias` (heads, tile, tile) is added to
    the scores of pairs of positions; it must depend on their distance alone, since sequences start anywhere in a tile.
    """
    # the seed stays on the device: reading it here would wait for the GPU; without dropout it is not used
    seed = torch.randint(1 << 31, (1,), device=query.device) if dropout else tiles
    settings = (tile_size, scale, dropout, causal, window or tile_size)
    if bias is not None:
        bias = bias.float().contiguous()
    attended: torch.Tensor = attend(query, key, value, bias, tiles, seed, *settings)
    return attended


# mypy: disable-error-code="no-untyped-def, untyped-decorator"
# Triton compiles these for the GPU; names in capitals are compile-time constants. Scalars are cast to single precision:
# code that torch compiles passes them in double precision, which would spread to everything computed with them.
# ruff: noqa: N803


@triton.jit
def _load(states, rows, valid, TOKEN: tl.constexpr, HEAD: tl.constexpr, SIZE: tl.constexpr):
    """Load a head's states of the tokens of a tile (TILE, SIZE), zero after its end."""
    columns = tl.arange(0, SIZE)
    positions = rows[:, None] * TOKEN + tl.program_id(1) * HEAD + columns[None, :]
    return tl.load(states + positions, mask=valid[:, None], other=0.0)


@triton.jit
def _store(states, values, rows, valid, SIZE: tl.constexpr):
    """Store a head's states of the tokens of a tile in a contiguous tensor (tokens, heads, size)."""
    columns = tl.arange(0, SIZE)
    positions = (rows[:, None] * tl.num_programs(1) + tl.program_id(1)) * SIZE + columns[None, :]
    tl.store(states + positions, values.to(states.dtype.element_ty), mask=valid[:, None])


@triton.jit
def _bias_positions(bias, TILE: tl.constexpr):
    """Return where the bias of this head's pairs of positions is (TILE, TILE)."""
    positions = tl.arange(0, TILE)
    return bias + (tl.program_id(1) * TILE + positions[:, None]) * TILE + positions[None, :]


@triton.jit
def _weights(
    q, k, bias, length, scale, TILE: tl.constexpr, CAUSAL: tl.constexpr, WINDOW: tl.constexpr, BIAS: tl.constexpr
):
    """Return the attention weights of a tile (TILE, TILE); those after its end are meaningless and not stored."""
    positions = tl.arange(0, TILE)
    visible = (positions // length)[:, None] == (positions // length)[None, :]
    distance = positions[:, None] - positions[None, :]
    if CAUSAL:
        visible = visible & (distance >= 0)
    if WINDOW < TILE:
        visible = visible & (distance < WINDOW) & (distance > -WINDOW)
    scores = tl.dot(q, tl.trans(k), input_precision="ieee") * tl.cast(scale, tl.float32)
    if BIAS:
        scores += tl.load(_bias_positions(bias, TILE))
    scores = tl.where(visible, scores, float("-inf"))
    weights = tl.exp(scores - tl.max(scores, 1)[:, None])
    return weights / tl.sum(weights, 1)[:, None]


@triton.jit
def _dropout_factors(seed, dropout, TILE: tl.constexpr):
    """Return the factors of this tile's and head's weights (TILE, TILE): 0, or 1 / (1 - dropout)."""
    positions = tl.arange(0, TILE)
    first = (tl.program_id(0) * tl.num_programs(1) + tl.program_id(1)) * TILE * TILE
    random = tl.rand(tl.load(seed), first + positions[:, None] * TILE + positions[None, :], 7)
    dropout = tl.cast(dropout, tl.float32)
    return tl.where(random >= dropout, 1.0 / (1.0 - dropout), 0.0)


@triton.jit
def _forward_kernel(
    query,
    key,
    value,
    bias,
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
    BIAS: tl.constexpr,
):
    tile = tiles + tl.program_id(0) * 3
    rows = tl.load(tile) + tl.arange(0, TILE)
    valid = rows < tl.load(tile + 1)
    q = _load(query, rows, valid, Q_TOKEN, Q_HEAD, SIZE)
    k = _load(key, rows, valid, K_TOKEN, K_HEAD, SIZE)
    v = _load(value, rows, valid, V_TOKEN, V_HEAD, SIZE)
    weights = _weights(q, k, bias, tl.load(tile + 2), scale, TILE, CAUSAL, WINDOW, BIAS)
    if DROPOUT:
        weights = weights * _dropout_factors(seed, dropout, TILE)
    _store(out, tl.dot(weights.to(v.dtype), v, input_precision="ieee"), rows, valid, SIZE)


@triton.jit
def _backward_kernel(
    query,
    key,
    value,
    bias,
    gradient,
    query_gradient,
    key_gradient,
    value_gradient,
    bias_gradient,
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
    BIAS: tl.constexpr,
):
    tile = tiles + tl.program_id(0) * 3
    rows = tl.load(tile) + tl.arange(0, TILE)
    valid = rows < tl.load(tile + 1)
    q = _load(query, rows, valid, Q_TOKEN, Q_HEAD, SIZE)
    k = _load(key, rows, valid, K_TOKEN, K_HEAD, SIZE)
    v = _load(value, rows, valid, V_TOKEN, V_HEAD, SIZE)
    g = _load(gradient, rows, valid, G_TOKEN, G_HEAD, SIZE)
    weights = _weights(q, k, bias, tl.load(tile + 2), scale, TILE, CAUSAL, WINDOW, BIAS)
    weights_gradient = tl.dot(g, tl.trans(v), input_precision="ieee")
    if DROPOUT:
        factors = _dropout_factors(seed, dropout, TILE)
        weights_gradient = weights_gradient * factors
        dropped = weights * factors
    else:
        dropped = weights
    _store(value_gradient, tl.dot(tl.trans(dropped.to(g.dtype)), g, input_precision="ieee"), rows, valid, SIZE)
    # of the softmax, then of the products
    centred = weights_gradient - tl.sum(weights * weights_gradient, 1)[:, None]
    if BIAS:
        # weights after the end of the tile are meaningless, their gradient is zero: none was loaded
        tl.atomic_add(_bias_positions(bias_gradient, TILE), weights * centred, sem="relaxed")
    scores_gradient = (weights * centred * tl.cast(scale, tl.float32)).to(q.dtype)
    _store(query_gradient, tl.dot(scores_gradient, k, input_precision="ieee"), rows, valid, SIZE)
    _store(key_gradient, tl.dot(tl.trans(scores_gradient), q, input_precision="ieee"), rows, valid, SIZE)


def _constants(
    tile_size: int, query: torch.Tensor, dropout: float, causal: bool, window: int, bias: torch.Tensor | None
) -> dict[str, Any]:
    sizes = {"TILE": tile_size, "SIZE": query.shape[2], "num_warps": tile_size // 16}
    return {**sizes, "DROPOUT": dropout > 0, "CAUSAL": causal, "WINDOW": window, "BIAS": bias is not None}


@library.triton_op("turnwise::attend", mutates_args={})
def attend(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    bias: torch.Tensor | None,
    tiles: torch.Tensor,
    seed: torch.Tensor,
    tile_size: int,
    scale: float,
    dropout: float,
    causal: bool,
    window: int,
) -> torch.Tensor:
    """Compute `tile_attention` for a given seed, as an operator that torch can differentiate and compile."""
    out = torch.empty(query.shape, dtype=query.dtype, device=query.device)
    strides = [stride for states in (query, key, value) for stride in states.stride()[:2]]
    constants = _constants(tile_size, query, dropout, causal, window, bias)
    library.wrap_triton(_forward_kernel)[(tiles.shape[0], query.shape[1])](
        query, key, value, query if bias is None else bias, out, tiles, seed, scale, dropout, *strides, **constants
    )
    return out


@library.triton_op("turnwise::attend_backward", mutates_args={})
def attend_backward(
    gradient: torch.Tensor,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    bias: torch.Tensor | None,
    tiles: torch.Tensor,
    seed: torch.Tensor,
    tile_size: int,
    scale: float,
    dropout: float,
    causal: bool,
    window: int,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return the gradients of query, key, value and bias; the last one is empty without a bias."""
    gradients = [torch.empty(states.shape, dtype=states.dtype, device=states.device) for states in (query, key, value)]
    strides = [stride for states in (query, key, value, gradient) for stride in states.stride()[:2]]
    constants = _constants(tile_size, query, dropout, causal, window, bias)
    bias_gradient = torch.zeros(0 if bias is None else bias.shape, dtype=torch.float32, device=query.device)
    table = query if bias is None else bias
    library.wrap_triton(_backward_kernel)[(tiles.shape[0], query.shape[1])](
        *(query, key, value, table, gradient, *gradients, bias_gradient, tiles, seed, scale, dropout),
        *strides,
        **constants,
    )
    return gradients[0], gradients[1], gradients[2], bias_gradient


def _save_for_backward(ctx: Any, inputs: tuple[Any, ...], output: torch.Tensor) -> None:
    query, key, value, bias, tiles, seed, *settings = inputs
    ctx.save_for_backward(query, key, value, bias, tiles, seed)
    ctx.settings = settings


def _backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
    contiguous = gradient if gradient.stride(-1) == 1 else gradient.contiguous()  # an expanded gradient is not
    *gradients, bias = attend_backward(contiguous, *ctx.saved_tensors, *ctx.settings)
    return (*gradients, bias if bias.numel() else None, None, None, None, None, None, None, None)


attend.register_autograd(_backward, setup_context=_save_for_backward)
