"""Finder of passwords and PINs, by the words before them."""

import re
from collections.abc import Iterator

from turnwise.corpus.hygiene.personal_data.context import (
    WORD,
    Span,
    compile_words,
    first_words,
    load_pattern,
    load_words,
    words_pattern,
)

_PASSWORD_WORDS = words_pattern("password")
_PASSWORD_COPULA = rf"(?i:{compile_words(word for word in load_words('password_copula') if word != '=').pattern})"
_PASSWORD = re.compile(
    rf"{_PASSWORD_WORDS}[ \t]*(?:(?:\([^)\n]{{0,20}}\)[ \t]*)?([:=]|{_PASSWORD_COPULA})[ \t:=]*)?"
    r"(?:[\"“„«'‘](?P<quoted>[^\"”“»'’\n]{3,40})[\"”“»'’]|(?P<plain>[^\s\"“„«]{3,64}))"
)
_NO_SECRET = re.compile(r"https?:|www\.|\[|\d{1,2}[.:/]\d")
_NO_PASSWORD = load_pattern("no_password")
_CREDENTIALS = re.compile(
    rf"{words_pattern('credentials')}:?\s{{1,3}}[^\s/|,]{{3,80}}[ \t]*[/|,][ \t]*(?P<plain>[^\s:]{{4,64}})(?=[\s.,]|$)"
)


_PASSWORD_FIRST_WORDS = first_words("password", "credentials")


def find_passwords(text: str) -> Iterator[Span]:
    """Find passwords and PINs next to a word for them."""
    if _PASSWORD_FIRST_WORDS.isdisjoint(WORD.findall(text.casefold())):
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
