"""Hygiene: named steps that clean dialogues on their way into a store, each with a report of what it changed.

A step takes a dialogue and gives it back, changed or not, or drops it whole. It never drops a turn from the middle of a
dialogue, for then two turns would look consecutive that never were: limits on words filter training pairs, later, not turns.
Slots move with the text around them.
"""

import hashlib
import re
import sqlite3
import unicodedata
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import ClassVar, Protocol

import numpy as np
import numpy.typing as npt

from turnwise.core.dialogue import Dialogue, Slot, Turn
from turnwise.corpus.fingerprints import Fingerprints, fingerprint
from turnwise.corpus.intake import CorpusError

#: (start, end, replacement), not overlapping, in order.
Edit = tuple[int, int, str]


class Step(Protocol):
    """One way to clean."""

    changes: Counter[str]
    """What the step did so far, in words a report can print."""

    def __call__(self, dialogue: Dialogue) -> Dialogue | None:
        """The dialogue as it is to be stored; None to drop it."""


def rewrite(turn: Turn, edits: Sequence[Edit], changes: Counter[str]) -> Turn:
    """A turn with parts of its text replaced and its slots moved along.

    A slot that an edit cuts into is lost and counted; one that an edit lies within goes with its new value. A turn of which
    nothing would remain is left as it was, and counted.
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
        before = sum(len(new) - (end - start) for start, end, new in edits if end <= slot.start)
        inside = [edit for edit in edits if edit[0] < slot.end and edit[1] > slot.start]
        grown = sum(len(new) - (end - start) for start, end, new in inside)
        first, last = slot.start + before, slot.end + before + grown
        if all(slot.start <= start and end <= slot.end for start, end, _ in inside) and first < last:
            slots.append(Slot.of(text, slot.name, first, last))
        else:
            changes["slots lost"] += 1
    return replace(turn, text=text, slots=tuple(slots))


class _TextStep:
    """A step that looks at each turn's text by itself."""

    def __init__(self) -> None:
        self.changes: Counter[str] = Counter()

    def edits(self, text: str) -> list[Edit]:
        raise NotImplementedError

    def __call__(self, dialogue: Dialogue) -> Dialogue | None:
        turns = tuple(rewrite(turn, self.edits(turn.text), self.changes) for turn in dialogue.turns)
        changed = sum(new is not old for new, old in zip(turns, dialogue.turns, strict=True))
        if not changed:
            return dialogue
        self.changes["turns changed"] += changed
        return replace(dialogue, turns=turns)


class UnicodeNormalisation(_TextStep):
    """Composed characters (NFC), so that two ways of writing 'é' are one text."""

    # A base character with what combines onto it; normalising these alone keeps every offset around them known.
    _CLUSTER = re.compile(r"[^\x00-\x7f]+|[\x00-\x7f](?=[^\x00-\x7f])[^\x00-\x7f]+")

    def edits(self, text: str) -> list[Edit]:  # noqa: D102
        if text.isascii() or unicodedata.is_normalized("NFC", text):
            return []
        found = ((match, unicodedata.normalize("NFC", match[0])) for match in self._CLUSTER.finditer(text))
        return [(match.start(), match.end(), normal) for match, normal in found if normal != match[0]]


class ControlCharacters(_TextStep):
    """Control, zero-width and direction characters go; line ends and tabs become a space."""

    # \u200d joins emoji and letters of Indic scripts: it carries meaning and stays.
    _RUNS = re.compile(
        "[\\s]*[\t\n\r\x0b\x0c\x85\u2028\u2029]+[\\s]*|[\x00-\x08\x0e-\x1f\x7f-\x9f\u200b\u200e\u200f\u202a-\u202e\u2060-\u2069\ufeff]+"
    )

    def edits(self, text: str) -> list[Edit]:  # noqa: D102
        return [(match.start(), match.end(), " " if match[0].isspace() else "") for match in self._RUNS.finditer(text)]


class MaximumWords(_TextStep):
    """Turns of more than `words` words are cut after that many."""

    def __init__(self, words: int):
        super().__init__()
        self._longer = re.compile(rf"(?:\S+\s+){{{words - 1}}}\S+(?=\s+\S)")

    def edits(self, text: str) -> list[Edit]:  # noqa: D102
        match = self._longer.match(text) or self._longer.match(text, len(text) - len(text.lstrip()))
        return [(match.end(), len(text), "")] if match else []


class Mask(_TextStep):
    """Web addresses, e-mail addresses, card and phone numbers become `[URL]`, `[EMAIL]`, `[CARD]`, `[PHONE]`.

    Cards are told by their check digit. A phone number is a run of 10 to 15 digits, or 7 to 15 digits in groups that do not
    read as a date: order numbers of that length are masked too, which is the safer mistake.
    """

    KINDS = ("url", "email", "card", "phone")
    _PATTERNS: ClassVar = {
        "url": re.compile(r"\b(?:https?://|www\.)[^\s<>\"]*[^\s<>\".,;:!?)\]]", re.IGNORECASE),
        "email": re.compile(r"\b[\w.+-]+@[\w-]+(?:\.[\w-]+)+\b"),
        "card": re.compile(r"(?<![\w-])\d(?:[ -]?\d){12,18}(?![\w-])"),
        "phone": re.compile(
            r"(?<![\w.:/-])(?:\+\d{1,3}[ .-]?)?(?:\(\d{1,5}\)[ .-]?)?\d{2,15}(?:[ .-]\d{2,5}){0,4}(?![\w:/-]|\.\d)"
        ),
    }
    _DATE = re.compile(r"\d{4}[ .-]\d{1,2}[ .-]\d{1,2}|\d{1,2}[ .-]\d{1,2}[ .-]\d{2,4}")

    def __init__(self, kinds: Sequence[str] = KINDS):
        super().__init__()
        for kind in kinds:
            if kind not in self.KINDS:
                raise CorpusError(f"cannot mask {kind!r}: choose from {', '.join(self.KINDS)}")
        self._kinds = [kind for kind in self.KINDS if kind in kinds]

    def edits(self, text: str) -> list[Edit]:  # noqa: D102
        if not any(character in text for character in "@./0123456789"):
            return []
        taken: list[Edit] = []
        for kind in self._kinds:
            for match in self._PATTERNS[kind].finditer(text):
                free = all(match.end() <= start or match.start() >= end for start, end, _ in taken)
                if free and self._is(kind, match[0]):
                    taken.append((match.start(), match.end(), f"[{kind.upper()}]"))
                    self.changes[f"{kind} masked"] += 1
        return sorted(taken)

    def _is(self, kind: str, found: str) -> bool:
        digits = [int(character) for character in found if character.isdigit()]
        if kind == "card":
            doubled = [digit * 2 - 9 * (digit > 4) for digit in digits[-2::-2]]
            return (sum(digits[::-2]) + sum(doubled)) % 10 == 0
        if kind == "phone":
            grouped = not found.isdigit()
            return (7 if grouped else 10) <= len(digits) <= 15 and not self._DATE.fullmatch(found)
        return True


class MergeSpeakers:
    """Consecutive turns of one speaker become one, its labels joined."""

    def __init__(self) -> None:
        self.changes: Counter[str] = Counter()

    def __call__(self, dialogue: Dialogue) -> Dialogue | None:
        """Merges the runs of one speaker."""
        merged: list[Turn] = []
        for turn in dialogue.turns:
            if merged and merged[-1].speaker == turn.speaker:
                merged[-1] = self._join(merged[-1], turn)
            else:
                merged.append(turn)
        if len(merged) == len(dialogue.turns):
            return dialogue
        self.changes["turns joined to the one before"] += len(dialogue.turns) - len(merged)
        return replace(dialogue, turns=tuple(merged))

    @staticmethod
    def _join(first: Turn, second: Turn) -> Turn:
        text = f"{first.text} {second.text}"
        shift = len(first.text) + 1
        moved = (Slot(slot.name, slot.value, slot.start + shift, slot.end + shift) for slot in second.slots)
        acts = tuple(dict.fromkeys(first.acts + second.acts))
        return Turn(first.speaker, text, first.intent or second.intent, acts, (*first.slots, *moved))


class MinimumTurns:
    """Dialogues of fewer turns are dropped."""

    def __init__(self, turns: int):
        self.changes: Counter[str] = Counter()
        self._turns = turns

    def __call__(self, dialogue: Dialogue) -> Dialogue | None:
        """Drops the dialogue if it is too short."""
        if len(dialogue.turns) >= self._turns:
            return dialogue
        self.changes["dialogues dropped"] += 1
        self.changes["turns dropped with them"] += len(dialogue.turns)
        return None


class MaximumTurns:
    """Dialogues of more turns end after that many."""

    def __init__(self, turns: int):
        self.changes: Counter[str] = Counter()
        self._turns = turns

    def __call__(self, dialogue: Dialogue) -> Dialogue | None:
        """Cuts the dialogue's end off if it is too long."""
        if len(dialogue.turns) <= self._turns:
            return dialogue
        self.changes["dialogues cut"] += 1
        self.changes["turns cut off at the end"] += len(dialogue.turns) - self._turns
        return replace(dialogue, turns=dialogue.turns[: self._turns])


class ExactDuplicates:
    """Of dialogues with the same speakers and texts, the first is kept. Remembers a fingerprint of each, in 22 bytes at most."""

    def __init__(self) -> None:
        self.changes: Counter[str] = Counter()
        self._seen = Fingerprints()

    def __call__(self, dialogue: Dialogue) -> Dialogue | None:
        """Drops the dialogue if the same was there before."""
        content = "\0".join(f"{turn.speaker}\0{turn.text}" for turn in dialogue.turns)
        if self._seen.add(fingerprint(content)):
            return dialogue
        self.changes["dialogues dropped"] += 1
        self.changes["turns dropped with them"] += len(dialogue.turns)
        return None


class NearDuplicates:
    """Of dialogues that share most of their wording, the first is kept.

    Dialogues are compared by the Jaccard similarity of their three-word shingles, lower-cased, estimated from 128 minimum
    hashes (standard error at most 0.045). Candidates come from 32 bands of 4 hashes, which miss two dialogues with a
    similarity of 0.8 with probability 10⁻⁷. What was seen lies in a temporary SQLite database, about 1.4 kilobytes a dialogue, so
    memory stays flat.
    """

    _HASHES, _BANDS = 128, 32
    _PRIME = np.uint64((1 << 61) - 1)

    def __init__(self, similarity: float = 0.8):
        if not 0.5 <= similarity < 1:
            raise CorpusError(f"near-duplicates={similarity}: a similarity from 0.5 to below 1 is needed")
        self.changes: Counter[str] = Counter()
        self._similarity = similarity
        generator = np.random.default_rng(20)
        # 32-bit shingles and 29-bit multipliers: the products stay exact in 64 bits
        self._factors = generator.integers(1, 1 << 29, self._HASHES, dtype=np.uint64)
        self._offsets = generator.integers(0, 1 << 60, self._HASHES, dtype=np.uint64)
        self._seen = sqlite3.connect("")  # an empty name: a private file that SQLite deletes by itself
        self._seen.execute("CREATE TABLE signature (number INTEGER PRIMARY KEY, hashes BLOB)")
        self._seen.execute("CREATE TABLE band (key BLOB PRIMARY KEY, number INTEGER) WITHOUT ROWID")

    def __call__(self, dialogue: Dialogue) -> Dialogue | None:
        """Drops the dialogue if one much like it was there before."""
        signature = self._signature(dialogue)
        bands = signature.reshape(self._BANDS, -1)
        keys = [bytes([number]) + band.tobytes() for number, band in enumerate(bands)]
        marks = ",".join("?" * len(keys))
        alike = f"SELECT number FROM band WHERE key IN ({marks})"
        for (other,) in self._seen.execute(f"SELECT hashes FROM signature WHERE number IN ({alike})", keys):
            if np.mean(signature == np.frombuffer(other, signature.dtype)) >= self._similarity:
                self.changes["dialogues dropped"] += 1
                self.changes["turns dropped with them"] += len(dialogue.turns)
                return None
        number = self._seen.execute("INSERT INTO signature (hashes) VALUES (?)", (signature.tobytes(),)).lastrowid
        self._seen.executemany("INSERT OR IGNORE INTO band VALUES (?, ?)", [(key, number) for key in keys])
        return dialogue

    def _signature(self, dialogue: Dialogue) -> npt.NDArray[np.uint32]:
        words = " ".join(turn.text for turn in dialogue.turns).lower().split()
        shingles = {" ".join(words[start : start + 3]) for start in range(max(1, len(words) - 2))}
        hashed = np.array(
            [int.from_bytes(hashlib.blake2b(shingle.encode(), digest_size=4).digest(), "big") for shingle in shingles],
            dtype=np.uint64,
        )
        permuted: npt.NDArray[np.uint64] = (hashed[:, None] * self._factors + self._offsets) % self._PRIME
        signature: npt.NDArray[np.uint32] = permuted.min(axis=0).astype(np.uint32)
        return signature


def _number(name: str, value: str | None) -> int:
    if value is None or not value.isdigit() or int(value) < 1:
        raise CorpusError(f"step {name} needs a number, as in {name}=4; got {value!r}")
    return int(value)


def _plain(make: Callable[[], Step]) -> Callable[[str, str | None], Step]:
    def build(name: str, value: str | None) -> Step:
        if value is not None:
            raise CorpusError(f"step {name} takes no value; got {value!r}")
        return make()

    return build


def _similarity(name: str, value: str | None) -> Step:
    try:
        return NearDuplicates() if value is None else NearDuplicates(float(value))
    except ValueError:
        raise CorpusError(f"step {name} needs a similarity, as in {name}=0.8; got {value!r}") from None


#: The steps by the names that `--step` and manifests know.
STEPS: dict[str, Callable[[str, str | None], Step]] = {
    "unicode": _plain(UnicodeNormalisation),
    "control-characters": _plain(ControlCharacters),
    "merge-speakers": _plain(MergeSpeakers),
    "minimum-turns": lambda name, value: MinimumTurns(_number(name, value)),
    "maximum-turns": lambda name, value: MaximumTurns(_number(name, value)),
    "maximum-words": lambda name, value: MaximumWords(_number(name, value)),
    "exact-duplicates": _plain(ExactDuplicates),
    "near-duplicates": _similarity,
    "mask": lambda name, value: Mask() if value is None else Mask(value.split(",")),
}


def make_step(description: str) -> Step:
    """A step from its name, and its value where it takes one: 'unicode', 'minimum-turns=4', 'mask=email,phone'."""
    name, equals, value = description.partition("=")
    if name not in STEPS:
        raise CorpusError(f"there is no step {name!r}: choose from {', '.join(STEPS)}")
    return STEPS[name](name, value if equals else None)
