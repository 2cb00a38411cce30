"""Turns that are missing from a dialogue, and what becomes of the turns around them.

If a message cannot be read, or a cleaning step removes it, the turns before and after it were not consecutive. A *hole*
is the place of such a message: hole `n` lies before the turn with index `n`.
"""

from collections.abc import Collection
from dataclasses import replace
from typing import Literal

from turnwise.core.dialogue import Dialogue

#: split: a dialogue ends at a hole and another begins after it; drop-dialogue: a dialogue with a hole is left out;
#: keep: the turns around a hole become consecutive.
HolePolicy = Literal["split", "drop-dialogue", "keep"]


def apply_hole_policy(dialogue: Dialogue, holes: Collection[int], policy: HolePolicy) -> list[Dialogue]:
    """Return what remains of a dialogue: itself, its parts, or nothing.

    The first part keeps the id, others get `#2`, `#3`, … after it. Holes before the first or after the last turn do
    not split a dialogue.
    """
    if not holes or policy == "keep":
        return [dialogue]
    if policy == "drop-dialogue":
        return []
    places = sorted({hole for hole in holes if 0 < hole < len(dialogue.turns)})
    if not places:
        return [dialogue]
    bounds = zip([0, *places], [*places, len(dialogue.turns)], strict=True)
    return [
        replace(dialogue, id=f"{dialogue.id}#{number}" if number > 1 else dialogue.id, turns=dialogue.turns[start:end])
        for number, (start, end) in enumerate(bounds, 1)
    ]


def remove_turns(dialogue: Dialogue, removed: Collection[int], policy: HolePolicy) -> list[Dialogue]:
    """Return what remains of a dialogue without the turns with these indices."""
    if not removed:
        return [dialogue]
    kept = [index for index in range(len(dialogue.turns)) if index not in removed]
    if not kept:
        return []
    holes = {place for place, index in enumerate(kept) if index - 1 in removed}
    if len(dialogue.turns) - 1 in removed:
        holes.add(len(kept))
    return apply_hole_policy(replace(dialogue, turns=tuple(dialogue.turns[i] for i in kept)), holes, policy)
