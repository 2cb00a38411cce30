"""Regular expressions for English amounts of money, dates, times, ordinals and numbers, in digits and in words."""

import re

from turnwise.core.dialogue import Slot


def _any(words: str) -> str:
    """Match one of the words; longer ones first, so that 'seventy' is never read as 'seven'."""
    return f"(?:{'|'.join(sorted(words.split(), key=len, reverse=True))})"


_GAP = r"[\s-]+"
_UNIT = _any("one two three four five six seven eight nine")
_TEEN = _any("ten eleven twelve thirteen fourteen fifteen sixteen seventeen eighteen nineteen")
_TENS = _any("twenty thirty forty fourty fifty sixty seventy eighty ninety")
# atomic, and so are its repetitions: "twenty one" can be read in two ways, a sequence of such in exponentially many
_SMALL = rf"(?>{_TENS}(?:{_GAP}{_UNIT}\b)?|{_TEEN}|{_UNIT})\b"
_SCALE = r"(?:hundred|thousand|million|billion)\b"
_SPELT = (
    rf"(?:{_SMALL}|an?(?=\s+{_SCALE}))(?:{_GAP}{_SCALE}(?:\s+and(?=\s+{_SMALL}))?|{_GAP}{_SMALL})*+"
    rf"(?:\s+point(?:\s+(?:{_UNIT}|zero|oh)\b)+)?(?:\s+and\s+a\s+half\b)?"
)
_DIGITS = r"(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?"
_NUMBER = rf"(?:{_DIGITS}(?:\s+{_SCALE})?|{_SPELT})"

_NTH_UNIT = _any("first second third fourth fifth sixth seventh eighth ninth")
_NTH_SPELT = (
    rf"(?:(?:{_TENS}{_GAP})?{_NTH_UNIT}"
    rf"|{_any('tenth eleventh twelfth thirteenth fourteenth fifteenth sixteenth seventeenth eighteenth nineteenth')}"
    rf"|{_any('twentieth thirtieth fortieth fiftieth sixtieth seventieth eightieth ninetieth hundredth')})\b"
)
_NTH = rf"(?:\d*(?:1st|2nd|3rd|[04-9]th|1[1-3]th)\b|{_NTH_SPELT})"

_WEEKDAY = _any("monday tuesday wednesday thursday friday saturday sunday")
_MONTH = r"(?:january|february|march|april|may|june|july|august|september|october|november|december)\b"
_SHORT_MONTH = r"(?:jan|feb|mar|apr|jun|jul|aug|sept?|oct|nov|dec)\b\.?"
_SEASON = r"(?:spring|summer|autumn|fall|winter)"
_YEAR = (
    rf"(?:(?:19|20)\d\d\b|(?:nineteen|twenty){_GAP}(?:{_TENS}(?:{_GAP}{_UNIT}\b)?|{_TEEN})\b"
    rf"|two\s+thousand(?:\s+and)?\s+{_SMALL})"
)
_DAY = rf"(?:the\s+)?(?:{_NTH}|\d\d?\b(?![:.]\d|\s*(?:am|pm|a\.|p\.))|{_TEEN}\b|{_TENS}(?:{_GAP}{_UNIT})?\b|{_UNIT}\b)"
_WHICH = r"(?:this\s+coming|this\s+past|this|next|last|past|coming|following|previous|upcoming)"
_HALF = r"(?:[ap]\.\s?m\.|[ap]\.?\s?m\b\.?)"
_PART_OF_DAY = r"(?:morning|afternoon|evening|night)"
_HOUR = rf"(?:[01]?\d|2[0-4]|{_UNIT}|ten|eleven|twelve)\b"
_MINUTES = rf"(?:(?:oh{_GAP}{_UNIT}|{_TENS}(?:{_GAP}{_UNIT})?|{_TEEN})\b)"
_BEFORE_A_DATE = r"(?:(?<=\bon\s)|(?<=\bby\s)|(?<=\bto\s)|(?<=\bfor\s)|(?<=\bfrom\s)|(?<=\buntil\s)|(?<=\bthrough\s))"
_AFTER_AN_HOUR = (
    r"(?=\s*(?:$|[,.?!;]|(?:on|in|for|at|tomorrow|today|tonight|every|this|next|with|and|or|to|please|sharp|if|so)\b))"
)

_CURRENCY = r"(?:dollars?|bucks?|euros?|pounds?(?!\s+of)|cents?|pence|yen|rupees?|pesos?|francs?|usd|eur|gbp|quid)\b"
_MONEY = (
    rf"(?:us\s?)?[$£€¥]\s?{_DIGITS}(?:\s?(?:k|m|bn)\b|\s+{_SCALE})?",
    rf"{_NUMBER}\s+(?:(?:us|american|canadian|australian)\s+)?{_CURRENCY}",
)
_DATE = (
    rf"(?:{_MONTH}|{_SHORT_MONTH})\s+{_DAY}(?:,?\s+{_YEAR})?",
    rf"(?:the\s+)?(?:{_NTH}|\d\d?)\s+(?:day\s+)?(?:of\s+)?(?:{_MONTH}|{_SHORT_MONTH})(?:,?\s+{_YEAR})?",
    rf"(?:{_MONTH}|{_SHORT_MONTH}),?\s+{_YEAR}",
    r"(?:january|february|april|june|july|august|september|october|november|december)\b",
    (
        rf"(?:(?<=\bin\s)|(?<=\bof\s)|(?<=\bby\s)|(?<=\buntil\s)|(?<=\bsince\s)|{_WHICH}\s+)"
        r"(?:march|may)\b(?!\s+(?:i|we)\b)"
    ),
    rf"(?:{_WHICH}\s+)?{_WEEKDAY}s?\b",
    r"(?:the\s+)?day\s+(?:after\s+tomorrow|before\s+yesterday)\b",
    r"(?:today|tomorrow|yesterday)s?\b",
    (
        rf"(?:the\s+)?{_WHICH}\s+(?:(?:{_NUMBER}|few|couple\s+of)\s+)?"
        rf"(?:days?|weeks?|weekend|months?|years?|quarters?|{_SEASON})\b(?!\s+off)"
    ),
    rf"{_WHICH}\s+{_MONTH}",
    r"(?:the\s+)?weekends?\b",
    rf"(?:{_NUMBER}|a|a\s+few|a\s+couple\s+of)\s+(?:days?|weeks?|months?|years?)\s+(?:ago|from\s+now|from\s+today)\b",
    rf"(?<=\bin\s)(?:{_NUMBER}|a|a\s+few|a\s+couple\s+of)\s+(?:days?|weeks?|months?|years?)\b",
    rf"{_BEFORE_A_DATE}the\s+{_NTH}(?!\s+(?!at|in|for|and|or|to|please|from|with|if|is)\w)",
    r"\d{4}-\d\d-\d\d|\d\d?[/-]\d\d?[/-](?:\d{4}|\d\d)|\d\d?/\d\d?(?=\s*(?:$|[,.?!;]|to\b|and\b|for\b|at\b|through\b))",
    rf"(?:(?<=\bin\s)|(?<=\bof\s)|(?<=\bsince\s)|(?<=\bfrom\s)){_YEAR}|(?:19|20)\d\d\b(?!\s+(?:dollars|calories))",
)
_TIME = (
    rf"{_HOUR}(?:(?::|\.|\s)\d\d\b|\s+{_MINUTES})?\s?{_HALF}",
    r"\d\d?(?::?\d\d)?\s?(?:am|pm)\b",
    r"\d\d?:\d\d\b(?:\s?(?:am|pm))?",
    rf"(?:{_HOUR}(?:\s+{_MINUTES})?|\d\d?)\s+o['’]?\s?clock\b(?:\s?{_HALF})?",
    rf"{_HOUR}\s+hundred(?:\s+hours\b|\s?{_HALF})",
    rf"(?:half|(?:a\s+)?quarter|(?:{_SMALL}|\d\d?)\s+minutes)\s+(?:past|to|till)\s+{_HOUR}(?:\s?{_HALF})?",
    (
        rf"(?:{_SMALL}|\d\d?)\s+past\s+{_HOUR}(?:\s?{_HALF})?"
        rf"|(?<=\bat\s)(?:{_SMALL}|\d\d?)\s+(?:to|till)\s+{_HOUR}(?:\s?{_HALF})?"
    ),
    rf"(?<=\bat\s)(?:{_HOUR}(?:\s+{_MINUTES})?){_AFTER_AN_HOUR}",
    r"(?:(?:12|twelve)\s+)?(?:noon|midnight)\b|(?:midday|tonight|last\s+night)\b",
    rf"this\s+{_PART_OF_DAY}\b|(?:(?<=\bin\sthe\s)|(?<=day\s)|(?<=\btomorrow\s)){_PART_OF_DAY}\b",
    rf"(?:{_NUMBER}|half\s+an|an?|a\s+few|a\s+couple\s+of)\s+(?:more\s+)?(?:minutes?|hours?|seconds|mins?|hrs?|secs?)\b",
)
_ORDINAL = (
    (
        rf"(?<!\ba\s)(?<!\bone\s)(?<!\bper\s)(?<!\bat\s){_NTH}(?!\s+(?:of\s+all|name|aid|class)\b)"
        r"(?<!first(?=\s*(?:$|[,.;?!])))"
    ),
)
# 'one' alone is usually no number: this one, which one
_CARDINAL = (rf"(?!one\b(?!{_GAP}(?:{_SCALE}|{_SMALL}|point\b|and\s+a\s+half\b))){_NUMBER}",)


def _compile(pattern: str) -> re.Pattern[str]:
    """Compile a pattern for whole words: never inside 401k, 10:30 or take-two; a possessive 's may follow."""
    left = r"(?<![\w$£€¥#@])(?<!\w[-'’])(?<!\d[.,:/])"
    right = r"(?!\w|[-'’](?!s\b)\w|[.,:/]\d)"
    return re.compile(f"{left}(?:{pattern}){right}", re.IGNORECASE)


#: Slot name → patterns, most specific first: of equally long matches the first is taken.
PATTERNS = {
    name: tuple(map(_compile, patterns))
    for name, patterns in (
        ("money", _MONEY),
        ("date", _DATE),
        ("time", _TIME),
        ("ordinal", _ORDINAL),
        ("number", _CARDINAL),
    )
}


def pattern_slots(text: str) -> list[Slot]:
    """Return every match of a pattern as a slot; matches may overlap."""
    return [
        Slot(name, match[0], *match.span())
        for name, patterns in PATTERNS.items()
        for pattern in patterns
        for match in pattern.finditer(text)
    ]
