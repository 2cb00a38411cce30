"""The title of a conversation: the user's first request, not the greeting before it."""

import re
from collections.abc import Sequence

from turnwise.core.dialogue import USER, Turn
from turnwise.core.text import shorten_text

#: Characters of a title.
MAX_LENGTH = 100

#: A turn states a request if it has at least this many words that are not greetings or masks.
MIN_WORDS = 2

#: Masked personal data, such as [NAME_1]; a word; and two characters of a script without spaces, which count as a word.
_UNSPACED = r"\u0e00-\u0eff\u3040-\u30ff\u3400-\u9fff"
_TOKEN = re.compile(rf"\[[A-Z][A-Z0-9_-]*\]|[{_UNSPACED}]{{2}}|[^\W{_UNSPACED}]+(?:['’][^\W\d_]+)*")

#: Words of greetings and of offers to talk ("hi there, can you help me please?"), which say nothing about a request.
_GREETING_WORDS = """
    a afternoon all am an any anybody anyone are bot can chat could day dear doing everybody everyone evening folks good
    got greetings guys have hello help hey hi hiya hope how howdy i i'd i'm i've in is it's just like madam me morning
    my name need ok okay one or people please question questions quick sir so some somebody someone speak support talk
    team thank thanks that the there this to today up want was well what's with would yes yo you your
    bonjour bonsoir salut hallo guten tag morgen abend servus moin hola buenos buenas días dias tardes noches ciao
    buongiorno olá ola bom dia boa tarde noite goedemorgen goedemiddag
"""
_GREETINGS = frozenset(_GREETING_WORDS.split())


def conversation_title(turns: Sequence[Turn]) -> str:
    """Return the user's first turn that states a request, on one line and shortened.

    Turns with fewer than two words besides greetings and masked data are skipped. If there is no other, the turn of the
    user with most such words is used; without a user, all turns are considered.
    """
    candidates = [turn.text for turn in turns if turn.speaker == USER] or [turn.text for turn in turns]
    if not candidates:
        return ""
    counts = [_count_words(text) for text in candidates]
    first = next((place for place, count in enumerate(counts) if count >= MIN_WORDS), counts.index(max(counts)))
    return shorten_text(candidates[first], MAX_LENGTH)


def _count_words(text: str) -> int:
    """Return the number of words that are neither greetings nor masks."""
    tokens = (token.casefold().replace("’", "'") for token in _TOKEN.findall(text) if not token.startswith("["))
    return sum(token not in _GREETINGS for token in tokens)
