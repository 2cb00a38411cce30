"""Annotations in a common form: dialogue acts, slot spans, splits, and slots marked inside the text or by tags."""

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import accumulate

from turnwise.core.dialogue import SYSTEM, USER

_SPLITS = {
    **dict.fromkeys(("train", "training"), "train"),
    **dict.fromkeys(("dev", "devel", "val", "valid", "validate", "validation"), "valid"),
    "test": "test",
}
_INLINE_SLOT = re.compile(r"\[([^\[\]:]*):([^\[\]]*)\]")

_ROLES = {
    **dict.fromkeys(("user", "customer", "driver"), USER),
    **dict.fromkeys(("system", "agent", "assistant", "wizard"), SYSTEM),
}

Span = tuple[str, int, int]  # a slot's name and its character offsets in the text, end exclusive

#: Consecutive pieces of an utterance, each with the slot whose value it is, or '' between slots.
Pieces = Sequence[tuple[str, str]]


def role(name: str) -> str:
    """Return the speaker that a public corpus calls by that name; another name stays, to be rejected."""
    return _ROLES.get(name.lower(), name)


def act(name: str, slot: str | None = None) -> str:
    """Return a dialogue act in turnwise's notation: 'inform(city)', or 'thank' without a slot."""
    return f"{name}({slot})" if slot else name


@lru_cache  # readers call it for every dialogue
def split_of(name: str) -> str | None:
    """Return the split that a folder or file name contains ('kvret_dev_public' → 'valid'), or None."""
    return next((_SPLITS[part] for part in re.split(r"[^a-z]+", name.lower()) if part in _SPLITS), None)


def find_spans(text: str, values: Iterable[tuple[str, str]]) -> list[Span]:
    """Locate (slot, value) pairs in a text as whole words, ignoring case; values that do not occur are left out."""
    spans = []
    for slot, value in values:
        match = value.strip() and re.search(rf"(?<!\w){re.escape(value.strip())}(?!\w)", text, re.IGNORECASE)
        if match:
            spans.append((slot, match.start(), match.end()))
    return spans


def token_spans(text: str, spans: Iterable[Span]) -> Iterator[Span]:
    """Convert spans over white-space tokens (end exclusive) to character spans; invalid ones stay invalid."""
    tokens = [match.span() for match in re.finditer(r"\S+", text)]
    for slot, start, end in spans:
        if 0 <= start < end <= len(tokens):
            yield slot, tokens[start][0], tokens[end - 1][1]
        else:
            yield slot, len(text), len(text) + 1


def utf16_spans(text: str, spans: Iterable[Span]) -> Iterator[Span]:
    """Convert spans over UTF-16 code units, two for an emoji, to character spans; invalid ones stay invalid."""
    offsets = accumulate((1 + (character > "\uffff") for character in text), initial=0)
    characters = {offset: position for position, offset in enumerate(offsets)}

    def convert(offset: int) -> int:
        return characters.get(offset, offset if offset < 0 else max(offset, len(text) + 1))

    for slot, start, end in spans:
        yield slot, convert(start), convert(end)


def slot_spans(pieces: Pieces, text: str) -> list[Span]:
    """Locate the slot values of annotated pieces in the text, whose white space may differ (MASSIVE's Chinese)."""
    if "".join("".join(piece.split()) for piece, _ in pieces) != "".join(text.split()):
        raise ValueError(f"the annotation and the text {text!r} have different words")
    visible = [position for position, character in enumerate(text) if not character.isspace()]
    spans: list[Span] = []
    count = 0
    for piece, slot in pieces:
        size = len("".join(piece.split()))
        if slot and not size:
            raise ValueError(f"the slot {slot!r} has no value")
        if slot:
            spans.append((slot, visible[count], visible[count + size - 1] + 1))
        count += size
    return spans


def parse_inline_slots(annotation: str) -> Pieces:
    """Split an utterance with inline slots, as in 'wake me up at [time : five am]', into pieces."""
    parts = _INLINE_SLOT.split(annotation)
    slots = [slot.strip() for slot in parts[1::3]]
    pieces: list[tuple[str, str]] = []
    for words, slot, value in zip(parts[::3], [*slots, ""], [*parts[2::3], ""], strict=True):
        if "[" in words or "]" in words:
            raise ValueError(f"slots must be marked as '[name : value]', got {annotation!r}")
        pieces += [(words, ""), (value, slot)]
    if not all(slots):
        raise ValueError(f"a slot has no name in {annotation!r}")
    return pieces


def parse_slot_tags(words: Sequence[str], tags: Sequence[str]) -> Pieces:
    """Group words by their tags: B-NAME starts a slot; I-NAME continues it or, after anything else, starts one too."""
    if len(words) != len(tags):
        raise ValueError(f"{len(words)} words but {len(tags)} slot tags")
    pieces: list[tuple[str, str]] = []
    for word, tag in zip(words, tags, strict=True):
        prefix, _, slot = tag.partition("-")
        if tag != "O" and (prefix not in ("B", "I") or not slot):
            raise ValueError(f"the slot tag must be O, B-NAME or I-NAME, got {tag!r}")
        if prefix == "I" and pieces and pieces[-1][1] == slot:
            pieces[-1] = (f"{pieces[-1][0]} {word}", slot)
        else:
            pieces.append((word, slot))
    return pieces
