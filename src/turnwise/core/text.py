"""Texts compared and split into words consistently everywhere."""

import re

#: Chinese characters and Japanese kana, which are written without spaces: a character class of regular expressions.
UNSPACED = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff"

_WORD = re.compile(r"\w+|[^\w\s]")


def shorten_text(text: str, length: int) -> str:
    """Return a text on one line, cut off with an ellipsis at `length` characters."""
    line = " ".join(text.split())
    return line if len(line) <= length else f"{line[: length - 1].rstrip()}…"


def normalise_text(text: str) -> str:
    """Return the key that equal utterances share: case and surrounding space are ignored (WMDC, Table 5)."""
    return text.strip().lower()


def tokenise_words(text: str) -> list[str]:
    """Return the case-folded words of a text: runs of letters, digits and underscores, and every punctuation mark."""
    return _WORD.findall(text.casefold())
