"""The gazetteer: values of annotated slots, and where they occur in a text."""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from statistics import fmean
from typing import NamedTuple

from turnwise.core.dialogue import Dialogue, Slot
from turnwise.corpus.slots.template import non_overlapping_slots
from turnwise.corpus.slots.template_table import EntityBook, iterate_turns

_LETTER = r"[\w\u0300-\u036f]"  # including combining marks, which lower-casing may separate from their letter
_WORD = re.compile(
    rf"""
    \d+(?:[.,:/]\d+)+(?!{_LETTER})                      # 10:30, 3.5 and 12/24 are words
    | {_LETTER}+(?:[-'’](?!s(?!{_LETTER})){_LETTER}+)*  # so are o'clock and take-out; 401k is one, without a word 401
    | ['’]s(?!{_LETTER})                                # tomorrow's is two words
    | \S                                                # and so is every other character
    """,
    re.VERBOSE,
)


class Word(NamedTuple):
    """A word or punctuation mark of a text: in lower case with straight apostrophes, and its offsets."""

    form: str
    start: int
    end: int


def split_words(text: str) -> list[Word]:
    """Return the words and punctuation marks of a text."""
    return [Word(match[0].lower().replace("’", "'"), *match.span()) for match in _WORD.finditer(text)]


def word_forms(text: str) -> tuple[str, ...]:
    """Return the words and punctuation marks of a text without their offsets."""
    return tuple(word.form for word in split_words(text))


@dataclass(frozen=True, slots=True)
class Gazetteer:
    """Values and the slots that they belong to."""

    #: Value → name of its slot; a value is its words in lower case, separated by spaces.
    names: Mapping[str, str] = field(default_factory=dict)
    _by_words: dict[tuple[str, ...], str] = field(init=False, repr=False, compare=False)
    _lengths: dict[str, tuple[int, ...]] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        by_words = {word_forms(value): value for value in self.names}
        lengths: defaultdict[str, set[int]] = defaultdict(set)
        for words in by_words:
            lengths[words[0]].add(len(words))
        object.__setattr__(self, "_by_words", by_words)
        object.__setattr__(self, "_lengths", {first: tuple(sorted(sizes)) for first, sizes in lengths.items()})

    @classmethod
    def learn(cls, corpora: Sequence[Iterable[Dialogue]], min_fraction: float, min_count: int) -> "Gazetteer":
        """Learn the values of the slots of annotated corpora; memory grows only with the number of distinct values.

        A value is kept if at least `min_fraction` of its occurrences are a whole slot, on average over the corpora in
        which it occurs, and at least `min_count` are: 'current' is a slot when people ask for songs, but hardly ever
        elsewhere. Values of fewer than three letters and digits, or of stop words only, are left out. Of several names
        a value takes the most frequent, of equally frequent ones the alphabetically first.
        """
        counts = _count_names(EntityBook.from_corpus(chain.from_iterable(corpora)))
        candidates = cls({value: min(names, key=lambda name: (-names[name], name)) for value, names in counts.items()})
        fractions: defaultdict[str, list[float]] = defaultdict(list)
        totals: Counter[str] = Counter()
        for corpus in corpora:
            whole_slots, occurrences = candidates._count_uses(corpus)
            totals.update(whole_slots)
            for value, count in occurrences.items():
                fractions[value].append(whole_slots[value] / count)
        return cls(
            {
                value: candidates.names[value]
                for value in sorted(counts)
                if totals[value] >= max(1, min_count) and fmean(fractions[value]) >= min_fraction
            }
        )

    def _count_uses(self, corpus: Iterable[Dialogue]) -> tuple[Counter[str], Counter[str]]:
        """Return how often each value is a whole slot, and how often it occurs at all."""
        whole_slots: Counter[str] = Counter()
        occurrences: Counter[str] = Counter()
        for _, turn in iterate_turns(corpus, None):
            spans = {(slot.start, slot.end) for slot in non_overlapping_slots(turn)}
            for value, start, end in self.find(turn.text):
                occurrences[value] += 1
                whole_slots[value] += (start, end) in spans
        return whole_slots, occurrences

    def find(self, text: str) -> Iterator[tuple[str, int, int]]:
        """Yield every occurrence of a value as whole words: value, start, end; occurrences may overlap."""
        words = split_words(text)
        for first, word in enumerate(words):
            for length in self._lengths.get(word.form, ()):
                value = self._by_words.get(tuple(later.form for later in words[first : first + length]))
                if value is not None and first + length <= len(words):
                    yield value, word.start, words[first + length - 1].end

    def find_slots(self, text: str) -> list[Slot]:
        """Return every occurrence of a value in a text as a slot; they may overlap."""
        return [Slot(self.names[value], text[start:end], start, end) for value, start, end in self.find(text)]


def _count_names(book: EntityBook) -> dict[str, Counter[str]]:
    """Return how often each value belongs to each slot, without values that are too unspecific to search for."""
    from sklearn.feature_extraction.text import ENGLISH_STOP_WORDS

    counts: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for name in book.counts:
        for value, count in book.most_common(name, book.distinct_values):
            words = word_forms(value)
            if sum(map(str.isalnum, value)) > 2 and not ENGLISH_STOP_WORDS.issuperset(words):
                counts[" ".join(words)][name] += count
    return counts
