"""Finder of names in running text, by Faker's lists of first names and surnames."""

import importlib
import pkgutil
import re
import unicodedata
from collections.abc import Iterable, Iterator, Set
from functools import cache
from typing import NamedTuple

from turnwise.corpus.hygiene.personal_data.context import (
    CAPITALISED,
    UPPER,
    Span,
    compile_words,
    load_data,
    load_pattern,
    load_phrases,
    load_words,
    may_contain,
    words_of,
    words_pattern,
)

#: Locales that add little but rare names that are words elsewhere.
_LEFT_OUT = frozenset(
    (
        *("is_IS", "he_IL", "ne_NP", "ta_IN", "ja_JP", "zh_CN", "th_TH"),
        *("en_TH", "vi_VN", "lv_LV", "zu_ZA", "ig_NG", "tw_GH"),
    )
)
_FIRST_NAMES = re.compile(r"first(?:_romanized)?_names.*")
_SURNAMES = re.compile(r".*last(?:_romanized)?_names.*")
_LATIN = re.compile(r"[A-Za-zÀ-ɏḀ-ỿ'-]{3,}")


class NameLists(NamedTuple):
    """Names in lower case, also without accents."""

    first: frozenset[str]  # that are hardly ever something else
    first_and_word: frozenset[str]
    ambiguous: frozenset[str]  # that are mostly something else
    last: frozenset[str]
    sure_last: frozenset[str]  # that are hardly ever something else
    all_first: frozenset[str]


def _words(name: str) -> frozenset[str]:
    return frozenset(load_data("name_words.yaml")[name].split())


@cache
def name_lists() -> NameLists:
    """Return the names of Faker's locales in Latin script."""
    import faker.providers.person

    first: set[str] = set()
    last: set[str] = set()
    for locale in {module.name for module in pkgutil.iter_modules(faker.providers.person.__path__)} - _LEFT_OUT:
        provider = importlib.import_module(f"faker.providers.person.{locale}").Provider
        for attribute in dir(provider):
            names = first if _FIRST_NAMES.fullmatch(attribute) else last if _SURNAMES.fullmatch(attribute) else None
            if names is not None and isinstance(entries := getattr(provider, attribute), Iterable):
                names.update(each for entry in entries for each in _parts(entry))
    also_words, ambiguous = _words("name_and_word"), _words("no_first_name")
    return NameLists(
        frozenset(first - also_words - ambiguous),
        also_words,
        ambiguous,
        frozenset(last),
        frozenset(last - also_words - ambiguous - _words("no_surname")),
        frozenset(first | also_words | ambiguous),
    )


def _parts(entry: object) -> Iterator[str]:
    """Yield a name with and without accents; of 'de la Fuente', the last word."""
    words = entry.split() if isinstance(entry, str) else []
    if words and _LATIN.fullmatch(words[-1]):
        name = words[-1].casefold()
        yield name
        yield _plain(name)


_CAPITAL = re.compile(rf"(?<!\w)[{UPPER}][^\W\d_]+")
_TOKEN = re.compile(rf"(?<![\w.@/#-])(?<!\w['’]){CAPITALISED}(?![\w@])(?!['’](?:t|ll|re|ve|d)(?!\w))")
LINKS = frozenset({"und", "and", "et", "y", "e", "&", "en"})  # between two names
_PARTICLES = "|".join(re.escape(each) for each in load_words("name_particle") if each not in LINKS and len(each) > 1)
_NEXT = re.compile(
    rf"[ \t](?:[\"“(][{UPPER}][^\W\d_]+[\"”)][ \t])?(?:[{UPPER}]\.?[ \t]?){{0,2}}(?:(?i:{_PARTICLES})[ \t]){{0,3}}"
    rf"(?P<word>{CAPITALISED})(?![\w@])"
)
_WORD_AFTER = re.compile(r"['’]?[ \t]([^\W\d_]+(?:&b)?)")
_NUMBER_AFTER = re.compile(r"[ \t]\d{1,2}(?![\d/ -])")  # 'Jan 17, 2038', 'John 3:16'
_WORD_BEFORE = re.compile(r"([^\W\d_]+)(?:\.?[ \t]|['’])$")
_SURNAME_BEFORE = re.compile(rf"(?<![\w'’-])(?:(?i:{_PARTICLES})[ \t])?({CAPITALISED}),?[ \t]$")
#: A product right before its name: 'das Sofa Anna', 'le vélo « Anna »'; and a name that is in quotation marks.
_THING = re.compile(r"(?<!\w)(?P<article>[^\W\d_]{2,5})[ \t](?P<noun>[^\W\d_]{3,})[ \t][\"“„«]?[ \t]?$")
_PERSON = compile_words({*load_words("relation"), *load_words("possessive"), *load_words("title")})
_QUOTED = re.compile(r"(?<=[\"“„«])[ \t]?$"), re.compile(r"[ \t]?[\"”“»]")
_INITIAL = re.compile(rf"(?<![\w.'’-])(?:(?:[{UPPER}]\.[ \t]?){{1,2}}|[B-HJ-Z][ \t])(?P<word>{CAPITALISED})(?![\w@])")
_NO_NAME = load_pattern("no_name")
_NOT_BEFORE, _NOT_AFTER, _ARTICLES = (_words(name) for name in ("not_before_name", "not_after_name", "article"))
_BRANDS, _GERMAN, _THING_ARTICLES = _words("brand"), _words("german"), _words("thing_article")
#: Before names in lower case: 'hey its mike from flat 9', 'thanks, dana'.
_LOWER_CASE = re.compile(
    rf"(?:{words_pattern('introduction')}|{words_pattern('weak_introduction')}|{words_pattern('chat_introduction')}"
    rf"|{words_pattern('ask_for')})[ \t]+(?P<name>[^\W\d_]{{3,}}(?:[ \t][^\W\d_]{{3,}})?)(?![\w@'’-])"
)
_LOWER_CASE_ENDS = re.compile(
    rf"(?:{words_pattern('greeting')}[ \t]+"
    rf"|(?:{words_pattern('closing')}|{words_pattern('weak_closing')})[ \t]?[,.!]?\s{{1,2}})"
    r"(?P<name>[^\W\d_]{3,})(?=[ \t]*(?:[,.!?\n]|$))"
)
_LOWER_CASE_PHRASES = load_phrases(
    *("introduction", "weak_introduction", "chat_introduction", "ask_for", "greeting", "closing", "weak_closing")
)
_AFTER_LOWER_CASE = re.compile(
    r"[ \t]*(?:[.,!?;\n]|$"
    r"|(?:from|here|again|speaking|and|aus|vom|von|und|de|del|du|van|uit|di|da|et|y|e)\b)"
)


def find_listed_names(text: str) -> Iterator[Span]:
    """Find first names of the lists, with the surnames that follow; those that are also words by what is around."""
    lists = name_lists()
    words = words_of(text)
    if not text.isascii() or any(word.casefold() in lists.all_first for word in _CAPITAL.findall(text)):
        yield from _find_capitalised(text, words, lists)
    for match in _INITIAL.finditer(text):
        if match["word"].casefold() in lists.sure_last:
            yield match.span()
    if not words.isdisjoint(lists.first) and may_contain(words, _LOWER_CASE_PHRASES):
        yield from _find_lower_case(text, lists)


def _find_capitalised(text: str, words: Set[str], lists: NameLists) -> Iterator[Span]:
    is_german = len(words & _GERMAN) > 1
    reached = 0
    for token in _TOKEN.finditer(text):
        if token.start() < reached:
            continue
        start = token.start() + (2 if token[0][1:2] in ("'", "’") and token[0][0] in "dlDL" else 0)
        name = text[start : token.end()]
        key = name.casefold().replace("’", "'")
        rank = _rank(key, lists)
        if rank is None or key in _NOT_BEFORE:
            continue
        end, has_surname = _extend(text, token.end(), lists)
        if name.isupper() or rank is lists.ambiguous:
            is_name = has_surname and (not name.isupper() or text[token.end() : end].isupper())
        elif rank is lists.first_and_word:
            is_name = has_surname or (not is_german and end == token.end() and _is_within_sentence(text, start))
        else:
            is_name = True
        if is_name and not _is_place(text, start, end, has_surname) and not _is_thing(text, start, end):
            before = _SURNAME_BEFORE.search(text, max(0, start - 40), start)
            if before and rank is lists.first and before[1].casefold() in lists.sure_last:
                start = before.start()
            reached = end
            yield start, end


def _rank(key: str, lists: NameLists) -> frozenset[str] | None:
    """Return the list that a word is on; names with a hyphen consist of names."""
    for names in (lists.first_and_word, lists.ambiguous, lists.first):
        if key in names or (names is lists.first and _plain(key) in names):
            return names
    first, *others = key.split("-")
    known = lists.first | lists.first_and_word | lists.last if others and first in lists.first else frozenset()
    return lists.first if others and all(_plain(other) in known for other in others) and known else None


def _plain(word: str) -> str:
    return "".join(char for char in unicodedata.normalize("NFD", word) if not unicodedata.combining(char))


def _extend(text: str, end: int, lists: NameLists) -> tuple[int, bool]:
    """Return the end of a name with the surnames after it, at most one of them unknown, and whether one is sure."""
    has_surname = has_unknown = False
    for _ in range(4):
        match = _NEXT.match(text, end)
        if match is None:
            break
        key = match["word"].casefold().replace("’", "'")
        if _NO_NAME.fullmatch(match["word"]) or key in _NOT_AFTER:
            break
        if key not in lists.first and key not in lists.last:
            if has_unknown or key in lists.ambiguous:
                break
            has_unknown = True
        has_surname = has_surname or key in lists.sure_last
        end = match.end()
    return end, has_surname


def _is_within_sentence(text: str, start: int) -> bool:
    """Return whether a word in lower case that is no article is right before."""
    before = _WORD_BEFORE.search(text, max(0, start - 20), start)
    return before is not None and text[start - 2] != "." and before[1].islower() and before[1] not in _ARTICLES


def _is_place(text: str, start: int, end: int, has_surname: bool) -> bool:
    before = _WORD_BEFORE.search(text, max(0, start - 20), start)
    after = _WORD_AFTER.match(text, end)
    is_company = re.search(rf"{CAPITALISED} & $", text[max(0, start - 30) : start]) and not has_surname
    is_brand = text[end - len(text[start:end].split()[-1]) : end + 2].casefold().replace("’", "'") in _BRANDS
    return (
        is_brand
        or bool(is_company)
        or _NUMBER_AFTER.match(text, end) is not None
        or (after is not None and after[1].casefold() in _NOT_AFTER)
        or (before is not None and before[1].casefold() in _NOT_BEFORE and not has_surname)
    )


def _is_thing(text: str, start: int, end: int) -> bool:
    """Return whether a single name is that of a product: in quotation marks, or after an article and a noun."""
    if " " in text[start:end]:
        return False
    thing = _THING.search(text, max(0, start - 40), start)
    is_quoted = _QUOTED[0].search(text, max(0, start - 2), start) and _QUOTED[1].match(text, end)
    if thing is None or thing["article"].casefold() not in _THING_ARTICLES:
        return bool(is_quoted)
    return bool(is_quoted) or not _PERSON.fullmatch(thing["noun"])


def _find_lower_case(text: str, lists: NameLists) -> Iterator[Span]:
    """Find first names in lower case right after an introduction, a greeting or a farewell."""
    for match in _LOWER_CASE.finditer(text):
        first, _, last = match["name"].partition(" ")
        start = match.start("name")
        if first.islower() and first in lists.first:
            end = match.end() if last in lists.sure_last else start + len(first)
            if _AFTER_LOWER_CASE.match(text, end):
                yield start, end
    for match in _LOWER_CASE_ENDS.finditer(text):
        if match["name"].islower() and match["name"] in lists.first:
            yield match.span("name")
