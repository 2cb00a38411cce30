"""What people do to groups, checked and written down as changes: name, merge, split, label, and carry over from another map.

Each gives the change and does not make it: whoever calls writes it to disk first.
"""

from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt

from turnwise.assist.labelling.grouping import NONE, Change, Grouping, LabellingError

#: Characters of a name at most.
_LONGEST = 200

#: Parts that a group is split into at most.
_PARTS = 50

#: An utterance, its label, and whether a person labelled it by itself.
Carried = tuple[int, str, bool]


def named(state: Grouping, group: int, name: str) -> Change | None:
    """Gives a group a name; None where it has that one already.

    Raises:
        LabellingError: if there is no such group, or the name cannot be used.
    """
    check_group(state, group)
    name = _checked(name)
    return None if state.names.get(group) == name else Change("name", names={group: name})


def merged(state: Grouping, groups: Sequence[int], name: str | None) -> Change:
    """Moves groups into the first of them; without a name, it has that of the first one that has any.

    Raises:
        LabellingError: if there are not two of them, one does not exist, or the name cannot be used.
    """
    for group in groups:
        check_group(state, group)
    first, *others = dict.fromkeys(groups) if groups else (NONE,)
    if not others:
        raise LabellingError("two different groups at least can be merged: give their numbers")
    kept = (
        next((state.names[group] for group in groups if group in state.names), None) if name is None else _checked(name)
    )
    moved = np.flatnonzero(np.isin(state.groups, others))
    return Change("merge", {first: _plain(moved)}, {first: kept} | dict.fromkeys(others))


def split(state: Grouping, group: int, parts: int, vectors: npt.NDArray[np.float32]) -> Change:
    """Splits a group by k-means; the largest part stays where it is, the others get numbers that no group has had.

    Raises:
        LabellingError: if there is no such group, or it cannot be split into so many parts.
    """
    check_group(state, group)
    if isinstance(parts, bool) or not isinstance(parts, int) or not 2 <= parts <= _PARTS:
        raise LabellingError(f"a group is split into 2 to {_PARTS} parts, not {parts}")
    rows = np.flatnonzero(state.groups == group)
    found = _parts(vectors[rows], parts)
    if len(found) < parts:
        raise LabellingError(
            f"group {group} cannot be split into {parts} parts: its {len(rows)} utterances fall into {len(found)} at most"
        )
    return Change("split", {state.unused + place: _plain(rows[part]) for place, part in enumerate(found[1:])})


def labelled(state: Grouping, rows: Sequence[int], name: str | None) -> Change | None:
    """Moves utterances to the group of a name, or to none; None where all are there already, and confirmed.

    Where several groups have the name, utterances in one of them stay there, and others go to the largest.

    Raises:
        LabellingError: if there is no such row, or the name cannot be used.
    """
    wanted = checked_rows(state, rows)
    if name is None:
        target, there = NONE, [NONE]
    else:
        name = _checked(name)
        there = state.named(name)
        target = max(there, key=lambda group: (int((state.groups == group).sum()), -group), default=state.unused)
    moved = wanted[~np.isin(state.groups[wanted], there)]
    fresh = wanted[~state.confirmed[wanted]]
    if not len(moved) and not len(fresh):
        return None
    names = {} if there else {target: name}
    return Change("label", {target: _plain(moved)} if len(moved) else {}, names, _plain(fresh))


def carried(state: Grouping, known: Sequence[Carried]) -> Change:
    """Moves utterances to the groups of the names that another map's labels give them.

    Args:
        state: the groups here.
        known: utterances by their rows here.
    """
    numbers: dict[str, int] = {}
    unused = state.unused
    for name in dict.fromkeys(name for _, name, _ in known):
        there = state.named(name)
        numbers[name] = min(there, default=unused)
        unused += not there
    moved = {number: tuple(row for row, label, _ in known if label == name) for name, number in numbers.items()}
    return Change(
        "label", moved, {number: name for name, number in numbers.items()}, tuple(row for row, _, sure in known if sure)
    )


def check_group(state: Grouping, group: int) -> None:
    """Makes sure that a group is there.

    Raises:
        LabellingError: if not.
    """
    if isinstance(group, bool) or not isinstance(group, int | np.integer):
        raise LabellingError(f"a group is given by its number, not by {group!r}")
    if group < 0 or not (state.groups == group).any():
        raise LabellingError(f"there is no group {group}: it may have been merged into another one, or emptied")


def checked_rows(state: Grouping, rows: Sequence[int]) -> npt.NDArray[np.int64]:
    """Rows, each once, in order.

    Raises:
        LabellingError: if there are none, or one of them is not there.
    """
    for row in rows:
        if isinstance(row, bool) or not isinstance(row, int | np.integer) or not 0 <= row < len(state.groups):
            raise LabellingError(f"there is no row {row!r}: rows go from 0 to {len(state.groups) - 1}")
    if not len(rows):
        raise LabellingError("no row is given: name the utterances to label by their rows")
    return np.unique(np.array(rows, np.int64))


def _checked(name: str) -> str:
    if not isinstance(name, str):
        raise LabellingError(f"a name is a text, not {type(name).__name__}")
    name = name.strip()
    if not name:
        raise LabellingError("a name needs a character at least")
    if len(name) > _LONGEST:
        raise LabellingError(f"a name has {_LONGEST} characters at most, and this one has {len(name)}")
    if not name.isprintable():  # line breaks, NUL, half characters
        raise LabellingError(
            f"the name {name!r} holds a character that cannot be shown: write it in one line, with none of those"
        )
    return name


def _parts(vectors: npt.NDArray[np.float32], parts: int) -> list[npt.NDArray[np.int64]]:
    """The places of the vectors in each part, the largest part first; fewer than asked for where vectors are the same."""
    from sklearn.cluster import KMeans

    distinct = len(np.unique(vectors, axis=0))
    if distinct < parts:
        return [np.array([place]) for place in range(distinct)]
    found = KMeans(parts, n_init=4, random_state=0).fit_predict(vectors)
    places = [np.flatnonzero(found == part) for part in np.unique(found)]
    return sorted(places, key=lambda each: (-len(each), int(each[0])))


def _plain(rows: Iterable[np.int64]) -> tuple[int, ...]:
    return tuple(int(row) for row in rows)
