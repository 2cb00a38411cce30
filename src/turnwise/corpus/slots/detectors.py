"""Detectors: they find slots in texts that nobody annotated."""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import chain
from pathlib import Path
from statistics import fmean
from typing import Any, Protocol

from turnwise.core.dialogue import USER, Dialogue, Slot, Turn
from turnwise.core.errors import CorpusError
from turnwise.core.files import package_yaml
from turnwise.corpus.slots.templates import EntityBook, iterate_turns, non_overlapping_slots, open_training_split
from turnwise.corpus.storage.corpus import Corpus


class Detector(Protocol):
    """Finds slots in texts; stored as JSON beside its results: only templates made by one detector are comparable."""

    def find(self, text: str) -> tuple[Slot, ...]:
        """Return the slots of a text, from left to right, without overlaps."""
        ...

    def find_all(self, texts: Iterable[str]) -> Iterator[tuple[Slot, ...]]:
        """Yield the slots of every text."""
        return map(self.find, texts)

    def to_json(self) -> dict[str, Any]:
        """Return what restores the detector; `kind` says which class it is."""
        ...


# ---- patterns

_REFERENCE = re.compile(r"\{([a-z_]+)\}")

#: Around the pattern of a whole word: never inside 401k, 10:30 or take-two; a possessive 's may follow.
_LEFT, _RIGHT = r"(?<![\w$£€¥#@])(?<!\w[-'’])(?<!\d[.,:/])", r"(?!\w|[-'’](?!s\b)\w|[.,:/]\d)"


@cache
def slot_patterns() -> list[tuple[str, re.Pattern[str]]]:
    """Return the names of slots and their patterns (`patterns.yaml`); of equally long matches the first is taken."""
    rules = package_yaml("turnwise.corpus.slots", "patterns.yaml")
    # longer words first, so that 'seventy' is never read as 'seven'
    parts = {
        name: f"(?:{'|'.join(sorted(words.split(), key=len, reverse=True))})" for name, words in rules["words"].items()
    }

    def expand(rule: str) -> str:
        return _REFERENCE.sub(lambda match: parts[match[1]], rule)

    for name, rule in rules["parts"].items():
        parts[name] = expand(rule)
    return [
        (slot, re.compile(f"{_LEFT}(?:{expand(rule)}){_RIGHT}", re.IGNORECASE))
        for slot, slot_rules in rules["slots"].items()
        for rule in slot_rules
    ]


def pattern_slots(text: str) -> list[Slot]:
    """Return every match of a pattern as a slot; matches may overlap."""
    return [
        Slot(name, match[0], *match.span()) for name, pattern in slot_patterns() for match in pattern.finditer(text)
    ]


# ---- learnt values

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


def word_forms(text: str) -> tuple[str, ...]:
    """Return the words and punctuation marks of a text, in lower case with straight apostrophes."""
    return tuple(word.lower().replace("’", "'") for word in _WORD.findall(text))


@dataclass
class Gazetteer:
    """Values and the slots that they belong to: value → name of its slot; a value is its words, separated by spaces."""

    names: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        by_words = {word_forms(value): value for value in self.names}
        lengths: defaultdict[str, set[int]] = defaultdict(set)  # by first word
        for words in by_words:
            lengths[words[0]].add(len(words))
        self._by_words = by_words
        self._lengths = {first: sorted(sizes) for first, sizes in lengths.items()}

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
            whole_slots: Counter[str] = Counter()
            occurrences: Counter[str] = Counter()
            for _, turn in iterate_turns(corpus, None):
                spans = {(slot.start, slot.end) for slot in non_overlapping_slots(turn)}
                for value, start, end in candidates.find(turn.text):
                    occurrences[value] += 1
                    whole_slots[value] += (start, end) in spans
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

    def find(self, text: str) -> Iterator[tuple[str, int, int]]:
        """Yield every occurrence of a value as whole words: value, start, end; occurrences may overlap."""
        forms, words = word_forms(text), list(_WORD.finditer(text))
        for first, form in enumerate(forms):
            for length in self._lengths.get(form, ()):
                value = self._by_words.get(forms[first : first + length])
                if value is not None and first + length <= len(words):
                    yield value, words[first].start(), words[first + length - 1].end()


def _count_names(book: EntityBook) -> dict[str, Counter[str]]:
    """Return how often each value belongs to each slot, without values that are too unspecific to search for."""
    from sklearn.feature_extraction.text import ENGLISH_STOP_WORDS

    counts: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for name in book.counts:
        for value, count in book.most_common(name):
            words = word_forms(value)
            if sum(map(str.isalnum, value)) > 2 and not ENGLISH_STOP_WORDS.issuperset(words):
                counts[" ".join(words)][name] += count
    return counts


@dataclass(frozen=True, slots=True)
class BuiltInDetector(Detector):
    """Finds values of a gazetteer, and money, dates, times and numbers by patterns; of overlapping ones the longest."""

    KIND = "built-in"

    gazetteer: Gazetteer = field(default_factory=Gazetteer)
    learnt_from: tuple[str, ...] = ()
    min_fraction: float = 0.5
    min_count: int = 2

    @classmethod
    def learn(cls, stores: Sequence[Path | str], min_fraction: float = 0.5, min_count: int = 2) -> "BuiltInDetector":
        """Learn the slot values of annotated stores: of split 'train', or of everything if a store has no splits."""
        corpora = [open_training_split(store) for store in stores]
        for corpus in corpora:
            if not any(turn.slots for dialogue in corpus for turn in dialogue.turns):
                raise CorpusError(
                    f"no turn of {_describe(corpus)} has a slot, so no value can be learnt from it: name stores with "
                    "annotated slots (turnwise corpus stats counts them)"
                )
        gazetteer = Gazetteer.learn(corpora, min_fraction, min_count)
        return cls(gazetteer, tuple(map(_describe, corpora)), min_fraction, min_count)

    def find(self, text: str) -> tuple[Slot, ...]:
        """Return the slots of a text, from left to right, without overlaps."""
        values = [
            Slot(self.gazetteer.names[value], text[start:end], start, end)
            for value, start, end in self.gazetteer.find(text)
        ]
        candidates = (*pattern_slots(text), *values)
        return non_overlapping_slots(Turn(USER, text, slots=candidates)) if candidates else ()

    def to_json(self) -> dict[str, Any]:
        """Return what restores the detector."""
        return {
            "kind": self.KIND,
            "learnt_from": list(self.learnt_from),
            "min_fraction": self.min_fraction,
            "min_count": self.min_count,
            "values": dict(self.gazetteer.names),
        }


def _describe(corpus: Corpus) -> str:
    (store,) = corpus.stores
    part = f"split {', '.join(corpus.splits)}" if corpus.splits else "all dialogues"
    return f"{store.describe()}, {part}"


# ---- spaCy

#: Pipeline components of spaCy that entities do not need.
_EXCLUDED = (
    *("tagger", "morphologizer", "parser", "senter", "lemmatizer", "attribute_ruler"),
    *("textcat", "textcat_multilabel"),
)
_SPACY_BATCH = 256


class SpacyDetector(Detector):
    """Finds the entities of a spaCy model, a package such as 'en_core_web_lg' or a folder; labels name the slots."""

    KIND = "spacy"

    def __init__(self, model: str):
        self.model = model
        try:
            import spacy
        except ImportError:
            raise CorpusError(
                "spaCy is not installed: pip install 'turnwise[ner]', then python -m spacy download MODEL"
            ) from None
        try:
            self._pipeline = spacy.load(model, exclude=_EXCLUDED)
        except OSError as error:
            raise CorpusError(
                f"spaCy cannot load the model {model!r} ({error}): install it with python -m spacy download {model}, "
                "or name the folder of a model"
            ) from None

    def find(self, text: str) -> tuple[Slot, ...]:
        """Return the slots of a text, from left to right, without overlaps."""
        return next(self.find_all([text]))

    def find_all(self, texts: Iterable[str]) -> Iterator[tuple[Slot, ...]]:
        """Yield the slots of every text; the model reads them in batches."""
        for document in self._pipeline.pipe(texts, batch_size=_SPACY_BATCH):
            spans = ((entity.label_, entity.start_char, entity.end_char) for entity in document.ents)
            yield tuple(Slot.from_text(document.text, *span) for span in spans)

    def to_json(self) -> dict[str, Any]:
        """Return what restores the detector, if the same model is installed."""
        return {"kind": self.KIND, "model": self.model}


def detector_from_json(json: dict[str, Any]) -> Detector:
    """Restore the detector that `to_json` described; raise a CorpusError if that is not possible."""
    kind = json.get("kind")
    try:
        if kind == BuiltInDetector.KIND:
            gazetteer = Gazetteer(json["values"])
            return BuiltInDetector(gazetteer, tuple(json["learnt_from"]), json["min_fraction"], json["min_count"])
        if kind == SpacyDetector.KIND:
            return SpacyDetector(json["model"])
    except KeyError as error:
        raise CorpusError(
            f"a detector of kind {kind!r} needs {error}: create the store with detected slots again"
        ) from None
    known = f"{BuiltInDetector.KIND}, {SpacyDetector.KIND}"
    raise CorpusError(f"unknown kind of detector {kind!r}, known are {known}: update turnwise")
