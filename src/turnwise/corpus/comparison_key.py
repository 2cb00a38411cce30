"""Which texts count as equal when training and test data are compared.

Fingerprints of training texts are made of these keys, so a fingerprint records the version of the rules it was made by.
"""

import re
import sys
import unicodedata
from collections.abc import Callable

#: The rules of new fingerprints, and all that fingerprints may have.
KEY_VERSION, KEY_VERSIONS = 2, (1, 2)

_NOT_IN_WORDS = re.compile(r"[\W_]+")

_APOSTROPHES = str.maketrans("’ʼ＇", "'''")
_MINUS_SIGNS = str.maketrans("−‐‑", "---")

_APOSTROPHE = re.compile(r"(?<=\w)'(?=\w)")

#: Spaces that some corpora have and others not: "do n't", "what 's", "10 am", "p.m." (where the dots became spaces).
_OPTIONAL_SPACE = re.compile(
    r" (?=(?:s|m|re|ve|ll|d|t|nt|n t)(?: |$)(?![a-z](?: |$)))|(?<=\d) (?=[a-z])"
    r"|(?:(?<=^[a-z])|(?<= [a-z])) (?=[a-z](?: |$))"
)

_DIGIT = re.compile(r"\d")
# signs of numbers, written with or without spaces; other punctuation becomes a space
_BETWEEN_DIGITS = re.compile(r"(?<=\d)\s*([.,:/*-])\s*(?=\d)")
_NEGATIVE = re.compile(r"(?<!\S)-(?=\d)")
_SIGNS = re.compile(r"(?<=[+#%=×÷±$€£¥₹])\s+|\s+(?=[+#%=×÷±$€£¥₹])")
_KEPT = "\ue000\ue001\ue002\ue003\ue004\ue005"  # stand for signs that are kept, while punctuation is removed
_KEEP = str.maketrans(".,:/*-", _KEPT)
_RESTORE = str.maketrans(_KEPT, ".,:/*-")

#: Scripts without spaces between words, in which some corpora put them.
_UNSPACED = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff"
_UNSPACED_GAP = re.compile(f"(?<=[{_UNSPACED}]) (?=[{_UNSPACED}])")
_WORD = re.compile(rf"[{_UNSPACED}]|[^\s{_UNSPACED}]+")


class _Characters(dict[int, str]):
    """For `str.translate`: letters, marks, digits and signs as they are, nothing for formatting, else a space."""

    def __missing__(self, code: int) -> str:
        character, category = chr(code), unicodedata.category(chr(code))
        if category[0] in "LMN" or character in _KEPT or character in "+#%=×÷±" or category == "Sc":
            kept = "" if 0xFE00 <= code <= 0xFE0F else character  # variation selectors
        else:
            kept = "" if category == "Cf" else " "
        self[code] = sys.intern(kept)
        return kept


_CHARACTERS = _Characters()


def comparison_key(text: str, version: int = KEY_VERSION) -> str:
    """Return a key that is equal for texts which differ in case, punctuation and white space only.

    Kept are words ("now here" is not "nowhere"), combining marks, signs of numbers ("3.5 + 2") and of names ("C++").
    """
    return _KEYS[version](text)


def key_words(key: str) -> list[str]:
    """Return the words of a key; in scripts without spaces, its characters."""
    return _WORD.findall(key)


def _letters(text: str) -> str:
    """Return the letters and digits of a text only: the rules of fingerprints of turnwise 0.2.0 and before."""
    text = text if text.isascii() else unicodedata.normalize("NFKC", text)
    return _NOT_IN_WORDS.sub("", text.casefold())


def _words(text: str) -> str:
    if not text.isascii():
        text = unicodedata.normalize("NFKC", text.translate(_APOSTROPHES)).translate(_MINUS_SIGNS)
    text = text.casefold()
    if "'" in text:
        text = _APOSTROPHE.sub("", text)
    if _DIGIT.search(text):
        text = _BETWEEN_DIGITS.sub(lambda match: match[1].translate(_KEEP), _NEGATIVE.sub(_KEPT[5], text))
        text = text.translate(_CHARACTERS).translate(_RESTORE)
    else:
        text = text.translate(_CHARACTERS)
    text = _OPTIONAL_SPACE.sub("", " ".join(_SIGNS.sub("", text).split()))
    return text if text.isascii() else _UNSPACED_GAP.sub("", text)


_KEYS: dict[int, Callable[[str], str]] = dict(zip(KEY_VERSIONS, (_letters, _words), strict=True))
