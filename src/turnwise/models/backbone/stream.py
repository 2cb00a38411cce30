"""The flat stream of tokens that a backbone runs over, without padding."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from turnwise.models.backbone.ragged import RaggedTokens, Tokens, span_indices


@dataclass(frozen=True, slots=True)
class LengthGroup:
    """Sequences of one length, which are neighbours in the stream."""

    start: int
    count: int
    length: int

    @property
    def end(self) -> int:
        """Where the next group starts."""
        return self.start + self.count * self.length


@dataclass(frozen=True, slots=True)
class TokenStream:
    """The tokens of several sequences, shortest first.

    Sequences of equal length are neighbours, so each group of them can be viewed as a rectangle (count, length) without
    a copy: attention and pooling run on rectangles that hold no padding.
    """

    ids: Tensor  # (tokens,)
    segments: Tensor | None  # (tokens,), where sequences have two parts
    lengths: npt.NDArray[np.int64]  # of the sequences in stream order (sequences,)
    order: npt.NDArray[np.int64]  # the input position of every sequence, in stream order (sequences,)
    groups: tuple[LengthGroup, ...]

    @classmethod
    def of(cls, sequences: Sequence[Tokens], segments: Sequence[Tokens] | None = None) -> "TokenStream":
        """Return the stream of some sequences, none of which may be empty."""
        ragged = RaggedTokens.of(sequences)
        if not len(ragged) or not ragged.lengths.all():
            raise ValueError("a stream needs at least one sequence, and every sequence at least one token")
        order = np.argsort(ragged.lengths, kind="stable")
        lengths = ragged.lengths[order]
        groups, start = [], 0
        for length, count in zip(*np.unique(lengths, return_counts=True), strict=True):
            groups.append(LengthGroup(start, int(count), int(length)))
            start = groups[-1].end

        def flatten(parts: RaggedTokens) -> Tensor:
            return torch.from_numpy(parts.take(order).tokens.astype(np.int64))

        segment_ids = None if segments is None else flatten(RaggedTokens.of(segments))
        return cls(flatten(ragged), segment_ids, lengths, order, tuple(groups))

    def __len__(self) -> int:
        return len(self.lengths)

    @property
    def tokens(self) -> int:
        """The number of tokens."""
        return len(self.ids)

    def positions(self) -> Tensor:
        """Return the position of every token in its own sequence (tokens,)."""
        return torch.from_numpy(span_indices(np.zeros_like(self.lengths), self.lengths))

    def starts(self) -> Tensor:
        """Return where each sequence begins, and where the last one ends (sequences + 1,)."""
        return torch.from_numpy(np.concatenate([[0], np.cumsum(self.lengths)]))

    def to(self, device: torch.device) -> "TokenStream":
        """Return the stream with its tensors on a device."""
        segments = None if self.segments is None else to_device(self.segments, device)
        return TokenStream(to_device(self.ids, device), segments, self.lengths, self.order, self.groups)

    def restore(self, rows: Tensor) -> Tensor:
        """Reorder one row per sequence from stream order to input order."""
        return rows[to_device(torch.from_numpy(np.argsort(self.order)), rows.device)]

    def restore_tokens(self, states: Tensor) -> Tensor:
        """Reorder token states from stream order to the concatenated sequences in input order."""
        positions = np.argsort(self.order)
        rows = span_indices(self.starts().numpy()[positions], self.lengths[positions])
        return states[to_device(torch.from_numpy(rows), states.device)]

    def split(self, longest: int) -> "tuple[TokenStream | None, TokenStream | None]":
        """Return the sequences of at most `longest` tokens and the others, None if there are none; in stream order."""
        count = int(np.searchsorted(self.lengths, longest, "right"))
        if count in (0, len(self)):
            return (self, None) if count else (None, self)
        tokens = int(self.lengths[:count].sum())
        groups = len([group for group in self.groups if group.end <= tokens])
        moved = tuple(LengthGroup(group.start - tokens, group.count, group.length) for group in self.groups[groups:])
        segments = (None, None) if self.segments is None else (self.segments[:tokens], self.segments[tokens:])
        places = np.arange(len(self))
        return (
            TokenStream(self.ids[:tokens], segments[0], self.lengths[:count], places[:count], self.groups[:groups]),
            TokenStream(self.ids[tokens:], segments[1], self.lengths[count:], places[: len(self) - count], moved),
        )

    def buckets(self, budget: int) -> Iterator[tuple[int, int]]:
        """Yield ranges (first, end) of sequences with at most `budget` tokens and padding, or of one that is longer."""
        first = 0
        for index, length in enumerate(self.lengths):
            if index > first and (index + 1 - first) * length > budget:
                yield first, index
                first = index
        yield first, len(self.lengths)


def to_device(tensor: Tensor, device: torch.device) -> Tensor:
    """Move a tensor to a device, through pinned memory to a GPU so that the host does not wait for pending GPU work."""
    if device.type == "cuda" and tensor.device.type == "cpu":
        return tensor.pin_memory().to(device, non_blocking=True)
    return tensor.to(device)
