"""Synthetic intents: texts, and vectors around centres."""

from typing import Any

import numpy as np

from tests.helpers.bag_of_words import SIZE

EXAMPLES = {
    "track_order": [
        "where is my parcel",
        "has my parcel been shipped",
        "when will my parcel arrive",
        "track my parcel please",
    ],
    "cancel_order": [
        "cancel my order",
        "please cancel the order",
        "I want to cancel an order",
        "stop and cancel that order",
    ],
    "refund": [
        "I want my money back",
        "give me the money back",
        "when is my money paid back",
        "send the money back please",
    ],
}

OUTSIDE = [
    "tell me a joke",
    "what is the weather in paris",
    "sing a song",
    "who won the match",
    "how tall is that tower",
] * 3


def pairs() -> tuple[list[str], list[str]]:
    """Return texts and their intents."""
    labelled = [(text, intent) for intent, texts in EXAMPLES.items() for text in texts]
    return [text for text, _ in labelled], [intent for _, intent in labelled]


def world(intents: int, examples: int, seed: int, *, spread: float = 0.6, size: int = SIZE) -> tuple[Any, Any]:
    """Return normalised vectors around centres with different spreads, and their labels."""
    random = np.random.default_rng(seed)
    centres = np.random.default_rng(7).normal(size=(intents, size))
    centres /= np.linalg.norm(centres, axis=1, keepdims=True)
    loose = spread * np.random.default_rng(8).uniform(0.5, 1.5, intents)
    labels = np.repeat(np.arange(intents), examples)
    vectors = centres[labels] + random.normal(size=(len(labels), size)) * loose[labels, None] / np.sqrt(size) * 1.5
    return (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32), labels
