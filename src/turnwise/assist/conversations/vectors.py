"""The vector of a whole conversation: what is said in it, and how what the sides say differs, as far as it is not what all say.

For each role, user and system, the mean of the vectors of its turns is taken, less the mean turn of the corpus, weighted by
inverse frequency. So "Thank you, goodbye." counts for little, and a system that speaks three times as much as the user does not
drown out what the user wants. The sum of the two means stands beside their difference, which counts half, and the whole has length
1: conversations are alike if they are about the same, and more so if the same side says it. A role whose turns are about one thing
has a longer mean than one whose turns point everywhere, and weighs more.
"""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from turnwise.core.dialogue import SYSTEM, USER, Turn, same_text

Vectors = npt.NDArray[np.float32]

#: How much it counts which side says something, against what is said.
SIDES = 0.5

#: Turns of which the mean turn is taken.
SAMPLE = 2_000

#: The mean turn is drawn towards nothing as if so many turns were: of few turns little is common to all conversations.
_DRAWN = 10


@dataclass(frozen=True, slots=True)
class Usual:
    """What is usual in a corpus.

    Attributes:
        counts: how often texts are said, where that is more than once.
        centre: the mean turn's vector (size); 0 where it is not known.
    """

    counts: Mapping[str, int] = field(default_factory=dict)
    centre: Vectors | float = 0.0

    def weights(self, turns: Sequence[Turn]) -> npt.NDArray[np.float64]:
        """The weight of each turn: 1 / (1 + log10 f) for a text that is said f times, so half of it if it is said ten times."""
        said = np.array([self.counts.get(same_text(turn.text), 1) for turn in turns])
        weights: npt.NDArray[np.float64] = 1 / (1 + np.log10(said))
        return weights


class Census:
    """Finds out what is usual, dialogue by dialogue.

    Attributes:
        sample: turns that stand for all, drawn with a seed.
    """

    def __init__(self) -> None:
        self.sample: list[Turn] = []
        self._counts: dict[str, int] = {}
        self._turns = 0
        self._random = random.Random(0)

    def read(self, turns: Sequence[Turn]) -> None:
        """Takes the turns of a dialogue into account."""
        for turn in turns:
            text = same_text(turn.text)
            self._counts[text] = self._counts.get(text, 0) + 1
            self._turns += 1
            if len(self.sample) < SAMPLE:
                self.sample.append(turn)
            elif (place := self._random.randrange(self._turns)) < SAMPLE:  # each turn has the same chance to be in it
                self.sample[place] = turn

    def usual(self, vectors: Vectors) -> Usual:
        """What is usual, given the vectors of the sample (turns, size)."""
        centre: Vectors = (vectors.sum(0) / (len(vectors) + _DRAWN)).astype(np.float32)
        return Usual({text: count for text, count in self._counts.items() if count > 1}, centre)


def conversation_vector(turns: Sequence[Turn], vectors: Vectors, usual: Usual) -> Vectors:
    """The vector of a conversation, of length 1 (2 · size).

    Where one of the roles does not speak, its mean is zero, as if it said what is usual. People without roles speak for both.

    Args:
        turns: of the conversation.
        vectors: of the turns, of length 1 (turns, size).
        usual: what is common to all conversations.
    """
    weights = usual.weights(turns)
    user, system = (
        _mean(weights * np.array([turn.speaker != other for turn in turns]), vectors - usual.centre)
        for other in (SYSTEM, USER)
    )
    whole = np.concatenate([user + system, SIDES * (user - system)])
    scaled: Vectors = (whole / max(float(np.linalg.norm(whole)), 1e-12)).astype(np.float32)
    return scaled


def _mean(weights: npt.NDArray[np.float64], vectors: Vectors) -> npt.NDArray[np.float64]:
    mean: npt.NDArray[np.float64] = weights @ vectors / max(float(weights.sum()), 1e-12)
    return mean
