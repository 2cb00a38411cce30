"""How the readers write down what sources say in their own ways: acts, slot spans, splits, inline annotations."""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

_SPLITS = {
    "train": "train",
    "training": "train",
    "dev": "valid",
    "devel": "valid",
    "val": "valid",
    "valid": "valid",
    "validate": "valid",
    "validation": "valid",
    "test": "test",
}

_BRACKETS = re.compile(r"\[([^\[\]]*)\]")

Span = tuple[str, int, int]


def act(name: str, slot: str | None = None) -> str:
    """A dialogue act as turnwise writes it: 'inform(city)', or 'thank' where there is no slot."""
    return f"{name}({slot})" if slot else name


def split_of(name: str) -> str | None:
    """The split that a folder or file name tells: 'kvret_dev_public' → 'valid'; None if it tells none."""
    for part in re.split(r"[^a-z]+", name.lower()):
        if part in _SPLITS:
            return _SPLITS[part]
    return None


def required(record: Mapping[str, Any], key: str) -> str:
    """What a record says under a key, where a string that is not blank must stand."""
    value = record[key]
    if not isinstance(value, str) or not value.strip():
        raise ValueError(f"{key!r} must be a text that is not blank")
    return value


def spans_of(text: str, values: Iterable[tuple[str, str]]) -> list[Span]:
    """Where the text holds the values (slot, value), whatever the case, as whole words; a value not there gives none."""
    spans = []
    for slot, value in values:
        found = value.strip() and re.search(rf"(?<!\w){re.escape(value.strip())}(?!\w)", text, re.IGNORECASE)
        if found:
            spans.append((slot, found.start(), found.end()))
    return spans


def without_brackets(text: str, slot: str) -> tuple[str, list[Span]]:
    """The text with `[…]` taken off what it marks, and where that is."""
    spans: list[Span] = []
    pieces: list[str] = []
    position = length = 0
    for match in _BRACKETS.finditer(text):
        before, value = text[position : match.start()], match[1]
        if value.strip():
            spans.append((slot, length + len(before), length + len(before) + len(value)))
        pieces += [before, value]
        length += len(before) + len(value)
        position = match.end()
    return "".join([*pieces, text[position:]]), spans


def token_offsets(text: str) -> list[tuple[int, int]]:
    """Character offsets of the white-space tokens of a text."""
    return [match.span() for match in re.finditer(r"\S+", text)]


def token_spans(text: str, spans: Iterable[Span]) -> Iterator[Span]:
    """Character spans from spans over white-space tokens (end exclusive); what lies outside stays outside, to be refused."""
    tokens = token_offsets(text)
    for slot, start, end in spans:
        if 0 <= start < end <= len(tokens):
            yield slot, tokens[start][0], tokens[end - 1][1]
        else:
            yield slot, len(text), len(text) + 1
