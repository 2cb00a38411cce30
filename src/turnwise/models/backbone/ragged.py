"""Token sequences of different lengths in one NumPy array, and their batches."""

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

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

    def __getitem__(self, index: int) -> Tokens:  # type: ignore[override]  # slices are not needed
        start = self.starts[index]
        return self.tokens[start : start + self.lengths[index]]

    def __iter__(self) -> Iterator[Tokens]:
        ends = self.starts + self.lengths
        return (self.tokens[start:end] for start, end in zip(self.starts.tolist(), ends.tolist(), strict=True))

    def take(self, indices: npt.NDArray[np.integer]) -> "RaggedTokens":
        """Return some of the sequences, in the order of the indices."""
        lengths = self.lengths[indices]
        return RaggedTokens(self.tokens[span_indices(self.starts[indices], lengths)], lengths)

    def without(self, token: int | None) -> "RaggedTokens":
        """Return the sequences without a token; None: as they are."""
        is_kept = self.tokens != (-1 if token is None else token)
        kept_before = np.concatenate([[0], np.cumsum(is_kept)])
        return RaggedTokens(self.tokens[is_kept], kept_before[self.starts + self.lengths] - kept_before[self.starts])


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
