"""Edits of the text of a turn that keep its slots in place."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace

from turnwise.core.dialogue import Slot, Turn

#: (start, end, replacement); the edits of a text do not overlap and are sorted.
Edit = tuple[int, int, str]


def without_overlaps(edits: Iterable[Edit]) -> list[Edit]:
    """Return edits in order, without those that overlap an earlier one."""
    kept: list[Edit] = []
    for edit in sorted(edits):
        if not kept or edit[0] >= kept[-1][1]:
            kept.append(edit)
    return kept


def edit_turn(turn: Turn, edits: Sequence[Edit], changes: Counter[str]) -> Turn:
    """Apply edits to a turn's text, strip it and shift its slots.

    A slot that contains an edit gets the new value; one that an edit only overlaps is dropped and counted. A turn whose
    text would become empty stays as it is, and is counted.
    """
    if not edits:
        return turn
    pieces, position = [], 0
    for start, end, replacement in edits:
        pieces += [turn.text[position:start], replacement]
        position = end
    edited = "".join([*pieces, turn.text[position:]])
    text = edited.strip()
    if not text:
        changes["turns left as they were, since nothing would remain"] += 1
        return turn
    stripped = len(edited) - len(edited.lstrip())
    slots = []
    for slot in turn.slots:
        shift = sum(len(new) - (end - start) for start, end, new in edits if end <= slot.start) - stripped
        inside = [edit for edit in edits if edit[0] < slot.end and edit[1] > slot.start]
        growth = sum(len(new) - (end - start) for start, end, new in inside)
        first, last = max(0, slot.start + shift), min(len(text), slot.end + shift + growth)
        if all(slot.start <= start and end <= slot.end for start, end, _ in inside) and first < last:
            slots.append(Slot.from_text(text, slot.name, first, last))
        else:
            changes["slots lost"] += 1
    return replace(turn, text=text, slots=tuple(slots))
