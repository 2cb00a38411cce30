"""Texts about synthetic topics, and an encoder that separates the topics."""

import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

TOPICS = {
    "parcel": ("parcel", "courier", "deliver"),
    "hotel": ("hotel", "room", "night"),
    "card": ("card", "bank", "freeze"),
    "doctor": ("doctor", "appointment", "clinic"),
}
_OPENINGS = ("please", "can you", "I want to", "how do I", "tell me")


def texts_about(topic: str, count: int, start: int = 0) -> list[str]:
    """Return distinct texts that contain two of a topic's words."""
    words = TOPICS[topic]
    return [
        f"{_OPENINGS[number % 5]} {words[number % 3]} the {words[(number + 1) % 3]} number{number}"
        for number in range(start, start + count)
    ]


class TopicEncoder:
    """Encodes a text near the axis of its topic, or near a further axis if it has none."""

    def __init__(self, size: int = 24, spread: float = 0.25):
        self.size = size
        self.spread = spread
        self.encoded: list[str] = []

    def encode(
        self, inputs: Sequence[Any], *, normalise: bool | None = None, max_length: int | None = None
    ) -> npt.NDArray[np.float32]:
        self.encoded += inputs
        rows = []
        for text in inputs:
            near = [place for place, words in enumerate(TOPICS.values()) if any(word in text for word in words)]
            axis = np.eye(self.size)[near[0] if near else len(TOPICS)]
            own = np.random.default_rng(zlib.crc32(text.encode())).normal(0, self.spread / self.size**0.5, self.size)
            rows.append((axis + own) / np.linalg.norm(axis + own))
        return np.array(rows, np.float32).reshape(len(inputs), self.size)
