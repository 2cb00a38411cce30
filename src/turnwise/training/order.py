"""The order in which examples are seen: all of them shuffled, or blocks of neighbours mixed in a buffer.

A shuffle of everything needs a number in memory for every example, and reads the corpus from disk in no order. A buffer needs
memory for itself alone: the examples are cut into blocks of neighbours, the blocks of all stores are put in a random order, and as
many of them as the buffer holds are read whole and shuffled together; then the next ones are. Examples that are neighbours are then
in one batch more often than they would be otherwise; `training.mixing` says how much. Either order is given by seed and pass
alone, so it can be entered anywhere.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol

import numpy as np
import numpy.typing as npt

from turnwise.training.recipe import SMALLEST_BUFFER

Rows = npt.NDArray[np.int64]

#: Blocks that a buffer mixes, and the fewest neighbours that make a block worth reading whole.
BLOCKS = 256
NEIGHBOURS = SMALLEST_BUFFER

#: Random numbers for a place in the order: a pass, and what in it.
Random = Callable[..., np.random.Generator]


class Order(Protocol):
    """Examples in an order that differs from pass to pass."""

    def __len__(self) -> int:
        """How many there are."""

    def rows(self, passed: int, first: int, last: int) -> Rows:
        """The examples from place `first` to before `last` of a pass."""


class WholeOrder:
    """All examples shuffled.

    Args:
        examples: their numbers, or how many there are where these are all below that.
        random: random numbers for a pass.
    """

    def __init__(self, examples: npt.NDArray[np.integer] | int, random: Random):
        self._examples = examples
        self._random = random
        # the pass under way, and the one that threads may already prepare
        self._shuffled = lru_cache(2)(self._shuffle)

    def __len__(self) -> int:
        return self._examples if isinstance(self._examples, int) else len(self._examples)

    def rows(self, passed: int, first: int, last: int) -> Rows:
        """The examples from place `first` to before `last` of a pass."""
        return np.asarray(self._shuffled(passed)[first:last], np.int64)

    def _shuffle(self, passed: int) -> npt.NDArray[np.integer]:
        # four bytes a number where they do, which shuffle alike
        kind = np.int32 if len(self) <= np.iinfo(np.int32).max else np.int64
        every = self._examples
        shuffled: npt.NDArray[np.integer] = np.arange(every, dtype=kind) if isinstance(every, int) else every.copy()
        self._random(passed).shuffle(shuffled)
        return shuffled


@dataclass(frozen=True, slots=True)
class Blocks:
    """Examples as blocks of neighbours, of which those with a label count, or all.

    Attributes:
        labels: of all examples.
        label: of those that count; None: all count.
        size: neighbours of a block, whether they count or not.
        counts: how many of them count, of each block (blocks,).
    """

    labels: npt.NDArray[np.int8]
    label: int | None
    size: int
    counts: Rows

    @classmethod
    def of(cls, labels: npt.NDArray[np.int8], label: int | None, size: int) -> "Blocks":
        """Cuts examples into blocks."""
        starts = range(0, len(labels), size)
        if label is None:
            counts = np.minimum(size, len(labels) - np.array(starts))
        else:
            found = (np.count_nonzero(labels[start : start + size] == label) for start in starts)
            counts = np.fromiter(found, np.int64, len(starts))
        return cls(labels, label, size, counts)

    def range(self, block: int) -> tuple[int, int]:
        """The first example of a block, and the one behind the last."""
        return block * self.size, min(len(self.labels), (block + 1) * self.size)

    def members(self, block: int) -> Rows:
        """The numbers of the examples that count in a block."""
        first, last = self.range(block)
        return (
            np.arange(first, last)
            if self.label is None
            else first + np.flatnonzero(self.labels[first:last] == self.label)
        )


class BufferedOrder:
    """Blocks of neighbours in a random order, shuffled as many at a time as a buffer holds.

    Args:
        blocks: the examples.
        buffer: how many examples are shuffled together.
        random: random numbers for a pass, and for a buffer of it.
        read_next: told which examples a buffer is about to be filled with, as ranges.
    """

    def __init__(self, blocks: Blocks, buffer: int, random: Random, read_next: Callable[[list[tuple[int, int]]], None]):
        self._blocks = blocks
        self._random = random
        self._read_next = read_next
        self._examples = int(blocks.counts.sum())
        # buffers of about one size: a small last one would mix badly
        self._buffers = max(1, -(-self._examples // buffer))
        self._pass = lru_cache(2)(self._order_blocks)
        self._buffer = lru_cache(3)(self._fill)

    def __len__(self) -> int:
        return self._examples

    def rows(self, passed: int, first: int, last: int) -> Rows:
        """The examples from place `first` to before `last` of a pass."""
        _, ends = self._pass(passed)
        last = min(last, self._examples)
        parts = []
        for buffer in range(int(np.searchsorted(ends, first, "right")), int(np.searchsorted(ends, last, "left")) + 1):
            start = int(ends[buffer - 1]) if buffer else 0
            parts.append(self._buffer(passed, buffer)[max(0, first - start) : last - start])
        return np.concatenate(parts)

    def _order_blocks(self, passed: int) -> tuple[list[Rows], Rows]:
        """The blocks of each buffer, and behind how many examples each ends."""
        order = self._random(passed).permutation(len(self._blocks.counts))
        buffers = np.array_split(order, self._buffers)
        return buffers, np.cumsum([self._blocks.counts[blocks].sum() for blocks in buffers])

    def _fill(self, passed: int, buffer: int) -> Rows:
        blocks = np.sort(self._pass(passed)[0][buffer]).tolist()  # as they lie on disk: they are shuffled below
        self._read_next([self._blocks.range(block) for block in blocks])
        examples = np.concatenate([self._blocks.members(block) for block in blocks])
        self._random(passed, buffer).shuffle(examples)
        return examples


def block_size(buffer: int) -> int:
    """Neighbours of a block, for a buffer of so many examples."""
    return max(NEIGHBOURS, buffer // BLOCKS)
