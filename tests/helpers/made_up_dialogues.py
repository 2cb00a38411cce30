"""Synthetic dialogues on three topics, and an encoder that sums word vectors."""

import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from turnwise.core.dialogue import SYSTEM, USER, Dialogue, Turn
from turnwise.core.text import tokenise_words

SIZE = 32


class Words:
    """An encoder that sums random word vectors."""

    def __init__(self, salt: str = ""):
        self.salt = salt
        self.encoded = 0

    def encode(
        self, inputs: Sequence[Any], *, normalise: bool | None = None, max_length: int | None = None
    ) -> np.ndarray:
        self.encoded += len(inputs)
        texts = [each if isinstance(each, str) else " ".join(turn.text for turn in each) for each in inputs]
        vectors = np.stack([np.sum([self._word(word) for word in tokenise_words(text)], 0) for text in texts])
        return (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)

    def _word(self, word: str) -> np.ndarray:
        return np.random.default_rng(zlib.crc32((self.salt + word).encode())).normal(size=SIZE)


TOPICS = {
    "boats": ("mast", "sail", "rope", "deck", "harbour"),
    "gardens": ("rose", "spade", "hedge", "seed", "compost"),
    "clocks": ("spring", "dial", "hour", "chime", "pendulum"),
}


def dialogues(count: int, seed: int = 0, source: str | None = "made up") -> list[Dialogue]:
    """Return dialogues of three topics that share most of their texts."""
    random = np.random.default_rng(seed)
    greetings = ["hello there", "good day to you", "hi, anyone in"]
    polite = ["is there anything else i can help with", "thank you very much goodbye", "one moment please while i look"]
    sampled = []
    for number in range(count):
        topic = list(TOPICS)[number % 3]
        asks, tells = (" ".join(random.choice(TOPICS[topic], 2)) for _ in range(2))
        turns = [
            Turn(USER, str(random.choice(greetings))),
            Turn(SYSTEM, str(random.choice(polite))),
            Turn(USER, f"about {asks} {number}"),
            Turn(SYSTEM, f"we have {tells} {number}"),
            *(
                Turn((USER, SYSTEM)[place % 2], str(random.choice(polite)))
                for place in range(int(random.integers(1, 6)))
            ),
        ]
        sampled.append(Dialogue(f"{topic} {number}", tuple(turns), source, "train" if number % 2 else "test"))
    return sampled


def topic(name: str) -> str:
    return name.split()[0]
