"""Times as chats write them for people: words for halves of the day and for months, in several languages."""

import re
from functools import lru_cache

from turnwise.corpus.readers.shared.speakers import WORDS

_WORDS = WORDS["times"]


def _plain(word: str) -> str:
    """Return a word next to a time as it is looked up: 'p. m.' as 'pm'."""
    return re.sub(r"[\s.]+", "", word).casefold()


#: The half of the day, or 'connecting' for none, by the word next to a time.
_HALVES = {
    _plain(word): half for half in ("morning", "afternoon", "night", "connecting") for word in ("", *_WORDS[half])
}
_MONTHS = tuple(tuple(prefixes.split("|")) for prefixes in _WORDS["months"])

#: A pattern of the first letters of months.
MONTH_PREFIXES = "|".join(_WORDS["months"])


def month_of(word: str) -> int:
    """Return the number of the month that a word means, 0 if it means none."""
    word = word.casefold()
    return next((number for number, prefixes in enumerate(_MONTHS, 1) if word.startswith(prefixes)), 0)


@lru_cache(maxsize=4096)
def hour_of(hour: int, *words: str) -> int:
    """Return the hour of the day, given the words before and after it; raise a ValueError if they do not fit."""
    halves = {word: _HALVES.get(_plain(word), word) for word in words}
    halves = {word: half for word, half in halves.items() if half != "connecting"}
    if not halves:
        return hour
    half, *others = set(halves.values())
    if others:
        raise ValueError(f"{' and '.join(map(repr, halves))} next to the time contradict each other")
    if half not in _HALVES.values():
        raise ValueError(f"{half!r} next to the time is not known as a half of the day")
    if hour > 12:
        raise ValueError(f"{hour} is not an hour of twelve, as {half} says")
    hour %= 12
    return hour + 12 if half == "afternoon" or (half == "night" and hour >= 6) else hour
