"""Finder of phone numbers."""

import re
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import phonenumbers

from turnwise.core.errors import CorpusError
from turnwise.corpus.hygiene.personal_data.context import (
    NUMBERED_LABEL,
    OTHER_NUMBER_WORDS,
    Finder,
    Span,
    has_other_label,
    is_valid,
    load_pattern,
    load_words,
    text_after,
    text_before,
)

DEFAULT_REGIONS = tuple(load_words("phone_region"))

#: Regions in which mobile numbers are written without the leading zero, although they have one.
_ZERO_IS_OPTIONAL = frozenset({"AR", "IN", "PK", "TR"})

#: Words that say that a number is a phone number, and words that may say it.
_PHONE_WORDS, _WEAK_PHONE_WORDS = load_pattern("phone"), load_pattern("weak_phone")
_PREPOSITIONS, _TOPICS = (
    re.compile(rf"(?:{load_pattern(name).pattern}) $", re.IGNORECASE) for name in ("phone_preposition", "phone_topic")
)

_NUMBER, _OF, _ARTICLE, _COPULA = (load_pattern(name).pattern for name in ("number_word", "of", "article", "copula"))

#: 'The phone number for my order is 0170 …'
_PHONE_OF_OTHER = re.compile(
    rf"(?:{_PHONE_WORDS.pattern})(?:\W+(?:{_NUMBER}))?\W+(?:{_OF})(?:\W+(?:{_ARTICLE}))?\W+(?:{OTHER_NUMBER_WORDS.pattern})"
    rf"\W*(?:\d+\W+)?(?:(?:{_COPULA})\W*)?$",
    re.IGNORECASE,
)

_YEAR = r"(?:19|20)\d{2}"
_DATE_OR_TIME = re.compile(
    rf"{_YEAR}[ ./-]\d{{1,2}}[ ./-]\d{{1,2}}(?!\d)"
    rf"|\d{{1,2}}[ ./-]\d{{1,2}}[ ./-]{_YEAR}(?: \d{{1,2}})?$"
    rf"|{_YEAR} ?[ /-] ?{_YEAR}$|{_YEAR}(?:0[1-9]|1[0-2])(?:[0-2]\d|3[01])(?:[ _-]?\d{{4}}(?:\d\d)?)?$"
    r"|(?:[01]\d|2[0-4])[0-5]\d ?- ?(?:[01]\d|2[0-4])[0-5]\d$"
)

_THOUSANDS = re.compile(r"\d{1,2}(?: \d{3})* 000|\d{1,3}(?: \d{3})* 000 000")  # an amount such as '12 450 000'

#: A run of digits with the separators of phone numbers; it may start with '+' or '('.
_PHONE = re.compile(
    r"(?<![A-Za-z0-9_@+])(?<![A-Za-z0-9_\s]-)(?<!^-)(?<![^A-Za-z]\.)(?<!\d,(?![0+(]))(?<!\d:)(?<![A-Za-z/]/)"
    r"(?:\+ ?|\( ?\+?)?\d(?:[ \t()./-]{0,3}\d){5,24}(?![A-Za-z0-9_])"
)
_EXTENSION = re.compile(
    r",?\s?(?:ext|x|extn|extension|durchwahl|dw|poste|interno|int|ramal|anexo|toestel|wew|klapka|linka|dahili|доб)\.?:?\s?\d{1,5}(?!\w)",
    re.IGNORECASE,
)

_NORTH_AMERICAN = re.compile(r"(?:1[-. ]?)?(?:\(\d{3}\) ?|\d{3}[-. ])\d{3}[-.]\d{4}")

#: Country codes that belong to no country, such as those of satellites.
_NO_COUNTRY = re.compile(r"\+(?:8(?:0[08]|7[08]|8[1238])|979)")

#: British and French numbers for films and examples, which are possible, but not valid.
_RESERVED = re.compile(r"44(?:7700900|1632960)\d{3}|33(?:19900|26191|35301|46571|53649|63998)\d{4}")

#: Lengths of numbers: with '00', with a country code but no '+', without a leading zero, and without any hint.
_SHORTEST_INTERNATIONAL, _SHORTEST_WITH_COUNTRY_CODE, _LONGEST_WITHOUT_ZERO, _SHORTEST_UNHINTED = 9, 11, 11, 9

#: A number with a leading zero, a plus sign or at least 11 digits, which include the country code.
_BARE_NUMBER = re.compile(
    r"(?<![\w+])(?:\+|\(?0|(?=(?:[ ()./-]{0,2}\d){11}))[ ()./-]{0,2}\d(?:[ ()./-]{0,2}\d){5,}(?!\w)"
)

_AREA_CODE = re.compile(r"\( ?\d{2,5} ?\)[ -]?\d[\d -]{4,}")  # an area code in parentheses


_MOBILE = (phonenumbers.PhoneNumberType.MOBILE, phonenumbers.PhoneNumberType.FIXED_LINE_OR_MOBILE)


def make_phone_finder(regions: Sequence[str]) -> Finder:
    """Return the finder of international phone numbers, and of national ones of these regions, or the default ones."""
    if unknown := [region for region in regions if region not in phonenumbers.SUPPORTED_REGIONS]:
        raise CorpusError(f"there is no region {unknown[0]!r}: use two-letter country codes such as DE, GB or US")

    def find(text: str) -> Iterator[Span]:
        position = rejected = run_start = 0
        while match := _PHONE.search(text, position):
            start = match.start()
            run_start = run_start if start < rejected else start
            end = next((end for end in _ends(match) if _is_phone(text, start, end, regions)), None)
            # a part of a longer number needs a word for it
            if end is None or (start < rejected and not _read_hints(text, run_start, end, not regions).named):
                position, rejected = _next_start(match), match.end()
                continue
            extension = _EXTENSION.match(text, end)
            position = extension.end() if extension else end
            yield start, position

    return find


def find_bare_phones(text: str, regions: Sequence[str]) -> Iterator[Span]:
    """Find phone numbers that need no word for them, such as in ids: with a leading zero, '+' or a country code."""
    for match in _BARE_NUMBER.finditer(text):
        number = match[0]
        if not _looks_like_phone(text, *match.span()):
            continue
        if number[0] == "+":
            is_phone = _is_international(number, _is_valid)
        elif number.startswith("00"):
            is_phone = _is_international_without_plus(number, is_likely=False)
        elif number[0] in "0(":
            is_phone = _is_valid_in(number, regions)
        else:
            is_phone = _has_country_code(number)
        if is_phone:
            yield match.span()


def _parse(number: str, region: str | None) -> phonenumbers.PhoneNumber | None:
    try:
        return phonenumbers.parse(number, region)
    except phonenumbers.NumberParseException:
        return None


def _parse_all(number: str, regions: Sequence[str]) -> Iterator[tuple[str, phonenumbers.PhoneNumber]]:
    for region in regions or DEFAULT_REGIONS:
        if (parsed := _parse(number, region)) is not None:
            yield region, parsed


def _is_valid_in(number: str, regions: Sequence[str]) -> bool:
    """Return whether a number is valid in one of the regions."""
    return any(_is_valid(parsed) for _, parsed in _parse_all(number, regions))


def _is_valid_as_written(number: str, regions: Sequence[str], *, mobile: bool = False) -> bool:
    """Return whether a number is valid in one of the regions and has the leading zero of that region, if any."""
    return any(
        _is_valid(parsed)
        and (not mobile or phonenumbers.number_type(parsed) in _MOBILE)
        and (
            number.startswith(("0", "("))
            or region in _ZERO_IS_OPTIONAL
            or not phonenumbers.format_number(parsed, phonenumbers.PhoneNumberFormat.NATIONAL).startswith("0")
        )
        for region, parsed in _parse_all(number, regions)
    )


def _is_valid(parsed: phonenumbers.PhoneNumber) -> bool:
    """Return whether a number is valid, or reserved for films and examples."""
    digits = f"{parsed.country_code}{parsed.national_number}"
    return phonenumbers.is_valid_number(parsed) or bool(_RESERVED.match(digits))


def _has_possible_length(parsed: phonenumbers.PhoneNumber) -> bool:
    return phonenumbers.is_possible_number_with_reason(parsed) == phonenumbers.ValidationResult.IS_POSSIBLE


def _is_international(number: str, check: Callable[[phonenumbers.PhoneNumber], bool]) -> bool:
    """Return whether a number with '+' is one of a country; '+52 1' is the former prefix of Mexican mobiles."""
    number = number.replace("(0)", "")
    spellings = (number, re.sub(r"^\+52[ -]?1(?=[ -]?\d)", "+52", number))
    return any(check(parsed) for each in spellings if (parsed := _parse(each, None)) is not None)


def _ends(match: re.Match[str]) -> list[int]:
    """Return where a number may end, longest first: groups that follow may be another number or a few digits."""
    run, ends = match[0], [match.end()]
    for group in reversed(list(re.finditer(r"\d+", run))[1:]):
        separator = run[: group.start()].rstrip("(")[-1]
        rest = re.sub(r"\D", "", run[group.start() :])
        is_next = run[group.start()] == "0" or run[group.start() - 1] == "("
        if separator in " \t/" and (len(rest) <= 2 or (is_next and len(rest) >= 7)):
            ends.append(match.start() + len(run[: group.start()].rstrip(" \t()./-")))
    return ends


def _next_start(match: re.Match[str]) -> int:
    """Return where the search goes on after a run that is no phone number: at a group in it that may start one."""
    later = re.search(r"(?<=[ \t/])[(0](?=\d)", match[0][1:])
    return match.start() + 1 + later.start() if later else match.end()


class _Hints(NamedTuple):
    """What the text around a number says about it."""

    named: bool  # it is a phone number
    hinted: bool  # it may be one
    after_preposition: bool  # 'I wrote from 0170 …'
    labelled: bool  # it is an order number or the like
    other: bool  # words that are further away speak of orders or the like


def _read_hints(text: str, start: int, end: int, is_default: bool) -> _Hints:
    before, after = text_before(text, start), text_after(text, end, 25)
    sentence = re.split(r"[.?!;\n]", after)[0]
    labelled = bool(_TOPICS.search(before)) or (
        has_other_label(text, start, _PHONE_WORDS) and not _PHONE_OF_OTHER.search(before)
    )
    named = not labelled and bool(_PHONE_WORDS.search(before) or _PHONE_WORDS.search(sentence))
    after_preposition = bool(_PREPOSITIONS.search(before))
    return _Hints(
        named=named,
        hinted=after_preposition or bool(_WEAK_PHONE_WORDS.search(before)),
        after_preposition=after_preposition,
        labelled=labelled,
        # with known regions, the numbering plan says more than words that are further away
        other=bool((is_default and OTHER_NUMBER_WORDS.search(before)) or OTHER_NUMBER_WORDS.search(after)),
    )


def _is_phone(text: str, start: int, end: int, regions: Sequence[str]) -> bool:
    number, is_default = text[start:end], not regions
    if not _looks_like_phone(text, start, end):
        return False
    if "+" in number:
        return _is_international(number, _has_possible_length)
    hints = _read_hints(text, start, end, is_default)
    if number.startswith("00") and NUMBERED_LABEL.search(text_before(text, start)):
        return False
    if number.startswith(("00", "(00")):
        return _is_international_without_plus(number, hints.named or (is_default and not hints.other))
    if hints.named:
        if number.startswith(("0", "(0")):
            is_national = any(phonenumbers.is_possible_number(parsed) for _, parsed in _parse_all(number, regions))
        else:
            is_national = _is_valid_in(number, regions)
        return is_national or _has_country_code(number)
    is_north_american, has_area_code = _NORTH_AMERICAN.fullmatch(number), _AREA_CODE.fullmatch(number)
    is_likely = hints.after_preposition and (not is_default or is_north_american or has_area_code)
    if hints.labelled or (hints.other and not is_likely):
        # 'parcel 020 7946 0018', but not 'parcel no. 020 7946 0018': written like a number of a known region
        is_separated = number[0] in "0(" and not number.isdigit()
        is_numbered = NUMBERED_LABEL.search(text_before(text, start))
        return not is_default and is_separated and not is_numbered and _is_valid_as_written(number, regions)
    has_zero = number[0] in "0("
    if not has_zero and len(re.sub(r"\D", "", number)) > _LONGEST_WITHOUT_ZERO:
        return False
    if is_north_american:
        return _is_valid_in(number, regions) or _is_international(f"+1 {number}", _is_valid)
    if has_area_code:
        return _is_valid_in(number, regions)
    if is_default and not (has_zero and hints.hinted):
        return False
    is_grouped = has_zero or not number.isdigit()
    if is_grouped and (not is_default or not hints.after_preposition):
        return _is_valid_as_written(number, regions)
    return (hints.hinted or len(number) >= _SHORTEST_UNHINTED) and _is_valid_as_written(number, regions, mobile=True)


def _is_international_without_plus(number: str, is_likely: bool) -> bool:
    """Return whether a number with '00', which is how most of the world dials '+', is one of a country."""
    international = re.sub(r"^\(?00 ?", "+", number)
    if len(re.sub(r"\D", "", international)) < _SHORTEST_INTERNATIONAL or _NO_COUNTRY.match(international):
        return False
    return _is_international(international, _has_possible_length if is_likely else _is_valid)


def _has_country_code(number: str) -> bool:
    """Return whether a number has a country code without '+', as in '49170…'."""
    digits = re.sub(r"\D", "", number)
    if digits[0] == "0" or len(digits) < _SHORTEST_WITH_COUNTRY_CODE or is_valid("ean", digits):
        return False
    return _is_international(f"+{digits}", _is_valid)


def _looks_like_phone(text: str, start: int, end: int) -> bool:
    """Return whether digits are not a date, a version, an amount or a part of something longer."""
    number = text[start:end]
    groups = re.findall(r"\d+", number)
    if _DATE_OR_TIME.match(number) or _THOUSANDS.fullmatch(number) or not 7 <= sum(map(len, groups)) <= 15:
        return False
    if sum(len(group) == 1 for group in groups) > 2 or (
        "." in number and any(len(group) < 2 for group in groups[1:]) and number[0] not in "+0"
    ):
        return False
    if re.search(r"[A-Za-z]\d+[ -]$", text_before(text, start)):
        return False
    return not re.match(r"[.,:]\d|[%€$£°]| ?(?:EUR|USD|GBP|kWh|km|kg|px)\b", text[end : end + 6])
