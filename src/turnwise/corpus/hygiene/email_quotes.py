"""Edits that remove quoted messages, signatures and notices from e-mails, by the phrases in `email_quotes.yaml`."""

import re
from collections.abc import Iterator, Sequence

from turnwise.core.files import package_yaml
from turnwise.corpus.hygiene.edits import Edit

_PHRASES = package_yaml("turnwise.corpus.hygiene", "email_quotes.yaml")


def _any(name: str) -> str:
    return f"(?:{'|'.join(_PHRASES[name])})"


def _compile(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern, re.IGNORECASE)


#: Not an emoticon such as `>:(` or `><`; `<@` starts a mention.
_QUOTED = re.compile(r"\s*>(?![:;._=-]|<(?![@#!h]))")

#: The line before a quoted message. Without a date, a time or an address, "my colleague wrote:" is a sentence.
_ATTRIBUTION_START, _WROTE = _compile(rf"{_any('attribution_start')}\b"), _compile(rf"\b{_any('wrote')}\b")
_ATTRIBUTION_LENGTH = 300
_DATE = re.compile(r"\b(?:19|20)\d\d\b|\d[./-]\d")
_TIME_OR_ADDRESS = re.compile(r"\d[:h]\d\d\b|@|\[EMAIL")

#: The headers of a quoted or forwarded message, and what may be above them.
_SEPARATOR = _compile(rf"\s*[-_*]{{2,}}\s*{_any('separator')}\s*[-_*]{{2,}}\s*|\s*{_any('announcement')}\s*:\s*")
_HEADER = _compile(
    rf"\s*\*?(?:(?P<sender>{_any('from')})|(?P<email>{_any('only_in_emails')})|{_any('other_headers')})\*?\s*:\*?(?:\s|$)"
)
_MAX_HEADERS = 10
_RULE = re.compile(r"\s*[_-]{5,}\s*")

#: Lines that a signature may have after a mark that is not the standard one ("-- " with a space at the end).
_SIGNATURE_LINES = 10
_SIGNATURE_MARK = re.compile(r"\s*(?:--|—|__)\s*")
_DEVICE_LINE = _compile(
    rf"\s*(?:{_any('sent')}\b.{{0,25}}?\b{_any('with')}\b.{{0,25}}?\b{_any('devices')}\b"
    rf"|von meinem .{{0,20}}{_any('devices')}.{{0,25}} gesendet|get outlook for (?:ios|android))[^?]{{0,30}}"
)
_NOTICE_LINES = 30
_NOTICE_START = _compile(rf"\s*[*_]*{_any('notice')}")
_CONFIDENTIAL, _RECIPIENT = _compile(_any("confidential")), _compile(_any("recipient"))


def email_quote_edits(text: str) -> list[Edit]:
    """Return the edits that remove the lines of quoted messages, signatures and notices."""
    lines = text.splitlines(keepends=True)
    if len(lines) == 1:
        return []
    kept = list(range(len(lines)))
    # what remains is searched again: lines that were apart may now belong together
    while removed := set(_find_removable([lines[number] for number in kept])):
        kept = [number for place, number in enumerate(kept) if place not in removed]
    edits, position, remaining = [], 0, set(kept)
    for number, line in enumerate(lines):
        if number not in remaining:
            edits.append((position, position + len(line), ""))
        position += len(line)
    return edits


def _find_removable(lines: Sequence[str]) -> Iterator[int]:
    """Yield the places of the lines to remove."""
    signature = _find_signature(lines)
    for place, line in enumerate(lines):
        if _QUOTED.match(line) or _DEVICE_LINE.fullmatch(line.strip()):
            yield place
        elif _SEPARATOR.fullmatch(line) or place == signature or _starts_headers(lines, place):
            yield from range(place, len(lines))
            return
        elif attribution := _match_attribution(lines, place):
            yield from range(place, attribution)
        elif _NOTICE_START.match(line):
            yield from range(place, _match_notice(lines, place))


def _match_attribution(lines: Sequence[str], place: int) -> int:
    """Return the end of one or two lines that say who wrote what follows, and of what is not marked by `>`; or 0."""
    for length in (1, 2):
        candidate = " ".join(line.strip() for line in lines[place : place + length])
        if len(candidate) > _ATTRIBUTION_LENGTH:
            return 0
        if candidate.endswith(":") and _WROTE.search(candidate):
            after = next((number for number in range(place + length, len(lines)) if lines[number].strip()), len(lines))
            if after < len(lines) and _QUOTED.match(lines[after]):
                return after if _DATE.search(candidate) or _TIME_OR_ADDRESS.search(candidate) else 0
            return len(lines) if _TIME_OR_ADDRESS.search(candidate) else 0
        if not _ATTRIBUTION_START.match(candidate):
            return 0
    return 0


def _match_notice(lines: Sequence[str], place: int) -> int:
    """Return the end of a paragraph if it is a notice of confidentiality; otherwise its start."""
    limit = min(len(lines), place + _NOTICE_LINES)
    end = next((number for number in range(place, limit) if not lines[number].strip()), limit)
    notice = " ".join(lines[place:end])
    return end if _CONFIDENTIAL.search(notice) and _RECIPIENT.search(notice) else place


def _find_signature(lines: Sequence[str]) -> int | None:
    """Return where the signature starts; a mark other than the standard one may occur once, or it is a separator."""
    marks = [place for place, line in enumerate(lines) if _SIGNATURE_MARK.fullmatch(line)]
    standard = next((place for place in marks if lines[place].rstrip("\r\n") == "-- "), None)
    if standard is None and len(marks) == 1 and len(lines) - marks[0] - 1 <= _SIGNATURE_LINES:
        return marks[0]
    return standard


def _starts_headers(lines: Sequence[str], place: int) -> bool:
    """Return whether the headers of an e-mail start here: at least three lines, with a sender and a subject or time."""
    if _RULE.fullmatch(lines[place]):
        place += 1
    matches = []
    for line in lines[place : place + _MAX_HEADERS]:
        if not (match := _HEADER.match(line)):
            break
        matches.append(match)
    return len(matches) >= 3 and any(match["sender"] for match in matches) and any(match["email"] for match in matches)
