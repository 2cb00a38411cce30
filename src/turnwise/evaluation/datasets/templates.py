"""Templates of labelled utterances, whose slots a corpus marks in its own way."""

from turnwise.corpus.readers.slot_marks import Pieces, slot_spans
from turnwise.dialogue import USER, Slot, Turn
from turnwise.template import template_of


def template(pieces: Pieces, text: str) -> str:
    """The text with the slots' values replaced by their names; white space at a value's edges stays."""
    slots = tuple(Slot.of(text, name, start, end) for name, start, end in slot_spans(pieces, text))
    return template_of(Turn(USER, text, slots=slots), names=True)
