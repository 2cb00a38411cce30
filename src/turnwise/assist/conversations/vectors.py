"""The vector of a whole conversation: what is said in it and by whom, relative to what is common in the corpus.

For each role, user and system, it takes the mean of the vectors of its turns, minus the mean turn of the corpus,
weighted by inverse frequency. So "Thank you, goodbye." counts little, and a system that speaks three times as much as
the user does not drown out what the user wants. The vector is the sum of the two means, concatenated with half of their
difference, and normalised: conversations are similar if they are about the same topic, more so if the same side talks
about it. A role whose turns are about one topic has a longer mean than one whose turns vary, and weighs more.
"""

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from turnwise.core.dialogue import SYSTEM, USER, Turn
from turnwise.core.text import normalise_text
from turnwise.core.types import Vectors

#: The weight of who says something, relative to what is said.
ROLE_WEIGHT = 0.5

#: Turns sampled for the mean turn.
SAMPLE = 2_000

#: The mean turn is shrunk towards zero as if so many turns were zero: a few turns say little about all conversations.
_SHRINKAGE = 10


@dataclass(frozen=True, slots=True)
class TurnStatistics:
    """What is common in a corpus."""

    counts: Mapping[str, int] = field(default_factory=dict)  # frequency of each text that occurs more than once
    mean: Vectors | float = 0.0  # the mean turn's vector (size); 0 if unknown

    def weights(self, turns: Sequence[Turn]) -> npt.NDArray[np.float64]:
        """Return the weight of each turn: 1 / (1 + log10 f) for a text of frequency f."""
        frequencies = np.array([self.counts.get(normalise_text(turn.text), 1) for turn in turns])
        return np.asarray(1 / (1 + np.log10(frequencies)))


class TurnStatisticsBuilder:
    """Collects turn statistics, dialogue by dialogue."""

    def __init__(self) -> None:
        self.sample: list[Turn] = []  # a uniform sample of the turns, with a fixed seed
        self._counts: Counter[str] = Counter()
        self._turns = 0
        self._random = random.Random(0)

    def add(self, turns: Sequence[Turn]) -> None:
        """Count the turns of a dialogue."""
        for turn in turns:
            self._counts[normalise_text(turn.text)] += 1
            self._turns += 1
            if len(self.sample) < SAMPLE:
                self.sample.append(turn)
            elif (place := self._random.randrange(self._turns)) < SAMPLE:  # reservoir sampling
                self.sample[place] = turn

    def build(self, vectors: Vectors) -> TurnStatistics:
        """Return the statistics, given the vectors of the sample (turns, size)."""
        mean: Vectors = (vectors.sum(0) / (len(vectors) + _SHRINKAGE)).astype(np.float32)
        return TurnStatistics({text: count for text, count in self._counts.items() if count > 1}, mean)


def conversation_vector(turns: Sequence[Turn], vectors: Vectors, statistics: TurnStatistics) -> Vectors:
    """Return the unit vector of a conversation (2 · size), given unit vectors of its turns (turns, size).

    The mean of a role that does not speak is zero. Speakers without a role count for both.
    """
    weights = statistics.weights(turns)
    user, system = (
        _mean(weights * np.array([turn.speaker != other for turn in turns]), vectors - statistics.mean)
        for other in (SYSTEM, USER)
    )
    combined = np.concatenate([user + system, ROLE_WEIGHT * (user - system)])
    return np.asarray(combined / max(float(np.linalg.norm(combined)), 1e-12), np.float32)


def _mean(weights: npt.NDArray[np.float64], vectors: Vectors) -> npt.NDArray[np.float64]:
    return np.asarray(weights @ vectors / max(float(weights.sum()), 1e-12))
