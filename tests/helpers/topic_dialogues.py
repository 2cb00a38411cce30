"""Synthetic dialogues on three topics."""

import numpy as np

from turnwise.core.dialogue import SYSTEM, USER, Dialogue, Turn

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
