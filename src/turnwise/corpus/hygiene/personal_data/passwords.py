"""Finder of passwords and PINs, by the words before them."""

import re
from collections.abc import Iterator

from turnwise.corpus.hygiene.personal_data.context import (
    CAPITALISED,
    OTHER_NUMBER_WORDS,
    Span,
    compile_words,
    load_pattern,
    load_phrases,
    load_words,
    may_contain,
    words_of,
    words_pattern,
)

_PASSWORD_WORDS = words_pattern("password")
_PASSWORD_COPULA = rf"(?i:{compile_words(word for word in load_words('password_copula') if word != '=').pattern})"
_PASSWORD = re.compile(
    rf"{_PASSWORD_WORDS}[ \t]*(?:(?:\([^)\n]{{0,20}}\)[ \t]*)?([:=]|{_PASSWORD_COPULA})[ \t:=]*)?"
    r"(?:[\"“„«'‘](?P<quoted>[^\"”“»'’\n]{3,40})[\"”“»'’]|(?P<plain>[^\s\"“„«]{3,64}))"
)
_NO_SECRET = re.compile(r"https?:|www\.|\[|\d{1,2}[.:/]\d|\d{1,2}[-–]\d{1,2}$|\S+@\S+\.\w|\d+(?:st|nd|rd|th|[hx])$")
#: Letters and digits, with a digit before a letter, or a sign such as '!' or '_'.
_STRONG = r"(?=\S{6})(?=\S{0,40}\d)(?=\S{0,40}[^\W\d_])(?=\S{0,40}(?:\d[^\W\d_]|\w[!#$%&*+=?@^_~]))[^\s\"“„«()]{3,64}"
_WORDS_BETWEEN = r"(?P<between>(?:[ \t][^\W\d_][\w'’]{0,20}){1,5}?)"
_DISTANT = (
    re.compile(  # 'password for the portal is Tulip_88'
        rf"(?P<word>{_PASSWORD_WORDS}){_WORDS_BETWEEN}(?:[ \t]*[:=]|[ \t]{_PASSWORD_COPULA}(?!\w))[ \t:=]*"
        r"(?P<plain>[^\s\"“„«()]{3,64})"
    ),
    re.compile(  # 'the password I used (Tulip!88)'
        rf"(?P<word>{_PASSWORD_WORDS})(?:{_WORDS_BETWEEN})?[ \t]*[,(–-]?[ \t]*(?<=[\s(])(?P<plain>{_STRONG})"
    ),
)
_BEFORE = re.compile(  # 'I type Tulip!88 as my password'
    rf"(?<!\S)(?P<plain>{_STRONG})[ \t]{words_pattern('as_password')}[ \t](?:{words_pattern('own')}[ \t])?"
    rf"{_PASSWORD_WORDS}"
)
_SHORT_WORD = re.compile(rf"(?<!\w){words_pattern('short_password')}[ \t]?[:=]?[ \t]?(?<=\W)(?P<plain>{_STRONG})")
#: Words for a secret that consists of digits.
_PIN_WORD = re.compile(r"pin|code|cv|tan|otp|zahl|nummer|código|codice|clave", re.IGNORECASE)
_SECRET_AFTER_COPULA = re.compile(r"(?=\S{6})(?=\S{0,40}\d)(?=\S{0,40}[^\W\d_])\S+|\w+[!#$%&*+=@^_~]\S+")
_CODE = re.compile(
    rf"(?<![?&/=._-]){words_pattern('code')}(?:[ \t][^\W\d_][\w'’]{{0,20}}){{0,6}}?"
    rf"(?:[ \t]*[:=,]|[ \t]{_PASSWORD_COPULA}(?!\w))[ \t]*(?=\S{{0,12}}\d)#?"
    r"(?P<plain>\w(?:\w|-(?=\w)){2,11}(?:[ ]\d{3}(?!\d))?)(?![\w%€$£/-]|[.,]\d)"
)
_PUBLIC_CODE = compile_words(
    {f"{word}*" for word in load_words("public_code")}
    | set(load_words("other_number")) - {*load_words("code"), *load_words("password")}
)
#: Words of somebody who talks about a password.
_PASSWORD_MENTION = re.compile(rf"{_PASSWORD_WORDS}|{words_pattern('no_access')}")
_LIKE_PASSWORD = re.compile(  # 'BlueDoor_Left', 'Cardinal$88', 'wisteria52', 'LongPassPhrase!'
    r"(?<![\w@#./-])(?:(?=\S{6})(?=\S{0,40}[\dA-Z])[^\W\d_]\w*(?:[!$&%*_=](?=[!$&%*_=.-]*\w)[\w!$&%*_=.-]+|\.\d{4})"
    r"|(?=\S{7})[^\W\d_]{5,20}\d{2,4}[!?]?|[^\W\d_]{7,20}\d[!?]?|[^\W\d_]{5,20}-(?=[A-Z\d]*\d)[A-Z\d]{4}|(?:[A-Z][a-z]+){2,}!|(?:[A-Z][a-z]+){4,})(?![\w@/.-]|\.\w)"
)
_FILE_NAME = re.compile(r".*\.[a-z]{2,4}")
#: 'PIN was 0000, make it 8392'
_PIN = re.compile(
    rf"{words_pattern('pin')}(?P<between>(?:[^.\n\d]|(?<=[ ])\d(?=[ ])){{0,60}}?"
    rf"(?:\.[ \t][^.\n\d]{{0,20}}?{words_pattern('typed')}[^.\n\d]{{0,20}}?)?)(?<![\w.,:/+-])"
    r"(?P<plain>\d{4,8})(?![\w/-]|[.,:]\d| ?[%€$£])"
)
#: 'gate code for the driver is #4402', 'codice cancello 1958E', 'Türcode 1-9-7-4'
_DOOR_CODE = re.compile(
    rf"{words_pattern('code')}(?P<between>(?:[ \t,:–-]{{1,2}}[^\W\d_]{{2,15}}){{0,5}}?)[ \t,:=–-]{{1,3}}"
    r"(?P<plain>[#*]?\d(?:[\dA-Z]|-(?=\d)){2,9}[#*]?)(?![\w%€$£/-]|[.,:]\d)"
)
_DOOR = compile_words(f"{word}*" for word in load_words("door"))
#: Answers to the questions that are asked on the telephone: 'First pet: Colonel Mustard'.
_ANSWER_REACH = 100
_SECURITY_QUESTION = load_pattern("security_question")
_ANSWER = re.compile(
    rf"[^\W\d_]{{2,20}}[\"”»]?:[ \t](?P<plain>{CAPITALISED}(?:[ \t]{CAPITALISED}){{0,2}})(?=[ \t]*(?:[.,;\n)–-]|$))"
)
_MAIDEN_NAME = re.compile(
    rf"{words_pattern('maiden_name')}(?:[ \t]*[:=]|[ \t]{_PASSWORD_COPULA})?[ \t](?P<plain>{CAPITALISED})(?!\w)"
)
#: What may follow a secret: 'Tulip88 or Tulip99'.
_ALTERNATIVE = re.compile(
    rf"[!?.]?(?:,[ \t]|,?[ \t]{words_pattern('alternative')}[ \t])"
    r"(?:[^\W\d_]{2,10}[ \t])?(?P<plain>(?=\S{0,40}\d)[^\s,;\"“”()]{4,40})"
)
_SOFTWARE = compile_words(f"{word}*" for word in load_words("software"))
_SIGN = re.compile(r"[!$%&*+=#@^_~]")  # which passwords have, and other codes do not
_NO_PASSWORD = load_pattern("no_password")
_CREDENTIALS = re.compile(
    rf"{words_pattern('credentials')}:?\s{{1,3}}[^\s/|,]{{3,80}}[ \t]*[/|,][ \t]*(?P<plain>[^\s:]{{4,64}})(?=[\s.,]|$)"
)


_PHRASES = load_phrases(
    "password", "credentials", "code", "no_access", "security_question", "maiden_name", "short_password"
)


def find_passwords(text: str) -> Iterator[Span]:
    """Find passwords and PINs next to a word for them, and further ones after 'or'."""
    if not may_contain(words_of(text), _PHRASES):
        return
    for start, end in _find_first(text):
        yield start, end
        while (match := _ALTERNATIVE.match(text, end)) is not None:
            value = match["plain"].rstrip(".,;:?!")
            if value.isdecimal() != text[start:end].isdecimal() or _NO_SECRET.match(value):
                break
            start, end = match.start("plain"), match.start("plain") + len(value)
            yield start, end


def _find_first(text: str) -> Iterator[Span]:
    position = 0
    while match := _PASSWORD.search(text, position):
        position = match.start("plain") if match["plain"] else match.end()
        if match["quoted"]:
            yield match.span("quoted")
            continue
        value = match["plain"].rstrip(".,;:!?)")
        is_secret = re.search(r"\d|[^\W_][!$%&*+=#@~^_]|[a-z][A-Z]" if match[1] else r"^[^\W_][^,;?]*\d|^\d", value)
        start = match.start("plain")
        is_cvv = value.isdecimal() and match[0][:2].casefold() == "cv"
        # a word such as 'marmalade' at the end of a clause
        after = text[start + len(value) : start + len(value) + 12]
        is_word = match[1] and len(value) > 3 and re.match(r"\s*(?:[.,;!?)\n]|$|(?:and|und|et|y|e|en)\b)", after)
        is_separate = match[1] or (text[start - 1].isspace() and (len(value) > 3 or is_cvv))
        is_plausible = is_secret or (is_word and not _NO_PASSWORD.match(value))
        if len(value) > 2 and is_separate and is_plausible and not _NO_SECRET.match(value):
            yield start, start + len(value)
    yield from _find_distant(text)
    yield from _find_codes(text)
    yield from _find_answers(text)
    if _PASSWORD_MENTION.search(text):
        for match in _LIKE_PASSWORD.finditer(text):
            value = match[0].rstrip('.,;:?!)"”»')
            if not any(pattern.match(value) for pattern in (_NO_SECRET, _SOFTWARE, _FILE_NAME)):
                yield match.start(), match.start() + len(value)
    for match in _CREDENTIALS.finditer(text):
        value = match["plain"].rstrip(".,")
        if re.search(r"\d|\W|_", value) and not _NO_SECRET.match(value):
            yield match.start("plain"), match.start("plain") + len(value)


def _find_codes(text: str) -> Iterator[Span]:
    """Find codes of doors, of text messages and the like, but not those of errors and discounts."""
    for match in _PIN.finditer(text):
        if not OTHER_NUMBER_WORDS.search(match["between"]):
            yield match.span("plain")
    for match in _CODE.finditer(text):
        value = match["plain"].rstrip(".,;:?!)")
        if not _PUBLIC_CODE.search(text[max(0, match.start() - 15) : match.start("plain")]):
            yield match.start("plain"), match.start("plain") + len(value)

    for match in _DOOR_CODE.finditer(text):
        around = text[max(0, match.start() - 25) : match.start("plain")]
        if _DOOR.search(around) and not _PUBLIC_CODE.search(around):
            yield match.span("plain")


def _find_answers(text: str) -> Iterator[Span]:
    """Find answers to security questions."""
    for question in _SECURITY_QUESTION.finditer(text):
        for match in _ANSWER.finditer(text, question.end(), question.end() + _ANSWER_REACH):
            yield match.span("plain")
    for match in _MAIDEN_NAME.finditer(text):
        yield match.span("plain")


def _find_distant(text: str) -> Iterator[Span]:
    """Find secrets some words after a word for them, or before it, that look like secrets."""
    for pattern in _DISTANT:
        position = 0
        while match := pattern.search(text, position):
            position = match.end("word")
            value = match["plain"].rstrip(".,;:?)")
            is_pin = 3 <= len(value) <= 8 and value.isdecimal() and _PIN_WORD.search(match["word"])
            is_labelled = OTHER_NUMBER_WORDS.search(match["between"] or "") and not _SIGN.search(value)
            if is_labelled or _NO_SECRET.match(value):
                continue
            if is_pin or _SECRET_AFTER_COPULA.fullmatch(value):
                yield match.start("plain"), match.start("plain") + len(value)
    for pattern in (_BEFORE, _SHORT_WORD):
        for match in pattern.finditer(text):
            value = match["plain"].rstrip(".,;:?)")
            if not _NO_SECRET.match(value):
                yield match.start("plain"), match.start("plain") + len(value)
