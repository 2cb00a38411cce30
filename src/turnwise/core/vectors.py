"""Operations on vectors that several packages share; NumPy only."""

import numpy as np

from turnwise.core.types import Vectors


def normalise_vectors(vectors: Vectors) -> Vectors:
    """Return rows scaled to length 1; a row of zeros stays as it is."""
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    return np.asarray(vectors / np.maximum(lengths, 1e-12), np.float32)
