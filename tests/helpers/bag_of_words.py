"""An encoder for tests that needs no model: texts that share words are similar."""

import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from turnwise.core.dialogue import Turn
from turnwise.core.text import tokenise_words

SIZE = 48


class BagOfWords:
    """Encodes a text, or the texts of turns, as the sum of random word vectors; counts what it encodes."""

    def __init__(self, seed: int = 0):
        self.seed = seed
        self.encoded = 0

    def encode(
        self, inputs: Sequence[Any], *, normalise: bool | None = None, max_length: int | None = None
    ) -> np.ndarray:
        self.encoded += len(inputs)
        vectors = np.stack([sum((self._word(word) for word in self._words(each)), self._word("")) for each in inputs])
        return (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)

    def _word(self, word: str) -> np.ndarray:
        direction = np.random.default_rng([self.seed, zlib.crc32(word.encode())]).standard_normal(SIZE)
        return direction * (1.0 if word else 0.1)

    def _words(self, said: Any) -> list[str]:
        if isinstance(said, str):
            return list(tokenise_words(said))
        return [word for turn in said for word in tokenise_words(turn.text if isinstance(turn, Turn) else turn)]
