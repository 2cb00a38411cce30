"""Every distinct text goes through the encoder once."""

from collections.abc import Hashable, Sequence

import numpy as np
import numpy.typing as npt

from turnwise.core.types import SupportsEncode


def encode_distinct(
    encoder: SupportsEncode, texts: Sequence[Hashable], max_length: int
) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.int64]]:
    """Normalised vectors of the distinct texts or tuples of turns, in one call, and for each of them the row that is its."""
    rows: dict[Hashable, int] = {}
    row_of = [rows.setdefault(text, len(rows)) for text in texts]
    return encoder.encode(list(rows), normalise=True, max_length=max_length), np.array(row_of, np.int64)
