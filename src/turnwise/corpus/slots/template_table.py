"""The templates of a corpus and the values of its slots, with their counts.

Both tables are temporary SQLite databases (an empty name is a private file that SQLite deletes itself), which go to
disk when they grow large.
"""

import json
import sqlite3
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from turnwise.core.dialogue import Dialogue, Turn
from turnwise.core.errors import CorpusError
from turnwise.core.text import normalise_text
from turnwise.corpus.slots.template import Template, non_overlapping_slots
from turnwise.corpus.storage.corpus import Corpus
from turnwise.corpus.storage.fingerprints import FingerprintIndex, text_fingerprint
from turnwise.corpus.storage.store import Store


def iterate_turns(corpus: Iterable[Dialogue], speaker: str | None) -> Iterator[tuple[Dialogue, Turn]]:
    """Yield every turn of one speaker (None: of all), with its dialogue."""
    for dialogue in corpus:
        for turn in dialogue.turns:
            if speaker is None or turn.speaker == speaker:
                yield dialogue, turn


# ---- templates

_TEMPLATE_SCHEMA = """
    CREATE TABLE template
        (number INTEGER PRIMARY KEY, pieces TEXT, names TEXT, text TEXT, intent TEXT, speaker TEXT, source TEXT)
"""
_MOST_COMMON_TEMPLATES = """
    SELECT pieces, names, SUM(times(number)) AS total FROM template
    GROUP BY pieces, names ORDER BY total DESC, text, MIN(number) LIMIT ?
"""

#: Templates in memory before they are written to the database.
_BUFFERED_TEMPLATES = 10_000


@dataclass(frozen=True, slots=True)
class TemplateUse:
    """A template with one intent, numbered in order of first appearance, and how many utterances use it."""

    number: int
    template: Template
    intent: str | None
    #: Who uses it first, and the source of that dialogue.
    speaker: str
    source: str | None
    utterances: int


class TemplateTable:
    """The distinct templates of a corpus; one that is used with several intents has an entry for each.

    Utterances without slots are templates too. Memory holds no texts, only a fingerprint, a number and a count (about
    60 bytes) of every template and intent; templates with slots are in a temporary database.
    """

    def __init__(self) -> None:
        self.utterances = 0
        self._numbers = FingerprintIndex()
        self._times = array("I")
        self._distinct = FingerprintIndex()
        self._database = sqlite3.connect("")
        self._database.execute(_TEMPLATE_SCHEMA)
        self._database.create_function("times", 1, self._times.__getitem__)
        self._buffer: list[tuple[int, str, str, str, str | None, str, str | None]] = []

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
                pieces, names = json.dumps(template.pieces), json.dumps(template.names)
                text = template.text(names=True)
                self._buffer.append((number, pieces, names, text, turn.intent, turn.speaker, source))
                if len(self._buffer) >= _BUFFERED_TEMPLATES:
                    self._flush()
        self._times[number] += 1
        self.utterances += 1
        return number, self._times[number]

    def _flush(self) -> None:
        self._database.executemany("INSERT INTO template VALUES (?, ?, ?, ?, ?, ?, ?)", self._buffer)
        self._buffer.clear()

    def __len__(self) -> int:
        """Return the number of distinct templates, whatever their intents."""
        return len(self._distinct)

    def with_slots(self) -> Iterator[TemplateUse]:
        """Yield the templates that have slots with their intents, in order of first appearance."""
        self._flush()
        query = "SELECT number, pieces, names, intent, speaker, source FROM template ORDER BY number"
        for number, pieces, names, intent, speaker, source in self._database.execute(query):
            template = _load_template(pieces, names)
            yield TemplateUse(number, template, intent, speaker, source, self._times[number])

    def most_common(self, k: int) -> list[tuple[Template, int]]:
        """Return the `k` most frequent templates with slots and their counts; ties in alphabetical order."""
        self._flush()
        rows = self._database.execute(_MOST_COMMON_TEMPLATES, (k,))
        return [(_load_template(pieces, names), times) for pieces, names, times in rows]


def _load_template(pieces: str, names: str) -> Template:
    return Template(tuple(json.loads(pieces)), tuple(json.loads(names)))


# ---- values

_VALUE_SCHEMA = """
    CREATE TABLE form (name TEXT, key TEXT, value TEXT, times INTEGER, PRIMARY KEY (name, key, value)) WITHOUT ROWID;
    CREATE TABLE entry (name TEXT, value TEXT, times INTEGER);
    CREATE INDEX ranked ON entry (name, times DESC, value);
"""
_ADD_FORMS = """
    INSERT INTO form VALUES (?, ?, ?, ?)
    ON CONFLICT (name, key, value) DO UPDATE SET times = times + excluded.times
"""
_MERGE_FORMS = """
    INSERT INTO entry SELECT name, value, total FROM (
        SELECT name, value, SUM(times) OVER (PARTITION BY name, key) AS total,
            ROW_NUMBER() OVER (PARTITION BY name, key ORDER BY times DESC, value) AS place
        FROM form)
    WHERE place = 1
"""

#: Forms of values in memory before they are written to the database.
_BUFFERED_VALUES = 200_000


class EntityBook:
    """The values of every slot of a corpus (TaDSE, appendix A).

    Values that differ only in case or surrounding space are one value, in its most frequent form (of equally frequent
    forms the alphabetically first). Blank values are not counted, nor are those of slots that a template leaves out.
    """

    def __init__(self, values: Iterable[tuple[str, str]] = ()):
        """Count (slot name, value) pairs, given as often as they occur."""
        self._database = sqlite3.connect("")
        self._database.executescript(_VALUE_SCHEMA)
        buffer: Counter[tuple[str, str]] = Counter()
        for name, value in values:
            buffer[name, value] += 1
            if len(buffer) >= _BUFFERED_VALUES:
                self._add(buffer)
        self._add(buffer)
        self._database.execute(_MERGE_FORMS)
        self._database.execute("DELETE FROM form")

    def _add(self, buffer: Counter[tuple[str, str]]) -> None:
        # sorted by the primary key, so that the table is filled from one end to the other
        rows = sorted((name, normalise_text(value), value, times) for (name, value), times in buffer.items())
        self._database.executemany(_ADD_FORMS, rows)
        buffer.clear()

    @classmethod
    def from_corpus(cls, corpus: Iterable[Dialogue], speaker: str | None = None) -> "EntityBook":
        """Count the values in the turns of a speaker (None: of all)."""
        turns = (turn for _, turn in iterate_turns(corpus, speaker) if turn.slots)
        slots = (slot for turn in turns for slot in non_overlapping_slots(turn))
        return cls((slot.name, slot.value) for slot in slots if not slot.value.isspace())

    @cached_property
    def counts(self) -> dict[str, int]:
        """The number of values of each slot, most frequent first; ties in alphabetical order."""
        query = "SELECT name, SUM(times) FROM entry GROUP BY name ORDER BY SUM(times) DESC, name"
        return dict(self._database.execute(query))

    @cached_property
    def distinct_values(self) -> int:
        """The number of distinct values of all slots together."""
        (number,) = self._database.execute("SELECT COUNT(*) FROM entry").fetchone()
        return int(number)

    def most_common(self, name: str, k: int) -> list[tuple[str, int]]:
        """Return the `k` most frequent values of a slot and their counts; ties in alphabetical order."""
        query = "SELECT value, times FROM entry WHERE name = ? ORDER BY times DESC, value LIMIT ?"
        return list(self._database.execute(query, (name, k)))


def require_slots(book: EntityBook, corpus: Corpus, speaker: str | None) -> None:
    """Raise a CorpusError if a corpus has no slot values, and so no templates to list or fill."""
    if not book.distinct_values:
        stores = ", ".join(str(store.folder) for store in corpus.stores)
        splits = f" in split {', '.join(corpus.splits)}" if corpus.splits else ""
        raise CorpusError(
            f"{stores}: no turn of {speaker or 'any speaker'}{splits} has a slot: import a corpus with annotated slots "
            "(turnwise corpus stats counts them), or name another --speaker"
        )


# ---- splits


def open_training_split(store: Path | str, split: str | None = None) -> Corpus:
    """Open the part of a store that templates and values are taken from: `split`, else 'train'.

    A store without splits is read completely. A test split is never read unless requested.
    """
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
