"""Slots from the ways in which labelled utterances mark them: inline, as '[time : five am]', or by a B-/I- tag a word."""

import re
from collections.abc import Sequence

from turnwise.corpus.readers.labels import Span

#: What is said piece by piece, each with the slot whose value it is, or '' for the words between slots.
Pieces = Sequence[tuple[str, str]]

_MARKED = re.compile(r"\[([^\[\]:]*):([^\[\]]*)\]")


def slot_spans(pieces: Pieces, text: str) -> list[Span]:
    """Where the text holds the slots' values, in the order in which they are said.

    Annotations differ from texts in white space (MASSIVE's Chinese ones put some around each slot, where the texts have none), so
    that values are found by counting the other characters; white space at a value's edges is no part of it.

    Raises:
        ValueError: if the pieces have other words than the text, or a slot has no value.
    """
    if "".join("".join(said.split()) for said, _ in pieces) != "".join(text.split()):
        raise ValueError(f"the annotation has other words than the text {text!r}")
    if not any(slot for _, slot in pieces):
        return []
    visible = [position for position, character in enumerate(text) if not character.isspace()]
    spans: list[Span] = []
    counted = 0
    for said, slot in pieces:
        size = len("".join(said.split()))
        if slot and not size:
            raise ValueError(f"the slot {slot!r} has no value")
        if slot:
            spans.append((slot, visible[counted], visible[counted + size - 1] + 1))
        counted += size
    return spans


def marked_pieces(annotation: str) -> Pieces:
    """Pieces of a text with slots marked as in 'wake me up at [time : five am]'."""
    parts = _MARKED.split(annotation)
    slots = [slot.strip() for slot in parts[1::3]]
    pieces: list[tuple[str, str]] = []
    for words, slot, value in zip(parts[::3], [*slots, ""], [*parts[2::3], ""], strict=True):
        if "[" in words or "]" in words:
            raise ValueError(f"a slot is marked as '[name : value]', which is not so in {annotation!r}")
        pieces += [(words, ""), (value, slot)]
    if not all(slots):
        raise ValueError(f"a slot has no name in {annotation!r}")
    return pieces


def tagged_pieces(words: Sequence[str], tags: Sequence[str]) -> Pieces:
    """Pieces of a text with a tag a word: B-NAME starts a slot, I-NAME goes on with it or, after anything else, starts one too."""
    if len(words) != len(tags):
        raise ValueError(f"{len(words)} words have {len(tags)} slot tags")
    pieces: list[tuple[str, str]] = []
    for word, tag in zip(words, tags, strict=True):
        mark, _, slot = tag.partition("-")
        if tag != "O" and (mark not in ("B", "I") or not slot):
            raise ValueError(f"the slot tag {tag!r} is none of O, B-NAME, I-NAME")
        if mark == "I" and pieces and pieces[-1][1] == slot:
            pieces[-1] = (f"{pieces[-1][0]} {word}", slot)
        else:
            pieces.append((word, slot))
    return pieces
