"""Finders of names, passwords and postal addresses, by the words around them."""

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache

from turnwise.corpus.hygiene.personal_data.context import Span, compile_words, is_near, load_pattern, load_words

# ---- words with a capital

_UPPER = "".join(chr(code) for code in range(0x530) if chr(code).isupper())
_CAPITALISED = rf"(?:[dlDLO]['’])?[{_UPPER}][^\W\d_]*(?:['’][^\W\d_]{{2,}})?(?:-[^\W\d_]+){{0,2}}"
_LINKS = ("und", "and", "et", "y", "e")  # 'Anna and Tom'
_PARTICLE = rf"(?:{'|'.join(map(re.escape, load_words('name_particle')))})"
_INITIAL = rf"[{_UPPER}]\.(?=[ \t]?(?:[{_UPPER}]|{_PARTICLE}[ \t]))"
_LEADING = rf"(?:{'|'.join(re.escape(each) for each in load_words('name_particle') if each not in _LINKS)})"
_PART = rf"(?:{_INITIAL}|{_CAPITALISED})"

#: Up to four words with a capital, and particles such as 'van der' before or between them.
_NAME = rf"(?:{_LEADING}[ \t]){{0,2}}{_PART}(?:[ \t](?:{_PARTICLE}[ \t]){{0,2}}{_PART}){{0,3}}"
_TITLES = rf"(?:{load_pattern('title').pattern})\.?"
_WORD = re.compile(r"[^\W_]+")
_NO_NAME = load_pattern("no_name")


def _first_words(*names: str) -> frozenset[str]:
    """Return the first words of lists: only a text with one of them can match their pattern."""
    return frozenset(_WORD.findall(word.casefold())[0] for name in names for word in load_words(name))


def _words(name: str) -> str:
    return rf"(?i:{load_pattern(name).pattern})"


def _ends_clause(text: str, end: int) -> bool:
    return re.match(r"[ \t]*(?:[,.!?:;\n\r)(/–-]|$)", text[end : end + 3]) is not None


# ---- names

_CLAUSE_START = r"(?:^|(?<=[.!?,:;\n\r>)*\"–-]))[ \t]*"
_SEPARATOR = r"[ \t]*[,:;.!–-]{0,3}[\s]{1,4}"
_TITLED = re.compile(
    rf"(?<![\w.])(?P<title>(?i:{_TITLES}))(?:[ \t]+(?i:{_TITLES})){{0,2}}[ \t]+"
    rf"(?:(?i:and|und|et|y|e|en)[ \t]+(?i:{_TITLES})[ \t]+)?(?P<name>{_NAME})"
)
_AMBIGUOUS_TITLES = frozenset({"m", "mm", "pan", "don", "sr", "dr", "mw", "ing", "fru", "frau", "miss", "heer", "ms"})
_GREETING = re.compile(rf"{_words('greeting')}[ \t]*,?[ \t]+(?P<name>{_NAME})")
_LETTER = re.compile(_words("letter_greeting"))
_CLOSING = re.compile(
    rf"{_words('closing')}(?:[ \t](?i:aus|from|de|uit)[ \t]{_CAPITALISED})?{_SEPARATOR}"
    rf"(?:i\. ?[AV]\.[ \t])?(?P<name>{_NAME})"
)
_WEAK_CLOSING = re.compile(
    rf"{_CLAUSE_START}{_words('weak_closing')}[ \t]*[,!–-]{{0,2}}\s{{1,4}}"
    rf"(?P<name>{_NAME})(?=[ \t]*[.!]?[ \t]*(?:$|[\n\r]))"
)
_INTRODUCTION = re.compile(
    rf"{_words('introduction')}[ \t]+(?:(?P<name>{_NAME})"
    rf"|(?P<plain>(?!{_PARTICLE} )[^\W\d_]{{2,}}(?:[ \t](?!and\b|und\b)[^\W\d_]{{3,}})?)(?=[ \t]*(?:[.,!?\n]|$)))"
)
_WEAK_INTRODUCTION = re.compile(rf"{_words('weak_introduction')}[ \t]+(?P<name>{_NAME})")
_RELATION = re.compile(
    rf"{_words('possessive')}[ \t]{_words('relation')}"
    rf"(?:[ \t]?,[ \t]?|[ \t]?\(|[ \t]?:[ \t]?|[ \t])(?P<name>{_NAME})"
)
_LABELLED = re.compile(
    rf"(?:{_words('ask_for')}|{_words('name_label')})[ \t]{{0,3}}(?P<mark>[:,]?)\s{{1,3}}(?P<name>{_NAME})"
)
_ASK_FOR = re.compile(_words("ask_for"))
_HERE = re.compile(rf"{_CLAUSE_START}(?P<name>{_NAME})[ \t](?=(?:here (?:again|from)|speaking)\b)")
_LAST = re.compile(rf"(?:[.!?][ \t]+|[\n\r]+[ \t]*)(?P<name>{_NAME})[ \t]*[.!]?\s*$")
_BEFORE_ADDRESS = re.compile(rf"(?<![\w'’-])(?P<name>{_NAME})[ \t]*[,\n\r][ \t]*$")

_FIRST_WORDS = {
    pattern: _first_words(*names)
    for pattern, names in (
        (_TITLED, ["title"]),
        (_GREETING, ["greeting"]),
        (_CLOSING, ["closing"]),
        (_WEAK_CLOSING, ["weak_closing"]),
        (_INTRODUCTION, ["introduction"]),
        (_WEAK_INTRODUCTION, ["weak_introduction"]),
        (_RELATION, ["relation"]),
        (_LABELLED, ["name_label", "ask_for"]),
        (_HERE, ["here"]),
    )
}


def find_names(text: str) -> Iterator[Span]:
    """Find names after titles, greetings and introductions, in signatures and before addresses."""
    words = set(_WORD.findall(text.casefold()))
    addresses = _postal_addresses(text) if any(map(str.isdigit, text)) else ()
    for pattern, first_words in _FIRST_WORDS.items():
        if not words.isdisjoint(first_words):
            for match in pattern.finditer(text):
                yield from _checked(pattern, match, addresses)
    if (last := _LAST.search(text, max(0, len(text) - 80))) and (
        (len(text) > 40 and " " in last["name"]) or _GREETING.match(text)
    ):
        yield from _name(text, last.span("name"), is_team_likely=True)
    for start, _ in addresses:
        first = max(0, start - 60)
        before = _BEFORE_ADDRESS.search(text[first:start])
        if before and " " in before["name"]:
            yield from _name(text, (first + before.start("name"), first + before.end("name")))


def _checked(pattern: re.Pattern[str], match: re.Match[str], addresses: Sequence[Span]) -> Iterator[Span]:
    """Yield the name of a match, if the words around it are those of a name."""
    text, start = match.string, match.start()
    if pattern is _TITLED:
        title = re.split(r"[\s.]", match["title"])[0]
        is_written_so = title[0].isupper() and (not title.isupper() or len(title) == 1 or match["name"].isupper())
        if title.casefold() in _AMBIGUOUS_TITLES and not is_written_so:
            return
        if any(first <= start < end for first, end in addresses):  # '8 Alger Dr. Setting out'
            return
    if pattern is _CLOSING and not _is_closing(text, start, match[0]):
        return
    if pattern is _WEAK_INTRODUCTION and match[0].isupper():
        return
    span = match.span("name") if match["name"] else match.span("plain")
    next_address = min((first for first, _ in addresses if first > span[0]), default=len(text))
    span = span[0], len(text[: min(span[1], next_address)].rstrip())
    for first, end in _name(text, span, is_team_likely=pattern in (_CLOSING, _WEAK_CLOSING)):
        if pattern is _GREETING:
            is_name = _ends_clause(text, end) or bool(_LETTER.match(match[0]))
        elif pattern is _LABELLED:
            is_name = match["mark"] == ":" or " " in text[first:end] or bool(_ASK_FOR.match(match[0]))
        else:
            is_name = pattern is not _WEAK_INTRODUCTION or " " in text[first:end]
        if is_name:
            yield first, end


def _is_closing(text: str, start: int, closing: str) -> bool:
    """Return whether words such as 'regards' end a letter: a comma or a line break follows, or they begin a clause."""
    before = text[max(0, start - 3) : start].rstrip(" \t")
    return bool(re.search(r"[,\n\r]", closing)) or not before or before[-1] in ".!?,;:\n\r"


def _name(text: str, span: Span, *, is_team_likely: bool = False) -> Iterator[Span]:
    """Yield a name up to a word that is not one, such as 'Team'; a single word before it may belong to a team."""
    start, end = span
    for match in re.finditer(r"\S+", text[start:end]):
        if match[0][0].isupper() and _NO_NAME.fullmatch(match[0].rstrip(".")):
            if match.start() == 0 or (is_team_likely and " " not in text[start : start + match.start()].rstrip()):
                return
            end = start + len(text[start : start + match.start()].rstrip())
            break
    words = re.sub(rf"(?:[ \t]{_PARTICLE})+$", "", text[start:end])
    if len(words) > 1:
        yield start, start + len(words)


# ---- passwords

_PASSWORD_WORDS = _words("password")
_PASSWORD_COPULA = rf"(?i:{compile_words(word for word in load_words('password_copula') if word != '=').pattern})"
_PASSWORD = re.compile(
    rf"{_PASSWORD_WORDS}[ \t]*(?:(?:\([^)\n]{{0,20}}\)[ \t]*)?([:=]|{_PASSWORD_COPULA})[ \t:=]*)?"
    r"(?:[\"“„«'‘](?P<quoted>[^\"”“»'’\n]{3,40})[\"”“»'’]|(?P<plain>[^\s\"“„«]{3,64}))"
)
_NO_SECRET = re.compile(r"https?:|www\.|\[|\d{1,2}[.:/]\d")
_NO_PASSWORD = load_pattern("no_password")
_CREDENTIALS = re.compile(
    rf"{_words('credentials')}:?\s{{1,3}}[^\s/|,]{{3,80}}[ \t]*[/|,][ \t]*(?P<plain>[^\s:]{{4,64}})(?=[\s.,]|$)"
)


_PASSWORD_FIRST_WORDS = _first_words("password", "credentials")


def find_passwords(text: str) -> Iterator[Span]:
    """Find passwords and PINs next to a word for them."""
    if _PASSWORD_FIRST_WORDS.isdisjoint(_WORD.findall(text.casefold())):
        return
    position = 0
    while match := _PASSWORD.search(text, position):
        position = match.start("plain") if match["plain"] else match.end()
        if match["quoted"]:
            yield match.span("quoted")
            continue
        value = match["plain"].rstrip(".,;:!?)")
        is_secret = re.search(r"\d|[^\W_][!$%&*+=#@~^_]|[a-z][A-Z]" if match[1] else r"^[^\W_][^,;?]*\d|^\d", value)
        start = match.start("plain")
        # a word such as 'marmalade' at the end of a clause
        after = text[start + len(value) : start + len(value) + 12]
        is_word = match[1] and len(value) > 3 and re.match(r"\s*(?:[.,;!?)\n]|$|(?:and|und|et|y|e|en)\b)", after)
        is_separate = match[1] or (len(value) > 3 and text[start - 1].isspace())
        is_plausible = is_secret or (is_word and not _NO_PASSWORD.match(value))
        if len(value) > 2 and is_separate and is_plausible and not _NO_SECRET.match(value):
            yield start, start + len(value)
    for match in _CREDENTIALS.finditer(text):
        value = match["plain"].rstrip(".,")
        if re.search(r"\d|\W|_", value):
            yield match.start("plain"), match.start("plain") + len(value)


# ---- numbers of any kind

_NUMBER = re.compile(r"(?<![\w@.,/])\+?\(?\d(?:[ \t()./-]{0,3}\d){6,40}(?!\w|[.,]\d)")
_DATE = re.compile(r"\d{1,2}[./-]\d{1,2}[./-](?:19|20)\d\d|(?:19|20)\d\d[./-]\d{1,2}[./-]\d{1,2}(?: \d{1,2})?")


def find_numbers(text: str) -> Iterator[Span]:
    """Find groups of 7 or more digits that are not dates."""
    return (match.span() for match in _NUMBER.finditer(text) if not _DATE.fullmatch(match[0]))


# ---- postal addresses

_GAP = r"[ \t]*[,;]?[ \t]*[\r\n]{0,2}[ \t]*"
_HOUSE = r"\d{1,5}(?:[ \t]?[A-Za-z](?!\w))?(?:[ \t]?[-/][ \t]?\d{1,4}[a-zA-Z]?(?!\w))?"
_TOWN = rf"(?:(?:La|Le|Los|Las|El|Den|De|Bad|Sankt|St\.?)[ \t])?{_CAPITALISED}(?:[ \t]{_CAPITALISED}){{0,2}}"
_AREA = rf"(?:{'|'.join(load_words('uk_area'))})"
_ZIP = r"(?:[A-Z]{1,2}-)?\d{4,5}(?:[ \t]?[A-Z]{2}(?!\w))?|\d{2}-\d{3}|\d{4}-\d{3}|\d{3}[ \t]\d{2}"
_UK = rf"{_AREA}\d[A-Z\d]?[ \t]?\d(?:[ABD-HJLNP-UW-Z]{{2}}|XX)(?!\w)"
_US = r"[A-Z]{2}[ \t]\d{5}(?:-\d{4})?(?!\w)"
_CANADA = r"[A-Z]{2}[ \t]?[A-Z]\d[A-Z][ \t]?\d[A-Z]\d(?!\w)"
_UNIT_WORDS = _words("unit")
_UNIT = (
    rf"(?:{_UNIT_WORDS}\.?[ \t]?[#\dA-Z][\w-]{{0,4}}|#\d{{1,5}}"
    rf"|\d{{1,3}}[ºª°.]?[ \t]?(?:{_UNIT_WORDS}|[A-Z](?!\w)|izda|dcha|izq|der)\.?)"
)
_TAIL = (
    rf"(?:{_GAP}{_UNIT}){{0,3}}"
    rf"(?:{_GAP}(?:(?:in|à|en|a|te)[ \t])?"
    rf"(?:(?:{_ZIP})[ \t]{_TOWN}|(?:{_TOWN}{_GAP}){{0,2}}(?:{_UK}|{_US}|{_CANADA})))?"
)


def _any_of(name: str) -> str:
    return rf"(?i:{'|'.join(map(re.escape, load_words(name)))})"


_STREET_WORD = rf"(?:{_CAPITALISED}|\d{{1,3}}(?:st|nd|rd|th)|[NSEW]\.?)"
_BUILDING = (
    rf"(?:{_UNIT_WORDS}\.?[ \t]?\w{{1,4}},?[ \t](?:{_CAPITALISED}[ \t]House,?[ \t])?)?"
    rf"(?:{_CAPITALISED}(?:[ \t]{_CAPITALISED}){{1,2}},[ \t])?"
)
_ENGLISH_STREET = (  # 14 Larkspur Crescent
    rf"{_BUILDING}(?<![\w.,/-]){_HOUSE},?[ \t]+(?:{_STREET_WORD}[ \t]){{1,4}}{_any_of('street_end')}(?!\w)\.?"
    r"(?:[ \t](?:North|South|East|West|[NSEW]{1,2})(?!\w))?"
)
_GERMANIC_STREET = (  # Große Gasse 21, Lindenallee 47, Karl-Marx-Allee 91
    rf"(?<!\w)(?:(?:{_words('street_preposition')}[ \t])?[{_UPPER}][^\W\d_]*"
    rf"|[{_UPPER}][^\W\d_]+(?:-[{_UPPER}][^\W\d_]+){{0,3}}[ \t-]){_any_of('street_suffix')}[ \t]{_HOUSE}(?![\w%€$])"
)
_BEFORE_POSTCODE = (  # Oberer Graben 5, Am Mühlbach 3a
    rf"(?<!\w)(?:[{_UPPER}][^\W\d_]*{_any_of('street_suffix_weak')}"
    rf"|{_words('street_preposition')}(?:[ \t]{_CAPITALISED}){{1,2}})[ \t]{_HOUSE}(?={_GAP}(?:{_ZIP})[ \t])"
)
_FRENCH_STREET = (  # 12 rue des Tilleuls
    rf"(?<![\w.,/-])\d{{1,4}}(?:[ \t]?(?:bis|ter|quater|[A-D]))?,?[ \t]{_words('street_start')}"
    rf"(?:[ \t](?:d['’]|l['’]|de|du|des|la|le|les|aux?|à)){{0,3}}(?:[ \t]?{_CAPITALISED}){{1,4}}"
)
_ROMANCE_STREET = (  # Calle de los Olmos 18
    rf"(?<!\w){_words('street_start')}\.?[ \t]"
    r"(?:(?:d['’]|de|del|della|dei|delle|degli|la|las|los|el|do|da|dos)[ \t]?){0,3}"
    rf"(?:{_CAPITALISED}(?:[ \t](?:de|del|la|y|e|di|da))?[ \t,]{{1,2}}){{1,4}}"
    rf"(?:n[.º°]*[ \t]?|nº[ \t]?|núm\.[ \t]?)?{_HOUSE}"
)
_BOX = (
    r"(?<!\w)(?i:p\.?[ \t]?o\.?[ \t]?box|postfach|postbus|apartado(?: de correos)?|casella postale|boîte postale|bp)"
    r"[ \t]\d[\d ]{1,7}(?<=\d)"
)
_STREETS = (_ENGLISH_STREET, _GERMANIC_STREET, _BEFORE_POSTCODE, _FRENCH_STREET, _ROMANCE_STREET, _BOX)
_ADDRESS = re.compile(rf"(?:{'|'.join(_STREETS)}){_TAIL}")
_POSTCODE = re.compile(rf"(?<![\w-])(?:{_UK})")
_POSTCODE_WORDS = load_pattern("postcode")
_NO_STREET = load_pattern("no_street")


def find_postal_addresses(text: str) -> Iterator[Span]:
    """Find postal addresses: a street and a number, with the town, and British postcodes."""
    yield from _postal_addresses(text)


@lru_cache(maxsize=1)  # names need them as well
def _postal_addresses(text: str) -> tuple[Span, ...]:
    spans = [match.span() for match in _ADDRESS.finditer(text) if not _NO_STREET.search(match[0])]
    for match in _POSTCODE.finditer(text):
        if match[0][-4].isspace() or is_near(_POSTCODE_WORDS, text, *match.span()):
            spans.append(match.span())
    return tuple(spans)
