"""What tasks ask of a model: anything that turns inputs into vectors can be measured."""

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt


class SupportsEncode(Protocol):
    """An encoder, as far as tasks are concerned."""

    def encode(self, inputs: Sequence[Any], *, normalise: bool | None = None) -> npt.NDArray[np.float32]:
        """Vectors (inputs, size)."""
