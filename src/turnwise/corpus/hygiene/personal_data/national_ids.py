"""Finder of national numbers of persons: social security, tax, health and identity numbers."""

import re
from collections.abc import Iterator
from functools import cache
from typing import Any, NamedTuple

from turnwise.corpus.hygiene.personal_data.check_digits import is_valid
from turnwise.corpus.hygiene.personal_data.context import (
    Span,
    compile_words,
    has_other_label,
    is_near,
    load_data,
    load_words,
)

#: Digits that every number has.
_FEWEST_DIGITS = 4

#: Characters after a number in which a word can say what it is.
_AFTER = 25


class _NationalNumber(NamedTuple):
    pattern: re.Pattern[str]
    check: str | None  # a module of python-stdnum
    words: re.Pattern[str]
    word: str  # which word must be near


def _compile(country: dict[str, Any], number: dict[str, Any]) -> _NationalNumber:
    """Return an entry of `national_ids.yaml`; its comments explain the fields."""
    check = number.get("check")
    word = number.get("word", "any" if check else "own")
    words = number.get("words", []) + country["words"] + (load_words("national_id") if word != "own" else [])
    pattern = number["pattern"].replace("[ -]", r"[ .\-]")
    return _NationalNumber(
        re.compile(
            rf"(?<![\w.,-])(?<!\d/)(?<!\d{{3}} )(?:{pattern})(?![\w/-]|[.,]\d| \d{{3}})", re.IGNORECASE | re.ASCII
        ),
        check,
        compile_words(words),
        word,
    )


@cache
def _load_numbers() -> tuple[_NationalNumber, ...]:
    countries = load_data("national_ids.yaml").values()
    return tuple(_compile(country, number) for country in countries for number in country["numbers"])


def find_national_ids(text: str) -> Iterator[Span]:
    """Find national numbers: of a valid format, with a word that names them where the format says too little."""
    if len(re.findall(r"\d", text)) < _FEWEST_DIGITS:
        return
    for number in _load_numbers():
        for match in number.pattern.finditer(text):
            if _is_named(text, match.span(), number) and _has_correct_digits(match[0], number.check):
                yield match.span()


def _is_named(text: str, span: Span, number: _NationalNumber) -> bool:
    """Return whether the words near a number do not speak against it, and for it if that is needed."""
    if number.word == "ignored":
        return True
    if number.word != "no" and not is_near(number.words, text, *span, after=_AFTER):
        return False
    return not has_other_label(text, span[0], number.words)


def _has_correct_digits(number: str, check: str | None) -> bool:
    return check is None or is_valid(check, re.sub(r"[ .]", "", number))
