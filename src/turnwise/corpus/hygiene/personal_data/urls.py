"""Finders of web addresses, with and without a secret in them."""

import math
import re
from collections import Counter
from collections.abc import Iterator
from urllib.parse import SplitResult, parse_qsl, urlsplit

from turnwise.corpus.hygiene.personal_data.context import Span, load_pattern, load_words

_END = r"[^\s<>\"|]*[^\s<>\"|.,;:!?)\]}'’”»…。、」*`]"
_URL = re.compile(rf"(?:\b[a-z][a-z0-9+.-]{{0,30}}://|\bwww\.){_END}", re.IGNORECASE)

#: An address without a scheme, such as 'example.com/reset?token=…'.
_BARE_URL = re.compile(rf"(?<![\w@./:-])(?:[\w-]+\.)+[a-z]{{2,}}(?::\d+)?[/?]{_END}", re.IGNORECASE)


def find_urls(text: str) -> Iterator[Span]:
    """Find web addresses and links to apps."""
    return (match.span() for match in _URL.finditer(text))


def find_secret_urls(text: str) -> Iterator[Span]:
    """Find addresses with a password, a token or a session in them."""
    for pattern in (_URL, _BARE_URL):
        for match in pattern.finditer(text):
            if _has_secret(match[0]):
                yield match.span()


_SECRET_KEYS = frozenset(load_words("secret_key"))
_WEAK_SECRET_KEYS = frozenset(load_words("weak_secret_key"))
_PASSWORD_KEYS = frozenset(load_words("password_key"))
_TRACKING_KEYS = frozenset(load_words("tracking_key"))
_SECRET_KEY_PART = re.compile("token|jeton|secret|apikey|session|signature|password|credential", re.IGNORECASE)
#: A code for one person, such as 'activatiecode' or 'engangskode', unless it is a public one.
_CODE_KEY = re.compile(r"(\w{3,})(?:s?code|s?kode|s?kod|koodi|codigo|codice|kodu|kodas)")
_PUBLIC_CODES = frozenset(load_words("public_code"))
_SECRET_PATH = load_pattern("secret_path")
_SHARE_PATH = load_pattern("share_path")
_PUBLIC_PATH = frozenset(load_words("public_path"))
_PUBLIC_HOSTS = frozenset(load_words("public_host"))
_ASSET = re.compile(rf"\.(?:{'|'.join(load_words('asset'))})$", re.IGNORECASE)

#: A word with a few digits, such as 'SUMMER24'.
_VOUCHER = re.compile(r"[A-Z]{3,}-?\d{1,4}|\d{1,4}[A-Z]{3,}|[a-z]{3,}-?\d{1,4}|\d+")

#: Values of parameters with a secret key that are none.
_PLAIN_VALUE = re.compile(
    r"(?:true|false|on|off|yes|no|none|null|reset|forgot|forgotten|change|changed|new|show|hide|required|expired|invalid|\W*)",
    re.IGNORECASE,
)

#: The shortest random text that is a secret: after a key or a path that announces one, and elsewhere.
_SHORT, _MEDIUM, _LONG = 5, 8, 20


def _has_secret(url: str) -> bool:
    try:
        parts = urlsplit(url if "//" in url else f"//{url}")
    except ValueError:
        return False
    user, at, _ = parts.netloc.rpartition("@")
    if at and (":" in user or _is_random(user, _LONG)):
        return True
    path, *parameters = parts.path.split(";")
    queries = (parts.query.replace("?", "&"), parts.fragment.rpartition("?")[2], *parameters)
    pairs = [pair for query in queries for pair in parse_qsl(query, keep_blank_values=True)]
    place = f"{parts.netloc}{path}"  # the first part of an app link is its 'netloc'
    announced = bool(_SECRET_PATH.search(place) or _SHARE_PATH.search(place))
    asset = bool(_ASSET.search(path))
    return any(_is_secret_parameter(*pair, announced, asset) for pair in pairs) or _has_secret_path(parts)


def _is_secret_parameter(key: str, value: str, announced: bool, asset: bool) -> bool:
    # announced: by the path, as in '/verify?u=…'; asset: a script, a picture or the like, whose versions look random
    name = re.sub(r"[\W_]", "", key).casefold()
    last = re.split(r"[_.-]", key.casefold())[-1]
    if name in _TRACKING_KEYS or name.startswith("utm") or _PLAIN_VALUE.fullmatch(value):
        return False
    if not _PASSWORD_KEYS.isdisjoint((name, last)):
        return len(value) >= 3
    if not _SECRET_KEYS.isdisjoint((name, last)) or _SECRET_KEY_PART.search(name):
        # letters that are too many, or too many consonants, for a word
        is_long_word = value.isalpha() and (len(value) >= 16 or re.search("[b-df-hj-np-tv-z]{6}", value, re.IGNORECASE))
        return _is_random(value, _SHORT) or bool(is_long_word) or (announced and _is_short_code(value))
    code = _CODE_KEY.fullmatch(name)
    if code and code[1] not in _PUBLIC_CODES:
        return _is_short_code(value) or _is_random(value, _SHORT + 1)
    if not _WEAK_SECRET_KEYS.isdisjoint((name, last)) and not asset:
        return (announced and _is_short_code(value)) or (
            not _VOUCHER.fullmatch(value) and _is_random(value, _SHORT + 1 if announced else _MEDIUM)
        )
    if "://" in value:
        return _has_secret(value)
    return not asset and _is_random(value, _MEDIUM + 4 if announced else _LONG)


def _is_short_code(value: str) -> bool:
    """Return whether a value is a one-time code of a few digits."""
    return bool(re.fullmatch(r"\d{4,8}", value))


def _has_secret_path(parts: SplitResult) -> bool:
    path = parts.path.partition(";")[0]
    if _ASSET.search(path):
        return False
    host = parts.netloc.rpartition("@")[2].partition(".")[0]
    if host in _PUBLIC_HOSTS:
        return False
    segments = [segment for segment in f"{path}/{parts.fragment}".split("/") if segment]
    announced, shared, public = False, bool(_SHARE_PATH.search(host)), False
    for segment in segments:
        if "!" not in segment and not public:  # '!' separates the data of maps
            if _is_random(segment, _MEDIUM if announced else _LONG):
                return True
            hinted = shared or _SECRET_PATH.match(segment)  # such as '/private-1a2b…'
            last = re.sub(r"\.\w{1,5}$", "", segment).rpartition("-")[2]
            # digits, small and capital letters alternate often, unlike in 'win11x64'
            if hinted and len(re.findall(r"[a-z]+|[A-Z]+|\d+", last)) > 4 and _is_random(last, _MEDIUM):
                return True
        announced = announced or bool(_SECRET_PATH.search(segment))
        shared = shared or bool(_SHARE_PATH.search(segment))
        public = segment.casefold() in _PUBLIC_PATH
    return False


_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)


def _is_random(value: str, length: int) -> bool:
    """Return whether the parts of a text that look random have at least this length together."""
    if _UUID.search(value):
        return True
    if re.match("sha(?:1|256|512)[-:]", value):  # the name of a public file
        return False
    if value.isdigit():
        return length <= _SHORT <= len(value)
    parts = re.split(r"[^A-Za-z0-9]+", value)
    return sum(len(part) for part in parts if _is_random_part(part, 4 if length <= _MEDIUM else 6)) >= length


def _is_random_part(value: str, length: int) -> bool:
    """Return whether letters and digits, or small and capital letters, are mixed as in no word."""
    letters, digits = sum(map(str.isalpha, value)), sum(map(str.isdigit, value))
    if len(value) < length or letters < 2:
        return False
    words = re.findall(r"[A-Za-z][a-z]{3,}", value)
    if sum(map(len, words)) > 0.7 * len(value):
        return False
    entropy = -sum(count / len(value) * math.log2(count / len(value)) for count in Counter(value).values())
    mixed = digits > 0 or (any(map(str.islower, value)) and any(map(str.isupper, value)))
    return mixed and entropy >= (2.0 if len(value) < 12 else 2.8)
