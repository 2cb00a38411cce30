"""The templates of a corpus: which there are, and how often each is said."""

import json
import sqlite3
from array import array
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from turnwise.core.dialogue import Dialogue, Turn
from turnwise.corpus.fingerprints import FingerprintIndex, FingerprintSet, text_fingerprint
from turnwise.corpus.slots.template import Template
from turnwise.corpus.source import CorpusError
from turnwise.corpus.store import Corpus, Store


def turns_of(corpus: Iterable[Dialogue], speaker: str | None) -> Iterator[tuple[Dialogue, Turn]]:
    """Every turn of one speaker (None: of all), with its dialogue."""
    for dialogue in corpus:
        for turn in dialogue.turns:
            if speaker is None or turn.speaker == speaker:
                yield dialogue, turn


@dataclass(frozen=True, slots=True)
class TemplateUse:
    """Where a template is used with one intent.

    Attributes:
        number: of the template and intent, from 0 in the order in which they first appear.
        speaker: who says it first.
        source: of the dialogue where it is first said.
        utterances: how often it was said so far.
    """

    number: int
    speaker: str
    source: str | None
    utterances: int


_TABLES = """
    CREATE TABLE template (number INTEGER PRIMARY KEY, words TEXT, names TEXT, shown TEXT, intent TEXT, speaker TEXT, source TEXT);
    CREATE TABLE said (number INTEGER PRIMARY KEY, times INTEGER);
"""
_COMMON = """
    SELECT words, names, SUM(times) FROM template JOIN said USING (number)
    GROUP BY words, names ORDER BY SUM(times) DESC, shown, MIN(number) LIMIT ?
"""

#: Templates that are held before they go to disk.
_HELD = 10_000


class TemplateTable:
    """The distinct templates of a corpus; one that is said with several intents is listed once for each.

    Utterances without slots are templates too. Memory holds no text: of each template with its intent a fingerprint, a number and a
    count, some 50 bytes. Templates with slots lie in a temporary SQLite database, which goes to disk where it grows large.

    Attributes:
        utterances: how many turns were added.
    """

    def __init__(self) -> None:
        self.utterances = 0
        self._numbers = FingerprintIndex()
        self._times = array("I")
        self._distinct = FingerprintSet()
        self._database = sqlite3.connect("")  # an empty name: a private file that SQLite deletes by itself
        self._database.executescript(_TABLES)
        self._held: list[tuple[int, str, str, str, str | None, str, str | None]] = []

    @classmethod
    def of(cls, corpus: Iterable[Dialogue], speaker: str | None = None) -> "TemplateTable":
        """The templates of the turns of a speaker (None: of all), in one pass."""
        table = cls()
        for dialogue, turn in turns_of(corpus, speaker):
            table.add(turn, dialogue.source)
        return table

    def add(self, turn: Turn, source: str | None) -> tuple[int, int]:
        """Counts a turn; says which number its template has with its intent, and how often that was said so far."""
        template = Template.of(turn) if turn.slots else None
        # no text holds a NUL, and of a template's parts half are names, but for one
        content = turn.text if template is None else "\0".join((*template.words, *map(repr, template.names)))
        number = self._numbers.index(text_fingerprint(f"{turn.intent!r}\0{content}"))
        if number == len(self._times):
            self._times.append(0)
            self._distinct.add(text_fingerprint(content))
            if template is not None:
                self._keep(number, template, turn, source)
        self._times[number] += 1
        self.utterances += 1
        return number, self._times[number]

    def _keep(self, number: int, template: Template, turn: Turn, source: str | None) -> None:
        words, names = json.dumps(template.words), json.dumps(template.names)
        self._held.append((number, words, names, template.text(names=True), turn.intent, turn.speaker, source))
        if len(self._held) >= _HELD:
            self._flush()

    def _flush(self) -> None:
        self._database.executemany("INSERT INTO template VALUES (?, ?, ?, ?, ?, ?, ?)", self._held)
        self._held.clear()

    def __len__(self) -> int:
        """How many different templates there are, whatever their intents."""
        return len(self._distinct)

    def with_slots(self) -> Iterator[tuple[Template, str | None, TemplateUse]]:
        """The templates that have slots with their intents, in the order in which they first appeared."""
        self._flush()
        rows = self._database.execute(
            "SELECT number, words, names, intent, speaker, source FROM template ORDER BY number"
        )
        for number, words, names, intent, speaker, source in rows:
            yield _template(words, names), intent, TemplateUse(number, speaker, source, self._times[number])

    def common(self, k: int) -> list[tuple[Template, int]]:
        """The `k` templates with slots that are said most often, and how often; equal counts in alphabetical order."""
        self._flush()
        self._database.execute("DELETE FROM said")
        numbers = self._database.execute("SELECT number FROM template")
        self._database.executemany(
            "INSERT INTO said VALUES (?, ?)", ((number, self._times[number]) for (number,) in numbers)
        )
        return [(_template(words, names), times) for words, names, times in self._database.execute(_COMMON, (k,))]


def _template(words: str, names: str) -> Template:
    return Template(tuple(json.loads(words)), tuple(json.loads(names)))


def view_for_templates(store: Path | str, split: str | None = None) -> Corpus:
    """The part of a store that templates and values are taken from.

    Args:
        store: the store's folder.
        split: the split to read; None: 'train', or everything where no dialogue of the store has a split.

    Raises:
        CorpusError: if no dialogue is in that split, or none was named and there are splits but no 'train': a test split is never
            taken unasked.
    """
    opened = Store(store)
    if split is not None:
        return Corpus([opened], [split])
    found = _splits(opened)
    if not found:
        return Corpus([opened])
    if "train" not in found:
        raise CorpusError(
            f"{store} has the splits {', '.join(sorted(found))} but no train: say which to read, with --split"
        )
    return Corpus([opened], ["train"])


def expect_named_splits(corpus: Corpus) -> None:
    """Refuses a corpus whose templates would be learnt from other splits than 'train' without anybody having asked for that.

    Raises:
        CorpusError: if no splits were named and a store has others than 'train'.
    """
    for store in corpus.stores if corpus.splits is None else ():
        if others := sorted(_splits(store) - {"train"}):
            raise CorpusError(
                f"{store.folder} has the split {others[0]}, whose templates would be learnt: say what to read (--split train)"
            )


def _splits(store: Store) -> set[str]:
    """The splits that a store's dialogues are in."""
    return {
        name
        for batch in store.batches(["split"])
        for name in batch.column("split").unique().to_pylist()
        if name is not None
    }
