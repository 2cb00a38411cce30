"""Templates: utterances without the values of their slots.

"wake me at seven" with the slot `time` has the template "wake me at {SLOT}" (TaDSE, section 5.1). A template is stored
as the text around its slots, never as a text with placeholders in it, so braces in an utterance have no meaning.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from turnwise.core.dialogue import Slot, Turn

#: The placeholder of a value, whatever its slot.
SLOT = "{SLOT}"


def non_overlapping_slots(turn: Turn) -> tuple[Slot, ...]:
    """Return the slots that a template is made of, from left to right.

    Of overlapping slots the longest is taken, of equally long ones the earliest, of those with one span the first.
    """
    taken: list[Slot] = []
    for slot in sorted(turn.slots, key=lambda slot: (slot.start - slot.end, slot.start)):
        if all(slot.end <= other.start or other.end <= slot.start for other in taken):
            taken.append(slot)
    return tuple(sorted(taken, key=lambda slot: slot.start))


@dataclass(frozen=True, slots=True)
class Template:
    """An utterance without the values of its slots, whose names are given from left to right."""

    #: The texts before, between and after the slots: one more than there are slots, possibly empty.
    pieces: tuple[str, ...]
    names: tuple[str, ...]

    def __post_init__(self) -> None:
        slots = len(self.names)
        if len(self.pieces) != slots + 1:
            raise ValueError(f"a template of {slots} slots has {slots + 1} pieces, not {len(self.pieces)}")

    @classmethod
    def from_turn(cls, turn: Turn) -> "Template":
        """Return the template of a turn; overlapping slots are resolved by `non_overlapping_slots`."""
        slots = non_overlapping_slots(turn)
        starts = [0, *(slot.end for slot in slots)]
        ends = [*(slot.start for slot in slots), len(turn.text)]
        pieces = tuple(turn.text[start:end] for start, end in zip(starts, ends, strict=True))
        return cls(pieces, tuple(slot.name for slot in slots))

    def text(self, names: bool = False) -> str:
        """Return the template as a text with `{SLOT}`, or the `{name}` of each slot, as placeholders."""
        return self.join([f"{{{name}}}" if names else SLOT for name in self.names])

    def fill(self, values: Sequence[str]) -> tuple[str, tuple[Slot, ...]]:
        """Return the utterance with these values in the slots, and the slots at their new offsets."""
        if len(values) != len(self.names):
            raise ValueError(f"a template of {len(self.names)} slots needs as many values, got {len(values)}")
        slots, end = [], 0
        for piece, name, value in zip(self.pieces, self.names, values, strict=False):
            start = end + len(piece)
            end = start + len(value)
            slots.append(Slot(name, value, start, end))
        return self.join(values), tuple(slots)

    def join(self, texts: Sequence[str]) -> str:
        """Return the template with a text in place of each slot."""
        return self.pieces[0] + "".join(part for pair in zip(texts, self.pieces[1:], strict=True) for part in pair)


def template_text(turn: Turn) -> str | None:
    """Return the template of a turn as a text; None if the turn has no slots and is its own template."""
    return Template.from_turn(turn).text() if turn.slots else None
