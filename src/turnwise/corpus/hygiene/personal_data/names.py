"""Finder of names, by the words around them and by lists."""

import re
from collections.abc import Iterator, Sequence

from turnwise.corpus.hygiene.personal_data.context import (
    CAPITALISED,
    UPPER,
    Span,
    load_pattern,
    load_phrases,
    load_words,
    may_contain,
    merge_spans,
    words_of,
    words_pattern,
)
from turnwise.corpus.hygiene.personal_data.listed_names import find_listed_names
from turnwise.corpus.hygiene.personal_data.postal_addresses import find_postal_addresses

_LINKS = ("und", "and", "et", "y", "e", "&")  # 'Anna and Tom'
_PARTICLE = rf"(?:{'|'.join(map(re.escape, load_words('name_particle')))})"
_INITIAL = rf"(?:[{UPPER}]\.){{1,3}}(?=[ \t]?(?:[{UPPER}]|{_PARTICLE}[ \t]))"
_LEADING = rf"(?:{'|'.join(re.escape(each) for each in load_words('name_particle') if each not in _LINKS)})"
_PART = rf"(?:{_INITIAL}|{CAPITALISED})"

#: After a surname: 'Quill, Ada' at the end of a line.
_FIRST_NAME = rf"(?:,[ \t]{_PART}(?=[ \t]*(?:[\n\r(.,;]|$)))?"

#: Up to four words with a capital, and particles such as 'van der' before or between them.
_NAME = rf"(?:{_LEADING}[ \t]){{0,2}}{_PART}(?:[ \t](?:{_PARTICLE}[ \t]){{0,2}}{_PART}){{0,3}}"
_TITLES = rf"(?:{load_pattern('title').pattern})\.?"
_NO_NAME = load_pattern("no_name")


def _ends_clause(text: str, end: int) -> bool:
    return re.match(r"[ \t]*(?:[,.!?:;\n\r)(/–-]|$)", text[end : end + 3]) is not None


_CLAUSE_START = r"(?:^|(?<=[.!?,:;\n\r>)*\"–-]))[ \t]*"
_SEPARATOR = r"[ \t]*[,:;.!–-]{0,3}[\s]{1,4}"
_TITLED = re.compile(
    rf"(?<![\w.'’])(?P<title>(?i:{_TITLES}))(?:[ \t]+(?i:{_TITLES})){{0,2}}[ \t]+"
    rf"(?:(?i:and|und|et|y|e|en)[ \t]+(?i:{_TITLES})[ \t]+)?(?P<name>{_NAME})"
)
_LEADING_TITLE = re.compile(rf"(?i:{_TITLES})(?:[ \t]+|$)")
#: No name after a title: 'Madame la Directrice'.
_ROLE = re.compile(rf"(?:la|le|el|il|die|der)[ \t]{_PART}")
#: Within a name: 'Loïc Le Guennec'.
_CAPITAL_PARTICLE = re.compile(rf"(?:Le|La|El|Lo|De|Di|Da|Du|Des|Del|Los|Las|Al|Van|Von|Den|Der)[ \t]{CAPITALISED}")
_FAREWELL = re.compile(f"{words_pattern('closing')}|{words_pattern('weak_closing')}|{words_pattern('greeting')}")
_AMBIGUOUS_TITLES = frozenset(
    {
        "mag",
        "fam",
        "fr",
        "ir",
        "lic",
        "sir",
        "lady",
        "sister",
        "nurse",
        "judge",
        "captain",
        "familie",
        "m",
        "mm",
        "pan",
        "don",
        "sr",
        "dr",
        "mw",
        "ing",
        "fru",
        "frau",
        "miss",
        "heer",
        "ms",
    }
)
_GREETING = re.compile(rf"{words_pattern('greeting')}[ \t]*,?[ \t]+(?P<name>{_NAME})")
_LETTER = re.compile(words_pattern("letter_greeting"))
_CLOSING = re.compile(
    rf"{words_pattern('closing')}(?:[ \t](?i:aus|from|de|uit)[ \t]{CAPITALISED})?{_SEPARATOR}"
    rf"(?:i\. ?[AV]\.[ \t])?(?P<name>{_NAME})"
)
_WEAK_CLOSING = re.compile(
    rf"{_CLAUSE_START}{words_pattern('weak_closing')}[ \t]*[,!–-]{{0,2}}\s{{1,4}}"
    rf"(?P<name>{_NAME})(?=[ \t]*[.!]?[ \t]*(?:$|[\n\r]))"
)
_INTRODUCTION = re.compile(
    rf"{words_pattern('introduction')}[ \t]+(?:(?P<name>{_NAME})"
    rf"|(?P<plain>(?!{_PARTICLE} )[^\W\d_]{{2,}}(?:[ \t](?!and\b|und\b)[^\W\d_]{{3,}})?)(?=[ \t]*(?:[.,!?\n]|$)))"
)
_WEAK_INTRODUCTION = re.compile(rf"{words_pattern('weak_introduction')}[ \t]+(?P<name>{_NAME})")
_RELATION = re.compile(
    rf"(?:{words_pattern('possessive')}[ \t](?:{words_pattern('relation_adjective')}[ \t])?"
    rf"|{_CLAUSE_START}(?=[{UPPER}]))"
    rf"{words_pattern('relation')}"
    rf"(?:[ \t]?,[ \t]?|[ \t]?\(|[ \t]?:[ \t]?|[ \t])(?P<name>{_NAME})"
)
_LABELLED = re.compile(
    rf"(?:{words_pattern('ask_for')}|{words_pattern('name_label')})\.?[ \t]{{0,3}}"
    rf"(?P<mark>[:,]|[ \t][–-]|)\s{{1,3}}[\"“„«]?(?P<name>{_NAME}{_FIRST_NAME})"
)
_HEADER = re.compile(
    rf"{words_pattern('header')}[ \t]?:[ \t]{{0,3}}(?P<name>{_NAME}{_FIRST_NAME})(?=[ \t]*(?:[<(\n\r/|,.]|$))"
)
_WRITER = re.compile(rf"{_CLAUSE_START}{words_pattern('writer')},[ \t](?P<name>{_NAME})")
#: At the start of a clause, before contact data or a birth: 'Ada Quill, tel. …', 'Ada Quill <ada@…'.
_BEFORE_CONTACT = re.compile(
    rf"{_CLAUSE_START}(?P<name>{_NAME})(?:[ \t]*[,.;|<(/–-]{{0,2}}\s{{0,2}}"
    rf"(?=[\w.+-]{{1,64}}@|{words_pattern('after_name')})|[ \t]*[,\n\r][ \t]*(?=[+(]?\d(?:[ ./()-]{{0,2}}\d){{7}}))"
)
_CONTACT_PHRASES, _DIGIT, _PHONE_DIGITS = load_phrases("after_name"), re.compile(r"\d"), 8
#: A line with nothing but a name.
_LINE = re.compile(rf"(?:\n|[.:!?,])[ \t]*\n[ \t]*(?P<name>{_NAME})[ \t]*(?=\n)")
_SIGNATURE = 400  # characters at the end of a text in which such a line is a signature
_ASK_FOR = re.compile(words_pattern("ask_for"))
_HERE = re.compile(
    rf"{_CLAUSE_START}(?P<name>{_NAME})[ \t]"
    r"(?=(?:here (?:again|from)|speaking|al habla|am apparat|à l'appareil)\b|(?P<ends>here[,.!]))"
)
_RING = re.compile(rf"(?i:bei)[ \t](?P<name>{_NAME})[ \t](?=klingeln|läuten)")
_LAST = re.compile(
    rf"(?:[.!?)][ \t]+|[\n\r]+[ \t]*(?:[–—-][ \t]?)?|[ \t][–—-][ \t]?)"
    rf"(?:(?:Ihre?|Eure?|Deine?|Your)[ \t])?(?P<name>{_NAME})[ \t]*(?:\([^()]{{1,20}}\))?[.!]?\s*$"
)
#: No name after 'soy' or 'bei': 'de Madrid', 'der Hotline'.
_PLACE = re.compile(rf"(?:de|der|den|dem|del|du|la|le|el)[ \t]{_PART}")
#: After a single name: 'this is Omar from flat 3'.
_FROM = re.compile(r"[ \t](?:from|speaking|again|aus|van|von|al habla)\b")
#: Introductions that a single name follows at the end of a clause; after others, German nouns and nationalities do.
_SINGLE = re.compile(r"(?:soy|sono|ik ben|je suis|ich bin d(?:er|ie)|hier ist)\b", re.IGNORECASE)
_BEFORE_ADDRESS = re.compile(rf"(?<![\w'’-])(?P<name>{_NAME})[ \t]*[,\n\r][ \t]*$")

_PHRASES = {
    pattern: load_phrases(*names)
    for pattern, names in (
        (_TITLED, ["title"]),
        (_GREETING, ["greeting"]),
        (_CLOSING, ["closing"]),
        (_WEAK_CLOSING, ["weak_closing"]),
        (_INTRODUCTION, ["introduction"]),
        (_WEAK_INTRODUCTION, ["weak_introduction"]),
        (_RELATION, ["relation"]),
        (_LABELLED, ["name_label", "ask_for"]),
        (_HEADER, ["header"]),
        (_WRITER, ["writer"]),
        (_HERE, ["here"]),
        (_RING, ["ring"]),
    )
}


def find_names(text: str) -> list[Span]:
    """Find names that the words around them announce, and those of lists; overlapping ones become one."""
    return merge_spans([*_find_announced_names(text), *find_listed_names(text)])


def _find_announced_names(text: str) -> Iterator[Span]:
    """Find names after titles, greetings and introductions, in signatures and before addresses."""
    words = words_of(text)
    addresses = find_postal_addresses(text) if any(map(str.isdigit, text)) else ()
    for pattern, phrases in _PHRASES.items():
        if may_contain(words, phrases):
            for match in pattern.finditer(text):
                yield from _checked(pattern, match, addresses)
    last = _LAST.search(text, max(0, len(text) - 80))
    if last and (len(text) > 40 or _GREETING.match(text)) and not _FAREWELL.match(last["name"]):
        yield from _name(text, last.span("name"), is_team_likely=True)
    if "@" in text or may_contain(words, _CONTACT_PHRASES) or len(_DIGIT.findall(text)) >= _PHONE_DIGITS:
        for match in _BEFORE_CONTACT.finditer(text):
            yield from (span for span in _name(text, match.span("name")) if " " in text[slice(*span)])
    for match in _LINE.finditer(text, max(0, len(text) - _SIGNATURE)):
        yield from (span for span in _name(text, match.span("name")) if " " in text[slice(*span)])
    for start, _ in addresses:
        first = max(0, start - 60)
        before = _BEFORE_ADDRESS.search(text[first:start])
        if before and " " in before["name"]:
            yield from _name(text, (first + before.start("name"), first + before.end("name")))


def is_name(text: str) -> bool:
    """Return whether a text that a model takes for a name begins with a capital, and with no other frequent word."""
    first = text.split(maxsplit=1)[0]
    return first[0].isupper() and not _NO_NAME.fullmatch(first.rstrip(".,!"))


def _checked(pattern: re.Pattern[str], match: re.Match[str], addresses: Sequence[Span]) -> Iterator[Span]:
    """Yield the name of a match, if the words around it are those of a name."""
    text, start = match.string, match.start()
    if pattern is _TITLED:
        title = re.split(r"[\s.]", match["title"])[0]
        is_written_so = title[0].isupper() and (not title.isupper() or len(title) == 1 or match["name"].isupper())
        is_shortened = len(title) > 1 and text.startswith(".", match.end("title") - 1)
        if title.casefold() in _AMBIGUOUS_TITLES and not is_written_so and not is_shortened:
            return
        if _ROLE.fullmatch(match["name"]) or any(
            first <= start < end for first, end in addresses
        ):  # '8 Alger Dr. Setting out'
            return
    if pattern is _CLOSING and not _is_closing(text, start, match[0]):
        return
    if pattern is _WEAK_INTRODUCTION and match[0].isupper():
        return
    span = match.span("name") if match["name"] else match.span("plain")
    next_address = min((first for first, _ in addresses if first > span[0]), default=len(text))
    span = span[0], len(text[: min(span[1], next_address)].rstrip())
    for first, end in _name(text, span, is_team_likely=pattern in (_CLOSING, _WEAK_CLOSING)):
        if (
            pattern in (_LABELLED, _WEAK_INTRODUCTION)
            and _PLACE.fullmatch(text, first, end)
            and not _ASK_FOR.match(match[0])
        ):
            continue
        if pattern is _GREETING:
            is_name = _ends_clause(text, end) or bool(_LETTER.match(match[0]))
        elif pattern is _LABELLED:
            is_name = match["mark"] not in ("", ",") or " " in text[first:end] or bool(_ASK_FOR.match(match[0]))
        else:
            is_weak = pattern is _WEAK_INTRODUCTION or (pattern is _HERE and match["ends"] is not None)
            is_single = bool(_SINGLE.match(match[0])) and _ends_clause(text, end)
            is_first = pattern is _HERE and not text[: match.start("name")].strip()
            is_name = not is_weak or is_single or is_first or " " in text[first:end] or bool(_FROM.match(text, end))
        if is_name:
            yield first, end


def _is_closing(text: str, start: int, closing: str) -> bool:
    """Return whether words such as 'regards' end a letter: a comma or a line break follows, or they begin a clause."""
    before = text[max(0, start - 3) : start].rstrip(" \t")
    return bool(re.search(r"[,\n\r]", closing)) or not before or before[-1] in ".!?,;:\n\r"


def _name(text: str, span: Span, *, is_team_likely: bool = False) -> Iterator[Span]:
    """Yield a name up to a word that is not one, such as 'Team'; a single word before it may belong to a team."""
    start, end = span
    while (title := _LEADING_TITLE.match(text[:end], start)) is not None and title.end() > start:
        start = title.end()
    for match in re.finditer(r"\S+", text[start:end]):
        is_particle = match.start() > 0 and _CAPITAL_PARTICLE.match(text, start + match.start(), end)
        is_initial = len(match[0]) == 2 and match[0].endswith(".") and match.end() < end - start
        if match[0][0].isupper() and not is_particle and not is_initial and _NO_NAME.fullmatch(match[0].rstrip(".")):
            if match.start() == 0 or (is_team_likely and " " not in text[start : start + match.start()].rstrip()):
                return
            end = start + len(text[start : start + match.start()].rstrip())
            break
    words = re.sub(rf"(?:[ \t]{_PARTICLE})+$", "", text[start:end])
    if len(words) > 1:
        yield start, start + len(words)
