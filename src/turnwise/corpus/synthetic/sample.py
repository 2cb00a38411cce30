"""The sample world: conversations made from a seed, for trying everything out without downloading anything.

Users ask for what the ten domains of `turnwise.corpus.synthetic` offer; the system asks for what it has to know, confirms, acts
or fails, and now and then contradicts itself. Dialogue `i` depends on nothing but the seed and `i`, so a longer sample
begins with a shorter one. Requests of a held-out dialogue are phrased in ways that the training split never uses.
"""

from collections.abc import Iterator
from random import Random

from turnwise.core.dialogue import Dialogue
from turnwise.corpus.synthetic.content import load_world, pick
from turnwise.corpus.synthetic.conversation import CONTRADICTIONS, Conversation

SOURCE = "sample"

_CONTRADICTION_SHARE = 0.02


def draw_split(rng: Random) -> str:
    """A split, eight in ten times 'train'."""
    number = rng.random()
    return "train" if number < 0.8 else "valid" if number < 0.9 else "test"


def sample_dialogues(count: int, seed: int) -> Iterator[Dialogue]:
    """The first `count` dialogues of the sample world for a seed, one at a time.

    Args:
        count: how many.
        seed: another seed gives other dialogues.

    Yields:
        Dialogues with the ids 'sample-000000', 'sample-000001', …, eight in ten in the split 'train', one each in 'valid'
        and 'test'.
    """
    for index in range(count):
        conversation = _conversation(seed, index)
        yield Dialogue(f"sample-{index:06d}", tuple(conversation.turns), source=SOURCE, split=conversation.split)


def contradiction_of(seed: int, index: int) -> str | None:
    """Which of `CONTRADICTIONS` the dialogue `index` holds; most hold none."""
    return _conversation(seed, index).contradiction


def _conversation(seed: int, index: int) -> Conversation:
    rng = Random(f"turnwise:{seed}:{index}")
    split = draw_split(rng)
    kind = pick(rng, CONTRADICTIONS) if rng.random() < _CONTRADICTION_SHARE else None
    return Conversation(load_world(), rng, split, kind, contradict=kind is not None)
