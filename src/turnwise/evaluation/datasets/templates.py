"""Templates: texts with the values of slots replaced by their names, from the ways in which corpora mark slots."""

import re
from collections.abc import Sequence

#: What is said piece by piece, each with the slot whose value it is, or '' for the words between slots.
Pieces = Sequence[tuple[str, str]]

_MARKED = re.compile(r"\[\s*([^\[\]:]*?)\s*:([^\[\]]*)\]")


def template(pieces: Pieces, text: str) -> str:
    """The text with the slots' values replaced by their names.

    Annotations differ from texts in white space (MASSIVE's Chinese ones put some around each slot, where the texts have none), so
    that values are found by counting the other characters; white space at a value's edges stays in the template.
    """
    visible = [position for position, character in enumerate(text) if not character.isspace()]
    if "".join("".join(said.split()) for said, _ in pieces) != "".join(text.split()):
        raise ValueError(f"the annotation has other words than the text {text!r}")
    made: list[str] = []
    taken = counted = 0
    for said, slot in pieces:
        size = len("".join(said.split()))
        if slot:
            if not size:
                raise ValueError(f"the slot {slot!r} has no value")
            made += [text[taken : visible[counted]], f"{{{slot}}}"]
            taken = visible[counted + size - 1] + 1
        counted += size
    return "".join(made) + text[taken:]


def marked_pieces(annotation: str) -> Pieces:
    """Pieces of a text with slots marked as in 'wake me up at [time : five am]'."""
    parts = _MARKED.split(annotation)
    pieces: list[tuple[str, str]] = []
    for words, slot, value in zip(parts[::3], [*parts[1::3], ""], [*parts[2::3], ""], strict=True):
        if "[" in words or "]" in words:
            raise ValueError(f"a slot is marked as '[name : value]', which is not so in {annotation!r}")
        pieces += [(words, ""), (value, slot)]
    if not all(parts[1::3]):
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
