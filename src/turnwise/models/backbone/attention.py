"""Attention within each sequence of a flat stream of tokens.

Four implementations compute the same:

- **by length**: sequences of equal length are neighbours in the stream, so each group is a rectangle without padding;
  one call of PyTorch's attention per group. Works everywhere, and with dropout on the attention weights.
- **varlen**: one kernel for the whole stream, on CUDA in half precision; it has no dropout on the attention weights.
- **tiled**: one kernel for the whole stream, on CUDA, for sequences as short as dialogue turns (`tile_attention`).
- **padded**: one call of PyTorch's attention, on CUDA, for longer sequences with a bias of the scores.
"""

import importlib.util
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention
from torch.nn.utils.rnn import pad_sequence

from turnwise.models.backbone.ragged import span_indices
from turnwise.models.backbone.stream import LengthGroup, TokenStream, to_device

#: Whether Triton is installed, which compiles the tile kernel; PyTorch for CUDA brings it along.
TRITON = importlib.util.find_spec("triton") is not None

#: Sizes of an attention head, and of a tile (positions, smallest first), that the kernel supports.
HEAD_SIZES = (16, 32, 64, 128)
TILE_SIZES = (64, 128)


@dataclass(frozen=True, slots=True)
class StreamShape:
    """The layout of a stream, as attention needs it."""

    groups: tuple[LengthGroup, ...]
    starts: Tensor | None  # (sequences + 1,), int32 on the device; None if the varlen kernel is not used
    longest: int  # tokens of the longest sequence
    tiles: Tensor | None = None  # from `plan_tiles`, on the device; None if the tile kernel is not used
    tile_size: int = 0

    @classmethod
    def of(cls, stream: TokenStream, device: torch.device, varlen: bool = False, tiled: bool = False) -> "StreamShape":
        """Return the shape of a stream, with the tensors that the enabled kernels need on the device."""
        longest = int(stream.lengths[-1])
        tile_size = smallest_tile(longest) if tiled else None
        tiles = None if tile_size is None else to_device(plan_tiles(stream.groups, tile_size), device)
        starts = to_device(stream.starts().int(), device) if varlen else None
        return cls(stream.groups, starts, longest, tiles, tile_size or 0)


def smallest_tile(longest: int) -> int | None:
    """Return the size of a tile for sequences of at most so many tokens; None if they are too long for every tile."""
    return next((size for size in TILE_SIZES if longest <= size), None)


def plan_tiles(groups: tuple[LengthGroup, ...], tile_size: int) -> Tensor:
    """Return start, end and sequence length of every tile (tiles, 3), int32; groups are in stream order."""
    start, end, length = np.array([(group.start, group.end, group.length) for group in groups]).T
    tokens = tile_size // length * length
    count = -(-(end - start) // tokens)
    starts = np.repeat(start, count) + span_indices(np.zeros_like(count), count) * np.repeat(tokens, count)
    ends = np.minimum(starts + np.repeat(tokens, count), np.repeat(end, count))
    return torch.from_numpy(np.stack([starts, ends, np.repeat(length, count)], 1).astype(np.int32))


def unpadded_attention(
    module: torch.nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    *,
    stream_shape: StreamShape,
    dropout: float = 0.0,
    scaling: float | None = None,
    sliding_window: int | None = None,
    is_causal: bool | None = None,
    bias: Tensor | None = None,
    **_: Any,
) -> tuple[Tensor, None]:
    """Attend within each sequence of a stream; (1, heads, tokens, size) in, (1, tokens, heads, size) out.

    `bias` (heads, length, length) is added to the scores of pairs of positions; it is at least as long as the longest
    sequence, and as a tile.
    """
    shape = stream_shape
    causal = bool(getattr(module, "is_causal", False) if is_causal is None else is_causal)
    if shape.tiles is not None or shape.starts is not None:
        # squeeze, not [0]: the gradient of an index is a tensor of zeros to be filled; now (tokens, heads, size)
        query, key, value = (states.squeeze(0).transpose(0, 1) for states in (query, key, value))
        if shape.tiles is not None:
            from turnwise.models.backbone.tile_attention import tile_attention

            scale = query.shape[-1] ** -0.5 if scaling is None else scaling
            settings = (shape.tiles, shape.tile_size, scale, dropout, causal, sliding_window, bias)
            return tile_attention(query, key, value, *settings)[None], None
        reach = -1 if sliding_window is None else sliding_window - 1
        assert shape.starts is not None and bias is None
        window = (reach, 0 if causal else reach)
        states = (query, key, value)
        return _varlen(states, shape.starts, shape.longest, shape, scale=scaling, window_size=window)[None], None
    if bias is not None and query.device.type == "cuda":
        return padded_attention(query, key, value, bias, shape, scale=scaling, dropout_p=dropout)[None], None
    pieces = []
    for group in shape.groups:
        attended = scaled_dot_product_attention(
            _rectangle(query, group),
            _rectangle(key, group),
            _rectangle(value, group),
            attn_mask=_window_mask(group.length, sliding_window, query.device, causal)
            if bias is None
            else bias[None, :, : group.length, : group.length].to(query.dtype),
            dropout_p=dropout,
            scale=scaling,
            is_causal=causal and (sliding_window is None or group.length <= sliding_window),
        )  # (count, heads, length, size)
        pieces.append(attended.transpose(1, 2).flatten(0, 1))
    return torch.cat(pieces)[None], None


def attention_at(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    counts: npt.NDArray[np.int64],
    shape: StreamShape,
    *,
    scaling: float,
    dropout: float,
) -> Tensor:
    """Attend from `counts` tokens of each sequence to all its tokens; (tokens, heads, size) in, a row per query out."""
    if shape.starts is not None:
        starts = torch.from_numpy(np.concatenate([[0], np.cumsum(counts)])).to(query.device, torch.int32)
        return _varlen((query, key, value), starts, int(counts.max()), shape, scale=scaling, window_size=(-1, -1))
    pieces, sequence, first = [], 0, 0
    for group in shape.groups:
        group_counts = counts[sequence : sequence + group.count]
        sequence, last = sequence + group.count, first + int(group_counts.sum())
        if last > first:
            queries = query[first:last].split(group_counts.tolist())
            rows = pad_sequence(list(queries), batch_first=True)  # (count, most, heads, size)
            attended = scaled_dot_product_attention(
                rows.transpose(1, 2),
                _rectangle(key.transpose(0, 1)[None], group),
                _rectangle(value.transpose(0, 1)[None], group),
                dropout_p=dropout,
                scale=scaling,
            )  # (count, heads, most, size)
            is_query = torch.from_numpy(np.arange(rows.shape[1]) < group_counts[:, None]).to(query.device)
            pieces.append(attended.transpose(1, 2)[is_query])
        first = last
    return torch.cat(pieces)


def _varlen(
    states: tuple[Tensor, Tensor, Tensor], query_starts: Tensor, most_queries: int, shape: StreamShape, **settings: Any
) -> Tensor:
    """Call PyTorch's kernel for sequences of different lengths on query, key and value (tokens, heads, size)."""
    from torch.nn.attention.varlen import varlen_attn

    assert shape.starts is not None
    return torch.as_tensor(varlen_attn(*states, query_starts, shape.starts, most_queries, shape.longest, **settings))


def padded_attention(
    query: Tensor, key: Tensor, value: Tensor, bias: Tensor, shape: StreamShape, **settings: Any
) -> Tensor:
    """Attend with a bias in one call of PyTorch's attention on padded sequences; (tokens, heads, size) out.

    A GPU spends less time on padding than on starting kernels for every length.
    """
    lengths = np.concatenate([np.full(group.count, group.length) for group in shape.groups])
    valid = to_device(torch.from_numpy(np.arange(shape.longest) < lengths[:, None]), query.device)  # (count, longest)

    def pad(states: Tensor) -> Tensor:
        rows = states.new_zeros(*valid.shape, *states.squeeze(0).transpose(0, 1).shape[1:])
        return rows.masked_scatter(valid[:, :, None, None], states.squeeze(0).transpose(0, 1)).transpose(1, 2)

    own = bias[None, :, : shape.longest, : shape.longest].to(query.dtype)
    scores = own.masked_fill(~valid[:, None, None], torch.finfo(query.dtype).min)  # (count, heads, longest, longest)
    attended = scaled_dot_product_attention(pad(query), pad(key), pad(value), attn_mask=scores, **settings)
    return torch.as_tensor(attended.transpose(1, 2)[valid])


def _rectangle(states: Tensor, group: LengthGroup) -> Tensor:
    """(1, heads, tokens, size) → the group's (count, heads, length, size), without a copy."""
    tokens = states[0, :, group.start : group.end]
    return torch.as_tensor(tokens.unflatten(1, (group.count, group.length)).transpose(0, 1))


def _window_mask(length: int, window: int | None, device: torch.device, causal: bool) -> Tensor | None:
    """Return which positions see each other (length, length) in local attention; None if all do."""
    if window is None or length <= window:
        return None
    positions = torch.arange(length, device=device)
    distance = positions[:, None] - positions[None, :]
    return (distance.abs() < window) & ((distance >= 0) if causal else True)
