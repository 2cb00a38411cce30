"""Finders of e-mail addresses, addresses of machines, bank accounts and cards."""

import ipaddress
import re
from collections.abc import Callable, Iterator

from turnwise.corpus.hygiene.personal_data.context import (
    Span,
    has_other_label,
    is_near,
    is_valid,
    load_pattern,
    load_words,
    text_after,
    text_before,
)

# ---- e-mail addresses

_LOCAL = r"(?:[\w.-]{1,64}\+[\w.-]{1,64}=)?[\w.!#$%'*+^`{|}~-]{0,63}[\w+]"
_EMAIL = re.compile(
    rf"(?<![\w.+@-])(?<!//)(?:mailto:|[\w-]{{1,20}}=)?({_LOCAL})(?:@|%40)((?:[\w-]+\.)+[^\W\d_]{{2,}})(?![\w@-])"
)

#: 'anna (at) example (dot) com', and the same without brackets.
_SPELLED_EMAIL = re.compile(
    r"(?<![\w.+@-])[\w.+-]{1,64}(?: ?[(\[{] ?(?:dot|punkt|point|punto|ponto) ?[)\]}] ?[\w+-]+){0,8}"
    r" ?[(\[{] ?(?:at|ät|@|arroba|chiocciola) ?[)\]}] ?"
    r"[\w-]+(?:(?:\.| ?[(\[{] ?(?:dot|punkt|point|punto|ponto|\.) ?[)\]}] ?)[\w-]+){1,8}",
    re.IGNORECASE,
)
_SPOKEN_EMAIL = re.compile(
    r"(?<![\w.+@-])[\w.+-]{1,64}(?: (?:dot|punkt|point|punto|ponto) [\w+-]+){0,8} (?:at|ät|arroba|chiocciola|arobase) "
    r"[\w-]+(?: (?:dot|punkt|point|punto|ponto) [\w-]+){1,8}",
    re.IGNORECASE,
)
#: 'anna @ example.com'
_SPACED_EMAIL = re.compile(r"(?<![\w.+@-])[\w.+-]{1,64} ?@ ?(?:[\w-]+\.)+[^\W\d_]{2,}(?![\w@-])")
#: 'mails from @example.com' names a domain.
_NO_LOCAL_PART = re.compile(r"(?:from|by|via|to|von|an|de|da|di|of|van|od|fra|från)\b", re.IGNORECASE)
_PATH_AFTER = re.compile(r":[~/\w.-]*[/~]")  # as in 'git@example.com:team/project'
_EMAIL_WORDS = load_pattern("email")
_FILE_ENDINGS = frozenset(load_words("file") + load_words("asset"))


def find_emails(text: str) -> Iterator[Span]:
    """Find e-mail addresses."""
    for match in _EMAIL.finditer(text):
        if _is_email_domain(match[2]) and not _PATH_AFTER.match(text, match.end()):
            yield match.start(1), match.end(2)
    yield from (match.span() for match in _SPELLED_EMAIL.finditer(text))
    for pattern in (_SPOKEN_EMAIL, _SPACED_EMAIL):
        for match in pattern.finditer(text):
            if (
                " " in match[0]
                and not _NO_LOCAL_PART.match(match[0])
                and is_near(_EMAIL_WORDS, text, *match.span(), after=20)
            ):
                yield match.span()


def _is_email_domain(domain: str) -> bool:
    """Return whether a domain is neither the end of a file name, such as '2x.png', nor a version."""
    *labels, ending = domain.split(".")
    is_version = len(labels) > 1 and all(label.isdigit() for label in labels)
    is_density = re.fullmatch(r"\d+x", labels[-1]) is not None
    return not is_version and not is_density and ending.casefold() not in _FILE_ENDINGS


# ---- cards and bank accounts


def _find_valid(pattern: re.Pattern[str], is_correct: Callable[[str], bool], text: str) -> Iterator[Span]:
    """Find numbers with a correct check digit; groups at the end of a match may not belong to the number."""
    position = 0
    while match := pattern.search(text, position):
        position = match.start() + 1
        ends = [group.end() for group in re.finditer(r"[^\W_]+", match[0])]
        for end in reversed(ends):
            if is_correct(re.sub(r"[\W_]", "", match[0][:end])):
                position = match.start() + end
                yield match.start(), position
                break


_CARD = re.compile(
    r"(?:(?<![\w.,-])|(?<=visa)|(?<=amex)|(?<=card)|(?<=maestro))\d(?:[ ._/-]{0,3}\d){11,22}(?![\w-])",
    re.ASCII | re.IGNORECASE,
)

#: Prefixes of card numbers with their lengths.
_CARD_PLANS = (
    (re.compile("4"), {13, 16, 19}),
    (re.compile("5[1-5]|222[1-9]|22[3-9]|2[3-6]|27[01]|2720"), {16}),
    (re.compile("3[47]"), {15}),
    (re.compile("6011|64[4-9]|65"), {16, 19}),
    (re.compile("30[0-5]|3[689]"), {14}),
    (re.compile("35(?:2[89]|[3-8])"), {16, 19}),
    (re.compile("62|81"), {16, 17, 18, 19}),
    (re.compile("220[0-4]"), {16}),
    (re.compile("50|5[6-9]|6"), {14, 16, 17, 18, 19}),
)
_CARD_WORDS = load_pattern("card")

_THOUSANDS = re.compile(r"\d{1,3}(?:[ .]\d{3})+")  # an amount such as '4 500 000 000 000'


def find_cards(text: str) -> Iterator[Span]:
    """Find numbers of credit and debit cards, unless they are labelled as an order or the like."""
    for start, end in _find_valid(_CARD, _is_card, text):
        if has_other_label(text, start, _CARD_WORDS) or _THOUSANDS.fullmatch(text, start, end):
            continue
        # the numbers of goods are as long; few cards are, except some with 3 groups
        digits = re.sub(r"\D", "", text[start:end])
        is_barcode_length = len(digits) in (13, 14) and (text[start:end].isdigit() or digits[0] != "3")
        if not is_barcode_length or is_near(_CARD_WORDS, text, start, end, after=15):
            yield start, end


def _is_card(digits: str) -> bool:
    planned = any(prefix.match(digits) and len(digits) in lengths for prefix, lengths in _CARD_PLANS)
    return planned and is_valid("luhn", digits)


_IBAN = re.compile(r"(?<![\w])[A-Za-z]{2}[ .-]?\d{2}(?:[ ./_-]{0,3}[A-Za-z0-9]){11,30}(?![\w])", re.ASCII)


def find_ibans(text: str) -> Iterator[Span]:
    """Find international bank account numbers."""
    return _find_valid(_IBAN, _is_iban, text)


def _is_iban(number: str) -> bool:
    from stdnum import iban

    # national check digits within it are often wrong in examples and old accounts
    return 15 <= len(number) <= 34 and bool(iban.is_valid(number, check_country=False))


# ---- addresses of machines

#: Labels that may precede an address directly; elsewhere, a colon says that it is a part of something longer.
_LABELS = "|".join(
    f"(?<={label}:)" for label in ("ip", "ipv6", "inet6", "mac", "bssid", "addr", "address", "host", "id")
)
_IPV4 = re.compile(r"(?<![\w.])(?<![A-Za-z][-_])(?:\d{1,3}\.){3}\d{1,3}(?![\w]|\.\d|-\d*[A-Za-z])", re.ASCII)
_IPV6 = re.compile(
    rf"(?:{_LABELS}|(?<![\w:.]))"
    r"(?:[0-9A-F]{0,4}:){2,7}(?:(?:\d{1,3}\.){3}\d{1,3}|[0-9A-F]{1,4})?(?:%\w+)?(?![\w:]|\.\d)",
    re.IGNORECASE | re.ASCII,
)
_VERSION_WORDS, _SECTION_WORDS, _SOFTWARE, _IP_WORDS = map(load_pattern, ("version", "section", "software", "ip"))
#: The names of addresses in log files, as in 'SRC=192.0.2.1'.
_ADDRESS_KEY = re.compile(
    r"\b(?:src|dst|ip\w*|\w*addr\w*|host|client|remote\w*|peer|from|gw|gateway|server)=$", re.IGNORECASE
)
_HOME = ipaddress.IPv4Network("192.168.0.0/16")
_PRIVATE = (_HOME, *map(ipaddress.IPv4Network, ("10.0.0.0/8", "172.16.0.0/12", "127.0.0.0/8")))

#: Public name servers, whose numbers are as small as those of a version.
_NAME_SERVERS = frozenset({"1.1.1.1", "1.0.0.1", "8.8.8.8", "8.8.4.4", "9.9.9.9"})


def find_ips(text: str) -> Iterator[Span]:
    """Find addresses of the internet protocol, versions 6 and 4."""
    for match in _IPV6.finditer(text):
        if _is_plausible_ipv6(text, match):
            yield match.span()
    for match in _IPV4.finditer(text):
        if _is_plausible_ipv4(text, *match.span()):
            yield match.span()


def _is_plausible_ipv6(text: str, match: re.Match[str]) -> bool:
    """Return whether a match is a valid address, and not a name in a programming language or a ratio."""
    try:
        ipaddress.IPv6Address(match[0])
    except ValueError:
        return False
    groups = [group for group in match[0].partition("%")[0].split(":") if group]
    if not groups or (len(groups) == 8 and all(len(group) == 2 for group in groups)):
        return False
    is_clock = all(len(group) < 3 and group.isdigit() for group in groups)  # or a verse: 3:16::17
    is_short = is_clock or (len(groups) <= 2 and len(groups[0]) < 3 and not match[0].startswith("::"))
    has_digit = any(map(str.isdigit, match[0]))
    return (has_digit and not is_short) or is_near(_IP_WORDS, text, *match.span(), after=15)


def _is_plausible_ipv4(text: str, start: int, end: int) -> bool:
    """Return whether four numbers with dots are an address, and not a version, a section or a date."""
    groups = text[start:end].split(".")
    parts = [int(group) for group in groups]
    if max(parts) > 255 or parts[:2] == [255, 255] or not any(parts):  # a mask, or no address
        return False
    before = text_before(text, start)
    if before.endswith(("//", "@")) or _ADDRESS_KEY.search(before):
        return True
    is_in_path = re.search(r"[^\d/\s]/$", before)
    if is_in_path or re.search(rf"(?:{_SOFTWARE.pattern})[\s:(]*$", before, re.IGNORECASE):
        return False
    ip, version = (
        max((match.end() for match in words.finditer(before)), default=-1) for words in (_IP_WORDS, _VERSION_WORDS)
    )
    if any(group[0] == "0" for group in groups if len(group) > 1):
        return ip > version
    address = ipaddress.IPv4Address(text[start:end])
    is_private = any(address in network for network in _PRIVATE)
    if address in _HOME or re.match(r":\d{2,5}\b|/\d{1,2}\b", text[end : end + 8]):
        return True
    if has_other_label(text, start, _IP_WORDS):
        return False
    small = sum(part < 20 for part in parts)
    if version > ip and len(before) - version <= 20 and not is_private:
        return False
    if ip >= 0 or _IP_WORDS.search(text_after(text, end, 15)):
        return ip >= version or is_private or small < 3
    is_version_near = version >= 0 and (small > 1 or len(before) - version <= 20)
    if (
        is_version_near
        or _VERSION_WORDS.search(text_after(text, end, 25))
        or (small > 1 and _SECTION_WORDS.search(before + text_after(text, end, 25)))
    ):
        return False
    return small < 3 or is_private or text[start:end] in _NAME_SERVERS


_PAIR, _FOUR = "[0-9A-F]{2}", "[0-9A-F]{4}"
_MAC = re.compile(
    rf"(?:{_LABELS}|(?<![\w:.-]))"
    rf"(?:{_PAIR}([:-])(?:{_PAIR}\1){{4}}{_PAIR}|(?:{_FOUR}\.){{2}}{_FOUR})(?![\w:.-]\w|\w)",
    re.IGNORECASE | re.ASCII,
)

#: Notations that only a word such as 'MAC' tells from other codes.
_LABELLED_MAC = re.compile(
    rf"(?<![\w:.-])(?:{_PAIR}([ -])(?:{_PAIR}\1){{4}}{_PAIR}|{_FOUR}([-:]){_FOUR}\2{_FOUR}"
    r"|[0-9A-F]{12}|[0-9A-F]{6}[-:][0-9A-F]{6})(?![\w:.-]\w|\w)",
    re.IGNORECASE | re.ASCII,
)
_MAC_WORDS, _MAC_OTHER_WORDS = load_pattern("mac"), load_pattern("mac_other")


def find_macs(text: str) -> Iterator[Span]:
    """Find addresses of network cards."""
    yield from (match.span() for match in _MAC.finditer(text) if _is_plausible_mac(text, match))
    for match in _LABELLED_MAC.finditer(text):
        is_labelled = _MAC_WORDS.search(text_before(text, match.start(), 25))
        if is_labelled and not has_other_label(text, match.start(), _MAC_WORDS):
            yield match.span()


def _is_plausible_mac(text: str, match: re.Match[str]) -> bool:
    """Return whether a match is not a fingerprint, a key, or a date and time."""
    if is_near(_MAC_WORDS, text, *match.span(), after=10) and ":" in match[0]:
        return True
    if _MAC_OTHER_WORDS.search(text_before(text, match.start())) and not is_near(_MAC_WORDS, text, *match.span()):
        return False
    return match[0].startswith("00:") or re.search("[A-F]", match[0], re.IGNORECASE) is not None
