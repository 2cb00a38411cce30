"""An encoder with known vectors."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt


class VectorTable:
    """An encoder whose texts are row numbers of a table; `calls` are the `normalise` and `max_length` of every call."""

    def __init__(self, rows: npt.NDArray[Any]):
        self.rows = rows.astype(np.float32)
        self.calls: list[tuple[bool | None, int | None]] = []

    def encode(
        self, inputs: Sequence[Any], *, normalise: bool | None = None, max_length: int | None = None
    ) -> npt.NDArray[np.float32]:
        self.calls.append((normalise, max_length))
        return self.rows[[int(text) for text in inputs]]
