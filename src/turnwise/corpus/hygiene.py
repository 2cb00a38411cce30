"""Cleaning steps for dialogues on their way into a store, each with a report of its changes.

A step returns a dialogue, changed or not, or drops it. It never drops a turn from the middle of a dialogue: two turns
would look consecutive that were not. Limits on the words of a turn are for filtering training pairs, later. Slots move
with the text around them.
"""

import hashlib
import re
import sqlite3
import unicodedata
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from turnwise.core.dialogue import Dialogue, Slot, Turn
from turnwise.core.errors import did_you_mean
from turnwise.corpus.fingerprints import FingerprintSet, text_fingerprint
from turnwise.corpus.masking import Masker, Masking
from turnwise.corpus.source import CorpusError

#: Returns the cleaned dialogue, or None to drop it, and counts its changes.
Clean = Callable[[Dialogue, Counter[str]], Dialogue | None]

#: (start, end, replacement); edits do not overlap and are sorted.
Edit = tuple[int, int, str]


class CleaningStep:
    """A cleaning function, and the counts of its changes so far (`changes`)."""

    def __init__(self, clean: Clean) -> None:
        self._clean = clean
        self.changes: Counter[str] = Counter()

    def __call__(self, dialogue: Dialogue) -> Dialogue | None:
        """Return the cleaned dialogue, or None to drop it."""
        cleaned = self._clean(dialogue, self.changes)
        if cleaned is None:
            self.changes["dialogues dropped"] += 1
            self.changes["turns dropped with them"] += len(dialogue.turns)
        return cleaned


# ---- the text of single turns


def _edit_texts(edits: Callable[[str, Counter[str]], list[Edit]]) -> Clean:
    """Return a function that edits the text of each turn by itself."""

    def clean(dialogue: Dialogue, changes: Counter[str]) -> Dialogue:
        turns = tuple(_edit_turn(turn, edits(turn.text, changes), changes) for turn in dialogue.turns)
        changed = sum(new is not old for new, old in zip(turns, dialogue.turns, strict=True))
        if not changed:
            return dialogue
        changes["turns changed"] += changed
        return replace(dialogue, turns=turns)

    return clean


def _edit_turn(turn: Turn, edits: Sequence[Edit], changes: Counter[str]) -> Turn:
    """Apply edits to a turn's text and shift its slots.

    A slot that contains an edit gets the new value; one that an edit only overlaps is dropped and counted. A turn whose
    text would become empty stays as it is, and is counted.
    """
    if not edits:
        return turn
    pieces, position = [], 0
    for start, end, replacement in edits:
        pieces += [turn.text[position:start], replacement]
        position = end
    text = "".join([*pieces, turn.text[position:]])
    if not text.strip():
        changes["turns left as they were, since nothing would remain"] += 1
        return turn
    slots = []
    for slot in turn.slots:
        shift = sum(len(new) - (end - start) for start, end, new in edits if end <= slot.start)
        inside = [edit for edit in edits if edit[0] < slot.end and edit[1] > slot.start]
        growth = sum(len(new) - (end - start) for start, end, new in inside)
        first, last = slot.start + shift, slot.end + shift + growth
        if all(slot.start <= start and end <= slot.end for start, end, _ in inside) and first < last:
            slots.append(Slot.from_text(text, slot.name, first, last))
        else:
            changes["slots lost"] += 1
    return replace(turn, text=text, slots=tuple(slots))


# a base character with its combining characters; normalising only these keeps all other offsets known
_CLUSTER = re.compile(r"[^\x00-\x7f]+|[\x00-\x7f](?=[^\x00-\x7f])[^\x00-\x7f]+")


def _unicode_edits(text: str, _: Counter[str]) -> list[Edit]:
    """Compose characters (NFC), so that two encodings of 'é' are the same text."""
    if text.isascii() or unicodedata.is_normalized("NFC", text):
        return []
    clusters = ((match, unicodedata.normalize("NFC", match[0])) for match in _CLUSTER.finditer(text))
    return [(match.start(), match.end(), normal) for match, normal in clusters if normal != match[0]]


# \u200d, which joins emoji and letters of Indic scripts, carries meaning and stays
_CONTROL_CHARACTERS = re.compile(
    "[\\s]*[\t\n\r\x0b\x0c\x85\u2028\u2029]+[\\s]*"
    "|[\x00-\x08\x0e-\x1f\x7f-\x9f\u200b\u200e\u200f\u202a-\u202e\u2060-\u2069\ufeff]+"
)


def _control_character_edits(text: str, _: Counter[str]) -> list[Edit]:
    """Remove control, zero-width and direction characters; line ends and tabs become a space."""
    runs = _CONTROL_CHARACTERS.finditer(text)
    return [(match.start(), match.end(), " " if match[0].isspace() else "") for match in runs]


def _truncate_texts(words: int) -> Clean:
    too_long = re.compile(rf"(?:\S+\s+){{{words - 1}}}\S+(?=\s+\S)")

    def edits(text: str, _: Counter[str]) -> list[Edit]:
        match = too_long.match(text) or too_long.match(text, len(text) - len(text.lstrip()))
        return [(match.end(), len(text), "")] if match else []

    return _edit_texts(edits)


def _mask(masking: Masking) -> Clean:
    """Replace personal data in texts and in the dialogue's id."""
    masker = Masker(masking)

    def clean(dialogue: Dialogue, changes: Counter[str]) -> Dialogue:
        known: dict[tuple[str, str], int] = {}
        turns = []
        for turn in dialogue.turns:
            matches = masker.find(turn.text)
            changes.update(f"{match.kind} masked" for match in matches)
            edits = [(match.start, match.end, masker.replacement(turn.text, match, known)) for match in matches]
            turns.append(_edit_turn(turn, edits, changes))
        changed = sum(new is not old for new, old in zip(turns, dialogue.turns, strict=True))
        identifier = masker.mask(dialogue.id)
        if identifier != dialogue.id:  # two masked ids may be equal
            identifier += f"-{hashlib.blake2b(dialogue.id.encode(), digest_size=6).hexdigest()}"
            changes["dialogue ids masked"] += 1
        if changed:
            changes["turns changed"] += changed
        return replace(dialogue, id=identifier, turns=tuple(turns))

    return clean


# ---- the turns of a dialogue


def merge_speakers(dialogue: Dialogue) -> Dialogue:
    """Merge consecutive turns of one speaker, and their labels."""
    merged: list[Turn] = []
    for turn in dialogue.turns:
        if merged and merged[-1].speaker == turn.speaker:
            merged[-1] = _join(merged[-1], turn)
        else:
            merged.append(turn)
    return dialogue if len(merged) == len(dialogue.turns) else replace(dialogue, turns=tuple(merged))


def _join(first: Turn, second: Turn) -> Turn:
    text = f"{first.text} {second.text}"
    shift = len(first.text) + 1
    moved = (Slot(slot.name, slot.value, slot.start + shift, slot.end + shift) for slot in second.slots)
    acts = tuple(dict.fromkeys(first.acts + second.acts))
    return Turn(first.speaker, text, first.intent or second.intent, acts, (*first.slots, *moved))


def _merge_speakers(dialogue: Dialogue, changes: Counter[str]) -> Dialogue:
    merged = merge_speakers(dialogue)
    if merged is not dialogue:
        changes["turns joined to the one before"] += len(dialogue.turns) - len(merged.turns)
    return merged


def _drop_short(turns: int) -> Clean:
    return lambda dialogue, _: dialogue if len(dialogue.turns) >= turns else None


def _truncate_dialogues(turns: int) -> Clean:
    def clean(dialogue: Dialogue, changes: Counter[str]) -> Dialogue:
        if len(dialogue.turns) <= turns:
            return dialogue
        changes["dialogues cut"] += 1
        changes["turns cut off at the end"] += len(dialogue.turns) - turns
        return replace(dialogue, turns=dialogue.turns[:turns])

    return clean


# ---- duplicates


def _drop_exact_duplicates() -> Clean:
    """Keep the first of dialogues with the same speakers and texts; memory holds at most 22 bytes per dialogue."""
    seen = FingerprintSet()

    def clean(dialogue: Dialogue, _: Counter[str]) -> Dialogue | None:
        content = "\0".join(f"{turn.speaker}\0{turn.text}" for turn in dialogue.turns)
        return dialogue if seen.add(text_fingerprint(content)) else None

    return clean


class _NearDuplicates:
    """Keeps the first of dialogues that share most of their wording.

    Dialogues are compared by the Jaccard similarity of their lower-cased three-word shingles, estimated from 128
    minimum hashes (standard error at most 0.045). Candidates come from 32 bands of 4 hashes, which miss two dialogues
    with a similarity of 0.8 with probability 10⁻⁷. The signatures are in a temporary SQLite database, about 1.4
    kilobytes per dialogue, so memory stays constant.
    """

    _HASHES, _BANDS = 128, 32
    _PRIME = np.uint64((1 << 61) - 1)

    def __init__(self, similarity: float = 0.8):
        if not 0.5 <= similarity < 1:
            raise CorpusError(f"near-duplicates must be a similarity from 0.5 to below 1, got {similarity}")
        self._similarity = similarity
        generator = np.random.default_rng(20)
        # 32-bit shingles and 29-bit multipliers: the products are exact in 64 bits
        self._factors = generator.integers(1, 1 << 29, self._HASHES, dtype=np.uint64)
        self._offsets = generator.integers(0, 1 << 60, self._HASHES, dtype=np.uint64)
        self._database = sqlite3.connect("")  # an empty name: a private file that SQLite deletes by itself
        self._database.execute("CREATE TABLE signature (number INTEGER PRIMARY KEY, hashes BLOB)")
        self._database.execute("CREATE TABLE band (key BLOB PRIMARY KEY, number INTEGER) WITHOUT ROWID")

    def __call__(self, dialogue: Dialogue, _: Counter[str]) -> Dialogue | None:
        signature = self._signature(dialogue)
        bands = signature.reshape(self._BANDS, -1)
        keys = [bytes([number]) + band.tobytes() for number, band in enumerate(bands)]
        candidates = f"SELECT number FROM band WHERE key IN ({','.join('?' * len(keys))})"
        for (other,) in self._database.execute(f"SELECT hashes FROM signature WHERE number IN ({candidates})", keys):
            if np.mean(signature == np.frombuffer(other, signature.dtype)) >= self._similarity:
                return None
        number = self._database.execute("INSERT INTO signature (hashes) VALUES (?)", (signature.tobytes(),)).lastrowid
        self._database.executemany("INSERT OR IGNORE INTO band VALUES (?, ?)", [(key, number) for key in keys])
        return dialogue

    def _signature(self, dialogue: Dialogue) -> npt.NDArray[np.uint32]:
        words = " ".join(turn.text for turn in dialogue.turns).lower().split()
        shingles = {" ".join(words[start : start + 3]) for start in range(max(1, len(words) - 2))}
        hashes = np.array(
            [int.from_bytes(hashlib.blake2b(shingle.encode(), digest_size=4).digest(), "big") for shingle in shingles],
            dtype=np.uint64,
        )
        permuted: npt.NDArray[np.uint64] = (hashes[:, None] * self._factors + self._offsets) % self._PRIME
        signature: npt.NDArray[np.uint32] = permuted.min(axis=0).astype(np.uint32)
        return signature


def _parse_count(value: str) -> int:
    if not value.isdigit() or int(value) < 1:
        raise ValueError
    return int(value)


#: The steps by their names in `--step` and manifests, with the conversion of the value and an example of one.
STEPS: dict[str, tuple[Callable[..., Clean], Callable[[str], Any] | None, str]] = {
    "unicode": (lambda: _edit_texts(_unicode_edits), None, ""),
    "control-characters": (lambda: _edit_texts(_control_character_edits), None, ""),
    "merge-speakers": (lambda: _merge_speakers, None, ""),
    "minimum-turns": (_drop_short, _parse_count, "a number, as in minimum-turns=4"),
    "maximum-turns": (_truncate_dialogues, _parse_count, "a number, as in maximum-turns=4"),
    "maximum-words": (_truncate_texts, _parse_count, "a number, as in maximum-words=4"),
    "exact-duplicates": (_drop_exact_duplicates, None, ""),
    "near-duplicates": (_NearDuplicates, float, "a similarity, as in near-duplicates=0.8"),
}


#: The step that masks personal data, with kinds as its value: `mask`, `mask=email,phone`.
MASK = "mask"


def make_step(description: str, masking: Masking | None = None) -> CleaningStep:
    """Return a step by its name, with its value if it takes one: 'unicode', 'minimum-turns=4', 'mask=email,phone'.

    `masking` has what else the step `mask` needs, such as regions; its kinds are replaced by those of the description.
    """
    name, equals, value = description.partition("=")
    if name == MASK:
        masking = masking or Masking()
        return CleaningStep(_mask(replace(masking, kinds=tuple(value.split(","))) if equals else masking))
    if name not in STEPS:
        names = [*STEPS, MASK]
        raise CorpusError(f"there is no step {name!r}: choose from {', '.join(names)}.{did_you_mean(name, names)}")
    make, parse, example = STEPS[name]
    if parse is None and equals:
        raise CorpusError(f"step {name} takes no value; got {value!r}")
    if parse is None or (not equals and parse is not _parse_count):
        return CleaningStep(make())
    try:
        return CleaningStep(make(parse(value)))
    except ValueError:
        raise CorpusError(f"step {name} needs {example}; got {value or None!r}") from None
