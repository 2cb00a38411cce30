"""The flat stream of tokens that a backbone runs over, without padding, and the pooling of its states."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from turnwise.models.backbone.ragged import RaggedTokens, Tokens, span_indices
from turnwise.models.backbone.source import Pooling

#: Which token states are used: the last layer's, or the average of the first transformer layer's and the last's.
Layers = Literal["last", "first-last"]


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
    """The tokens of several sequences, shortest first: those of equal length are a rectangle (count, length)."""

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


def pool(states: Tensor, stream: TokenStream, pooling: Pooling) -> Tensor:
    """Pool token states (tokens, hidden) into vectors (sequences, hidden), in input order."""
    if pooling in ("cls", "cls-mlp"):
        rows = states[to_device(stream.starts()[:-1], states.device)]
    else:
        lengths = to_device(torch.from_numpy(stream.lengths), states.device)
        # unsafe: checking the sum of the lengths would wait for the GPU
        rows = torch.segment_reduce(states, "max" if pooling == "max" else "mean", lengths=lengths, unsafe=True)
    return stream.restore(rows)


class PoolerLayer(nn.Module):
    """SimCSE's layer on the [CLS] state: linear, then tanh."""

    def __init__(self, hidden: int):
        super().__init__()
        self.linear = nn.Linear(hidden, hidden)

    def forward(self, vectors: Tensor) -> Tensor:
        """(sequences, hidden) → the same shape."""
        return torch.tanh(self.linear(vectors))
