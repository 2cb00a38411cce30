"""What the groups of a map are about, as people change them: sizes, characteristic words, representatives."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from turnwise.assist.labelling.grouping import NONE, Grouping
from turnwise.assist.map.clustering import describe_clusters
from turnwise.assist.map.utterance_map import UtteranceMap

#: Characteristic words in a name that is suggested.
_WORDS = 3


@dataclass(frozen=True, slots=True)
class Group:
    """Utterances that belong together.

    Attributes:
        number: which group it is; stays while others change.
        name: what a person called it; None: nothing yet, and its utterances have no label.
        suggested: a name made of its characteristic words.
        size: how many different utterances it holds.
        utterances: how often these were said.
        words: its characteristic words.
        representatives: rows of utterances that stand for it.
    """

    number: int
    name: str | None
    suggested: str
    size: int
    utterances: int
    words: tuple[str, ...]
    representatives: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class _About:
    """What a group's members say of it."""

    name: str
    words: tuple[str, ...]
    representatives: tuple[int, ...]


class Groups:
    """Describes groups; what is known of one is kept by its members, on which alone it depends."""

    def __init__(self, labelled: UtteranceMap):
        """Starts with what a map says of its clusters."""
        self._map = labelled
        self._counts = labelled.counts
        self._known = {
            _digest(np.flatnonzero(labelled.labels == each.number)): _About(each.name, each.words, each.representatives)
            for each in labelled.clusters
        }

    def of(self, state: Grouping) -> list[Group]:
        """The groups that hold an utterance, the largest first."""
        members = {int(number): np.flatnonzero(state.groups == number) for number in state.numbers()}
        self._describe(members, state)
        found = []
        for number, rows in members.items():
            about, said = self._known[_digest(rows)], int(self._counts[rows].sum())
            name = state.names.get(number)
            found.append(Group(number, name, about.name, len(rows), said, about.words, about.representatives))
        return sorted(found, key=lambda group: (-group.utterances, group.number))

    def _describe(self, members: Mapping[int, npt.NDArray[np.int64]], state: Grouping) -> None:
        unknown = [number for number, rows in members.items() if _digest(rows) not in self._known]
        if not unknown:
            return
        looked_at = np.where(np.isin(state.groups, unknown), state.groups, NONE)
        for each in describe_clusters(self._map.texts, looked_at, self._map.vectors, self._counts):
            # not the name that they have there: it depends on which others are described with it
            name = ", ".join(each.words[:_WORDS]) or self._map.texts[each.representatives[0]]
            self._known[_digest(members[each.number])] = _About(name, each.words, each.representatives)


def _digest(rows: npt.NDArray[np.int64]) -> bytes:
    return hashlib.blake2b(rows.tobytes(), digest_size=16).digest()
