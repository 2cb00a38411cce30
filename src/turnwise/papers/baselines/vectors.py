"""What the ways of post-processing share: the vectors they are fitted on, scaling to length 1, and a hash of what was fitted."""

import hashlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from turnwise.core.errors import TurnwiseError
from turnwise.core.types import SupportsEncode

Vectors = npt.NDArray[np.float32]


class PostprocessingError(TurnwiseError):
    """Vectors cannot be post-processed as asked; the message says why and what to do."""


def fitting_vectors(encoder: SupportsEncode, texts: Sequence[Any], max_length: int | None) -> Vectors:
    """The vectors (texts, size), not normalised, that something is fitted on.

    Raises:
        PostprocessingError: if there are fewer than two, some number is not finite, or they are all the same.
    """
    if len(texts) < 2:
        raise PostprocessingError(f"{len(texts)} texts are too few to fit on: give at least two, better some thousands")
    vectors = np.asarray(encoder.encode(texts, normalise=False, max_length=max_length), np.float32)
    if not np.isfinite(vectors).all():
        row = int(np.flatnonzero(~np.isfinite(vectors).all(1))[0])
        raise PostprocessingError(
            f"the vector of text {row} holds numbers that are not finite: look at the encoder first"
        )
    if (vectors == vectors[0]).all():
        raise PostprocessingError(f"all {len(texts)} texts have the same vector: there is nothing to fit on")
    return vectors


def unit(vectors: Vectors) -> Vectors:
    """Vectors scaled to length 1; a vector of zeros stays one, so that its cosine with any other is 0."""
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    scaled: Vectors = np.divide(vectors, lengths, out=np.zeros_like(vectors), where=lengths > 0)
    return scaled


def digest(*arrays: npt.NDArray[Any]) -> str:
    """The SHA-256 of arrays: shapes, types and contents."""
    found = hashlib.sha256()
    for array in arrays:
        found.update(f"{array.shape}{array.dtype.str}".encode())
        found.update(np.ascontiguousarray(array).tobytes())
    return found.hexdigest()
