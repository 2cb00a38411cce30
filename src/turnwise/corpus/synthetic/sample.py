"""The dialogues of the sample world, generated from a seed: data to try everything without a download.

Users make requests in ten domains; the system asks for what it needs, confirms, acts or fails, and occasionally
contradicts itself. Dialogue `i` depends only on the seed and `i`, so a longer sample begins with a shorter one.
Requests in held-out dialogues use phrasings that the training split never uses.
"""

from collections.abc import Iterator
from random import Random

from turnwise.core.dialogue import Dialogue
from turnwise.corpus.synthetic.conversation import CONTRADICTIONS, SampleConversation
from turnwise.corpus.synthetic.world import pick

SOURCE = "sample"
_CONTRADICTION_PROBABILITY = 0.02


def sample_split(rng: Random) -> str:
    """Return a random split: 'train' with probability 0.8, 'valid' or 'test' with 0.1 each."""
    number = rng.random()
    return "train" if number < 0.8 else "valid" if number < 0.9 else "test"


def sample_conversation(seed: int, index: int) -> SampleConversation:
    """Return the conversation of dialogue `index`."""
    rng = Random(f"turnwise:{seed}:{index}")
    split = sample_split(rng)
    kind = pick(rng, CONTRADICTIONS) if rng.random() < _CONTRADICTION_PROBABILITY else None
    return SampleConversation(rng, split, kind, contradict=kind is not None)


def sample_dialogues(count: int, seed: int) -> Iterator[Dialogue]:
    """Yield the first `count` dialogues for a seed, with the ids 'sample-000000', 'sample-000001', …."""
    for index in range(count):
        conversation = sample_conversation(seed, index)
        yield Dialogue(f"sample-{index:06d}", tuple(conversation.turns), source=SOURCE, split=conversation.split)
