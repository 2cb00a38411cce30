"""The gazetteer: values that annotated slots take, and where a text has them."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from statistics import fmean

from turnwise.core.dialogue import Dialogue, Slot
from turnwise.corpus.slots.entity_book import EntityBook
from turnwise.corpus.slots.template import slots_in_place
from turnwise.corpus.slots.templates import turns_of
from turnwise.corpus.slots.word_boundaries import Word, forms_of, words_of


@dataclass(frozen=True, slots=True)
class Gazetteer:
    """Values and the slots that they are values of.

    Attributes:
        names: the slot's name by value; a value is written as its words in lower case with a space between them.
    """

    names: Mapping[str, str] = field(default_factory=dict)
    _by_words: dict[tuple[str, ...], str] = field(init=False, repr=False, compare=False)
    _lengths: dict[str, tuple[int, ...]] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        by_words = {forms_of(value): value for value in self.names}
        lengths: defaultdict[str, set[int]] = defaultdict(set)
        for words in by_words:
            lengths[words[0]].add(len(words))
        object.__setattr__(self, "_by_words", by_words)
        object.__setattr__(self, "_lengths", {first: tuple(sorted(found)) for first, found in lengths.items()})

    @classmethod
    def learnt(cls, corpora: Sequence[Iterable[Dialogue]], least_share: float, least_count: int) -> "Gazetteer":
        """The values of the slots of annotated corpora, in two passes; memory grows with the distinct values alone.

        A value is kept if it is a whole slot in at least `least_share` of the places where its words stand, on average over the
        corpora that have them, and `least_count` times at least: 'current' is a slot wherever people ask for songs, and nowhere
        else. Values of fewer than three letters and digits, or of function words alone, are left out: they mean something in their
        own corpus only. Of several names a value takes the most frequent, of equally frequent ones the alphabetically first.
        """
        counts = _name_counts(EntityBook.of(chain.from_iterable(corpora)))
        everything = cls({value: min(names, key=lambda name: (-names[name], name)) for value, names in counts.items()})
        shares: defaultdict[str, list[float]] = defaultdict(list)
        whole: Counter[str] = Counter()
        for corpus in corpora:
            slots, places = everything._uses(corpus)
            whole.update(slots)
            for value, count in places.items():
                shares[value].append(slots[value] / count)
        kept = (
            value for value in counts if whole[value] >= max(1, least_count) and fmean(shares[value]) >= least_share
        )
        return cls({value: everything.names[value] for value in sorted(kept)})

    def _uses(self, corpus: Iterable[Dialogue]) -> tuple[Counter[str], Counter[str]]:
        """How often each value is a whole slot, and how often its words stand in a text at all."""
        whole: Counter[str] = Counter()
        anywhere: Counter[str] = Counter()
        for _, turn in turns_of(corpus, None):
            marked = {(slot.start, slot.end) for slot in slots_in_place(turn)}
            for value, start, end in self.places(words_of(turn.text)):
                anywhere[value] += 1
                whole[value] += (start, end) in marked
        return whole, anywhere

    def places(self, words: Sequence[Word]) -> Iterator[tuple[str, int, int]]:
        """Every place of a value as whole words: the value, where it begins, where it ends; places may overlap."""
        for first, word in enumerate(words):
            for length in self._lengths.get(word.form, ()):
                value = self._by_words.get(tuple(later.form for later in words[first : first + length]))
                if value is not None and first + length <= len(words):
                    yield value, word.start, words[first + length - 1].end

    def slots(self, text: str) -> list[Slot]:
        """Every place of a value in a text as a slot; places may overlap."""
        return [
            Slot(self.names[value], text[start:end], start, end) for value, start, end in self.places(words_of(text))
        ]


def _name_counts(book: EntityBook) -> dict[str, Counter[str]]:
    """The slots that each value is found in and how often, without values that say too little to be looked for elsewhere."""
    from sklearn.feature_extraction.text import ENGLISH_STOP_WORDS

    counts: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for name in book.counts:
        for value, count in book.common(name, book.values):
            words = forms_of(value)
            if sum(map(str.isalnum, value)) > 2 and not ENGLISH_STOP_WORDS.issuperset(words):
                counts[" ".join(words)][name] += count
    return counts
