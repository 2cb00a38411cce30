"""Whitening (Su et al. 2021): vectors with zero mean and the identity as covariance, by one linear map."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from turnwise.core.types import SupportsEncode
from turnwise.papers.baselines.vectors import PostprocessingError, Vectors, digest, fitting_vectors, unit

#: Directions whose variance is less than this part of the largest hold but rounding: to scale them up would be to encode noise.
FLOOR = 1e-10


class Whitened:
    """An encoder whose vectors are whitened: x → (x − μ)W with W = U Λ^{−1/2}.

    μ is the mean and U Λ Uᵀ the covariance of the vectors of some texts, not normalised; directions come by falling variance.
    Directions whose variance is below `FLOOR` of the largest are dropped, so vectors have at most as many numbers as the texts
    vary in: one less than the number of texts, if those are few.

    Attributes:
        encoder: the one that is wrapped.
        mean: μ (size,).
        kernel: W (size, dimensions).
    """

    def __init__(
        self,
        encoder: SupportsEncode,
        texts: Sequence[Any],
        *,
        dimensions: int | None = None,
        max_length: int | None = None,
    ):
        """Fits the map.

        Args:
            encoder: gives the vectors.
            texts: what mean and covariance are taken of, such as the training texts of a data set.
            dimensions: how many directions are kept; None: all that vary.
            max_length: where the texts are cut, as for `encode`.

        Raises:
            PostprocessingError: if the texts do not vary in that many directions, or not at all.
        """
        self.encoder = encoder
        vectors = fitting_vectors(encoder, texts, max_length).astype(np.float64)
        mean = vectors.mean(0)
        vectors -= mean
        # the covariance is symmetric: its singular vectors are its eigenvectors, up to their signs
        variances, directions = np.linalg.eigh(vectors.T @ vectors / (len(vectors) - 1))
        variances, directions = variances[::-1], directions[:, ::-1]
        varying = int((variances > FLOOR * variances[0]).sum())
        kept = varying if dimensions is None else dimensions
        if not 1 <= kept <= varying:
            raise PostprocessingError(
                f"{kept} dimensions cannot be had: the vectors of {len(texts)} texts vary in {varying} directions;"
                f" ask for 1 to {varying}, or give more texts"
            )
        # in double precision: where vectors are far from zero and vary little, as BERT's do, single precision would show
        self.mean: npt.NDArray[np.float64] = mean
        self.kernel: npt.NDArray[np.float64] = directions[:, :kept] / np.sqrt(variances[:kept])

    @property
    def description(self) -> str:
        """All that determines the vectors besides the encoder that is wrapped."""
        return f"whitening, {self.kernel.shape[1]} dimensions, statistics {digest(self.mean, self.kernel)}"

    def encode(self, inputs: Sequence[Any], *, normalise: bool | None = None, max_length: int | None = None) -> Vectors:
        """Whitened vectors (inputs, dimensions), of length 1 only where `normalise` is true."""
        vectors = np.asarray(self.encoder.encode(inputs, normalise=False, max_length=max_length), np.float32)
        whitened: Vectors = ((vectors - self.mean) @ self.kernel).astype(np.float32)
        return unit(whitened) if normalise else whitened
