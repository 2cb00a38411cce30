"""The words around a match, which say what a number is, and check digits."""

import re
import unicodedata
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Set
from functools import cache
from importlib import import_module
from typing import Any

from turnwise.core.files import package_yaml

Span = tuple[int, int]  # the start and end of a match
Finder = Callable[[str], Iterable[Span]]  # finds one kind of personal data
REACH = 60  # characters before a match in which a word can say what it is


@cache
def load_data(file: str) -> dict[str, Any]:
    """Return the contents of a YAML file of this package."""
    data: dict[str, Any] = package_yaml(__package__, file)
    return data


def load_words(name: str) -> list[str]:
    """Return one list of `words.yaml`."""
    entries = load_data("words.yaml")[name]
    return [word for entry in entries for word in ([entry] if isinstance(entry, str) else entry)]


def load_pattern(name: str) -> re.Pattern[str]:
    """Return the pattern of one list of `words.yaml`."""
    return compile_words(load_words(name))


_SPACED_SCRIPTS = ("LATIN", "GREEK", "CYRILLIC")  # scripts in which words have boundaries


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


UPPER = "".join(chr(code) for code in range(0x530) if chr(code).isupper())
#: A word with a capital.
CAPITALISED = rf"(?:[dlDLO]['’])?[{UPPER}][^\W\d_]*(?:['’][^\W\d_]{{2,}})?(?:-[^\W\d_]+){{0,2}}"
WORD = re.compile(r"[^\W_]+")


Phrases = Mapping[str, list[frozenset[str]]]  # the further words of phrases, by their first word


def load_phrases(*names: str) -> Phrases:
    """Return the phrases of lists of `words.yaml`, for `may_contain`."""
    phrases: dict[str, list[frozenset[str]]] = defaultdict(list)
    for name in names:
        for phrase in load_words(name):
            first, *others = WORD.findall(phrase.casefold())
            phrases[first].append(frozenset(others))
    return dict(phrases)


def words_of(text: str) -> set[str]:
    """Return the words of a text in lower case."""
    return set(WORD.findall(text.casefold()))


def may_contain(words: Set[str], phrases: Phrases) -> bool:
    """Return whether a text with these words can contain one of the phrases: a quick test before their pattern."""
    return any(others <= words for first in words & phrases.keys() for others in phrases[first])


def words_pattern(name: str) -> str:
    """Return the pattern of one list of `words.yaml`, to be part of another one."""
    return rf"(?i:{load_pattern(name).pattern})"


OTHER_NUMBER_WORDS = load_pattern("other_number")
_PUNCTUATION = r"[\s:#.=(\[\"'-]*"
_NUMBER_WORD, _COPULA = (load_pattern(name).pattern for name in ("number_word", "copula"))

#: A label such as 'tracking no.' at the end of a text.
NUMBERED_LABEL = re.compile(
    rf"(?:{OTHER_NUMBER_WORDS.pattern}){_PUNCTUATION}(?:{_NUMBER_WORD}){_PUNCTUATION}$", re.IGNORECASE
)

#: What may stand between a label and its number: 'order number is 4711', and 'order is 4711'.
_FILLER = re.compile(
    rf"{_PUNCTUATION}(?:(?:(?:{_NUMBER_WORD}){_PUNCTUATION})+(?:(?:{_COPULA}){_PUNCTUATION})?)?", re.IGNORECASE
)
_LOOSE_FILLER = re.compile(rf"(?:{_PUNCTUATION}(?:{_NUMBER_WORD}|{_COPULA}))*{_PUNCTUATION}", re.IGNORECASE)

_SIGN = re.compile(r"(?:[\s.:]*[#№])?")  # a sign that belongs to the word before it: 'SSN # 123'; it may be missing


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


def is_near(words: re.Pattern[str], text: str, start: int, end: int, after: int = 0) -> bool:
    """Return whether one of these words is shortly before a match, or within `after` characters after it."""
    return bool(words.search(text_before(text, start)) or (after and words.search(text_after(text, end, after))))


def has_other_label(text: str, start: int, own_words: re.Pattern[str]) -> bool:
    """Return whether a number directly follows a word such as 'order', as in 'order number: 4711'.

    'The order is 4711' counts only without a word for the number itself: 'the phone on my order is 0170 …'. Of words
    that end at the same place, the longer one counts: 'customer id', but also 'tax file'.
    """
    before = text_before(text, start)
    other = max(((match.end(), len(match[0])) for match in OTHER_NUMBER_WORDS.finditer(before)), default=(-1, 0))
    signs = ((_SIGN.match(before, match.end()), match) for match in own_words.finditer(before))
    own = max(((sign.end(), len(match[0])) for sign, match in signs if sign), default=None)
    filler = _LOOSE_FILLER if own is None else _FILLER
    return other[0] >= 0 and other > (own or (-1, 0)) and filler.fullmatch(before, other[0]) is not None


def merge_spans(spans: Iterable[Span]) -> list[Span]:
    """Return spans in their order, with overlapping ones joined."""
    merged: list[Span] = []
    for start, end in sorted(spans):
        if merged and start < merged[-1][1]:
            merged[-1] = merged[-1][0], max(end, merged[-1][1])
        else:
            merged.append((start, end))
    return merged


def is_valid(module: str, number: str) -> bool:
    """Return whether a number is valid by a module of python-stdnum."""
    return bool(import_module(f"stdnum.{module}").is_valid(number))


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
