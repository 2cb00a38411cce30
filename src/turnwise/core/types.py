"""Vectors, and the interfaces of models: whatever encodes or scores can be evaluated, searched and served."""

from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

Vectors = npt.NDArray[np.float32]


def normalise_vectors(vectors: Vectors) -> Vectors:
    """Return rows scaled to length 1; a row of zeros stays as it is."""
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    return np.asarray(vectors / np.maximum(lengths, 1e-12), np.float32)


class SupportsEncode(Protocol):
    """An encoder."""

    def encode(self, inputs: Sequence[Any], *, normalise: bool | None = None, max_length: int | None = None) -> Vectors:
        """Return vectors (inputs, dimensions) of texts or histories, which are lists of turns, newest last."""


@runtime_checkable
class DescribedEncoder(SupportsEncode, Protocol):
    """An encoder that says how it computes its vectors, as those of turnwise do."""

    @property
    def normalise(self) -> bool:
        """Whether vectors have length 1 by default."""

    @property
    def device(self) -> str:
        """The device that it runs on, as torch names it."""

    @property
    def reads_texts_only(self) -> bool:
        """Whether the vectors of turns depend on their texts alone, not on speakers and slots."""


class SupportsScore(Protocol):
    """A re-ranker."""

    def score(self, context: Sequence[Any], candidates: Sequence[str]) -> npt.NDArray[np.floating]:
        """Return how well each candidate follows the context; higher is better."""


@runtime_checkable
class SupportsScoreAll(SupportsScore, Protocol):
    """A re-ranker that is faster on many contexts at once."""

    def score_all(self, pairs: Sequence[tuple[Sequence[Any], Sequence[str]]], /) -> list[npt.NDArray[np.float64]]:
        """Return what `score` returns for each context and its candidates."""
