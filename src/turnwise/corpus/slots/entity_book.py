"""The entity book: which values the slots of a corpus take, and how often."""

import sqlite3
from collections import Counter
from collections.abc import Iterable
from functools import cached_property

from turnwise.core.dialogue import Dialogue
from turnwise.core.text import normalise_text
from turnwise.corpus.slots.template import slots_in_place
from turnwise.corpus.slots.templates import turns_of
from turnwise.corpus.source import CorpusError
from turnwise.corpus.store import Corpus

#: Forms of values that are counted in memory before they go to disk.
_HELD = 200_000

_TABLES = """
    CREATE TABLE form (name TEXT, same TEXT, value TEXT, times INTEGER, PRIMARY KEY (name, same, value)) WITHOUT ROWID;
    CREATE TABLE entry (name TEXT, value TEXT, times INTEGER);
    CREATE INDEX ranked ON entry (name, times DESC, value);
"""
_ADD = """
    INSERT INTO form VALUES (?, ?, ?, ?)
    ON CONFLICT (name, same, value) DO UPDATE SET times = times + excluded.times
"""
_MERGE = """
    INSERT INTO entry SELECT name, value, total FROM (
        SELECT name, value, SUM(times) OVER (PARTITION BY name, same) AS total,
            ROW_NUMBER() OVER (PARTITION BY name, same ORDER BY times DESC, value) AS place
        FROM form)
    WHERE place = 1
"""


class EntityBook:
    """The values that each slot takes in a corpus (TaDSE, appendix A).

    Values that differ by case or surrounding space alone are one, in the form that is most frequent (of equally frequent forms the
    alphabetically first). Values of white space alone are not counted, nor are those of slots that a template leaves out.

    The values lie in a temporary SQLite database, which goes to disk where it grows large: memory holds a part of them.

    Args:
        found: slot names and values, each as often as it is found.
    """

    def __init__(self, found: Iterable[tuple[str, str]] = ()):
        self._database = sqlite3.connect("")  # an empty name: a private file that SQLite deletes by itself
        self._database.executescript(_TABLES)
        held: Counter[tuple[str, str]] = Counter()
        for name, value in found:
            held[name, value] += 1
            if len(held) >= _HELD:
                self._add(held)
        self._add(held)
        self._database.execute(_MERGE)
        self._database.execute("DELETE FROM form")

    def _add(self, held: Counter[tuple[str, str]]) -> None:
        # in the order of the table, which is filled from one end to the other then
        rows = sorted((name, normalise_text(value), value, times) for (name, value), times in held.items())
        self._database.executemany(_ADD, rows)
        held.clear()

    @classmethod
    def of(cls, corpus: Iterable[Dialogue], speaker: str | None = None) -> "EntityBook":
        """Counts the values in the turns of a speaker (None: of all) in one pass."""
        slots = (slot for _, turn in turns_of(corpus, speaker) if turn.slots for slot in slots_in_place(turn))
        return cls((slot.name, slot.value) for slot in slots if not slot.value.isspace())

    @cached_property
    def counts(self) -> dict[str, int]:
        """How often each slot has a value: most frequent first, equal counts in alphabetical order."""
        return dict(
            self._database.execute("SELECT name, SUM(times) FROM entry GROUP BY name ORDER BY SUM(times) DESC, name")
        )

    @cached_property
    def values(self) -> int:
        """How many distinct values the slots have, all slots together."""
        (number,) = self._database.execute("SELECT COUNT(*) FROM entry").fetchone()
        return int(number)

    def common(self, name: str, k: int) -> tuple[tuple[str, int], ...]:
        """The `k` most frequent values of a slot with their counts; fewer where it has fewer, none for a slot that is not here.

        Most frequent first, equal counts in alphabetical order.
        """
        ranked = "SELECT value, times FROM entry WHERE name = ? ORDER BY times DESC, value LIMIT ?"
        return tuple(self._database.execute(ranked, (name, k)))

    def top(self, name: str, k: int) -> tuple[str, ...]:
        """The `k` most frequent values of a slot, most frequent first."""
        return tuple(value for value, _ in self.common(name, k))


def need_slots(book: EntityBook, corpus: Corpus, speaker: str | None) -> None:
    """Refuses a corpus without slot values, from which neither templates nor an augmentation can be made.

    Raises:
        CorpusError: if the book is empty.
    """
    if not book.values:
        stores = ", ".join(str(store.folder) for store in corpus.stores)
        splits = f" in split {', '.join(corpus.splits)}" if corpus.splits else ""
        raise CorpusError(
            f"{stores}: no turn of {speaker or 'any speaker'}{splits} has a slot, so there is nothing to take out or to fill in: "
            "import a corpus that marks slots (turnwise corpus stats counts them), or name another --speaker"
        )
