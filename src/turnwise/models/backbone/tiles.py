"""Tiles: places of a GPU kernel that several short sequences of a stream share (`tile_attention`)."""

import importlib.util

import numpy as np
import torch

from turnwise.models.backbone.ragged import spans
from turnwise.models.backbone.stream import Group

#: Whether there is a Triton to compile the kernel with; PyTorch brings it along on CUDA.
TRITON = importlib.util.find_spec("triton") is not None

#: Sizes of an attention head that the kernel can take.
HEAD_SIZES = (16, 32, 64, 128)

#: Places of a tile, smallest first; sequences that fit into none of them are not for this kernel.
TILES = (64, 128)


def tile_for(longest: int) -> int | None:
    """The places of a tile for sequences of at most so many tokens; None: they are too long."""
    return next((tile for tile in TILES if longest <= tile), None)


def tiles_of(groups: tuple[Group, ...], tile: int) -> torch.Tensor:
    """Where tiles start, where they end, and how long their sequences are (tiles, 3), int32; groups are in stream order."""
    start, end, length = np.array([(group.start, group.end, group.length) for group in groups]).T
    tokens = tile // length * length
    count = -(-(end - start) // tokens)
    starts = np.repeat(start, count) + spans(np.zeros_like(count), count) * np.repeat(tokens, count)
    ends = np.minimum(starts + np.repeat(tokens, count), np.repeat(end, count))
    return torch.from_numpy(np.stack([starts, ends, np.repeat(length, count)], 1).astype(np.int32))
