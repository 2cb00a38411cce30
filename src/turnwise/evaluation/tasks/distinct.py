"""Every distinct text goes through the encoder once."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from turnwise.evaluation.tasks.encoding import SupportsEncode


def encode_distinct(
    encoder: SupportsEncode, texts: Sequence[str], max_length: int
) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.int64]]:
    """Normalised vectors of the distinct texts, in one call, and for each text the row that is its."""
    rows: dict[str, int] = {}
    row_of = [rows.setdefault(text, len(rows)) for text in texts]
    return encoder.encode(list(rows), normalise=True, max_length=max_length), np.array(row_of, np.int64)
