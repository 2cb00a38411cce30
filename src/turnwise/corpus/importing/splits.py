"""Dividing conversations into training, validation and test data during an import."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from turnwise.core.errors import CorpusError

SPLITS = ("train", "valid", "test")

SplitBy = Literal["conversation", "time"]


@dataclass(frozen=True, slots=True)
class SplitPlan:
    """How conversations are divided."""

    #: The percentages of training, validation and test data.
    percentages: tuple[float, float, float]
    #: conversation: at random, by a hash of the id; time: the oldest conversations are training data.
    by: SplitBy = "conversation"
    #: Another seed gives another random division.
    seed: int = 0

    @classmethod
    def parse(cls, text: str, by: SplitBy = "conversation", seed: int = 0) -> "SplitPlan":
        """Return the plan for percentages such as '80/10/10'."""
        try:
            train, valid, test = map(float, text.split("/"))
        except ValueError:
            raise CorpusError(f"--split {text}: expected three percentages, as in 80/10/10") from None
        if min(train, valid, test) < 0 or not abs(train + valid + test - 100) <= 1e-6:  # not a number is neither
            raise CorpusError(f"--split {text}: the percentages must be at least 0 and add up to 100")
        return cls((train, valid, test), by, seed)

    def split_of_id(self, conversation: str) -> str:
        """Return the split of a conversation by its id; it does not depend on the other conversations."""
        digest = hashlib.blake2b(f"{self.seed}/{conversation}".encode(), digest_size=8).digest()
        return self._split_at(int.from_bytes(digest) / (1 << 64))

    def splits_by_time(self, start_times: Mapping[str, float]) -> dict[str, str]:
        """Return the split of every conversation by the order in which they began; equal times stay together."""
        ordered = sorted(start_times.values())
        first_rank = {time: rank for rank, time in reversed(list(enumerate(ordered)))}
        return {name: self._split_at(first_rank[time] / len(ordered)) for name, time in start_times.items()}

    def _split_at(self, position: float) -> str:
        """Return the split that contains a position from 0 to 1."""
        train, valid, _ = self.percentages
        return SPLITS[(position >= train / 100) + (position >= (train + valid) / 100)]
