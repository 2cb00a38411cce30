"""Post-processing of an encoder's vectors, and whitening (Su et al. 2021): zero mean and identity covariance."""

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from turnwise.core.errors import ModelError
from turnwise.core.types import SupportsEncode, Vectors

#: Directions whose variance is below this fraction of the largest are rounding noise, which scaling would amplify.
MIN_RELATIVE_VARIANCE = 1e-10


class Postprocessor(ABC):
    """An encoder whose vectors go through a map that was fitted on the vectors of some texts, not normalised."""

    def __init__(self, encoder: SupportsEncode):
        self.encoder = encoder

    @property
    @abstractmethod
    def description(self) -> str:
        """Everything that determines the vectors besides the wrapped encoder."""

    @abstractmethod
    def transform(self, vectors: Vectors) -> Vectors:
        """Map vectors (inputs, size), which may be overwritten, to (inputs, dimensions)."""

    def encode(self, inputs: Sequence[Any], *, normalise: bool | None = None, max_length: int | None = None) -> Vectors:
        """Return post-processed vectors (inputs, dimensions), of length 1 only if `normalise` is true."""
        vectors = np.array(self.encoder.encode(inputs, normalise=False, max_length=max_length), np.float32)
        vectors = self.transform(vectors)
        return normalise_rows(vectors) if normalise else vectors


class WhiteningPostprocessor(Postprocessor):
    """An encoder whose vectors are whitened: x → (x − μ)W with W = U Λ^{−1/2}.

    μ is the mean and U Λ Uᵀ the covariance of the vectors of some texts; directions are ordered by decreasing variance.
    Directions without variance are dropped, so there are at most as many dimensions as the texts vary in: one less than
    the number of texts, if those are few.
    """

    def __init__(self, encoder: SupportsEncode, texts: Sequence[Any]):
        """Fit mean and covariance on texts, such as those of a training corpus."""
        super().__init__(encoder)
        vectors = encode_for_fitting(encoder, texts).astype(np.float64)
        # in double precision: single precision would show for vectors that vary little far from zero, as BERT's do
        #: μ (size,).
        self.mean: npt.NDArray[np.float64] = vectors.mean(0)
        vectors -= self.mean
        variances, directions = np.linalg.eigh(vectors.T @ vectors / (len(vectors) - 1))
        variances, directions = variances[::-1], directions[:, ::-1]
        varying = int((variances > MIN_RELATIVE_VARIANCE * variances[0]).sum())
        #: W (size, dimensions).
        self.kernel: npt.NDArray[np.float64] = directions[:, :varying] / np.sqrt(variances[:varying])

    @property
    def description(self) -> str:
        """Everything that determines the vectors besides the wrapped encoder."""
        return f"whitening, {self.kernel.shape[1]} dimensions, statistics {hash_arrays(self.mean, self.kernel)}"

    def transform(self, vectors: Vectors) -> Vectors:
        """Whiten vectors (inputs, size)."""
        whitened: Vectors = ((vectors - self.mean) @ self.kernel).astype(np.float32)
        return whitened


def encode_for_fitting(encoder: SupportsEncode, texts: Sequence[Any]) -> Vectors:
    """Return the vectors (texts, size), not normalised, that a post-processor is fitted on.

    Raises ModelError if there are fewer than two, some are not finite, or all are equal.
    """
    if len(texts) < 2:
        raise ModelError(f"{len(texts)} texts are too few to fit on: give at least two, better some thousands")
    vectors = np.asarray(encoder.encode(texts, normalise=False), np.float32)
    if not np.isfinite(vectors).all():
        row = int(np.flatnonzero(~np.isfinite(vectors).all(1))[0])
        raise ModelError(f"the vector of text {row} is not finite: check the encoder")
    if (vectors == vectors[0]).all():
        raise ModelError(f"all {len(texts)} texts have the same vector: there is nothing to fit")
    return vectors


def normalise_rows(vectors: Vectors) -> Vectors:
    """Scale vectors to length 1; zero vectors stay zero, so that their cosine with any other is 0."""
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    scaled: Vectors = np.divide(vectors, lengths, out=np.zeros_like(vectors), where=lengths > 0)
    return scaled


def hash_arrays(*arrays: npt.NDArray[Any]) -> str:
    """Return the SHA-256 of arrays: shapes, types and contents."""
    digest = hashlib.sha256()
    for array in arrays:
        digest.update(f"{array.shape}{array.dtype.str}".encode())
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()
