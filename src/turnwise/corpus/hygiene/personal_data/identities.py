"""Finders of what identifies a person: dates of birth, and social security, tax, health and identity numbers."""

import re
from collections.abc import Iterator
from functools import cache
from typing import NamedTuple

from turnwise.corpus.hygiene.personal_data.context import (
    Span,
    compile_words,
    has_other_label,
    is_near,
    is_valid,
    load_data,
    load_pattern,
    load_words,
    text_before,
)

# ---- dates of birth

_MONTHS = "|".join(
    sorted({stem for stems in load_data("words.yaml")["months"].values() for stem in stems}, reverse=True)
)
_YEAR = r"(?:1[349]|2[045])\d{2}"  # also of the Thai (2535) and the Persian calendar (1365)
_DAY = rf"(?:\d{{1,2}}(?:st|nd|rd|th|er|e|[.ºª°])?|{'|'.join(load_words('ordinals'))})"
_MONTH = rf"ב?(?:{_MONTHS})[^\W\d_]*\.?"
_OF = r"(?: of| de| del| di| da)?"
_GAP = r"[ ./-]{1,2}"
_DATE = re.compile(
    r"(?:(?<![A-Za-z0-9_./-])|(?<=dob))(?:"
    + "|".join(
        (
            rf"\d{{1,2}} ?[./-] ?\d{{1,2}} ?[./-] ?(?:{_YEAR}|'?\d{{2}})",
            rf"\d{{1,2}}[ /]\d{{1,2}} {_YEAR}",
            rf"{_YEAR}(?:[./-] ?| )\d{{1,2}}(?:[./-] ?| )\d{{1,2}}",
            rf"\d{{1,2}}[ .-]{{1,2}}[IVX]{{1,4}}[ .-]{{1,2}}{_YEAR}",
            rf"{_DAY}{_OF}(?:{_GAP})?{_MONTH},?{_OF}(?:{_GAP})?(?:{_YEAR}|'?\d{{2}})",
            rf"{_MONTH}{_GAP}(?:the )?{_DAY}(?:,? ?|{_GAP})(?:{_YEAR}|'\d{{2}})",
            rf"{_YEAR}{_GAP}{_MONTH}{_GAP}{_DAY}",
            r"\d{8}",
            r"\d{6}",
        )
    )
    + r")(?!\d|[./-]\d)|\d{4} ?[年년] ?\d{1,2} ?[月월] ?\d{1,2} ?[日일]",
    re.IGNORECASE,
)
_TWO_DIGITS = re.compile(r"\d\d")
_BIRTH_WORDS, _BIRTHDAY_WORDS, _OTHER_DATE_WORDS, _DATE_HOLDER_WORDS = map(
    load_pattern, ("birth", "birthday", "other_date", "date_holder")
)

_REACH = 80  # characters before a date in which a word says that it is one of birth

#: Between the words of a key, as in 'birth_date' and 'dateNaissance'.
_KEY_PARTS = re.compile(r"_|(?<=[a-z]{3})(?=[A-Z])")

#: '* 3.5.1988' after a name.
_STAR = re.compile(r"[^\s*][ ,(]*\*[ ]?$")

#: From this year on, a birthday is rather a party, and a date after a word such as 'order' no birth.
_PARTY_YEAR, _RECENT_YEAR = 2024, 2015

_BUDDHIST_YEAR = 2400  # years from here on are of the Buddhist calendar


def find_birth_dates(text: str) -> Iterator[Span]:
    """Find dates with a word such as 'born' before or after them."""
    if not _TWO_DIGITS.search(text):  # which every date has
        return
    for match in _DATE.finditer(text):
        if _is_date(match[0]) and _is_birth(text, match):
            yield match.span()


def _is_date(date: str) -> bool:
    """Return whether the numbers of a date can be a day, a month and a year."""
    if re.fullmatch(r"\d{6}|\d{8}", date):
        orders = [date[:2] + "." + date[2:4], date[-2:] + "." + date[-4:-2]]
        return any(_is_day_and_month(*map(int, order.split("."))) for order in orders)
    small = [int(number) for number in re.findall(r"\d+", date) if len(number) < 3]
    return all(number <= 31 or number == small[-1] for number in small) and (
        len(small) != 2 or _is_day_and_month(*small) or not re.search(_YEAR, date)
    )


def _is_day_and_month(first: int, second: int) -> bool:
    return 1 <= min(first, second) <= 12 and max(first, second) <= 31


def _is_birth(text: str, match: re.Match[str]) -> bool:
    before = _KEY_PARTS.sub(" ", text_before(text, match.start(), _REACH))
    after = re.match(r"(?:, that'?s)?[^,.;!?\n\d]{0,30}", text[match.end() : match.end() + 45], re.IGNORECASE)
    words = [*_BIRTH_WORDS.finditer(before), *_BIRTHDAY_WORDS.finditer(before)]
    if match[0].isdigit() and len(match[0]) == 6:
        return bool(words) and len(before) - max(word.end() for word in words) <= 6
    year = re.search(_YEAR, match[0])
    is_recent = year is not None and _RECENT_YEAR <= int(year[0]) < _BUDDHIST_YEAR
    if words:
        word = max(words, key=re.Match.end)
        between = before[word.end() :]
        if _OTHER_DATE_WORDS.search(between) or (is_recent and _DATE_HOLDER_WORDS.search(between)):
            return False
        is_party = year is not None and _PARTY_YEAR <= int(year[0]) < _BUDDHIST_YEAR
        return word.re is _BIRTH_WORDS or not is_party
    if _STAR.search(before) or text.startswith("생", match.end()):
        return True
    if after is None or _OTHER_DATE_WORDS.search(before[-25:]):
        return False
    return bool(_BIRTH_WORDS.search(after[0]) or (not is_recent and _BIRTHDAY_WORDS.search(after[0])))


# ---- national numbers

_FEWEST_DIGITS = 4  # digits that every number has
_AFTER = 25  # characters after a number in which a word can say what it is


class _NationalNumber(NamedTuple):
    digits: str  # its notation, as a regular expression
    pattern: re.Pattern[str]
    check: str | None  # a module of python-stdnum
    words: re.Pattern[str]
    word: str  # which word must be near


@cache
def _load_numbers() -> list[_NationalNumber]:
    """Return the entries of `national_ids.yaml`; its comments explain the fields."""
    numbers = []
    for country in load_data("national_ids.yaml").values():
        for number in country["numbers"]:
            check = number.get("check")
            word = number.get("word", "any" if check else "own")
            words = number.get("words", []) + country["words"] + (load_words("national_id") if word != "own" else [])
            digits = number["pattern"].replace("[ -]", r"[ .\-]")
            numbers.append(_NationalNumber(digits, _compile_number(digits), check, compile_words(words), word))
    return numbers


@cache
def _any_number() -> re.Pattern[str]:
    """Return a pattern that is found in a text if one of all numbers is, for a quick test."""
    return _compile_number("|".join(f"(?:{number.digits})" for number in _load_numbers()))


def _compile_number(digits: str) -> re.Pattern[str]:
    """Return the pattern of a number that is no part of another one."""
    before, after = r"(?<![\w.,-])(?<!\d/)(?<!\d{3} )", r"(?![\w/-]|[.,]\d| \d{3})"
    return re.compile(rf"{before}(?=\w)(?:{digits}){after}", re.IGNORECASE | re.ASCII)


def find_national_ids(text: str) -> Iterator[Span]:
    """Find national numbers: of a valid format, with a word that names them where the format says too little."""
    if len(re.findall(r"\d", text)) < _FEWEST_DIGITS or not _any_number().search(text):
        return
    for number in _load_numbers():
        for match in number.pattern.finditer(text):
            if number.word not in ("ignored", "no") and not is_near(number.words, text, *match.span(), after=_AFTER):
                continue
            if number.word != "ignored" and has_other_label(text, match.start(), number.words):
                continue
            if number.check is None or is_valid(number.check, re.sub(r"[ .]", "", match[0])):
                yield match.span()


#: A number such as '402 918-374', or a code such as 'AB-1234567'.
_LONG_NUMBER = re.compile(
    r"(?<![\w@.,/])\+?\(?\d(?:[ \t()./-]{0,3}\d){6,40}(?!\w|[.,]\d)"
    r"|(?<![\w@.,/-])(?=(?:[A-Za-z/-]{0,6}\d){7})[A-Za-z\d](?:[/-]?[A-Za-z\d]){6,40}(?!\w|[.,]\d)"
)
_WHOLE_DATE = re.compile(r"\d{1,2}[./-]\d{1,2}[./-](?:19|20)\d\d|(?:19|20)\d\d[./-]\d{1,2}[./-]\d{1,2}(?:[ T]\d{1,2})?")


def find_numbers(text: str) -> Iterator[Span]:
    """Find numbers and codes with 7 or more digits that are not dates."""
    return (match.span() for match in _LONG_NUMBER.finditer(text) if not _WHOLE_DATE.fullmatch(match[0]))
