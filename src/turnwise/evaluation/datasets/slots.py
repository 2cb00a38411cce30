"""The slots of labelled utterances, from a text in pieces or from a template beside it."""

import re

from turnwise.core.dialogue import Slot
from turnwise.corpus.readers.annotations import Pieces, slot_spans

#: A slot of a template that is written as a text.
_MARK = re.compile(r"\{([^{}]+)\}")


def slots_of(pieces: Pieces, text: str) -> tuple[Slot, ...]:
    """The slots whose values the text holds; white space at a value's edges is no part of it.

    Raises:
        ValueError: if the pieces have other words than the text, or a slot has no value.
    """
    return tuple(Slot.from_text(text, name, start, end) for name, start, end in slot_spans(pieces, text))


def template_pieces(template: str, text: str) -> Pieces:
    """A text in pieces, by a template that has `{name}` in the place of each slot's value.

    The words around the marks stand in the text as in the template, but for white space at both ends. From left to right, a value
    is as short as that allows, but never blank. A template that is the text itself has no slots, whatever braces are in it.

    Raises:
        ValueError: if no values make the text of the template.
    """
    pattern, said = template.strip(), text.strip()
    if pattern == said:
        return [(said, "")]
    words, *marked = _MARK.split(pattern)
    names, following = marked[::2], marked[1::2]
    if not said.startswith(words) or not names:
        raise ValueError(f"the template {template!r} has other words than the text {text!r}")
    pieces, end = [(words, "")], len(words)
    for number, (name, words) in enumerate(zip(names, following, strict=True), 1):
        # of a value, one character at least is no white space
        least = len(said) - len(said[end:].lstrip()) + 1
        start = said.find(words, least) if number < len(names) else len(said) - len(words)
        if start < least or not said.startswith(words, start):
            raise ValueError(
                f"the text {text!r} has no value for {{{name}}}, followed by {words!r}, of the template {template!r}"
            )
        pieces += [(said[end:start], name), (words, "")]
        end = start + len(words)
    return pieces
