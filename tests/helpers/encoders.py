"""Encoders whose vectors a test can compute: random ones, equal for equal texts, and constant ones."""

import zlib
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt


class RandomEncoder:
    """Vectors by text.

    Attributes:
        encoded: every text that it was given, in order.
        lengths: every max_length that it was given.
    """

    def __init__(self, size: int = 6, axes: bool = False):
        """`axes`: every vector lies on an axis, so that cosines are 0 or 1 and tie."""
        self.size, self.axes = size, axes
        self.encoded: list[str] = []
        self.lengths: list[int | None] = []

    def vector(self, text: str) -> npt.NDArray[np.float32]:
        number = zlib.crc32(text.encode())
        if self.axes:
            return np.eye(self.size, dtype=np.float32)[number % self.size]
        return np.random.default_rng(number).normal(size=self.size).astype(np.float32)

    def unit(self, text: str) -> npt.NDArray[np.float64]:
        vector = self.vector(text).astype(np.float64)
        return vector / np.linalg.norm(vector)

    def encode(
        self, inputs: Sequence[str], *, normalise: bool | None = None, max_length: int | None = None
    ) -> npt.NDArray[np.float32]:
        self.encoded += inputs
        self.lengths.append(max_length)
        vectors = np.stack([self.vector(text) for text in inputs])
        return vectors / np.linalg.norm(vectors, axis=1, keepdims=True) if normalise else vectors


class ConstantEncoder:
    """The same vector whatever the input."""

    def encode(
        self, inputs: Sequence[object], *, normalise: bool | None = None, max_length: int | None = None
    ) -> npt.NDArray[np.float32]:
        vector = np.random.default_rng(0).normal(size=33).astype(np.float32)
        return np.tile(vector / np.linalg.norm(vector), (len(inputs), 1))
