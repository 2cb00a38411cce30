"""Token sequences as one flat stream, ordered by length: what the backbone runs over instead of a padded batch."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from turnwise.models.backbone.ragged import Ragged, Tokens, spans


@dataclass(frozen=True, slots=True)
class Group:
    """Sequences of one length, which lie side by side in the stream."""

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

    Sequences of equal length are neighbours, so each group of them can be seen as a rectangle (count, length) without a
    copy: attention and pooling run on rectangles that hold no padding.

    Attributes:
        ids: token ids (tokens,).
        segments: segment ids (tokens,), where sequences have two parts.
        lengths: of the sequences in stream order (sequences,).
        order: which of the sequences given stands where in the stream (sequences,).
        groups: the runs of one length.
    """

    ids: torch.Tensor
    segments: torch.Tensor | None
    lengths: npt.NDArray[np.int64]
    order: npt.NDArray[np.int64]
    groups: tuple[Group, ...]

    @classmethod
    def of(cls, sequences: Sequence[Tokens], segments: Sequence[Tokens] | None = None) -> "TokenStream":
        """The stream of some sequences, none of them empty."""
        together = Ragged.of(sequences)
        lengths = together.lengths
        if not len(lengths) or not lengths.all():
            raise ValueError("a stream needs sequences, and each of them a token")
        order = np.argsort(lengths, kind="stable")
        sorted_lengths = lengths[order]
        groups, start = [], 0
        for length, count in zip(*np.unique(sorted_lengths, return_counts=True), strict=True):
            groups.append(Group(start, int(count), int(length)))
            start = groups[-1].end

        def flat(parts: Ragged) -> torch.Tensor:
            return torch.from_numpy(parts.take(order).tokens.astype(np.int64))

        marks = None if segments is None else flat(Ragged.of(segments))
        return cls(flat(together), marks, sorted_lengths, order, tuple(groups))

    def __len__(self) -> int:
        return len(self.lengths)

    @property
    def tokens(self) -> int:
        """How many tokens there are in all."""
        return len(self.ids)

    def positions(self) -> torch.Tensor:
        """The place of every token in its own sequence (tokens,)."""
        return torch.from_numpy(spans(np.zeros_like(self.lengths), self.lengths))

    def starts(self) -> torch.Tensor:
        """Where each sequence begins, and where the last one ends (sequences + 1,)."""
        return torch.from_numpy(np.concatenate([[0], np.cumsum(self.lengths)]))

    def to(self, device: torch.device) -> "TokenStream":
        """The same with its tensors on a device."""
        segments = None if self.segments is None else to_device(self.segments, device)
        return TokenStream(to_device(self.ids, device), segments, self.lengths, self.order, self.groups)

    def restore(self, rows: torch.Tensor) -> torch.Tensor:
        """Rows of one sequence each, brought from stream order back into the order in which the sequences were given."""
        return rows[to_device(torch.from_numpy(np.argsort(self.order)), rows.device)]

    def restore_tokens(self, states: torch.Tensor) -> torch.Tensor:
        """Token states in stream order, brought into the order in which the sequences were given, one behind the other."""
        places = np.argsort(self.order)
        rows = spans(self.starts().numpy()[places], self.lengths[places])
        return states[to_device(torch.from_numpy(rows), states.device)]

    def buckets(self, budget: int) -> Iterator[tuple[int, int]]:
        """Ranges of sequences (first, behind the last) that, padded to their longest, stay within a budget of tokens.

        A single sequence longer than the budget is a bucket of its own.
        """
        first = 0
        for index, length in enumerate(self.lengths):
            if index > first and (index + 1 - first) * length > budget:
                yield first, index
                first = index
        yield first, len(self.lengths)


def to_device(tensor: torch.Tensor, device: torch.device) -> torch.Tensor:
    """A tensor on a device; to a GPU from memory that it reads by itself, or the host would wait for what the GPU has to do."""
    if device.type == "cuda" and tensor.device.type == "cpu":
        return tensor.pin_memory().to(device, non_blocking=True)
    return tensor.to(device)


def chunks(lengths: npt.ArrayLike, budget: int) -> Iterator[tuple[int, int]]:
    """Ranges of sequences, in the order given, whose tokens together stay within a budget; a longer one is a range of its own."""
    ends = np.cumsum(lengths)
    first = before = 0
    while first < len(ends):
        last = max(first + 1, int(np.searchsorted(ends, before + budget, "right")))
        yield first, last
        first, before = last, int(ends[last - 1])
