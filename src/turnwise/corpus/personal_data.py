"""Finders of personal data in texts.

Each kind has a finder: patterns, checked by what the format itself offers (check digits, numbering plans, valid
ranges) and, where that is not enough, by the words before a match.
"""

import importlib.resources
import ipaddress
import math
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from importlib import import_module
from typing import NamedTuple
from urllib.parse import parse_qsl, urlsplit

import yaml

#: The start and end of a match.
Span = tuple[int, int]

#: Finds one kind of personal data.
Finder = Callable[[str], Iterable[Span]]


# ---- the words around a match

#: Characters before a match in which a word can say what it is.
_REACH = 50


def _compile_words(name: str) -> re.Pattern[str]:
    """Return a pattern of the words of one list of `personal_data_words.yaml`."""
    alternatives = []
    for word in _WORDS[name]:
        pattern = re.escape(word).replace(r"\*", r"\w*").replace("_", r"\s")
        # scripts without spaces and signs have no word boundaries
        is_bounded = (word[0].isalnum() and word.isascii()) or unicodedata.name(word[0]).startswith(("LATIN", "GREEK"))
        alternatives.append(rf"(?<!\w){pattern}(?!\w)" if is_bounded else pattern)
    return re.compile("|".join(alternatives), re.IGNORECASE)


_WORDS: dict[str, list[str]] = yaml.safe_load(
    importlib.resources.files(__package__).joinpath("personal_data_words.yaml").read_text(encoding="utf-8")
)
_OTHER_NUMBER_WORDS = _compile_words("other_number")


def _last_position(words: re.Pattern[str], text: str) -> int:
    """Return the end of the last of these words in a text; -1 if there is none."""
    return max((match.end() for match in words.finditer(text)), default=-1)


def _is_other_number(text: str, start: int, own_words: re.Pattern[str]) -> bool:
    """Return whether the words before a number say that it is an order, a part or the like: the nearest word counts."""
    before = text[max(0, start - _REACH) : start]
    other = _last_position(_OTHER_NUMBER_WORDS, before)
    return other >= 0 and other > _last_position(own_words, before)


def _is_near(words: re.Pattern[str], text: str, start: int, end: int, after: int = 0) -> bool:
    """Return whether one of these words is shortly before a match, or within `after` characters after it."""
    return bool(words.search(text[max(0, start - _REACH) : start]) or (after and words.search(text[end : end + after])))


# ---- addresses and numbers

_EMAIL = re.compile(r"(?<![\w.+/@-])(?:mailto:)?([\w.!#$%&'*+=?^`{|}~-]*[\w+])@((?:[\w-]+\.)+[^\W\d_]{2,})(?![\w@-])")


def _find_emails(text: str) -> Iterator[Span]:
    return ((match.start(1), match.end(2)) for match in _EMAIL.finditer(text))


_URL = re.compile(r"(?:\bhttps?://|\bwww\.|\bftp://)[^\s<>\"]*[^\s<>\".,;:!?)\]}'’]", re.IGNORECASE)


def _find_urls(text: str) -> Iterator[Span]:
    return (match.span() for match in _URL.finditer(text))


_SECRET_KEYS = re.compile(
    r"(?:^|[_.-])(?:token|tok|key|apikey|api|auth|code|sig|signature|session|sessionid|sess|sid|phpsessid|jsessionid|password|passwd|pwd|"
    r"pass|secret|otp|pin|ticket|magic|jwt|invite|nonce|hash|hmac|credential|credentials|access|login|reset|verify|confirm|st|t|k|s|h)$"
    r"|token|jeton|secret|apikey|session|signature|password|credential",
    re.IGNORECASE,
)
_SECRET_PATH = re.compile(
    r"reset|verif|confirm|login|signin|sign-in|magic|invite|activat|unlock|sso|auth|token|session|share|unsubscribe|recover|access|secure|private|download",
    re.IGNORECASE,
)


def _find_secret_urls(text: str) -> Iterator[Span]:
    """Find web addresses with a password, a token or a session in them."""
    return ((start, end) for start, end in _find_urls(text) if _has_secret(text[start:end]))


def _has_secret(url: str) -> bool:
    try:
        parts = urlsplit(url if "//" in url else f"//{url}")
    except ValueError:
        return False
    if "@" in parts.netloc and ":" in parts.netloc.split("@")[0]:
        return True
    pairs = parse_qsl(parts.query, keep_blank_values=True) + parse_qsl(parts.fragment, keep_blank_values=True)
    if any(_is_random(value, 5 if _SECRET_KEYS.search(key) else 20) for key, value in pairs):
        return True
    path, *parameters = parts.path.split(";")
    if any(_is_random(each.partition("=")[2], 8) for each in parameters):
        return True
    segments = [segment for segment in f"{path}/{parts.fragment}".split("/") if segment]
    return any(
        _is_random(segment, 8 if _SECRET_PATH.search("/".join(segments[:number])) else 20)
        for number, segment in enumerate(segments)
    )


_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)


def _is_random(value: str, length: int) -> bool:
    """Return whether a text, or a part of it between separators, has at least this length and looks random."""
    if _UUID.search(value):
        return True
    return any(_is_random_part(part, length) for part in re.split(r"[-_.~:@]", value))


def _is_random_part(value: str, length: int) -> bool:
    letters, digits = sum(map(str.isalpha, value)), sum(map(str.isdigit, value))
    if len(value) < length or (not letters and not (length <= 5 <= digits)):
        return False
    if not letters:
        return True
    words = re.findall(r"[A-Za-z][a-z]{3,}", value)
    if sum(map(len, words)) > 0.7 * len(value):
        return False
    entropy = -sum(count / len(value) * math.log2(count / len(value)) for count in Counter(value).values())
    mixed = digits > 0 or (any(map(str.islower, value)) and any(map(str.isupper, value)))
    return mixed and entropy > (2.0 if len(value) < 12 else 2.8)


_CARD = re.compile(r"(?<![\w.,-])\d(?:[ .\u00a0-]?\d){11,22}(?![\w-])")

#: Prefixes of card numbers with their lengths.
_CARD_PLANS = (
    (re.compile("4"), {13, 16, 19}),
    (re.compile("5[1-5]|222[1-9]|22[3-9]|2[3-6]|27[01]|2720"), {16}),
    (re.compile("3[47]"), {15}),
    (re.compile("6011|64[4-9]|65"), {16, 19}),
    (re.compile("30[0-5]|3[68]"), {14}),
    (re.compile("35(?:2[89]|[3-8])"), {16, 19}),
    (re.compile("62"), {16, 17, 18, 19}),
    (re.compile("50|5[6-9]|6"), {14, 16, 17, 18, 19}),
)


def _find_cards(text: str) -> Iterator[Span]:
    return _find_valid(_CARD, _is_card, text)


def _find_valid(pattern: re.Pattern[str], is_valid: Callable[[str], bool], text: str) -> Iterator[Span]:
    """Find numbers with a correct check digit; groups at the end of a match may not belong to the number."""
    for match in pattern.finditer(text):
        ends = [group.end() for group in re.finditer(r"[^\W_]+", match[0])]
        for end in reversed(ends):
            if is_valid(re.sub(r"[\W_]", "", match[0][:end])):
                yield match.start(), match.start() + end
                break


def _is_card(digits: str) -> bool:
    planned = any(prefix.match(digits) and len(digits) in lengths for prefix, lengths in _CARD_PLANS)
    return planned and _checks("luhn", digits)


@cache
def _checker(module: str) -> Callable[[str], bool]:
    found: Callable[[str], bool] = import_module(f"stdnum.{module}").is_valid
    return found


def _checks(module: str, number: str) -> bool:
    """Return whether a number is valid by a module of python-stdnum."""
    return bool(_checker(module)(number))


_IBAN = re.compile(r"(?<![\w])[A-Za-z]{2}\d{2}(?:[ \u00a0-]?[A-Za-z0-9]){11,30}(?![\w])")


def _find_ibans(text: str) -> Iterator[Span]:
    return _find_valid(_IBAN, _is_iban, text)


def _is_iban(number: str) -> bool:
    from stdnum import iban

    # national check digits within it are often wrong in examples and old accounts
    return 15 <= len(number) <= 34 and bool(iban.is_valid(number, check_country=False))


_IPV4 = re.compile(r"(?<![\w.])(?:\d{1,3}\.){3}\d{1,3}(?![\w]|\.\d)")
_IPV6 = re.compile(r"(?<![\w:.])(?:[0-9A-Fa-f]{0,4}:){2,7}(?:[0-9A-Fa-f]{1,4}|(?:\d{1,3}\.){3}\d{1,3})?(?![\w:]|\.\d)")
_VERSION_WORDS = _compile_words("version")
_IP_WORDS = _compile_words("ip")


def _find_ips(text: str) -> Iterator[Span]:
    for pattern in (_IPV4, _IPV6):
        for match in pattern.finditer(text):
            try:
                ipaddress.ip_address(match[0])
            except ValueError:
                continue
            if match[0] != "::" and (pattern is _IPV6 or _is_plausible_ip(text, *match.span())):
                yield match.span()


def _is_plausible_ip(text: str, start: int, end: int) -> bool:
    """Return whether four numbers with dots are an address, and not a version or a section."""
    if _is_near(_IP_WORDS, text, start, end, after=15) or re.match(r":\d{2,5}\b|/\d{1,2}\b", text[end:]):
        return True
    small = all(int(part) < 20 for part in text[start:end].split("."))
    return not small and not _is_near(_VERSION_WORDS, text, start, end, after=25)


_MAC = re.compile(
    r"(?<![\w:.-])(?:[0-9A-Fa-f]{2}([:-])(?:[0-9A-Fa-f]{2}\1){4}[0-9A-Fa-f]{2}|(?:[0-9A-Fa-f]{4}\.){2}[0-9A-Fa-f]{4})(?![\w:.-]\w|\w)"
)


def _find_macs(text: str) -> Iterator[Span]:
    # six pairs of digits alone are rather a date and time
    return (match.span() for match in _MAC.finditer(text) if ":" in match[0] or re.search("[A-Fa-f]", match[0]))


# ---- national numbers


class _NationalNumber(NamedTuple):
    pattern: re.Pattern[str]
    check: str | None  # a module of python-stdnum
    needs_word: bool = False  # whether one of `_ID_WORDS` must be near: its digits alone say too little


_ID_WORDS = _compile_words("national_id")

_NATIONAL_NUMBERS = tuple(
    _NationalNumber(re.compile(rf"(?<![\w.,/-])(?:{pattern})(?![\w/-]|[.,]\d)"), *rest)
    for pattern, *rest in (
        (r"\d{3}[ -]?\d{2}[ -]?\d{4}", "us.ssn", True),
        (
            r"[A-CEGHJ-PR-TW-Za-ceghj-pr-tw-z][A-CEGHJ-NPR-TW-Za-ceghj-npr-tw-z] ?\d{2} ?\d{2} ?\d{2} ?[A-Da-d]",
            None,
            True,
        ),
        (r"\d{2} ?\d{3} ?\d{3} ?\d{3}", "de.idnr", True),
        (r"[A-Za-z]{6}\d{2}[A-Za-z]\d{2}[A-Za-z]\d{3}[A-Za-z]", "it.codicefiscale"),
        (r"\d{8}-?[A-Za-z]|\d{2}\.\d{3}\.\d{3}-?[A-Za-z]", "es.dni"),
        (r"[XYZxyz]-?\d{7}-?[A-Za-z]", "es.nie"),
        (r"[12] ?\d{2} ?\d{2} ?\d[\dAB] ?\d{3} ?\d{3} ?\d{2}", "fr.nir"),
        (r"\d{9}|\d{3}[ .]\d{3}[ .]\d{3}|\d{4}\.\d{2}\.\d{3}", "nl.bsn", True),
        (r"\d{11}", "pl.pesel", True),
        (r"(?:19|20)?\d{6}[-+]\d{4}", "se.personnummer"),
        (r"(?:19|20)?\d{6} ?\d{4}", "se.personnummer", True),
        (r"\d{3}\.\d{3}\.\d{3}-\d{2}", "br.cpf"),
        (r"\d{11}", "br.cpf", True),
        (r"[A-Za-z]{3}[ABCFGHJLPTabcfghjlpt][A-Za-z]\d{4}[A-Za-z]", "in_.pan"),
        (r"\d{4}[ -]?\d{4}[ -]?\d{4}", "in_.aadhaar", True),
        (r"\d{3}[ -]?\d{3}[ -]?\d{3}", "ca.sin", True),
        (r"\d{3} ?\d{3} ?\d{3}", "au.tfn", True),
        (r"\d{2}\.\d{2}\.\d{2}-\d{3}\.\d{2}", "be.nn"),
        (r"756\.\d{4}\.\d{4}\.\d{2}", "ch.ssn"),
        (r"\d{6}[-+A]\d{3}[0-9A-Z]", "fi.hetu"),
        (r"\d{6}-\d{4}", "dk.cpr", True),
        (r"\d{6} ?\d{5}", "no.fodselsnummer", True),
        (r"\d{7}[A-Wa-w][A-IWa-iw]?", "ie.pps", True),
        (r"\d{6}/\d{3,4}", "cz.rc"),
        (r"\d{13}", "ro.cnp", True),
        (r"\d{11}", "tr.tckimlik", True),
        (r"\d{13}", "za.idnr", True),
        (r"[A-Z]{4}\d{6}[HM][A-Z]{5}[0-9A-Z]\d", "mx.curp"),
    )
)


def _find_national_ids(text: str) -> Iterator[Span]:
    for number in _NATIONAL_NUMBERS:
        for match in number.pattern.finditer(text):
            if number.needs_word and not (
                _is_near(_ID_WORDS, text, *match.span(), after=25)
                and not _is_other_number(text, match.start(), _ID_WORDS)
            ):
                continue
            # in a Swedish number '-' or '+' tells the century
            separators = "[.]" if number.check == "se.personnummer" else "[.-]"
            if number.check is None or _checks(number.check, re.sub(separators, "", match[0])):
                yield match.span()


# ---- dates of birth

_MONTHS = (
    "jan|jän|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec|"
    "mär|mai|okt|dez|fév|avr|juin|juil|aoû|déc|ene|abr|ago|dic|gen|mag|giu|lug|set|ott|mrt|mei|maa|st|lut|kwi|maj|cze|lip|sie|wrz|paź|lis|gru|fev|out"
)
_YEAR = "(?:19|20)"
_DATE = re.compile(
    r"(?<![\w./-])(?:"
    + "|".join(
        (
            rf"\d{{1,2}}[./-] ?\d{{1,2}}[./-] ?{_YEAR}?\d{{2}}",
            rf"{_YEAR}\d{{2}}[./-]\d{{1,2}}[./-]\d{{1,2}}",
            (
                rf"\d{{1,2}}(?:st|nd|rd|th|\.|er)?(?: of| de| di)?[ -](?:{_MONTHS})\w*\.?,?"
                rf"(?: of| de| del| di)?[ -]{_YEAR}?\d{{2}}"
            ),
            rf"(?:{_MONTHS})\w*\.? \d{{1,2}}(?:st|nd|rd|th)?,? {_YEAR}\d{{2}}",
            r"\d{8}",
        )
    )
    + r")(?![\w/-]|\.\d)|\d{4}年\d{1,2}月\d{1,2}日",
    re.IGNORECASE,
)
_BIRTH_WORDS = _compile_words("birth")


def _find_birth_dates(text: str) -> Iterator[Span]:
    for match in _DATE.finditer(text):
        if _BIRTH_WORDS.search(
            text[max(0, match.start() - 60) : match.start()] + " " + text[match.end() : match.end() + 20]
        ):
            yield match.span()


# ---- phone numbers

#: Regions whose national numbers are recognised if none is given.
DEFAULT_REGIONS = (
    *("DE", "GB", "FR", "ES", "IT", "NL", "BE", "CH", "AT", "PL", "PT"),
    *("SE", "DK", "NO", "FI", "IE", "CZ", "HU", "RO", "GR", "TR"),
    *("US", "MX", "BR", "AR", "IN", "AU", "NZ", "ZA", "JP", "KR", "SG", "AE"),
)

#: Words that say that a number is a phone number, and words that may say it.
_PHONE_WORDS, _WEAK_PHONE_WORDS = _compile_words("phone"), _compile_words("weak_phone")
_DATE_OR_TIME = re.compile(
    rf"{_YEAR}\d{{2}}[ ./-]\d{{1,2}}[ ./-]\d{{1,2}}(?:[ T]\d{{1,2}})?"
    rf"|\d{{1,2}}[ ./-]\d{{1,2}}[ ./-]{_YEAR}\d{{2}}(?: \d{{1,2}})?"
    rf"|{_YEAR}\d{{2}} ?[-–/] ?{_YEAR}\d{{2}}"
)

#: A run of digits with the separators of phone numbers; it may start with '+' or '('.
_PHONE = re.compile(
    r"(?<![A-Za-z0-9_.,/@+-])(?<!(?<!tel):)((?:\+|\(\+?)?\d(?:[\s()./\u2010-\u2015-]{0,3}\d){5,16})"
    r"(?:,?\s?(?:ext|x|extension|durchwahl|poste)\.?\s?\d{1,5})?(?![A-Za-z0-9_])",
    re.IGNORECASE,
)


#: An area code in parentheses, or the groups of a North American number.
_TYPICAL_PHONE = re.compile(r"\(\d{2,5}\)[ -]?\d[\d -]{4,}|1?[-. ]?\(?\d{3}\)?[-. ]\d{3}[-.]\d{4}")


def make_phone_finder(regions: Sequence[str]) -> Finder:
    """Return the finder of international phone numbers, and of national ones of these regions, or the default ones."""
    from phonenumbers import NumberParseException, is_possible_number, is_valid_number, parse

    def fits(check: Callable[..., bool], number: str, region: str | None) -> bool:
        try:
            return check(parse(number, region))
        except NumberParseException:
            return False

    def find(text: str) -> Iterator[Span]:
        for match in _PHONE.finditer(text):
            number, (start, end) = match[1], match.span()
            if not _looks_like_phone(text, number, end):
                continue
            named = _is_near(_PHONE_WORDS, text, start, end, after=15)
            other = not named and _is_near(_OTHER_NUMBER_WORDS, text, start, start)
            named = named or (not other and _is_near(_WEAK_PHONE_WORDS, text, start, end, after=15))
            international = re.sub(r"^\(?(?:\+|00)", "+", number)  # '00' is how most of the world dials '+'
            if international.startswith("+") and fits(is_possible_number, international, None):
                if "+" in number or not other:
                    yield start, end
                continue
            # numbers of the ranges that are reserved for films and examples are possible, but not valid
            check = is_possible_number if named and number.startswith(("0", "(0")) else is_valid_number
            is_typical = bool(_TYPICAL_PHONE.fullmatch(number))
            is_grouped = number.startswith("0") or not number.isdigit()
            if not named and (other or not (is_typical or (regions and is_grouped))):
                continue
            if is_typical or any(fits(check, number, region) for region in regions or DEFAULT_REGIONS):
                yield start, end

    return find


def _looks_like_phone(text: str, number: str, end: int) -> bool:
    """Return whether digits are not a date, a version, an amount or a part of something longer."""
    groups = re.findall(r"\d+", number)
    if _DATE_OR_TIME.fullmatch(number) or not 7 <= sum(map(len, groups)) <= 15:
        return False
    if sum(len(group) == 1 for group in groups) > 2 or (
        "." in number and any(len(group) < 2 for group in groups[1:]) and number[0] not in "+0"
    ):
        return False
    return not re.match(r"[.,:]\d|[%€$£°]| ?(?:EUR|USD|GBP|kWh|km|kg|px)\b", text[end:])


# ---- by kind

#: The kinds that patterns recognise, in the order of precedence where two overlap.
FINDERS: Mapping[str, Finder] = {
    "secret_url": _find_secret_urls,
    "url": _find_urls,
    "email": _find_emails,
    "iban": _find_ibans,
    "card": _find_cards,
    "mac": _find_macs,
    "ip": _find_ips,
    "date_of_birth": _find_birth_dates,
    "national_id": _find_national_ids,
}
KINDS = (*FINDERS, "phone")

#: What every kind has at least one of: a text without it contains no personal data that patterns recognise.
TRIGGER = re.compile(r"[\d@]|://|www\.|::", re.IGNORECASE)
