"""Encoders whose vectors a test can compute: by a function of the text, random ones, and constant ones."""

import zlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt


class TextEncoder:
    """Unit vectors by a function of the text; `inputs` are those so far, and `encoded` their texts, turns joined."""

    def __init__(self, vector: Callable[[str], npt.ArrayLike], max_length: int):
        """`max_length`: what every call must ask for."""
        self.vector, self.max_length = vector, max_length
        self.inputs: list[object] = []
        self.encoded: list[str] = []

    def encode(
        self, inputs: Sequence[Any], *, normalise: bool | None = None, max_length: int | None = None
    ) -> npt.NDArray[np.float32]:
        assert normalise and max_length == self.max_length
        texts = [item if isinstance(item, str) else " ".join(turn.text for turn in item) for item in inputs]
        self.inputs += inputs
        self.encoded += texts
        vectors = np.array([self.vector(text) for text in texts], np.float32)
        return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


class RandomEncoder:
    """Vectors by text; `encoded` and `lengths` are the texts and the max_length of every call."""

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


def count_letters(texts: list[str]) -> npt.NDArray[np.float64]:
    """An encoder that is a function: how often some letters and digits occur."""
    return np.array([[float(text.lower().count(letter) + 1) for letter in "aeiourstlnmcdg0123"] for text in texts])


class Longest:
    """A re-ranker that prefers long candidates."""

    def score(self, context: list[str], candidates: list[str]) -> npt.NDArray[np.float64]:
        return np.array([float(len(candidate)) for candidate in candidates])
