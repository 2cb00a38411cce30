"""What is asked of a model: anything that turns inputs into vectors can be measured and put to work."""

from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt


class SupportsEncode(Protocol):
    """An encoder, as far as others are concerned."""

    def encode(
        self, inputs: Sequence[Any], *, normalise: bool | None = None, max_length: int | None = None
    ) -> npt.NDArray[np.float32]:
        """Vectors (inputs, size) of texts, or of conversations so far (lists of turns, newest last, cut from the head)."""


class SupportsScore(Protocol):
    """A re-ranker, as far as others are concerned."""

    def score(self, context: Sequence[Any], candidates: Sequence[str]) -> npt.NDArray[np.floating]:
        """How well each candidate goes on from the context; higher is better."""


@runtime_checkable
class SupportsScoreAll(SupportsScore, Protocol):
    """A re-ranker that is quicker when it is given many contexts at once."""

    def score_all(self, asked: Sequence[tuple[Sequence[Any], Sequence[str]]]) -> list[npt.NDArray[np.float64]]:
        """What `score` gives for each context and its candidates."""
