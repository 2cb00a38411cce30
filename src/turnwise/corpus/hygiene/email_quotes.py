"""Edits that remove from an e-mail what its sender did not write for it: quoted messages, signatures and notices.

Everything is recognised by lines, in English, German, French, Spanish, Italian, Portuguese and Dutch.
"""

import re
from collections.abc import Iterator, Sequence

from turnwise.corpus.hygiene.edits import Edit

#: Lines that a signature may have after a mark that is not the standard one ("-- " with a space at the end).
_SIGNATURE_LINES = 10

#: Not an emoticon such as `>:(` or `><`; `<@` starts a mention.
_QUOTED = re.compile(r"\s*>(?![:;._=-]|<(?![@#!h]))")

# ---- the line before a quoted message: "On Mon, 6 May 2024 at 10:00, Anna <anna@example.com> wrote:"

_ATTRIBUTION_LENGTH = 300
_ATTRIBUTION_START = re.compile(r"(?:on|am|le|el|il|em|op|\d{4}-\d\d-\d\d)\b", re.IGNORECASE)
_WROTE = re.compile(
    r"\b(?:wrote|schrieb|a écrit|escribió|ha scritto|escreveu|schreef|het volgende geschreven|geschrieben)\b",
    re.IGNORECASE,
)
#: Without a date, a time or an address, "my colleague wrote:" is a sentence of the sender.
_DATE = re.compile(r"\b(?:19|20)\d\d\b|\d[./-]\d")
_TIME_OR_ADDRESS = re.compile(r"\d[:h]\d\d\b|@|\[EMAIL")

# ---- the headers of a quoted or forwarded message

_SEPARATOR = re.compile(
    r"\s*[-_*]{2,}\s*(?:original message|original appointment|forwarded message|begin forwarded message"
    r"|ursprüngliche nachricht|originalnachricht|weitergeleitete nachricht|original-nachricht"
    r"|message d'origine|message d’origine|message original|message transféré|mensaje original|mensaje reenviado"
    r"|messaggio originale|messaggio inoltrato|mensagem original|mensagem encaminhada"
    r"|oorspronkelijk bericht|doorgestuurd bericht)\s*[-_*]{2,}\s*"
    r"|\s*(?:begin forwarded message|anfang der weitergeleiteten nachricht|début du message réexpédié"
    r"|inicio del mensaje reenviado|inizio messaggio inoltrato|início da mensagem reencaminhada)\s*:\s*",
    re.IGNORECASE,
)
_FROM = "from|von|de|da|van"
#: What e-mails have, but no list of places and dates: "From: Oslo", "To: Rome", "Date: 6 May".
_ONLY_IN_EMAILS = (
    "sent|subject|gesendet|betreff|envoyé|objet|enviado(?: el| em)?|enviada em|asunto|assunto|inviato|oggetto"
    "|verzonden|onderwerp"
)
_OTHER_HEADERS = "to|cc|bcc|date|reply-to|an|datum|antwort an|à|a|para|fecha|data|aan|copie|répondre à"
_HEADER = re.compile(
    rf"\s*\*?(?:(?P<sender>{_FROM})|(?P<email>{_ONLY_IN_EMAILS})|(?:{_OTHER_HEADERS}))\*?\s*:\*?(?:\s|$)",
    re.IGNORECASE,
)
_MAX_HEADERS = 10
_RULE = re.compile(r"\s*[_-]{5,}\s*")

# ---- signatures and notices

_SIGNATURE_MARK = re.compile(r"\s*(?:--|—|__)\s*")
_DEVICES = (
    r"i-?phone|i-?pad|android|mobile|phone|smartphone|handy|tablet|samsung|galaxy|huawei|xiaomi|blackberry|outlook|yahoo"
    r"|gmx|proton ?mail|mail für windows|windows|mail for windows|téléphone|portable|móvil|movil|teléfono|celular"
    r"|telefonino|cellulare|telemóvel|telefoon|mobiel|mobiltelefon"
)
_DEVICE_LINE = re.compile(
    r"\s*(?:(?:sent|gesendet|diese nachricht wurde|envoyé|enviado|inviato|verzonden|verstuurd)\b.{0,25}?"
    r"\b(?:from|via|using|with|von|mit|über|aus|de|du|depuis|desde|da|dal|do|pelo|vanaf|met)\b.{0,25}?"
    rf"\b(?:{_DEVICES})\b|von meinem .{{0,20}}(?:{_DEVICES}).{{0,25}} gesendet|get outlook for (?:ios|android))"
    r"[^?]{0,30}",
    re.IGNORECASE,
)
_NOTICE_LINES = 30
_NOTICE_START = re.compile(
    r"\s*[*_]*(?:this (?:e-?mail|message|communication|transmission)"
    r"|the (?:information|contents?) (?:contained |transmitted )?(?:in|of)"
    r"|(?:legal |confidentiality |privacy )?(?:notice|disclaimer)\b|confidentiality\b|confidential\b"
    r"|diese (?:e-?mail|nachricht)|der inhalt dieser|vertraulichkeitshinweis"
    r"|ce (?:message|courriel|mail)|cet e-?mail|les informations contenues"
    r"|este (?:mensaje|correo|e-?mail)|la información contenida|aviso (?:legal|de confidencialidad)"
    r"|questo messaggio|questa e-?mail|le informazioni contenute|il contenuto di questa"
    r"|esta mensagem|este e-?mail|as informações contidas"
    r"|dit (?:e-?mail)?bericht|deze e-?mail|de informatie in)",
    re.IGNORECASE,
)
_CONFIDENTIAL = re.compile(r"confiden[tc]|privileged|vertraulich|riservat|vertrouwelijk", re.IGNORECASE)
_RECIPIENT = re.compile(
    r"intended|addressee|recipient|empfänger|adressat|bestimmt|destinat|geadresseerde|bestemd|ontvanger", re.IGNORECASE
)


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
