"""The order of examples in a run: which of them each batch has, as a function of the seed and the step alone.

Examples are shuffled all at once, or in a buffer. Shuffling all needs a number in memory for every example, and reads
the corpus from disk in random order. A buffer needs memory for itself alone: the examples are cut into blocks of
neighbours, the blocks of all stores are put in a random order, and as many of them as the buffer holds are read and
shuffled together; then the next ones. Neighbouring examples are then more often in one batch than otherwise.

An objective that compares labels gets batches of some labels with a few examples each.
"""

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from turnwise.core.errors import TurnwiseError
from turnwise.objectives.objective import LabelSampling, label_domains
from turnwise.training.recipe import SMALLEST_BUFFER

#: Blocks that a buffer mixes.
BLOCKS = 256

Rows = npt.NDArray[np.int64]

#: Returns random numbers for a place in the order: an epoch, and a part of it.
MakeRandom = Callable[..., np.random.Generator]


class ShuffledSampler:
    """Samples given examples, or all numbers below `examples`, in random order."""

    def __init__(self, examples: npt.NDArray[Any] | int, random: MakeRandom):
        largest = examples if isinstance(examples, int) else int(examples.max(initial=0))
        self._dtype = np.min_scalar_type(-1 - largest)  # as few bytes as possible; the order does not depend on it
        self._examples = examples if isinstance(examples, int) else examples.astype(self._dtype)
        self._random = random
        # the current epoch, and the next one, which threads may already prepare
        self._shuffled = lru_cache(2)(self._shuffle)

    def __len__(self) -> int:
        return self._examples if isinstance(self._examples, int) else len(self._examples)

    def rows(self, epoch: int, first: int, last: int) -> Rows:
        """Return the examples at the places [first, last) of an epoch."""
        return np.asarray(self._shuffled(epoch)[first:last], np.int64)

    def _shuffle(self, epoch: int) -> npt.NDArray[Any]:
        members = self._examples
        order = np.arange(members, dtype=self._dtype) if isinstance(members, int) else members.copy()
        self._random(epoch).shuffle(order)
        return order


class BufferedSampler:
    """Samples all examples, or those with a label, from blocks of neighbours in a random order.

    As many blocks as a buffer of `buffer` examples holds are shuffled together. `random` returns random numbers of an
    epoch, or of a buffer in it; `read_next` receives the ranges of examples that a buffer is about to be filled with.
    """

    def __init__(
        self,
        labels: npt.NDArray[np.integer],
        label: int | None,
        buffer: int,
        random: MakeRandom,
        read_next: Callable[[list[tuple[int, int]]], None],
    ):
        self._labels = labels
        self._label = label
        self._random = random
        self._read_next = read_next
        self._size = block_size(buffer)
        blocks = -(-len(labels) // self._size)
        self._counts = np.fromiter((len(self._members(*self._range(block))) for block in range(blocks)), np.int64)
        self._examples = int(self._counts.sum())
        # buffers of about equal size: a small last one would mix badly
        self._buffers = max(1, -(-self._examples // buffer))
        self._epoch = lru_cache(2)(self._order_blocks)
        self._buffer = lru_cache(3)(self._fill)

    def __len__(self) -> int:
        return self._examples

    def rows(self, epoch: int, first: int, last: int) -> Rows:
        """Return the examples at the places [first, last) of an epoch."""
        _, ends = self._epoch(epoch)
        last = min(last, self._examples)
        parts = []
        for buffer in range(int(np.searchsorted(ends, first, "right")), int(np.searchsorted(ends, last, "left")) + 1):
            start = int(ends[buffer - 1]) if buffer else 0
            parts.append(self._buffer(epoch, buffer)[max(0, first - start) : last - start])
        return np.concatenate(parts)

    def _order_blocks(self, epoch: int) -> tuple[list[Rows], Rows]:
        """Return the blocks of each buffer, and the place at which each buffer ends."""
        buffers = np.array_split(self._random(epoch).permutation(len(self._counts)), self._buffers)
        return buffers, np.cumsum([self._counts[blocks].sum() for blocks in buffers])

    def _fill(self, epoch: int, buffer: int) -> Rows:
        # in the order on disk: they are shuffled below
        ranges = [self._range(block) for block in np.sort(self._epoch(epoch)[0][buffer]).tolist()]
        self._read_next(ranges)
        examples = np.concatenate([self._members(first, last) for first, last in ranges])
        self._random(epoch, buffer).shuffle(examples)
        return examples

    def _range(self, block: int) -> tuple[int, int]:
        return block * self._size, min(len(self._labels), (block + 1) * self._size)

    def _members(self, first: int, last: int) -> Rows:
        """Return the sampled examples of a block."""
        if self._label is None:
            return np.arange(first, last)
        return first + np.flatnonzero(self._labels[first:last] == self._label)


def block_size(buffer: int) -> int:
    """Return the number of neighbours in a block, for a buffer of some examples."""
    return max(SMALLEST_BUFFER, buffer // BLOCKS)


class LabelSampler:
    """Samples batches of some labels with a few examples each.

    A part of a batch's labels is drawn domain by domain, so that labels which are easily confused meet; the others are
    drawn from everywhere. Both parts go through all labels in a random order, and then through another one. Labels with
    a single example are not used.
    """

    def __init__(self, name: str, labels: npt.NDArray[np.integer], sampling: LabelSampling, random: MakeRandom):
        self._sampling = sampling
        self._random = random
        order = np.argsort(labels, kind="stable")
        distinct, starts = np.unique(np.asarray(labels)[order], return_index=True)
        members = np.split(order, starts[1:])
        #: The examples of each label.
        self._members = [rows for rows in members if len(rows) > 1]
        self._domains = label_domains(distinct[[len(rows) > 1 for rows in members]])
        if len(self._members) < 2:
            raise TurnwiseError(
                f"objective {name} finds {len(self._members)} intents of two utterances or more in this corpus, and it"
                " compares intents: use a corpus with labelled utterances"
            )
        self._shuffled = lru_cache(4)(self._shuffle)

    def __len__(self) -> int:
        return sum(map(len, self._members))

    def rows(self, epoch: int, first: int, last: int) -> Rows:
        """Return the examples of the batch at the places [first, last) of an epoch, label by label."""
        each = self._sampling.examples
        count = min(max(2, (last - first) // each), len(self._members))
        batch = first // (last - first)
        by_domain = round(count * self._sampling.same_domain)
        labels = dict.fromkeys(self._cycle(epoch, 1, batch * by_domain, by_domain))
        # the rest from everywhere; a label that is in the batch already is replaced by the next one
        start = batch * (count - by_domain)
        for label in self._cycle(epoch, 0, start, len(self._members)):
            if len(labels) == count:
                break
            labels[label] = None
        random = self._random(epoch, 4, batch)
        chosen = [self._members[label] for label in labels]
        return np.concatenate([random.choice(rows, min(each, len(rows)), replace=False) for rows in chosen])

    def _cycle(self, epoch: int, part: int, start: int, count: int) -> list[int]:
        """Return `count` labels of a part's endless order in an epoch, from a place on."""
        size = len(self._members)
        return [int(self._shuffled(epoch, part, place // size)[place % size]) for place in range(start, start + count)]

    def _shuffle(self, epoch: int, part: int, turn: int) -> Rows:
        """Return all labels in random order; in part 1, those of a domain next to each other."""
        random = self._random(epoch, 3, part, turn)
        order = random.permutation(len(self._members))
        if part == 0:
            return order
        ranks = random.permutation(int(self._domains.max()) + 1)
        return order[np.argsort(ranks[self._domains[order]], kind="stable")]
