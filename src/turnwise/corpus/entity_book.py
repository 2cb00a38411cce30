"""The entity book: which values the slots of a corpus take, and how often."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from turnwise.corpus.intake import CorpusError
from turnwise.corpus.store import Corpus
from turnwise.corpus.templates import turns_of
from turnwise.dialogue import Dialogue, same_text
from turnwise.template import slots_in_place


@dataclass(frozen=True, slots=True)
class EntityBook:
    """The values that each slot takes in a corpus (TaDSE, appendix A).

    Values that differ by case or surrounding space alone are one, in the form that is most frequent (of equally frequent forms the
    alphabetically first). Values of white space alone are not counted, nor are those of slots that a template leaves out.

    Attributes:
        entries: by slot name, the values and their counts: most frequent first, equal counts in alphabetical order.
    """

    entries: Mapping[str, tuple[tuple[str, int], ...]]

    @classmethod
    def of(cls, corpus: Iterable[Dialogue], speaker: str | None = None) -> "EntityBook":
        """Counts the values in the turns of a speaker (None: of all) in one pass; memory grows with the distinct values alone."""
        forms: defaultdict[str, Counter[str]] = defaultdict(Counter)
        for _, turn in turns_of(corpus, speaker):
            for slot in slots_in_place(turn):
                if not slot.value.isspace():
                    forms[slot.name][slot.value] += 1
        return cls({name: _merged(found) for name, found in forms.items()})

    @property
    def counts(self) -> dict[str, int]:
        """How often each slot has a value: most frequent first, equal counts in alphabetical order."""
        totals = {name: sum(count for _, count in values) for name, values in self.entries.items()}
        return dict(_ranked(totals))

    @property
    def values(self) -> int:
        """How many distinct values the slots have, all slots together."""
        return sum(map(len, self.entries.values()))

    def common(self, name: str, k: int) -> tuple[tuple[str, int], ...]:
        """The `k` most frequent values of a slot with their counts; fewer where it has fewer, none for a slot that is not here."""
        return self.entries.get(name, ())[:k]

    def top(self, name: str, k: int) -> tuple[str, ...]:
        """The `k` most frequent values of a slot, most frequent first."""
        return tuple(value for value, _ in self.common(name, k))


def _merged(forms: Counter[str]) -> tuple[tuple[str, int], ...]:
    """The forms of one slot's values with their counts, those that are the same text as one."""
    kept: dict[str, str] = {}
    totals: Counter[str] = Counter()
    for form, count in _ranked(forms):  # the most frequent form comes first and names the value
        totals[kept.setdefault(same_text(form), form)] += count
    return tuple(_ranked(totals))


def _ranked(counts: Mapping[str, int]) -> list[tuple[str, int]]:
    return sorted(counts.items(), key=lambda item: (-item[1], item[0]))


def need_slots(book: EntityBook, corpus: Corpus, speaker: str | None) -> None:
    """Refuses a corpus without slot values, from which neither templates nor an augmentation can be made.

    Raises:
        CorpusError: if the book is empty.
    """
    if not book.entries:
        stores = ", ".join(str(store.folder) for store in corpus.stores)
        splits = f" in split {', '.join(corpus.splits)}" if corpus.splits else ""
        raise CorpusError(
            f"{stores}: no turn of {speaker or 'any speaker'}{splits} has a slot, so there is nothing to take out or to fill in: "
            "import a corpus that marks slots (turnwise corpus stats counts them), or name another --speaker"
        )
