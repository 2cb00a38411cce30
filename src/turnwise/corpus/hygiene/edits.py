"""Edits of dialogues: of a turn's text, with its slots kept in place, and the removal of turns.

If a message cannot be read, or a cleaning step removes it, the turns before and after it were not consecutive. A *hole*
is the place of such a message: hole `n` lies before the turn with index `n`.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Literal

from turnwise.core.dialogue import Dialogue, Slot, Turn

Edit = tuple[int, int, str]  # (start, end, replacement); the edits of a text do not overlap and are sorted

#: split: a dialogue ends at a hole and another begins after it; drop-dialogue: a dialogue with a hole is left out;
#: keep: the turns around a hole become consecutive.
HolePolicy = Literal["split", "drop-dialogue", "keep"]

#: Returns what remains of a dialogue: itself, changed or not, its parts, or nothing; counts its changes.
Clean = Callable[[Dialogue, Counter[str]], Sequence[Dialogue]]


class CleaningStep:
    """A cleaning function, and the counts of its changes so far (`changes`)."""

    def __init__(self, clean: Clean) -> None:
        self._clean = clean
        self.changes: Counter[str] = Counter()

    def __call__(self, dialogues: Iterable[Dialogue]) -> Iterator[Dialogue]:
        """Yield what remains of the dialogues."""
        for dialogue in dialogues:
            cleaned = self._clean(dialogue, self.changes)
            if not cleaned:
                self.changes["dialogues dropped"] += 1
                self.changes["turns dropped with them"] += len(dialogue.turns)
            elif len(cleaned) > 1:
                self.changes["dialogues split"] += 1
            yield from cleaned


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


def replace_turns(dialogue: Dialogue, turns: Sequence[Turn], changes: Counter[str]) -> Dialogue:
    """Return a dialogue with edited turns, which are counted."""
    if changed := sum(new is not old for new, old in zip(turns, dialogue.turns, strict=True)):
        changes["turns changed"] += changed
        return replace(dialogue, turns=tuple(turns))
    return dialogue


def apply_hole_policy(dialogue: Dialogue, holes: Collection[int], policy: HolePolicy) -> list[Dialogue]:
    """Return what remains of a dialogue: itself, its parts, or nothing; holes at its ends do not split it."""
    if not holes or policy == "keep":
        return [dialogue]
    if policy == "drop-dialogue":
        return []
    places = sorted({hole for hole in holes if 0 < hole < len(dialogue.turns)})
    bounds = zip([0, *places], [*places, len(dialogue.turns)], strict=True)
    return [
        replace(dialogue, id=f"{dialogue.id}#{number}" if number > 1 else dialogue.id, turns=dialogue.turns[start:end])
        for number, (start, end) in enumerate(bounds, 1)
    ]
