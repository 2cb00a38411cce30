"""Attention over a flat stream of tokens, registered with transformers so that its own model code runs unpadded.

transformers' models call an attention function by name and pass keyword arguments through to it. Ours gets the stream's shape
that way and attends within each sequence alone. Three ways to do it, equal in what they compute:

- **by length**: sequences of equal length are neighbours in the stream, so each group is a rectangle without padding; one call
  of PyTorch's attention a group. Works everywhere, and with dropout on the attention weights.
- **varlen**: one kernel for the whole stream, on CUDA in half precision; it has no dropout on the attention weights.
- **in tiles**: one kernel for the whole stream, on CUDA, for sequences as short as turns of dialogues are (`tile_attention`).
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch.nn.functional import scaled_dot_product_attention
from torch.nn.utils.rnn import pad_sequence
from transformers import AttentionInterface
from transformers.masking_utils import AttentionMaskInterface

from turnwise.models.backbone.stream import Group, TokenStream, to_device
from turnwise.models.backbone.tiles import tile_for, tiles_of

#: The name under which transformers' models find the function.
UNPADDED = "turnwise_unpadded"


@dataclass(frozen=True, slots=True)
class StreamShape:
    """What attention has to know of a stream.

    Attributes:
        groups: runs of sequences of one length.
        starts: where sequences begin (sequences + 1,), int32 on the device; None where the varlen kernel does not serve.
        longest: tokens of the longest sequence.
        tiles: what `tiles.tiles_of` makes of the groups, on the device; None where sequences are too long for tiles.
        tile: places of a tile.
    """

    groups: tuple[Group, ...]
    starts: torch.Tensor | None
    longest: int
    tiles: torch.Tensor | None = None
    tile: int = 0


def shape_of(stream: TokenStream, device: torch.device, *, varlen: bool = False, tiled: bool = False) -> StreamShape:
    """The shape of a stream, with what the kernels that serve have to know of it on the device."""
    longest = int(stream.lengths[-1])
    tile = tile_for(longest) if tiled else None
    tiles = None if tile is None else to_device(tiles_of(stream.groups, tile), device)
    starts = to_device(stream.starts().int(), device) if varlen else None
    return StreamShape(stream.groups, starts, longest, tiles, tile or 0)


def unpadded_attention(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    *,
    stream_shape: StreamShape,
    dropout: float = 0.0,
    scaling: float | None = None,
    sliding_window: int | None = None,
    is_causal: bool | None = None,
    **_: Any,
) -> tuple[torch.Tensor, None]:
    """Attention within each sequence of a stream; (1, heads, tokens, size) in, (1, tokens, heads, size) out."""
    causal = bool(getattr(module, "is_causal", False) if is_causal is None else is_causal)
    if stream_shape.tiles is not None:
        return _tiled(query, key, value, stream_shape, scaling, dropout, sliding_window, causal), None
    if stream_shape.starts is not None:
        return _varlen(query, key, value, stream_shape, scaling, sliding_window, causal), None
    pieces = []
    for group in stream_shape.groups:
        attended = scaled_dot_product_attention(
            _rectangle(query, group),
            _rectangle(key, group),
            _rectangle(value, group),
            attn_mask=_window(group.length, sliding_window, query.device, causal),
            dropout_p=dropout,
            scale=scaling,
            is_causal=causal and (sliding_window is None or group.length <= sliding_window),
        )  # (count, heads, length, size)
        pieces.append(attended.transpose(1, 2).flatten(0, 1))
    return torch.cat(pieces)[None], None


def attention_at(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    counts: npt.NDArray[np.int64],
    shape: StreamShape,
    *,
    scaling: float,
    dropout: float,
) -> torch.Tensor:
    """Attention of a few tokens to all of their own sequence, both sides; (tokens, heads, size) in, as many as queries out.

    Args:
        query: of those tokens, in stream order.
        key: of all tokens of the stream.
        value: of all tokens.
        counts: how many queries each sequence has (sequences,).
        shape: of the stream.
        scaling: of the products.
        dropout: on the attention weights.
    """
    if shape.starts is not None:
        return _varlen_at(query, key, value, counts, shape, scaling)
    pieces, sequence, first = [], 0, 0
    for group in shape.groups:
        here = counts[sequence : sequence + group.count]
        sequence, last = sequence + group.count, first + int(here.sum())
        if last > first:
            rows = pad_sequence(
                list(query[first:last].split(here.tolist())), batch_first=True
            )  # (count, most, heads, size)
            attended = scaled_dot_product_attention(
                rows.transpose(1, 2),
                _rectangle(key.transpose(0, 1)[None], group),
                _rectangle(value.transpose(0, 1)[None], group),
                dropout_p=dropout,
                scale=scaling,
            )  # (count, heads, most, size)
            asked = torch.from_numpy(np.arange(rows.shape[1]) < here[:, None]).to(query.device)
            pieces.append(attended.transpose(1, 2)[asked])
        first = last
    return torch.cat(pieces)


def _rectangle(states: torch.Tensor, group: Group) -> torch.Tensor:
    """(1, heads, tokens, size) → the group's (count, heads, length, size), without a copy."""
    rectangle: torch.Tensor = (
        states[0, :, group.start : group.end].unflatten(1, (group.count, group.length)).transpose(0, 1)
    )
    return rectangle


def _window(length: int, window: int | None, device: torch.device, causal: bool) -> torch.Tensor | None:
    """Which places may see each other (length, length), where attention is local; None where all may."""
    if window is None or length <= window:
        return None
    places = torch.arange(length, device=device)
    distance = places[:, None] - places[None, :]
    return (distance.abs() < window) & ((distance >= 0) if causal else True)


def _tiled(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    shape: StreamShape,
    scaling: float | None,
    dropout: float,
    window: int | None,
    causal: bool,
) -> torch.Tensor:
    from turnwise.models.backbone.tile_attention import tile_attention

    assert shape.tiles is not None
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    # squeeze, not [0]: the gradient of that is a tensor of zeros to be filled
    query, key, value = (states.squeeze(0).transpose(0, 1) for states in (query, key, value))  # (tokens, heads, size)
    return tile_attention(query, key, value, shape.tiles, shape.tile, scale, dropout, causal, window)[None]


def _varlen(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    shape: StreamShape,
    scaling: float | None,
    window: int | None,
    causal: bool,
) -> torch.Tensor:
    from torch.nn.attention.varlen import varlen_attn

    assert shape.starts is not None
    reach = -1 if window is None else window - 1
    query, key, value = (states.squeeze(0).transpose(0, 1) for states in (query, key, value))  # (tokens, heads, size)
    attended = varlen_attn(
        query,
        key,
        value,
        shape.starts,
        shape.starts,
        shape.longest,
        shape.longest,
        scale=scaling,
        window_size=(reach, 0 if causal else reach),
    )
    assert isinstance(attended, torch.Tensor)
    return attended[None]


def _varlen_at(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    counts: npt.NDArray[np.int64],
    shape: StreamShape,
    scaling: float,
) -> torch.Tensor:
    from torch.nn.attention.varlen import varlen_attn

    assert shape.starts is not None
    starts = torch.from_numpy(np.concatenate([[0], np.cumsum(counts)])).to(query.device, torch.int32)
    attended = varlen_attn(query, key, value, starts, shape.starts, int(counts.max()), shape.longest, scale=scaling)
    assert isinstance(attended, torch.Tensor)
    return attended


def _no_mask(*_: Any, **__: Any) -> None:
    """The stream's shape says who may see whom; a mask would cost memory for nothing."""


AttentionInterface.register(UNPADDED, unpadded_attention)
AttentionMaskInterface.register(UNPADDED, _no_mask)
