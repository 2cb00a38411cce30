"""An encoder for tests that needs no model: texts that share words are similar."""

import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from turnwise.core.dialogue import Turn
from turnwise.core.text import tokenise_words
from turnwise.core.types import Vectors

SIZE = 48


class BagOfWords:
    """Encodes texts and conversations as sums of random word vectors, and counts them; other salts, other vectors."""

    def __init__(self, salt: str = "", size: int = SIZE):
        self.salt, self.size = salt, size
        self.encoded = 0

    def encode(self, inputs: Sequence[Any], *, normalise: bool | None = None, max_length: int | None = None) -> Vectors:
        self.encoded += len(inputs)
        vectors = np.stack([self._vector(item) for item in inputs])
        if normalise is not False:
            vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
        return vectors

    def _vector(self, item: Any) -> Vectors:
        turns = [item] if isinstance(item, str) else item
        texts = [turn.text if isinstance(turn, Turn) else turn for turn in turns]
        words = [word for text in texts for word in tokenise_words(text)] or ["nothing"]
        seeds = [zlib.crc32(f"{self.salt}{word}".encode()) for word in words]
        return np.sum([np.random.default_rng(seed).normal(size=self.size) for seed in seeds], 0).astype(np.float32)
