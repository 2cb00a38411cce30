"""Templates: utterances with their slots' values taken out.

"wake me at seven" with the slot `time` is the template "wake me at {SLOT}" (TaDSE, section 5.1). A template is kept as the words
around its slots, never as a text with marks in it, so braces that a speaker wrote mean nothing.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from turnwise.core.dialogue import Slot, Turn

#: What stands for a value, whatever its slot.
SLOT = "{SLOT}"


def slots_in_place(turn: Turn) -> tuple[Slot, ...]:
    """The slots that a template is made of, from left to right.

    Of slots that overlap, the longer one counts, of equally long ones the earlier, of those of one place the one that the turn
    lists first; the others are left out.
    """
    taken: list[Slot] = []
    for slot in sorted(turn.slots, key=lambda slot: (slot.start - slot.end, slot.start)):
        if all(slot.end <= other.start or other.end <= slot.start for other in taken):
            taken.append(slot)
    return tuple(sorted(taken, key=lambda slot: slot.start))


@dataclass(frozen=True, slots=True)
class Template:
    """An utterance without its slots' values.

    Attributes:
        words: what stands before, between and after the slots: one more than there are slots, each possibly empty.
        names: the slots' names, from left to right.
    """

    words: tuple[str, ...]
    names: tuple[str, ...]

    def __post_init__(self) -> None:
        if len(self.words) != len(self.names) + 1:
            raise ValueError(
                f"a template of {len(self.names)} slots has {len(self.names) + 1} pieces, not {len(self.words)}"
            )

    @classmethod
    def of(cls, turn: Turn) -> "Template":
        """The template of a turn; of slots that overlap one counts, as `slots_in_place` says."""
        slots = slots_in_place(turn)
        starts = [0, *(slot.end for slot in slots)]
        ends = [*(slot.start for slot in slots), len(turn.text)]
        words = tuple(turn.text[start:end] for start, end in zip(starts, ends, strict=True))
        return cls(words, tuple(slot.name for slot in slots))

    def text(self, names: bool = False) -> str:
        """The template as a text: `{SLOT}` for every slot, or `{name}`."""
        marks = [f"{{{name}}}" for name in self.names] if names else [SLOT] * len(self.names)
        return self.joined(marks)

    def filled(self, values: Sequence[str]) -> tuple[str, tuple[Slot, ...]]:
        """The utterance with these values in the slots, from left to right, and the slots at their new places."""
        if len(values) != len(self.names):
            raise ValueError(f"a template of {len(self.names)} slots takes as many values, not {len(values)}")
        slots, end = [], 0
        for words, name, value in zip(self.words, self.names, values, strict=False):
            start = end + len(words)
            end = start + len(value)
            slots.append(Slot(name, value, start, end))
        return self.joined(values), tuple(slots)

    def joined(self, between: Sequence[str]) -> str:
        """The template with something in the place of each slot, from left to right."""
        return self.words[0] + "".join(piece for pair in zip(between, self.words[1:], strict=True) for piece in pair)


def template_of(turn: Turn, names: bool = False) -> str:
    """A turn's text with every slot's value replaced by `{SLOT}`, or by `{name}`.

    Of slots that overlap the longer one, then the earlier, is replaced; the others are left out.
    """
    return Template.of(turn).text(names)


@dataclass(frozen=True, slots=True)
class SlotMarks:
    """What stands for the values where a model reads templates: `{SLOT}`, but for slots that have a token of their own.

    Attributes:
        names: the slots that have one, `{name}`.
    """

    names: tuple[str, ...] = ()

    @classmethod
    def of(cls, turns: Iterable[Turn], most: int) -> "SlotMarks":
        """Marks of their own for the `most` most frequent slots of turns; equal counts in alphabetical order."""
        counts = Counter(slot.name for turn in turns for slot in slots_in_place(turn)) if most else Counter[str]()
        return cls(tuple(sorted(counts, key=lambda name: (-counts[name], name))[:most]))

    @property
    def tokens(self) -> tuple[str, ...]:
        """The tokens that a model has to learn."""
        return (SLOT, *(f"{{{name}}}" for name in self.names if f"{{{name}}}" != SLOT))

    def text(self, template: Template) -> str:
        """A template as the model reads it."""
        return template.joined([f"{{{name}}}" if name in self.names else SLOT for name in template.names])


#: `{SLOT}` for every slot, as the paper has it.
ONE_MARK = SlotMarks()
