"""Words as a gazetteer knows them: in lower case, with their places in the text."""

import re
from typing import NamedTuple

_LETTER = r"[\w\u0300-\u036f]"  # a mark on a letter, which lower case may set free, is part of the word
_WORD = re.compile(
    rf"""
    \d+(?:[.,:/]\d+)+(?!{_LETTER})                      # 10:30, 3.5 and 12/24 are words
    | {_LETTER}+(?:[-'’](?!s(?!{_LETTER})){_LETTER}+)*  # so are o'clock and take-out; 401k is one that does not hold 401
    | ['’]s(?!{_LETTER})                                # tomorrow's is two words
    | \S                                                # and every other mark is one
    """,
    re.VERBOSE,
)


class Word(NamedTuple):
    """A word or a punctuation mark of a text.

    Attributes:
        form: in lower case, with straight apostrophes.
        start: where it begins.
        end: where it ends.
    """

    form: str
    start: int
    end: int


def words_of(text: str) -> list[Word]:
    """The words of a text from left to right, punctuation marks among them."""
    return [Word(found[0].lower().replace("’", "'"), *found.span()) for found in _WORD.finditer(text)]


def forms_of(text: str) -> tuple[str, ...]:
    """The words of a text, without their places."""
    return tuple(word.form for word in words_of(text))
