"""What tasks ask of a model: anything that turns inputs into vectors can be measured."""

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt


class SupportsEncode(Protocol):
    """An encoder, as far as tasks are concerned."""

    def encode(
        self, inputs: Sequence[Any], *, normalise: bool | None = None, max_length: int | None = None
    ) -> npt.NDArray[np.float32]:
        """Vectors (inputs, size) of texts, or of conversations so far (lists of turns, newest last, cut from the head)."""


class SupportsScore(Protocol):
    """A re-ranker, as far as tasks are concerned."""

    def score(self, context: Sequence[Any], candidates: Sequence[str]) -> npt.NDArray[np.float32]:
        """How well each candidate goes on from the context; higher is better."""
