"""Which group every row is in, and how that changes: changes apply, can be undone and done again, and are plain JSON.

A change says what came of it (which rows are in which group now, which names groups have now) and not how it was found: what a
journal replays does not depend on an algorithm that may find something else tomorrow.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from turnwise.core.errors import TurnwiseError

#: Where a row is that belongs to no group.
NONE = -1


class LabellingError(TurnwiseError):
    """Labels cannot be changed or used as asked; the message says why and what to do."""


Kind = Literal["name", "merge", "split", "label"]
_KINDS = ("name", "merge", "split", "label")


@dataclass(frozen=True, slots=True)
class Change:
    """What one act of a person comes to.

    Attributes:
        do: which act it was.
        moved: for groups, the rows that are in them from now on; for NONE, those that are in no group.
        names: names that groups have from now on; None: no name.
        confirmed: rows that a person has judged one by one.
    """

    do: Kind
    moved: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    names: Mapping[int, str | None] = field(default_factory=dict)
    confirmed: tuple[int, ...] = ()

    def as_json(self) -> dict[str, Any]:
        """The change as a line of a journal has it; JSON's keys are texts, so groups come in pairs."""
        return {
            "do": self.do,
            "moved": [[group, list(rows)] for group, rows in self.moved.items()],
            "names": [[group, name] for group, name in self.names.items()],
            "confirmed": list(self.confirmed),
        }

    @classmethod
    def of_json(cls, entry: Mapping[str, Any], rows: int) -> "Change":
        """A change from a journal's line.

        Args:
            entry: the line.
            rows: how many there are.

        Raises:
            ValueError: if it is no change of so many rows.
        """
        try:
            moved = {int(group): tuple(int(row) for row in moved) for group, moved in entry["moved"]}
            names = {int(group): name for group, name in entry["names"]}
            confirmed = tuple(int(row) for row in entry["confirmed"])
            do = entry["do"]
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f"it is no change ({error})") from error
        if do not in _KINDS:
            raise ValueError(f"{do!r} is no kind of change")
        touched = [*confirmed, *(row for moved_rows in moved.values() for row in moved_rows)]
        if any(not 0 <= row < rows for row in touched):
            raise ValueError(f"it speaks of rows that are not among the {rows} of the map")
        if any(group < NONE for group in moved) or any(group < 0 for group in names):
            raise ValueError("it speaks of a group with a negative number")
        if any(name is not None and not isinstance(name, str) for name in names.values()):
            raise ValueError("a name in it is no text")
        return cls(do, moved, names, confirmed)


@dataclass(frozen=True, slots=True)
class _Done:
    """A change and what was there before it, as far as it touched that."""

    change: Change
    rows: npt.NDArray[np.int64]
    groups: npt.NDArray[np.int32]
    confirmed: npt.NDArray[np.bool_]
    names: Mapping[int, str | None]


class Grouping:
    """The state that changes lead to.

    Attributes:
        groups: the group of every row; NONE: no group.
        confirmed: the rows that a person has judged one by one.
        names: of the groups that have one.
        done: changes that stand, oldest first.
        undone: changes that were undone and can be done again, the next one last.
        unused: the least number that no group has ever had.
    """

    def __init__(self, groups: npt.NDArray[np.int32]):
        """Starts with groups that nobody has named yet."""
        self.groups = groups.astype(np.int32, copy=True)
        self.confirmed = np.zeros(len(groups), np.bool_)
        self.names: dict[int, str] = {}
        self.done: list[_Done] = []
        self.undone: list[Change] = []
        self.unused = int(groups.max(initial=NONE)) + 1

    def apply(self, change: Change) -> None:
        """Makes a change; what was undone before it cannot be done again."""
        self._apply(change)
        self.undone.clear()

    def undo(self) -> None:
        """Takes the newest change back.

        Raises:
            IndexError: if there is none.
        """
        last = self.done.pop()
        self.groups[last.rows] = last.groups
        self.confirmed[last.rows] = last.confirmed
        self._name(last.names)
        self.undone.append(last.change)

    def redo(self) -> None:
        """Makes the change again that was undone last.

        Raises:
            IndexError: if there is none.
        """
        self._apply(self.undone.pop())

    def numbers(self) -> npt.NDArray[np.int32]:
        """The groups that hold a row, in order."""
        present: npt.NDArray[np.int32] = np.unique(self.groups[self.groups != NONE])
        return present

    def named(self, name: str) -> list[int]:
        """The groups of that name, those that are empty now included."""
        return [group for group, given in self.names.items() if given == name]

    def _apply(self, change: Change) -> None:
        rows = np.unique(
            np.array([*change.confirmed, *(row for moved in change.moved.values() for row in moved)], np.int64)
        )
        before = {group: self.names.get(group) for group in change.names}
        self.done.append(_Done(change, rows, self.groups[rows], self.confirmed[rows], before))
        for group, moved in change.moved.items():
            self.groups[list(moved)] = group
        self.confirmed[list(change.confirmed)] = True
        self._name(change.names)
        self.unused = max(self.unused, *(group + 1 for group in (*change.moved, *change.names)), 0)

    def _name(self, names: Mapping[int, str | None]) -> None:
        for group, name in names.items():
            if name is None:
                self.names.pop(group, None)
            else:
                self.names[group] = name
