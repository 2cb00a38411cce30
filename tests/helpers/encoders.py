<<<<<<<< HEAD:tests/helpers/encoders.py
"""Encoders whose vectors a test can compute: random ones, equal for equal texts, and constant ones."""
========
"""Encoders without a model: random vectors by text, and one vector for everything."""
>>>>>>>> 9899418 (Name test helpers after what they provide and share one bag of words):tests/helpers/random_encoder.py

import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from turnwise.core.types import Vectors

<<<<<<<< HEAD:tests/helpers/encoders.py
class RandomEncoder:
    """Vectors by text.
========
>>>>>>>> 9899418 (Name test helpers after what they provide and share one bag of words):tests/helpers/random_encoder.py

class RandomEncoder:
    """Encodes equal texts as equal random vectors, and records the texts and maximum lengths that it is given."""

    def __init__(self, size: int = 6, axes: bool = False):
        """`axes`: every vector lies on an axis, so that cosines are 0 or 1 and tie."""
        self.size, self.axes = size, axes
        self.encoded: list[str] = []
        self.lengths: list[int | None] = []

    def vector(self, text: str) -> Vectors:
        number = zlib.crc32(text.encode())
        if self.axes:
            return np.eye(self.size, dtype=np.float32)[number % self.size]
        return np.random.default_rng(number).normal(size=self.size).astype(np.float32)

    def unit(self, text: str) -> npt.NDArray[np.float64]:
        vector = self.vector(text).astype(np.float64)
        return vector / np.linalg.norm(vector)

    def encode(self, inputs: Sequence[str], *, normalise: bool | None = None, max_length: int | None = None) -> Vectors:
        self.encoded += inputs
        self.lengths.append(max_length)
        vectors = np.stack([self.vector(text) for text in inputs])
        return vectors / np.linalg.norm(vectors, axis=1, keepdims=True) if normalise else vectors


class ConstantEncoder:
<<<<<<<< HEAD:tests/helpers/encoders.py
    """The same vector whatever the input."""
========
    """Encodes every input as the same vector."""
>>>>>>>> 9899418 (Name test helpers after what they provide and share one bag of words):tests/helpers/random_encoder.py

    def encode(self, inputs: Sequence[Any], *, normalise: bool | None = None, max_length: int | None = None) -> Vectors:
        vector = np.random.default_rng(0).normal(size=33).astype(np.float32)
        return np.tile(vector / np.linalg.norm(vector), (len(inputs), 1))
