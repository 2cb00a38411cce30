"""Finder of postal addresses."""

import re
from collections.abc import Iterator
from functools import lru_cache

from turnwise.corpus.hygiene.personal_data.context import (
    CAPITALISED,
    UPPER,
    Span,
    is_near,
    load_pattern,
    load_phrases,
    load_words,
    may_contain,
    merge_spans,
    words_of,
    words_pattern,
)

_GAP = r"[ \t]*[,;–-]?[ \t]*[\r\n]{0,2}[ \t]*"
_HOUSE = (
    r"[1-9]\d{0,4}(?!\d)(?:[ \t]?[A-Za-z](?!\w))?"
    r"(?:[ \t]?[-/][ \t]?(?:\d{1,4}[a-zA-Z]?|[A-Za-z]|[IVX]{1,4}|bis|hs)(?!\w)){0,2}"
)
_ARTICLE = r"(?:La|Le|Los|Las|El|Den|De|Bad|Sankt|St\.?)[ \t]"
_TOWN = (
    rf"(?:{_ARTICLE})?{CAPITALISED}(?:[ \t]{CAPITALISED}){{0,2}}"
    rf"(?:[ \t](?:am|an der|bei|im|ob der|sur|upon|de|del|di|sul)[ \t]{CAPITALISED})?"
)
_AREA = rf"(?:{'|'.join(load_words('uk_area'))})"
_ZIP = r"(?:[A-Z]{1,2}-)?\d{4,5}(?:[ \t]?[A-Z]{2}(?!\w))?|\d{2}-\d{3}|\d{4}-\d{3}|\d{3}[ \t]\d{2}"
_UK = rf"{_AREA}\d[A-Z\d]?[ \t]?\d(?:[ABD-HJLNP-UW-Z]{{2}}|XX)(?!\w)"
_US = r"(?:[A-Z]{2}|[A-Z][a-z]{3,}(?:[ \t][A-Z][a-z]{3,})?)[ \t]\d{5}(?:-\d{4})?(?!\w)"
_AUSTRALIA = r"(?:NSW|QLD|VIC|SA|WA|TAS|ACT|NT)[ \t]\d{4}(?!\d)"
_IRELAND = (
    r"(?:Co\.?[ \t][A-Z][a-z]+[ ,]{0,2})?[AC-FHKNPRTV-Y]\d[\dW][ \t]?[\dAC-FHKNPRTV-Y]{4}(?!\w)|Co\.[ \t][A-Z][a-z]+"
)
_INDIA = r"[A-Z][a-z]+[ \t]*[–-]?[ \t]*\d{3}[ \t]?\d{3}(?!\d)"
_CANADA = r"[A-Z]{2}[ \t]?[A-Z]\d[A-Z][ \t]?\d[A-Z]\d(?!\w)"
_UNIT_WORDS = words_pattern("unit")
_UNIT = (
    rf"(?:{_UNIT_WORDS}\.?[ \t]?[#\dA-Z][\w-]{{0,4}}|#\d{{1,5}}"
    rf"|{words_pattern('unit_alone')}|\d{{1,3}}(?:st|nd|rd|th|er|e|ème)?\.?[ºª°]?[ \t]?"
    rf"(?:{_UNIT_WORDS}(?:[ \t](?:gauche|droite|links|rechts))?|[A-Z](?!\w)|izda|dcha|izq|der)\.?)"
)
_TAIL = (
    rf"(?:{_GAP}{_UNIT}){{0,4}}"
    rf"(?:{_GAP}(?:(?:in|à|en|a|te)[ \t])?"  # or only a town, after a comma
    rf"(?:(?:{_ZIP})[ \t]{_TOWN}(?:[ \t](?:\([A-Z][A-Za-z]+\)|(?<=Cedex[ ])\d{{1,2}}|/[ \t]?{CAPITALISED}))?"
    rf"|(?:{_TOWN}{_GAP}){{0,4}}?(?:{_UK}|{_US}|{_CANADA}|{_AUSTRALIA}|{_IRELAND}|{_INDIA}))"
    rf"|,[ \t](?P<town>{_TOWN})(?=[ \t]*(?:[.,;:!?)\n\r]|$|(?<=[ \t])[a-zà-ü])))?"
)


def _any_of(name: str) -> str:
    return rf"(?i:{'|'.join(map(re.escape, load_words(name)))})"


_STREET_WORD = rf"(?:{CAPITALISED}(?:['’]s)?|\d{{1,3}}(?:st|nd|rd|th)|(?:[NS][EW]|[NSEW])\.?)"
_BUILDING = (
    rf"(?:(?i:(?<!\w){_UNIT_WORDS})\.?[ \t]?\w{{1,4}},?[ \t](?:{CAPITALISED}[ \t]House,?[ \t])?)?"
    rf"(?:{CAPITALISED}(?:[ \t]{CAPITALISED}){{1,2}},[ \t])?(?:\d{{1,3}}/)?(?:Lot[ \t])?"
)
_ENGLISH_STREET = (  # 14 Larkspur Crescent
    rf"{_BUILDING}(?<![\w.,/-]){_HOUSE},?[ \t]+(?:{_STREET_WORD}[ \t]){{1,4}}{_any_of('street_end')}(?!\w)\.?"
    r"(?:[ \t](?:North|South|East|West|[NSEW]{1,2})(?!\w))?"
)
_GERMANIC_STREET = (  # Große Gasse 21, Lindenallee 47, Karl-Marx-Allee 91
    rf"(?<!\w)(?:(?:{words_pattern('street_preposition')}[ \t])?[{UPPER}][^\W\d_]*"
    rf"|[{UPPER}][^\W\d_]+(?:-[{UPPER}][^\W\d_]+){{0,3}}[ \t-]){_any_of('street_suffix')}[ \t]{_HOUSE}(?![\w%€$])"
)
_DUTCH = r"(?:van|de|der|den|het|ten|ter|'t)"
_DUTCH_STREET = (  # Laan van de Vrede 3, Burgemeester de Wittelaan 12
    rf"(?<!\w)(?:(?:Laan|Plein|Kade|Weg)(?:[ \t]{_DUTCH}){{1,2}}[ \t]{CAPITALISED}(?:[ \t]{CAPITALISED})?"
    rf"|{CAPITALISED}(?:[ \t]{_DUTCH}){{1,2}}[ \t][{UPPER}][^\W\d_]*{_any_of('street_suffix')})[ \t]{_HOUSE}(?![\w%€$])"
)
_NAMED_PLACE = (  # Résidence Les Pins, 13008 Marseille; The Old Barn, Church Lane, Ashby LE65 1AB
    rf"(?<!\w)(?:{words_pattern('named_place')}(?:[ \t](?:{CAPITALISED}|de|du|des|la|le|les|del|di)){{1,5}}"
    rf"(?:{_GAP}{_UNIT}){{0,2}}(?={_GAP}(?:{_ZIP})[ \t])"
    rf"|(?:{CAPITALISED}(?:[ \t]{CAPITALISED}){{0,2}},[ \t\r\n]{{1,2}}){{2,4}}"
    rf"(?=(?:{CAPITALISED}[ \t])?(?:{_UK}|{_IRELAND})))"
)
#: The same in lower case, with a postcode: 14 larkspur crescent, bristol bs6 5tr; lindenallee 5, 8001 zürich.
_LOWER_CASE = (
    rf"(?<![\w.,/-])(?i:(?:(?:flat|apt|unit)[ \t]\w{{1,4}},?[ \t])?\d{{1,4}}[a-z]?,?[ \t]"
    rf"(?:[a-z'’]+[ \t]){{1,3}}{_any_of('street_end')}(?:,?[ \t][a-z]+){{0,3}},?[ \t](?:{_UK})"
    rf"|[^\W\d_]{{2,}}[ \t-]?{_any_of('street_suffix')}[ \t]\d{{1,4}}[a-z]?,?[ \t]\d{{4,5}}[ \t][^\W\d_]{{3,}})"
)
_BEFORE_POSTCODE = (  # Oberer Graben 5, Am Mühlbach 3a
    rf"(?<!\w)(?:(?:{CAPITALISED}[ \t]){{0,2}}[{UPPER}][^\W\d_]*{_any_of('street_suffix_weak')}"
    r"(?:-(?:Noord|Zuid|Oost|West))?"
    rf"|{words_pattern('street_preposition')}(?:[ \t]{CAPITALISED}){{1,2}})[ \t]{_HOUSE}(?={_GAP}(?:{_ZIP})[ \t])"
)
_FRENCH_STREET = (  # 12 rue des Tilleuls; Résidence Les Pins, 12 rue des Tilleuls
    rf"(?:(?:{_UNIT},?[ \t]|{words_pattern('named_place')}(?:[ \t]{CAPITALISED}){{1,3}},[ \t]){{0,4}})"
    rf"(?<![\w.,/-])\d{{1,4}}(?:[ \t]?(?:bis|ter|quater|[A-D]))?,?[ \t]{words_pattern('street_start')}"
    rf"(?:[ \t](?:d['’]|l['’]|de|du|des|la|le|les|aux?|à)){{0,3}}(?:[ \t]?{CAPITALISED}){{1,4}}"
)
_ROMANCE_STREET = (  # Calle de los Olmos 18
    rf"(?<!\w){words_pattern('street_start')}\.?[ \t]"
    r"(?:(?:d['’]|l['’]|de|del|della|dei|delle|degli|du|des|les|le|la|las|los|el|do|da|dos)[ \t]?){0,3}"
    rf"(?:{CAPITALISED}(?:[ \t](?:de|del|la|y|e|di|da))?[ \t,]{{1,2}}){{1,4}}"
    rf"(?:(?:n[.º°]*[ \t]?|nº[ \t]?|núm\.[ \t]?)?{_HOUSE}|snc(?!\w))"
)
_NUMBERED_ROAD = (  # 334 County Road 1175, RR 2 Box 118
    rf"(?<![\w.,/-])(?:{_HOUSE}[ \t](?:(?:County|State|Farm)[ \t])?(?:Road|Route|Rd|Rte|Hwy|Highway)[ \t]\d{{1,4}}"
    r"|RR[ \t]\d{1,3},?[ \t]Box[ \t]\d{1,4})"
)
_BOX = (
    r"(?<!\w)(?i:p\.?[ \t]?o\.?[ \t]?box|postfach|postbus|apartado(?: de correos)?|casella postale|boîte postale|bp)"
    r"[ \t]\d[\d ]{1,7}(?<=\d)"
)
_STREETS = (
    _NUMBERED_ROAD,
    _ENGLISH_STREET,
    _DUTCH_STREET,
    _GERMANIC_STREET,
    _BEFORE_POSTCODE,
    _FRENCH_STREET,
    _ROMANCE_STREET,
    _BOX,
    _NAMED_PLACE,
)
_ADDRESS = re.compile(rf"(?:{'|'.join(_STREETS)}){_TAIL}|{_LOWER_CASE}")
#: What an address follows: 'my address is', 'domicilio:', 'wohnhaft in'.
_LABEL = re.compile(
    rf"{words_pattern('address_label')}(?:[ \t]*:\s{{0,3}}"
    rf"|[ \t](?:{words_pattern('address_copula')}[ \t:]{{1,2}}){{0,2}})"
)
_LABEL_PHRASES = load_phrases("address_label")
_ADDRESS_WORD = rf"(?:(?:[{UPPER}]\w{{0,2}}\.(?=[ \t]?\w)){{1,3}}\d?|(?:\d|#\d|nº|n°|[{UPPER}])[\w'’/#º°&-]*)"
_SMALL_WORD = r"(?:d['’]|de|del|du|des|la|las|los|le|les|di|van|der|den|am|an|im|y|of|the|km|a|t\.o\.)(?=[ \t])"
_ADDRESS_PART = re.compile(
    rf"(?:{_UNIT_WORDS}\.?[ \t])?\(?{_ADDRESS_WORD}"
    rf"(?:[ \t]{{0,2}}(?<=[ \t.])(?:\(?{_ADDRESS_WORD}\)?|{_SMALL_WORD})){{0,8}}"
)
_NEXT_PART = re.compile(r"[ \t]*(?:,[ \t]*\n?|\n|[ \t][/–-][ \t])[ \t]*")
_NUMBERED = re.compile(r"(?i:no)\.?[ \t]?\d")
_NO_PART = re.compile(r"[^\n,]{0,30}(?::|@)|(?:\D?\d){9}")
#: A line with nothing but a British or Irish postcode, after the lines of the address.
_POSTCODE_LINE = re.compile(rf"\n[ \t]*(?:{_UK}|[AC-FHKNPRTV-Y]\d[\dW][ \t]?[\dAC-FHKNPRTV-Y]{{4}})[ \t]*(?=[.\n]|$)")
_LINE_BEFORE = re.compile(rf"(?:^|\n)[ \t]*(?P<line>(?:[\d{UPPER}][^\n:@.!?]{{1,45}}),?)[ \t]*$")
_CLOSING = load_pattern("closing")
_POSTCODE = re.compile(rf"(?<![\w-])(?:{_UK})")
_POSTCODE_WORDS = load_pattern("postcode")
_NO_STREET, _NO_TOWN = load_pattern("no_street"), load_pattern("no_name")


@lru_cache(maxsize=1)  # names need them as well
def find_postal_addresses(text: str) -> tuple[Span, ...]:
    """Find postal addresses: a street and a number, with the town, and British postcodes."""
    spans = []
    for match in _ADDRESS.finditer(text):
        if not _NO_STREET.search(match[0]):
            town = re.sub(f"^{_ARTICLE}", "", match["town"] or "")
            is_town = not _NO_TOWN.match(town)  # but '14 Mill Lane, Thanks'
            spans.append((match.start(), match.end() if is_town else match.start("town") - 2))
    for match in _POSTCODE.finditer(text):
        if match[0][-4].isspace() or is_near(_POSTCODE_WORDS, text, *match.span()):
            spans.append(match.span())
    spans += _find_labelled(text)
    spans += _find_before_postcode(text)
    return tuple(merge_spans(spans))


def _find_labelled(text: str) -> Iterator[Span]:
    """Find what follows 'my address is': parts with capitals or numbers, at least two, with a digit in one of them."""
    if not may_contain(words_of(text), _LABEL_PHRASES):
        return
    for label in _LABEL.finditer(text):
        start = end = position = label.end()
        for count in range(8):
            part = _ADDRESS_PART.match(text, position)
            if part is None or _CLOSING.match(part[0]) or _NO_PART.match(text, position):
                break
            if _NO_TOWN.match(part[0]) and not _NUMBERED.match(part[0]):
                break
            end = part.end()
            separator = _NEXT_PART.match(text, end)
            if separator is None:
                count += 1
                break
            position = separator.end()
        if count > 1 and any(map(str.isdigit, text[start:end])):
            yield start, end


def _find_before_postcode(text: str) -> Iterator[Span]:
    """Find up to four lines of an address before a line with its postcode."""
    for postcode in _POSTCODE_LINE.finditer(text):
        start = postcode.start()
        for _ in range(4):
            before = _LINE_BEFORE.search(text, max(0, start - 60), start)
            if before is None or _NO_TOWN.match(before["line"]) or _CLOSING.match(before["line"]):
                break
            start = before.start("line")
            if text[start - 1 : start] != "\n":
                break
            start -= 1
        yield start + (text[start] == "\n"), postcode.end()
