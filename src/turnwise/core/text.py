"""Texts compared and split into words consistently everywhere."""

import re

_WORD = re.compile(r"\w+|[^\w\s]")


def normalise_text(text: str) -> str:
    """Return the key that equal utterances share: case and surrounding space are ignored (WMDC, Table 5)."""
    return text.strip().lower()


def tokenise_words(text: str, *, lower: bool = True) -> list[str]:
    """Return the words of a text: runs of letters, digits and underscores, and every punctuation mark by itself."""
    return _WORD.findall(text.casefold() if lower else text)
