"""The assignment of rows to groups, and changes of it: validated, applied, undone, redone, and stored as JSON.

A change states its result (which rows are in which group, which names groups have), not how it was computed. Replaying
a journal therefore does not depend on algorithms that may change.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
import numpy.typing as npt

from turnwise.core.errors import MapError

#: The group of a row that belongs to no group.
NO_GROUP = -1

_MAX_NAME_LENGTH = 200
_MAX_PARTS = 50

ChangeKind = Literal["name", "merge", "split", "label"]


@dataclass(frozen=True, slots=True)
class LabelChange:
    """The result of one action of a person: what holds from now on."""

    kind: ChangeKind
    moved: Mapping[int, tuple[int, ...]] = field(default_factory=dict)  # rows by their group, or NO_GROUP
    names: Mapping[int, str | None] = field(default_factory=dict)  # of groups; None: no name
    confirmed: tuple[int, ...] = ()  # rows that a person has labelled individually

    def to_json(self) -> dict[str, Any]:
        """Return the change as a journal entry; keys of JSON objects are strings, so groups are stored in pairs."""
        return {
            "do": self.kind,
            "moved": [[group, list(rows)] for group, rows in self.moved.items()],
            "names": [[group, name] for group, name in self.names.items()],
            "confirmed": list(self.confirmed),
        }

    @classmethod
    def from_json(cls, entry: Mapping[str, Any], row_count: int) -> "LabelChange":
        """Restore a change of a map with `row_count` rows; raise ValueError if the entry is invalid."""
        try:
            moved = {int(group): tuple(int(row) for row in rows) for group, rows in entry["moved"]}
            names = {int(group): name for group, name in entry["names"]}
            confirmed = tuple(int(row) for row in entry["confirmed"])
            kind = entry["do"]
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f"the entry is not a change ({error})") from error
        rows = [*confirmed, *(row for rows in moved.values() for row in rows)]
        if kind not in get_args(ChangeKind) or any(not 0 <= row < row_count for row in rows):
            raise ValueError(f"unknown change {kind!r}, or a row that is not among the {row_count} of the map")
        valid_names = all(name is None or isinstance(name, str) for name in names.values())
        if min(moved, default=0) < NO_GROUP or min(names, default=0) < 0 or not valid_names:
            raise ValueError("a group number is negative, or a name is not a string")
        return cls(kind, moved, names, confirmed)


class _AppliedChange(NamedTuple):
    """A change, and the previous state of what it changed."""

    change: LabelChange
    rows: npt.NDArray[np.int64]
    groups: npt.NDArray[np.int32]
    confirmed: npt.NDArray[np.bool_]
    names: Mapping[int, str | None]


class GroupAssignment:
    """The current groups of rows, with undo and redo."""

    def __init__(self, groups: npt.NDArray[np.int32]):
        self.groups = groups.astype(np.int32, copy=True)  # of every row, or NO_GROUP
        self.confirmed = np.zeros(len(groups), np.bool_)  # whether a person has labelled a row individually
        self.names: dict[int, str] = {}  # of the groups that have one
        self.applied: list[_AppliedChange] = []  # changes in force, oldest first
        self.undone: list[LabelChange] = []  # changes that can be redone, the next one last
        self.next_number = int(groups.max(initial=NO_GROUP)) + 1  # the lowest that no group has had

    def apply(self, change: LabelChange) -> None:
        """Apply a change; undone changes cannot be redone afterwards."""
        self._apply(change)
        self.undone.clear()

    def undo(self) -> None:
        """Revert the latest change; raise IndexError if there is none."""
        last = self.applied.pop()
        self.groups[last.rows] = last.groups
        self.confirmed[last.rows] = last.confirmed
        self._set_names(last.names)
        self.undone.append(last.change)

    def redo(self) -> None:
        """Apply the change that was undone last; raise IndexError if there is none."""
        self._apply(self.undone.pop())

    def groups_named(self, name: str) -> list[int]:
        """Return the groups with a name, including empty ones."""
        return [group for group, other in self.names.items() if other == name]

    def _apply(self, change: LabelChange) -> None:
        touched = [*change.confirmed, *(row for moved in change.moved.values() for row in moved)]
        rows = np.unique(np.array(touched, np.int64))
        before = {group: self.names.get(group) for group in change.names}
        self.applied.append(_AppliedChange(change, rows, self.groups[rows], self.confirmed[rows], before))
        for group, moved in change.moved.items():
            self.groups[list(moved)] = group
        self.confirmed[list(change.confirmed)] = True
        self._set_names(change.names)
        self.next_number = max(self.next_number, *(group + 1 for group in (*change.moved, *change.names)), 0)

    def _set_names(self, names: Mapping[int, str | None]) -> None:
        for group, name in names.items():
            if name is None:
                self.names.pop(group, None)
            else:
                self.names[group] = name


# ---- actions: each returns a change for the caller to store and apply, and raises MapError for invalid arguments


def name_group(state: GroupAssignment, group: int, name: str) -> LabelChange | None:
    """Name a group; None if it has that name already."""
    _check_group(state, group)
    name = _validate_name(name)
    return None if state.names.get(group) == name else LabelChange("name", names={group: name})


def merge_groups(state: GroupAssignment, groups: Sequence[int], name: str | None) -> LabelChange:
    """Move groups into the first of them; without `name` it gets that of the first group that has one."""
    for group in groups:
        _check_group(state, group)
    first, *others = dict.fromkeys(groups) if groups else (NO_GROUP,)
    if not others:
        raise MapError("at least two different groups are needed to merge")
    if name is None:
        name = next((state.names[group] for group in groups if group in state.names), None)
    else:
        name = _validate_name(name)
    rows = np.flatnonzero(np.isin(state.groups, others))
    return LabelChange("merge", {first: tuple(rows.tolist())}, {first: name} | dict.fromkeys(others))


def split_group(state: GroupAssignment, group: int, parts: int, vectors: npt.NDArray[np.float32]) -> LabelChange:
    """Split a group by k-means; the largest part keeps its number, the others get new numbers."""
    _check_group(state, group)
    if not 2 <= parts <= _MAX_PARTS:
        raise MapError(f"a group can be split into 2 to {_MAX_PARTS} parts, got {parts}")
    rows = np.flatnonzero(state.groups == group)
    distinct = len(np.unique(vectors[rows], axis=0))
    if distinct < parts:
        raise MapError(f"group {group} cannot be split into {parts} parts: it has {distinct} distinct vectors")
    from sklearn.cluster import KMeans

    part_of = KMeans(parts, n_init=4, random_state=0).fit_predict(vectors[rows])
    members = [rows[part_of == part] for part in np.unique(part_of)]
    _, *others = sorted(members, key=lambda part: (-len(part), int(part[0])))
    return LabelChange("split", {number: tuple(part.tolist()) for number, part in enumerate(others, state.next_number)})


def label_rows(state: GroupAssignment, rows: Sequence[int], name: str | None) -> LabelChange | None:
    """Move rows to the largest group with a name, unless they are in one, or with None to no group."""
    if not len(rows):
        raise MapError("no row was given: pass the rows of the utterances to label")
    selected = np.unique(np.asarray(rows))
    if selected.dtype.kind not in "iu" or selected[0] < 0 or selected[-1] >= len(state.groups):
        raise MapError(f"rows are numbered from 0 to {len(state.groups) - 1}, got {selected[[0, -1]].tolist()}")
    if name is None:
        target, existing = NO_GROUP, [NO_GROUP]
    else:
        name = _validate_name(name)
        existing = state.groups_named(name)
        target = max(
            existing, key=lambda group: (int((state.groups == group).sum()), -group), default=state.next_number
        )
    moved = selected[~np.isin(state.groups[selected], existing)]
    unconfirmed = selected[~state.confirmed[selected]]
    if not len(moved) and not len(unconfirmed):
        return None
    names = {} if existing else {target: name}
    moves = {target: tuple(moved.tolist())} if len(moved) else {}
    return LabelChange("label", moves, names, tuple(unconfirmed.tolist()))


def copy_labels(state: GroupAssignment, labels: Sequence[tuple[int, str, bool]]) -> LabelChange:
    """Move rows to the groups of given names; labels are (row, name, whether a person labelled it individually)."""
    numbers: dict[str, int] = {}
    next_number = state.next_number
    for name in dict.fromkeys(name for _, name, _ in labels):
        existing = state.groups_named(name)
        numbers[name] = min(existing, default=next_number)
        next_number += not existing
    moved = {number: tuple(row for row, label, _ in labels if label == name) for name, number in numbers.items()}
    names = {number: name for name, number in numbers.items()}
    return LabelChange("label", moved, names, tuple(row for row, _, confirmed in labels if confirmed))


def _check_group(state: GroupAssignment, group: int) -> None:
    if group < 0 or not (state.groups == group).any():
        raise MapError(f"there is no group {group}: it may have been merged into another one, or emptied")


def _validate_name(name: str) -> str:
    name = name.strip()
    if not name or len(name) > _MAX_NAME_LENGTH:
        raise MapError(f"a name must have 1 to {_MAX_NAME_LENGTH} characters, got {len(name)}")
    if not name.isprintable():  # line breaks, NUL, lone surrogates
        raise MapError(f"the name {name!r} contains a character that is not printable: use a single line of text")
    return name
