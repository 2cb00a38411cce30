"""Cleaning steps for dialogues on their way into a store, each with a report of its changes.

A step maps a stream of dialogues to a stream. Most change the texts of a dialogue or drop it. If a step removes a turn,
the turns around it were not consecutive: a hole policy (`holes.py`) says what becomes of them, and by default the
dialogue is split there. Limits on the words of a turn are for filtering training pairs, later. Slots move
with the text around them.
"""

import hashlib
import re
import sqlite3
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from turnwise.core.dialogue import Dialogue, Turn
from turnwise.core.errors import CorpusError, did_you_mean
from turnwise.corpus.hygiene.automatic_messages import DEFAULT_FRACTION, AutomaticMessages, message_form
from turnwise.corpus.hygiene.email_quotes import email_quote_edits
from turnwise.corpus.hygiene.holes import HolePolicy, remove_turns
from turnwise.corpus.hygiene.markup import html_edits, markdown_edits
from turnwise.corpus.hygiene.masking import Masker, Masking, Pseudonyms
from turnwise.corpus.hygiene.personal_data import FINDERS
from turnwise.corpus.hygiene.text_edits import Edit, edit_turn
from turnwise.corpus.storage.corpus import merge_speakers
from turnwise.corpus.storage.fingerprints import FingerprintIndex, text_fingerprint
from turnwise.corpus.storage.rejections import EXCERPT_LENGTH
from turnwise.corpus.storage.spool import spool

#: Returns what remains of a dialogue: itself, changed or not, its parts, or nothing; counts its changes.
Clean = Callable[[Dialogue, Counter[str]], Sequence[Dialogue]]


class CleaningStep:
    """A cleaning function, and the counts of its changes so far (`changes`)."""

    def __init__(self, clean: Clean) -> None:
        self._clean = clean
        self.changes: Counter[str] = Counter()

    def __call__(self, dialogues: Iterable[Dialogue]) -> Iterator[Dialogue]:
        """Yield what remains of the dialogues."""
        for dialogue in dialogues:
            cleaned = self._clean(dialogue, self.changes)
            if not cleaned:
                self.changes["dialogues dropped"] += 1
                self.changes["turns dropped with them"] += len(dialogue.turns)
            elif len(cleaned) > 1:
                self.changes["dialogues split"] += 1
            yield from cleaned


# ---- the text of single turns


def _edit_texts(edits: Callable[[str], list[Edit]]) -> Clean:
    """Return a function that edits the text of each turn by itself."""

    def clean(dialogue: Dialogue, changes: Counter[str]) -> list[Dialogue]:
        turns = tuple(edit_turn(turn, edits(turn.text), changes) for turn in dialogue.turns)
        changed = sum(new is not old for new, old in zip(turns, dialogue.turns, strict=True))
        if not changed:
            return [dialogue]
        changes["turns changed"] += changed
        return [replace(dialogue, turns=turns)]

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
_CONTROL_CHARACTERS = re.compile(
    "[\\s]*[\t\n\r\x0b\x0c\x85\u2028\u2029]+[\\s]*"
    "|[\x00-\x08\x0e-\x1f\x7f-\x9f\u200b\u200e\u200f\u202a-\u202e\u2060-\u2069\ufeff]+"
)


def _control_character_edits(text: str) -> list[Edit]:
    """Remove control, zero-width and direction characters; line ends and tabs become a space."""
    runs = _CONTROL_CHARACTERS.finditer(text)
    return [(match.start(), match.end(), " " if match[0].isspace() else "") for match in runs]


def _url_edits(text: str) -> list[Edit]:
    return [(start, end, "[URL]") for start, end in FINDERS["url"](text)]


def _truncate_texts(words: int) -> Clean:
    too_long = re.compile(rf"(?:\S+\s+){{{words - 1}}}\S+(?=\s+\S)")

    def edits(text: str) -> list[Edit]:
        match = too_long.match(text) or too_long.match(text, len(text) - len(text.lstrip()))
        return [(match.end(), len(text), "")] if match else []

    return _edit_texts(edits)


def _mask(masking: Masking) -> Clean:
    """Replace personal data in texts and in the dialogue's id."""
    masker = Masker(masking)

    def clean(dialogue: Dialogue, changes: Counter[str]) -> list[Dialogue]:
        known: Pseudonyms = defaultdict(dict)
        turns = []
        for turn in dialogue.turns:
            matches = masker.find(turn.text)
            changes.update(f"{match.kind} masked" for match in matches)
            edits = [(match.start, match.end, masker.replacement(turn.text, match, known)) for match in matches]
            turns.append(edit_turn(turn, edits, changes))
        changed = sum(new is not old for new, old in zip(turns, dialogue.turns, strict=True))
        identifier = masker.mask(dialogue.id)
        if identifier != dialogue.id:  # two masked ids may be equal
            identifier += f"-{hashlib.blake2b(dialogue.id.encode(), digest_size=6).hexdigest()}"
            changes["dialogue ids masked"] += 1
        if changed:
            changes["turns changed"] += changed
        return [replace(dialogue, id=identifier, turns=tuple(turns))]

    return clean


# ---- the turns of a dialogue


def _merge_speakers(dialogue: Dialogue, changes: Counter[str]) -> list[Dialogue]:
    merged = merge_speakers(dialogue)
    if merged is not dialogue:
        changes["turns joined to the one before"] += len(dialogue.turns) - len(merged.turns)
    return [merged]


def _drop_repeated(dialogue: Dialogue, changes: Counter[str]) -> list[Dialogue]:
    """Keep the first of consecutive turns with the same speaker and text; the turns around them are consecutive."""
    kept = [dialogue.turns[0]]
    for turn in dialogue.turns[1:]:
        if not _is_repetition(kept[-1], turn):
            kept.append(turn)
    if len(kept) == len(dialogue.turns):
        return [dialogue]
    changes["repeated turns removed"] += len(dialogue.turns) - len(kept)
    return [replace(dialogue, turns=tuple(kept))]


def _is_repetition(first: Turn, second: Turn) -> bool:
    """Return whether two turns have the same speaker and the same words in any case."""
    return first.speaker == second.speaker and first.text.casefold().split() == second.text.casefold().split()


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


#: The end of the id of a part of a dialogue, as in `chat-7#2`.
_PART_NUMBER = re.compile(r"#(\d+)$")


class AutomaticMessagesStep(CleaningStep):
    """Removes the messages that software sends, by the rule of `turnwise.corpus.hygiene.automatic_messages`.

    All dialogues pass through a temporary file, since they are counted before the first one is cleaned. The changes
    list the most frequent messages, masked and with `#` for digits.
    """

    _REPORTED = 10

    def __init__(
        self, fraction: float = DEFAULT_FRACTION, masking: Masking | None = None, holes: HolePolicy = "split"
    ) -> None:
        super().__init__(self._remove)
        self._messages = AutomaticMessages(fraction)
        self._masker = Masker(masking)
        self._holes = holes
        self._removed: Counter[str] = Counter()
        self._examples: dict[str, str] = {}
        self._part_ids = FingerprintIndex()

    def __call__(self, dialogues: Iterable[Dialogue]) -> Iterator[Dialogue]:
        """Count the messages of all dialogues, then yield what remains of them."""
        with self._messages:
            yield from super().__call__(spool(self._count(dialogues)))
        for form, count in self._removed.most_common(self._REPORTED):
            text = message_form(self._masker.mask(self._examples[form]))
            self.changes[f'times "{text[:EXCERPT_LENGTH]}"'] += count

    def _count(self, dialogues: Iterable[Dialogue]) -> Iterator[Dialogue]:
        for dialogue in dialogues:
            self._messages.count(dialogue)
            if _PART_NUMBER.search(dialogue.id):
                self._part_ids.add(text_fingerprint(dialogue.id))
            yield dialogue

    def _remove(self, dialogue: Dialogue, changes: Counter[str]) -> list[Dialogue]:
        removed = self._messages.find(dialogue)
        for text in (dialogue.turns[index].text for index in removed):
            form = message_form(text).casefold()
            self._removed[form] += 1
            self._examples.setdefault(form, text)
        kept = [index for index in range(len(dialogue.turns)) if index not in removed]
        if not removed or not kept:
            return [dialogue] if kept else []
        # a greeting before the first turn or a notice after the last one leaves no hole
        first, last = kept[0], kept[-1]
        inner = replace(dialogue, turns=dialogue.turns[first : last + 1])
        parts = remove_turns(inner, {index - first for index in removed if first < index < last}, self._holes)
        if parts:
            changes["turns removed"] += len(removed)
        return parts[:1] + [self._with_unused_id(part) for part in parts[1:]]

    def _with_unused_id(self, part: Dialogue) -> Dialogue:
        """Number a part differently if an earlier split has used its id."""
        identifier = part.id
        while not self._part_ids.add(text_fingerprint(identifier)):
            identifier = _PART_NUMBER.sub(lambda match: f"#{int(match[1]) + 1}", identifier)
        return replace(part, id=identifier)


# ---- duplicates


def _drop_exact_duplicates() -> Clean:
    """Keep the first of dialogues with the same speakers and texts; memory holds about 20 bytes per dialogue."""
    seen = FingerprintIndex()

    def clean(dialogue: Dialogue, _: Counter[str]) -> list[Dialogue]:
        content = "\0".join(f"{turn.speaker}\0{turn.text}" for turn in dialogue.turns)
        return [dialogue] if seen.add(text_fingerprint(content)) else []

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


def _parse_count(value: str) -> int:
    if not value.isdigit() or int(value) < 1:
        raise ValueError
    return int(value)


#: The steps by their names in `--step` and manifests, with the conversion of the value and an example of one.
STEPS: dict[str, tuple[Callable[..., Clean | CleaningStep], Callable[[str], Any] | None, str]] = {
    "html": (lambda: _edit_texts(html_edits), None, ""),
    "markdown": (lambda: _edit_texts(markdown_edits), None, ""),
    "email-quotes": (lambda: _edit_texts(email_quote_edits), None, ""),
    "urls": (lambda: _edit_texts(_url_edits), None, ""),
    "unicode": (lambda: _edit_texts(_unicode_edits), None, ""),
    "control-characters": (lambda: _edit_texts(_control_character_edits), None, ""),
    "repeated-messages": (lambda: _drop_repeated, None, ""),
    "automatic-messages": (AutomaticMessagesStep, float, "a fraction, as in automatic-messages=0.1"),
    "merge-speakers": (lambda: _merge_speakers, None, ""),
    "minimum-turns": (_drop_short, _parse_count, "a number, as in minimum-turns=4"),
    "maximum-turns": (_truncate_dialogues, _parse_count, "a number, as in maximum-turns=4"),
    "maximum-words": (_truncate_texts, _parse_count, "a number, as in maximum-words=4"),
    "exact-duplicates": (_drop_exact_duplicates, None, ""),
    "near-duplicates": (_NearDuplicates, float, "a similarity, as in near-duplicates=0.8"),
}


#: The step that masks personal data, with kinds as its value: `mask`, `mask=email,phone`.
MASK = "mask"

#: The name of the steps recommended for raw logs, which takes the place of their names.
LOG = "log"
LOG_STEPS = ("html", "email-quotes", "markdown", "control-characters", "unicode", "repeated-messages")

#: Steps after which personal data may be found that could not be found before, as in `anna&#64;example.com`.
_REVEALING_STEPS = frozenset(("html", "markdown", "control-characters", "unicode"))


def plan_steps(descriptions: Iterable[str]) -> list[str]:
    """Return descriptions of single steps in the order in which they are to be applied.

    `log` is replaced by its steps. `mask` moves behind the steps that can reveal personal data.
    """
    steps = [step for description in descriptions for step in (LOG_STEPS if description == LOG else [description])]
    start = max((place for place, step in enumerate(steps, 1) if step in _REVEALING_STEPS), default=0)
    too_early = [step for step in steps[:start] if is_mask(step)]
    return [step for step in steps[:start] if not is_mask(step)] + too_early + steps[start:]


def is_mask(description: str) -> bool:
    """Return whether a step masks personal data."""
    return description.partition("=")[0] == MASK


def make_step(description: str, masking: Masking | None = None, holes: HolePolicy = "split") -> CleaningStep:
    """Return a step by its name, with its value if it takes one: 'unicode', 'minimum-turns=4', 'mask=email,phone'.

    Args:
        description: the name of one step; `plan_steps` replaces `log`.
        masking: what else the step `mask` needs, such as regions; its kinds are replaced by those of the description.
        holes: what becomes of the turns around a removed one.
    """
    name, equals, value = description.partition("=")
    if name == MASK:
        masking = masking or Masking()
        return CleaningStep(_mask(replace(masking, kinds=tuple(value.split(","))) if equals else masking))
    if name not in STEPS:
        if name == LOG:
            raise CorpusError(f"step {LOG} takes no value; got {value!r}")
        names = [*STEPS, MASK, LOG]
        raise CorpusError(f"there is no step {name!r}: choose from {', '.join(names)}.{did_you_mean(name, names)}")
    make, parse, example = STEPS[name]
    if make is AutomaticMessagesStep:
        make = partial(AutomaticMessagesStep, masking=masking, holes=holes)
    if parse is None and equals:
        raise CorpusError(f"step {name} takes no value; got {value!r}")
    try:
        arguments = [] if parse is None or (not equals and parse is not _parse_count) else [parse(value)]
    except ValueError:
        raise CorpusError(f"step {name} needs {example}; got {value or None!r}") from None
    made = make(*arguments)
    return made if isinstance(made, CleaningStep) else CleaningStep(made)
