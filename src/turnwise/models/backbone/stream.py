"""Token sequences without padding: in one numpy array, and as the flat stream that a backbone runs over."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import overload

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

Tokens = npt.NDArray[np.int32]


class RaggedTokens(Sequence[Tokens]):
    """Token sequences, concatenated: `tokens` (tokens,), and the `starts` and `lengths` of sequences (sequences,)."""

    __slots__ = ("lengths", "starts", "tokens")

    def __init__(self, tokens: Tokens, lengths: npt.NDArray[np.int64]):
        self.tokens = tokens
        self.lengths = lengths
        self.starts = np.cumsum(lengths) - lengths

    @classmethod
    def of(cls, sequences: Sequence[Tokens]) -> "RaggedTokens":
        """Concatenate sequences; ragged ones are returned as they are."""
        if isinstance(sequences, RaggedTokens):
            return sequences
        lengths = np.fromiter((len(sequence) for sequence in sequences), np.int64, len(sequences))
        return cls(np.concatenate(sequences) if len(sequences) else np.empty(0, np.int32), lengths)

    @classmethod
    def concatenate(cls, parts: Sequence["RaggedTokens"]) -> "RaggedTokens":
        """Return the sequences of one or more parts."""
        return cls(np.concatenate([part.tokens for part in parts]), np.concatenate([part.lengths for part in parts]))

    def __len__(self) -> int:
        return len(self.lengths)

    @overload
    def __getitem__(self, index: int) -> Tokens: ...

    @overload
    def __getitem__(self, index: slice) -> "RaggedTokens": ...

    def __getitem__(self, index: int | slice) -> "Tokens | RaggedTokens":
        if isinstance(index, slice):
            return self.take(np.arange(len(self))[index])
        start = self.starts[index]
        return self.tokens[start : start + self.lengths[index]]

    def __iter__(self) -> Iterator[Tokens]:
        ends = self.starts + self.lengths
        return (self.tokens[start:end] for start, end in zip(self.starts.tolist(), ends.tolist(), strict=True))

    def take(self, indices: npt.NDArray[np.integer]) -> "RaggedTokens":
        """Return some of the sequences, in the order of the indices."""
        lengths = self.lengths[indices]
        return RaggedTokens(self.tokens[span_indices(self.starts[indices], lengths)], lengths)


def span_indices(starts: npt.NDArray[np.int64], lengths: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return `start, …, start + length - 1` of every span, concatenated."""
    ends = np.cumsum(lengths)
    offsets = np.repeat(starts - (ends - lengths), lengths)
    indices: npt.NDArray[np.int64] = np.arange(ends[-1] if len(ends) else 0) + offsets
    return indices


def token_batches(lengths: npt.ArrayLike, budget: int) -> Iterator[tuple[int, int]]:
    """Yield ranges (first, end) of sequences with at most `budget` tokens; a longer sequence is its own range."""
    ends = np.cumsum(lengths)
    first = before = 0
    while first < len(ends):
        end = max(first + 1, int(np.searchsorted(ends, before + budget, "right")))
        yield first, end
        first, before = end, int(ends[end - 1])


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
