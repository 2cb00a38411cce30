"""The words around a match, which say what a number is."""

import importlib.resources
import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from typing import Any

import yaml

#: The start and end of a match.
Span = tuple[int, int]

#: Finds one kind of personal data.
Finder = Callable[[str], Iterable[Span]]

#: Characters before a match in which a word can say what it is.
REACH = 60


@cache
def load_data(file: str) -> dict[str, Any]:
    """Return the contents of a YAML file of this package."""
    text = importlib.resources.files(__package__).joinpath(file).read_text(encoding="utf-8")
    data: dict[str, Any] = yaml.load(text, getattr(yaml, "CSafeLoader", yaml.SafeLoader))  # the C parser is faster
    return data


def load_words(name: str) -> list[str]:
    """Return one list of `words.yaml`."""
    return list(_flatten(load_data("words.yaml")[name]))


def _flatten(words: Iterable[str | list[str]]) -> Iterator[str]:
    for word in words:
        yield from [word] if isinstance(word, str) else word


#: Scripts in which words have boundaries.
_SPACED_SCRIPTS = ("LATIN", "GREEK", "CYRILLIC")


def compile_words(words: Iterable[str]) -> re.Pattern[str]:
    """Return a pattern of words; '*' stands for any ending, '_' for a space."""
    bounded: list[str] = []
    unbounded: list[str] = []
    for word in sorted(words, key=len, reverse=True):
        pattern = re.escape(word).replace(r"\*", r"\w*").replace("_", r"[\s_]")
        is_bounded = word[0].isalnum() and (word[0].isdigit() or unicodedata.name(word[0]).startswith(_SPACED_SCRIPTS))
        (bounded if is_bounded else unbounded).append(pattern)
    alternatives = [rf"(?<!\w)(?:{'|'.join(bounded)})(?!\w)"] * bool(bounded) + unbounded
    return re.compile("|".join(alternatives), re.IGNORECASE)


OTHER_NUMBER_WORDS = compile_words(load_words("other_number"))
_PUNCTUATION = r"[\s:#.=(\[\"'-]*"
_NUMBER_WORD, _COPULA = (compile_words(load_words(name)).pattern for name in ("number_word", "copula"))

#: A label such as 'tracking no.' at the end of a text.
NUMBERED_LABEL = re.compile(
    rf"(?:{OTHER_NUMBER_WORDS.pattern}){_PUNCTUATION}(?:{_NUMBER_WORD}){_PUNCTUATION}$", re.IGNORECASE
)

#: What may stand between a label and its number: 'order number is 4711', and 'order is 4711'.
_FILLER = re.compile(
    rf"{_PUNCTUATION}(?:(?:(?:{_NUMBER_WORD}){_PUNCTUATION})+(?:(?:{_COPULA}){_PUNCTUATION})?)?", re.IGNORECASE
)
_LOOSE_FILLER = re.compile(rf"(?:{_PUNCTUATION}(?:{_NUMBER_WORD}|{_COPULA}))*{_PUNCTUATION}", re.IGNORECASE)


def text_before(text: str, start: int, reach: int = REACH) -> str:
    """Return the text shortly before a match, without a word that is cut off."""
    first = max(0, start - reach)
    before = text[first:start]
    return _CUT_START.sub("", before) if first and text[first - 1].isalpha() else before


def text_after(text: str, end: int, reach: int) -> str:
    """Return the text shortly after a match, without a word that is cut off."""
    after = text[end : end + reach]
    return _CUT_END.sub("", after) if text[end + reach : end + reach + 1].isalpha() else after


#: A word in a script with spaces at the start or end of a text.
_CUT_START, _CUT_END = re.compile(r"^[A-Za-z\u00c0-\u04ff]+"), re.compile(r"[A-Za-z\u00c0-\u04ff]+$")


def last_position(words: re.Pattern[str], text: str) -> int:
    """Return the end of the last of these words in a text; -1 if there is none."""
    return max((match.end() for match in words.finditer(text)), default=-1)


#: A sign that belongs to the word before it: 'SSN # 123'.
_SIGN = re.compile(r"(?:[\s.:]*[#№])?")


def _other_position(text: str, own_words: re.Pattern[str]) -> int:
    """Return the end of the last word for another number; -1 if there is none, or one of `own_words` is nearer.

    Of two words that end at the same place, the longer one counts: 'customer id', but also 'tax file'.
    """
    other = max(((match.end(), len(match[0])) for match in OTHER_NUMBER_WORDS.finditer(text)), default=(-1, 0))
    own = max(((_end_with_sign(text, match), len(match[0])) for match in own_words.finditer(text)), default=(-1, 0))
    return other[0] if other > own else -1


def _end_with_sign(text: str, word: re.Match[str]) -> int:
    sign = _SIGN.match(text, word.end())
    return sign.end() if sign else word.end()


def is_near(words: re.Pattern[str], text: str, start: int, end: int, after: int = 0) -> bool:
    """Return whether one of these words is shortly before a match, or within `after` characters after it."""
    return bool(words.search(text_before(text, start)) or (after and words.search(text_after(text, end, after))))


def has_other_label(text: str, start: int, own_words: re.Pattern[str]) -> bool:
    """Return whether a number directly follows a word such as 'order', as in 'order number: 4711'.

    'The order is 4711' counts only without a word for the number itself: 'the phone on my order is 0170 …'.
    """
    before = text_before(text, start)
    other = _other_position(before, own_words)
    filler = _FILLER if own_words.search(before) else _LOOSE_FILLER
    return other >= 0 and filler.fullmatch(before, other) is not None


#: Characters that look like ASCII ones: spaces, dashes, full-width letters and the digits of other scripts.
_LOOKALIKES = (
    dict.fromkeys(
        map(ord, "\u00a0\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u202f\u205f\u3000"), " "
    )
    | dict.fromkeys(map(ord, "\u2010\u2011\u2012\u2013\u2014\u2015\u2212\ufe58\ufe63"), "-")
    | {code: chr(code - 0xFEE0) for code in range(0xFF01, 0xFF5F)}
    | {ord(zero) + digit: str(digit) for zero in "\u0660\u06f0\u0966" for digit in range(10)}
)


def replace_lookalikes(text: str) -> str:
    """Return a text of the same length with plain spaces, dashes, digits and letters."""
    return text if text.isascii() else text.translate(_LOOKALIKES)
