"""Templates: utterances without the values of their slots; the templates of a corpus and the values of its slots.

"wake me at seven" with the slot `time` has the template "wake me at {SLOT}" (TaDSE, section 5.1). A template is stored
as the text around its slots, never as a text with placeholders in it, so braces in an utterance have no meaning.
"""

import json
import sqlite3
from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

from turnwise.core.dialogue import Dialogue, Slot, Turn
from turnwise.core.errors import CorpusError
from turnwise.core.text import normalise_text
from turnwise.corpus.storage.corpus import Corpus
from turnwise.corpus.storage.fingerprints import FingerprintIndex, text_fingerprint
from turnwise.corpus.storage.store import Store

SLOT = "{SLOT}"  # the placeholder of a value, whatever its slot


def non_overlapping_slots(turn: Turn) -> tuple[Slot, ...]:
    """Return the slots of a template, from left to right: of overlapping ones the longest, then the earliest."""
    taken: list[Slot] = []
    covered = bytearray(len(turn.text))
    for slot in sorted(turn.slots, key=lambda slot: (slot.start - slot.end, slot.start)):
        if not (covered[slot.start] or covered[slot.end - 1]):  # the slots before are as long or longer
            covered[slot.start : slot.end] = b"\1" * (slot.end - slot.start)
            taken.append(slot)
    return tuple(sorted(taken, key=lambda slot: slot.start))


@dataclass(frozen=True, slots=True)
class Template:
    """An utterance without the values of its slots, whose names are given from left to right."""

    pieces: tuple[str, ...]  # the texts before, between and after the slots, possibly empty
    names: tuple[str, ...]

    def __post_init__(self) -> None:
        slots = len(self.names)
        if len(self.pieces) != slots + 1:
            raise ValueError(f"a template of {slots} slots has {slots + 1} pieces, not {len(self.pieces)}")

    @classmethod
    def from_turn(cls, turn: Turn) -> "Template":
        """Return the template of a turn; overlapping slots are resolved by `non_overlapping_slots`."""
        slots = non_overlapping_slots(turn)
        starts = [0, *(slot.end for slot in slots)]
        ends = [*(slot.start for slot in slots), len(turn.text)]
        pieces = tuple(turn.text[start:end] for start, end in zip(starts, ends, strict=True))
        return cls(pieces, tuple(slot.name for slot in slots))

    def text(self, names: bool = False) -> str:
        """Return the template as a text with `{SLOT}`, or the `{name}` of each slot, as placeholders."""
        return self._join([f"{{{name}}}" if names else SLOT for name in self.names])

    def fill(self, values: Sequence[str]) -> tuple[str, tuple[Slot, ...]]:
        """Return the utterance with these values in the slots, and the slots at their new offsets."""
        if len(values) != len(self.names):
            raise ValueError(f"a template of {len(self.names)} slots needs as many values, got {len(values)}")
        slots, end = [], 0
        for piece, name, value in zip(self.pieces, self.names, values, strict=False):
            start = end + len(piece)
            end = start + len(value)
            slots.append(Slot(name, value, start, end))
        return self._join(values), tuple(slots)

    def _join(self, texts: Sequence[str]) -> str:
        return self.pieces[0] + "".join(part for pair in zip(texts, self.pieces[1:], strict=True) for part in pair)


def template_text(turn: Turn) -> str | None:
    """Return the template of a turn as a text; None if the turn has no slots and is its own template."""
    return Template.from_turn(turn).text() if turn.slots else None


def iterate_turns(corpus: Iterable[Dialogue], speaker: str | None) -> Iterator[tuple[Dialogue, Turn]]:
    """Yield every turn of one speaker (None: of all), with its dialogue."""
    for dialogue in corpus:
        for turn in dialogue.turns:
            if speaker is None or turn.speaker == speaker:
                yield dialogue, turn


class TemplateUse(NamedTuple):
    """A template with one intent, numbered by first appearance, with the speaker and source of its first utterance."""

    number: int
    template: Template
    intent: str | None
    speaker: str
    source: str | None


class TemplateTable:
    """The distinct templates of a corpus, by intent; those with slots are in a temporary database, not in memory."""

    def __init__(self) -> None:
        self.utterances = 0
        self._numbers = FingerprintIndex()
        self._times = array("I")
        self._distinct = FingerprintIndex()
        self._database = sqlite3.connect("")  # an empty name: a private file that SQLite deletes by itself
        self._database.execute(
            "CREATE TABLE template (number INTEGER PRIMARY KEY, pieces TEXT, names TEXT, text TEXT, intent TEXT,"
            " speaker TEXT, source TEXT)"
        )
        self._database.create_function("times", 1, self._times.__getitem__)

    @classmethod
    def from_corpus(cls, corpus: Iterable[Dialogue], speaker: str | None = None) -> "TemplateTable":
        """Count the templates of the turns of a speaker (None: of all)."""
        table = cls()
        for dialogue, turn in iterate_turns(corpus, speaker):
            table.add(turn, dialogue.source)
        return table

    def add(self, turn: Turn, source: str | None) -> tuple[int, int]:
        """Count a turn; return the number of its template with its intent, and how often that was used so far."""
        template = Template.from_turn(turn) if turn.slots else None
        # unambiguous: no text contains NUL, and the number of parts determines how many of them are names
        content = turn.text if template is None else "\0".join((*template.pieces, *map(repr, template.names)))
        number = self._numbers.index(text_fingerprint(f"{turn.intent!r}\0{content}"))
        if number == len(self._times):
            self._times.append(0)
            self._distinct.add(text_fingerprint(content))
            if template is not None:
                parts = json.dumps(template.pieces), json.dumps(template.names), template.text(names=True)
                row = (number, *parts, turn.intent, turn.speaker, source)
                self._database.execute("INSERT INTO template VALUES (?, ?, ?, ?, ?, ?, ?)", row)
        self._times[number] += 1
        self.utterances += 1
        return number, self._times[number]

    def __len__(self) -> int:
        """Return the number of distinct templates, whatever their intents."""
        return len(self._distinct)

    def with_slots(self) -> Iterator[TemplateUse]:
        """Yield the templates that have slots with their intents, in order of first appearance."""
        query = "SELECT number, pieces, names, intent, speaker, source FROM template ORDER BY number"
        for number, pieces, names, intent, speaker, source in self._database.execute(query):
            yield TemplateUse(number, _load_template(pieces, names), intent, speaker, source)

    def most_common(self, k: int) -> list[tuple[Template, int]]:
        """Return the `k` most frequent templates with slots and their counts; ties in alphabetical order."""
        query = (
            "SELECT pieces, names, SUM(times(number)) AS total FROM template GROUP BY pieces, names"
            " ORDER BY total DESC, text, MIN(number) LIMIT ?"
        )
        rows = self._database.execute(query, (k,))
        return [(_load_template(pieces, names), times) for pieces, names, times in rows]


def _load_template(pieces: str, names: str) -> Template:
    return Template(tuple(json.loads(pieces)), tuple(json.loads(names)))


class EntityBook:
    """The values of every slot of a corpus (TaDSE, appendix A); case and surrounding space make no difference.

    They are in a temporary database, not in memory.
    """

    def __init__(self) -> None:
        self._database = sqlite3.connect("")
        self._database.execute(
            "CREATE TABLE form (name TEXT, value TEXT, form TEXT, times INTEGER, PRIMARY KEY (name, value, form))"
            " WITHOUT ROWID"
        )

    @classmethod
    def from_corpus(cls, corpus: Iterable[Dialogue], speaker: str | None = None) -> "EntityBook":
        """Count the values in the turns of a speaker (None: of all)."""
        book = cls()
        turns = (turn for _, turn in iterate_turns(corpus, speaker) if turn.slots)
        values = ((slot.name, slot.value) for turn in turns for slot in non_overlapping_slots(turn))
        book._database.executemany(
            "INSERT INTO form VALUES (?, ?, ?, 1) ON CONFLICT (name, value, form) DO UPDATE SET times = times + 1",
            ((name, normalise_text(value), value) for name, value in values if not value.isspace()),
        )
        return book

    @cached_property
    def counts(self) -> dict[str, int]:
        """The number of values of each slot, most frequent first; ties in alphabetical order."""
        return dict(
            self._database.execute("SELECT name, SUM(times) AS total FROM form GROUP BY name ORDER BY total DESC, name")
        )

    @property
    def distinct_values(self) -> int:
        """The number of distinct values of all slots together."""
        (count,) = self._database.execute("SELECT COUNT(*) FROM (SELECT DISTINCT name, value FROM form)").fetchone()
        return int(count)

    def most_common(self, name: str, k: int | None = None) -> list[tuple[str, int]]:
        """Return the `k` most frequent values of a slot, or all, and their counts; ties in alphabetical order."""
        query = (
            "SELECT form, total FROM (SELECT form, SUM(times) OVER (PARTITION BY value) AS total,"
            " ROW_NUMBER() OVER (PARTITION BY value ORDER BY times DESC, form) AS place FROM form WHERE name = ?)"
            " WHERE place = 1 ORDER BY total DESC, form LIMIT ?"
        )
        return self._database.execute(query, (name, -1 if k is None else k)).fetchall()


def require_slots(book: EntityBook, corpus: Corpus, speaker: str | None) -> None:
    """Raise a CorpusError if a corpus has no slot values, and so no templates to list or fill."""
    if not book.distinct_values:
        stores = ", ".join(str(store.folder) for store in corpus.stores)
        splits = f" in split {', '.join(corpus.splits)}" if corpus.splits else ""
        raise CorpusError(
            f"{stores}: no turn of {speaker or 'any speaker'}{splits} has a slot: import a corpus with annotated slots "
            "(turnwise corpus stats counts them), or name another --speaker"
        )


def open_training_split(store: Path | str, split: str | None = None) -> Corpus:
    """Open the part of a store that templates are taken from: `split`, else 'train', or all without any splits."""
    opened = Store(store)
    if split is None and (splits := opened.splits()):
        split = "train"
        if split not in splits:
            names = ", ".join(sorted(splits))
            raise CorpusError(f"{store} has the splits {names} but no train: choose one with --split")
    return Corpus([opened], None if split is None else [split])


def require_named_splits(corpus: Corpus) -> None:
    """Raise a CorpusError if templates would be learnt from splits other than 'train' without a request."""
    for store in corpus.stores if corpus.splits is None else ():
        if others := sorted(store.splits() - {"train"}):
            raise CorpusError(
                f"{store.folder} has the split {others[0]}, whose templates would be learnt: "
                "choose what to read (--split train)"
            )
