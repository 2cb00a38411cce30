"""Cleaning steps for dialogues on their way into a store, each with a report of its changes.

A step maps a stream of dialogues to a stream. Most change the texts of a dialogue or drop it. If a step removes a turn,
the turns around it were not consecutive: a hole policy (`edits.py`) says what becomes of them, and by default the
dialogue is split there. Slots move with the text around them.
"""

import hashlib
import re
import sqlite3
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import replace
from itertools import groupby

import numpy as np
import numpy.typing as npt

from turnwise.core.dialogue import Dialogue
from turnwise.core.errors import CorpusError, did_you_mean
from turnwise.corpus.hygiene.automatic_messages import AutomaticMessagesStep
from turnwise.corpus.hygiene.edits import Clean, CleaningStep, Edit, HolePolicy, edit_turn, replace_turns
from turnwise.corpus.hygiene.email_quotes import email_quote_edits
from turnwise.corpus.hygiene.markup import html_edits, markdown_edits
from turnwise.corpus.hygiene.mask_step import MaskStep
from turnwise.corpus.hygiene.masking import Masking
from turnwise.corpus.hygiene.personal_data import FINDERS, STRICT_KINDS
from turnwise.corpus.storage.corpus import merge_speakers
from turnwise.corpus.storage.fingerprints import FingerprintIndex, text_fingerprint

# ---- the text of single turns


def _edit_texts(edits: Callable[[str], list[Edit]]) -> Clean:
    """Return a function that edits the text of each turn by itself."""

    def clean(dialogue: Dialogue, changes: Counter[str]) -> list[Dialogue]:
        turns = [edit_turn(turn, edits(turn.text), changes) for turn in dialogue.turns]
        return [replace_turns(dialogue, turns, changes)]

    return clean


# a base character with its combining characters; normalising only these keeps all other offsets known
_CLUSTER = re.compile(r"[^\x00-\x7f]+|[\x00-\x7f](?=[^\x00-\x7f])[^\x00-\x7f]+")


def _unicode_edits(text: str) -> list[Edit]:
    """Compose characters (NFC), so that two encodings of 'é' are the same text."""
    if text.isascii() or unicodedata.is_normalized("NFC", text):
        return []
    clusters = ((match, unicodedata.normalize("NFC", match[0])) for match in _CLUSTER.finditer(text))
    return [(match.start(), match.end(), normal) for match, normal in clusters if normal != match[0]]


# \u200d, which joins emoji and letters of Indic scripts, carries meaning and stays
_BREAKS = "\t\n\r\x0b\x0c\x85\u2028\u2029"
_CONTROLS = "\x00-\x08\x0e-\x1f\x7f-\x9f\u200b\u200e\u200f\u202a-\u202e\u2060-\u2069\ufeff"
_BREAK, _CONTROL_RUN = re.compile(f"[{_BREAKS}]"), re.compile(f"[{_CONTROLS}]+")
_BREAK_OR_CONTROL, _INVISIBLE_RUN = re.compile(f"[{_BREAKS}{_CONTROLS}]"), re.compile(f"[\\s{_CONTROLS}]+")


def _control_character_edits(text: str) -> list[Edit]:
    """Remove control, zero-width and direction characters; line ends and tabs become a space."""
    edits: list[Edit] = []
    for run in _INVISIBLE_RUN.finditer(text) if _BREAK_OR_CONTROL.search(text) else ():
        if _BREAK.search(run[0]):
            edits.append((*run.span(), " "))
        else:
            controls = _CONTROL_RUN.finditer(text, *run.span())
            edits += [(*match.span(), " " if match[0].isspace() else "") for match in controls]
    return edits


def _truncate_texts(words: int) -> Clean:
    too_long = re.compile(rf"(?:\S+\s+){{{words - 1}}}\S+(?=\s+\S)")

    def edits(text: str) -> list[Edit]:
        match = too_long.match(text) or too_long.match(text, len(text) - len(text.lstrip()))
        return [(match.end(), len(text), "")] if match else []

    return _edit_texts(edits)


# ---- the turns of a dialogue


def _merge_speakers(dialogue: Dialogue, changes: Counter[str]) -> list[Dialogue]:
    merged = merge_speakers(dialogue)
    if merged is not dialogue:
        changes["turns joined to the one before"] += len(dialogue.turns) - len(merged.turns)
    return [merged]


def _drop_repeated(dialogue: Dialogue, changes: Counter[str]) -> list[Dialogue]:
    """Keep the first of consecutive turns with the same speaker and text; the turns around them are consecutive."""
    runs = groupby(dialogue.turns, key=lambda turn: (turn.speaker, turn.text.casefold().split()))
    kept = tuple(next(run) for _, run in runs)
    if len(kept) == len(dialogue.turns):
        return [dialogue]
    changes["repeated turns removed"] += len(dialogue.turns) - len(kept)
    return [replace(dialogue, turns=kept)]


def _drop_short(turns: int) -> Clean:
    return lambda dialogue, _: [dialogue] if len(dialogue.turns) >= turns else []


def _truncate_dialogues(turns: int) -> Clean:
    def clean(dialogue: Dialogue, changes: Counter[str]) -> list[Dialogue]:
        if len(dialogue.turns) <= turns:
            return [dialogue]
        changes["dialogues cut"] += 1
        changes["turns cut off at the end"] += len(dialogue.turns) - turns
        return [replace(dialogue, turns=dialogue.turns[:turns])]

    return clean


# ---- duplicates


def _drop_exact_duplicates() -> Clean:
    """Keep the first of dialogues with the same speakers and texts; memory holds about 20 bytes per dialogue."""
    seen = FingerprintIndex()

    def clean(dialogue: Dialogue, _: Counter[str]) -> list[Dialogue]:
        content = "\0".join(f"{turn.speaker}\0{turn.text}" for turn in dialogue.turns)
        return [dialogue] if seen.add(text_fingerprint(content)) else []

    return clean


class _NearDuplicates:
    """Keeps the first of dialogues with a high Jaccard similarity of their lower-cased three-word shingles.

    It is estimated from 128 minimum hashes (standard error at most 0.045). Candidates come from 32 bands of 4 hashes,
    which miss a similarity of 0.8 with probability 10⁻⁷. A temporary SQLite database holds the signatures.
    """

    _HASHES, _BANDS = 128, 32
    _PRIME = np.uint64((1 << 61) - 1)

    def __init__(self, similarity: float):
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

    def __call__(self, dialogue: Dialogue, _: Counter[str]) -> list[Dialogue]:
        signature = self._signature(dialogue)
        bands = signature.reshape(self._BANDS, -1)
        keys = [bytes([number]) + band.tobytes() for number, band in enumerate(bands)]
        candidates = f"SELECT number FROM band WHERE key IN ({','.join('?' * len(keys))})"
        for (other,) in self._database.execute(f"SELECT hashes FROM signature WHERE number IN ({candidates})", keys):
            if np.mean(signature == np.frombuffer(other, signature.dtype)) >= self._similarity:
                return []
        number = self._database.execute("INSERT INTO signature (hashes) VALUES (?)", (signature.tobytes(),)).lastrowid
        self._database.executemany("INSERT OR IGNORE INTO band VALUES (?, ?)", [(key, number) for key in keys])
        return [dialogue]

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


_TEXT_EDITS: dict[str, Callable[[str], list[Edit]]] = {
    "html": html_edits,
    "markdown": markdown_edits,
    "email-quotes": email_quote_edits,
    "urls": lambda text: [(start, end, "[URL]") for start, end in FINDERS["url"](text)],
    "unicode": _unicode_edits,
    "control-characters": _control_character_edits,
}
_PLAIN: dict[str, Callable[[], Clean]] = {
    "repeated-messages": lambda: _drop_repeated,
    "merge-speakers": lambda: _merge_speakers,
    "exact-duplicates": _drop_exact_duplicates,
}
_WITH_COUNT = {"minimum-turns": _drop_short, "maximum-turns": _truncate_dialogues, "maximum-words": _truncate_texts}
#: With the name and the default of the value.
_WITH_FRACTION = {"automatic-messages": ("fraction", 0.05), "near-duplicates": ("similarity", 0.8)}

#: The steps by their names in `--step` and manifests, but for those below.
STEPS = (*_TEXT_EDITS, *_PLAIN, *_WITH_COUNT, *_WITH_FRACTION)

MASK = "mask"  # the step that masks personal data, with kinds as its value: `mask`, `mask=email,phone`
STRICT = "strict"  # its value for all kinds, and numbers of 7 or more digits that may be anything
LOG = "log"  # the name of the steps recommended for raw logs, which takes the place of their names
LOG_STEPS = ("html", "email-quotes", "markdown", "control-characters", "unicode", "repeated-messages")

#: Steps after which personal data may be found that could not be found before, as in `anna&#64;example.com`.
_REVEALING_STEPS = frozenset(("html", "markdown", "control-characters", "unicode"))


def plan_steps(descriptions: Iterable[str]) -> list[str]:
    """Return single steps in the order to apply: `log` is replaced, `mask` moves behind what reveals personal data."""
    steps = [step for description in descriptions for step in (LOG_STEPS if description == LOG else [description])]
    start = max((place for place, step in enumerate(steps, 1) if step in _REVEALING_STEPS), default=0)
    too_early = [step for step in steps[:start] if is_mask(step)]
    return [step for step in steps[:start] if not is_mask(step)] + too_early + steps[start:]


def is_mask(description: str) -> bool:
    """Return whether a step masks personal data."""
    return description.partition("=")[0] == MASK


def masks_phones(descriptions: Iterable[str]) -> bool:
    """Return whether one of the steps masks phone numbers."""
    kinds = [step.partition("=")[2] for step in descriptions if is_mask(step)]
    return any(value in ("", STRICT) or "phone" in value.split(",") for value in kinds)


def make_step(description: str, masking: Masking | None = None, holes: HolePolicy = "split") -> CleaningStep:
    """Return a step by its name and value, as in 'minimum-turns=4'; `masking` is what else the step `mask` needs."""
    name, equals, value = description.partition("=")
    if name == MASK:
        masking = masking or Masking()
        kinds = STRICT_KINDS if value == STRICT else tuple(value.split(","))
        return MaskStep(replace(masking, kinds=kinds) if equals else masking)
    if name in _WITH_COUNT:
        if not value.isdecimal() or int(value) < 1:
            raise CorpusError(f"step {name} needs a number, as in {name}=4; got {value or None!r}")
        return CleaningStep(_WITH_COUNT[name](int(value)))
    if name in _WITH_FRACTION:
        what, default = _WITH_FRACTION[name]
        try:
            fraction = float(value) if equals else default
        except ValueError:
            raise CorpusError(f"step {name} needs a {what}, as in {name}={default}; got {value or None!r}") from None
        if name == "near-duplicates":
            return CleaningStep(_NearDuplicates(fraction))
        return AutomaticMessagesStep(fraction, masking, holes)
    names = [*STEPS, MASK, LOG]
    if name not in names:
        raise CorpusError(f"there is no step {name!r}: choose from {', '.join(names)}.{did_you_mean(name, names)}")
    if equals:
        raise CorpusError(f"step {name} takes no value; got {value!r}")
    return CleaningStep(_edit_texts(_TEXT_EDITS[name]) if name in _TEXT_EDITS else _PLAIN[name]())
