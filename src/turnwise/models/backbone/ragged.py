"""Token sequences of different lengths in one array: what is done to all of them at once takes no loop over them."""

from collections.abc import Iterator, Sequence
from typing import overload

import numpy as np
import numpy.typing as npt

Tokens = npt.NDArray[np.int32]


class Ragged(Sequence[Tokens]):
    """Sequences, one behind the other.

    Args:
        tokens: of all sequences (tokens,).
        lengths: how many each has (sequences,).

    Attributes:
        starts: where each begins (sequences,).
    """

    __slots__ = ("lengths", "starts", "tokens")

    def __init__(self, tokens: Tokens, lengths: npt.NDArray[np.int64]):
        self.tokens = tokens
        self.lengths = lengths
        self.starts = np.cumsum(lengths) - lengths

    @classmethod
    def of(cls, sequences: Sequence[Tokens]) -> "Ragged":
        """Sequences that lie each for itself, or together already."""
        if isinstance(sequences, Ragged):
            return sequences
        lengths = np.fromiter((len(sequence) for sequence in sequences), np.int64, len(sequences))
        return cls(np.concatenate(sequences) if len(sequences) else np.empty(0, np.int32), lengths)

    @classmethod
    def joined(cls, parts: Sequence["Ragged"]) -> "Ragged":
        """The sequences of several, of at least one."""
        return cls(np.concatenate([part.tokens for part in parts]), np.concatenate([part.lengths for part in parts]))

    def __len__(self) -> int:
        return len(self.lengths)

    @overload
    def __getitem__(self, index: int) -> Tokens: ...

    @overload
    def __getitem__(self, index: slice) -> "Ragged": ...

    def __getitem__(self, index: int | slice) -> "Tokens | Ragged":
        if isinstance(index, slice):
            return self.take(np.arange(len(self))[index])
        start = self.starts[index]
        return self.tokens[start : start + self.lengths[index]]

    def __iter__(self) -> Iterator[Tokens]:
        ends = self.starts + self.lengths
        return (self.tokens[start:end] for start, end in zip(self.starts.tolist(), ends.tolist(), strict=True))

    def take(self, members: npt.NDArray[np.integer]) -> "Ragged":
        """Some of the sequences, in the order given."""
        lengths = self.lengths[members]
        return Ragged(self.tokens[spans(self.starts[members], lengths)], lengths)


def spans(starts: npt.NDArray[np.int64], lengths: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """The numbers from each start on, as many as its length, one span behind the other."""
    ends = np.cumsum(lengths)
    found: npt.NDArray[np.int64] = np.arange(ends[-1] if len(ends) else 0) + np.repeat(
        starts - (ends - lengths), lengths
    )
    return found
