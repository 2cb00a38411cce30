"""Detectors: they find slots in texts that nobody annotated."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from turnwise.core.dialogue import USER, Slot, Turn
from turnwise.core.errors import CorpusError
from turnwise.corpus.slots.gazetteer import Gazetteer
from turnwise.corpus.slots.patterns import pattern_slots
from turnwise.corpus.slots.template import non_overlapping_slots
from turnwise.corpus.slots.template_table import open_training_split
from turnwise.corpus.storage.corpus import Corpus

#: Pipeline components of spaCy that entities do not need.
_EXCLUDED = ["tagger", "morphologizer", "parser", "senter", "lemmatizer", "attribute_ruler", "textcat"]
_SPACY_BATCH = 256


class Detector(Protocol):
    """Finds slots in texts.

    It is stored as JSON and restored from it (`detector_from_json`): the templates of new texts are comparable with
    those of old ones only if the same detector made both.
    """

    def find(self, text: str) -> tuple[Slot, ...]:
        """Return the slots of a text, from left to right, without overlaps."""
        ...

    def find_all(self, texts: Iterable[str]) -> Iterator[tuple[Slot, ...]]:
        """Yield the slots of every text."""
        return map(self.find, texts)

    def to_json(self) -> dict[str, Any]:
        """Return what restores the detector; `kind` says which class it is."""
        ...


@dataclass(frozen=True, slots=True)
class BuiltInDetector(Detector):
    """Finds the values of a gazetteer, and money, dates, times, ordinals and numbers by patterns.

    Of overlapping spans the longest is taken, of equally long ones the earliest, of equal ones the pattern's.
    """

    KIND = "built-in"

    gazetteer: Gazetteer = field(default_factory=Gazetteer)
    #: Descriptions of the stores that the gazetteer was learnt from.
    learnt_from: tuple[str, ...] = ()
    #: The fraction of its occurrences that had to be a slot for a value to be learnt, and how often it had to be one.
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
        candidates = (*pattern_slots(text), *self.gazetteer.find_slots(text))
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

    @classmethod
    def from_json(cls, json: dict[str, Any]) -> "BuiltInDetector":
        """Restore a detector."""
        return cls(Gazetteer(json["values"]), tuple(json["learnt_from"]), json["min_fraction"], json["min_count"])


def _describe(corpus: Corpus) -> str:
    (store,) = corpus.stores
    part = f"split {', '.join(corpus.splits)}" if corpus.splits else "all dialogues"
    reader = store.manifest.get("reader", "unknown")
    return f"{store.folder.name} ({reader}, generation {store.manifest['generation']}), {part}"


class SpacyDetector(Detector):
    """Finds the named entities of a spaCy model; slots are named by entity labels.

    Args:
        model: an installed package such as TaDSE's 'en_core_web_lg', or the folder of a model.
    """

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
            self._pipeline = spacy.load(model, exclude=[*_EXCLUDED, "textcat_multilabel"])
        except OSError as error:
            raise CorpusError(
                f"spaCy cannot load the model {model!r} ({error}): install it with python -m spacy download {model}, "
                "or name the folder of a model"
            ) from None

    def find(self, text: str) -> tuple[Slot, ...]:
        """Return the slots of a text, from left to right, without overlaps."""
        return _entity_slots(self._pipeline(text))

    def find_all(self, texts: Iterable[str]) -> Iterator[tuple[Slot, ...]]:
        """Yield the slots of every text; the model reads them in batches."""
        return map(_entity_slots, self._pipeline.pipe(texts, batch_size=_SPACY_BATCH))

    def to_json(self) -> dict[str, Any]:
        """Return what restores the detector, if the same model is installed."""
        return {"kind": self.KIND, "model": self.model}

    @classmethod
    def from_json(cls, json: dict[str, Any]) -> "SpacyDetector":
        """Restore a detector."""
        return cls(json["model"])


def _entity_slots(document: Any) -> tuple[Slot, ...]:
    text = document.text
    return tuple(Slot.from_text(text, entity.label_, entity.start_char, entity.end_char) for entity in document.ents)


_DETECTORS = {detector.KIND: detector for detector in (BuiltInDetector, SpacyDetector)}


def detector_from_json(json: dict[str, Any]) -> Detector:
    """Restore the detector that `to_json` described; raise a CorpusError if that is not possible."""
    detector = _DETECTORS.get(json.get("kind", ""))
    if detector is None:
        raise CorpusError(
            f"unknown kind of detector {json.get('kind')!r}, known are {', '.join(_DETECTORS)}: update turnwise"
        )
    try:
        return detector.from_json(json)
    except KeyError as error:
        raise CorpusError(
            f"a detector of kind {detector.KIND!r} needs {error}: create the store with detected slots again"
        ) from None
