"""Named entities as a spaCy model finds them; TaDSE takes those of en_core_web_lg."""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from turnwise.core.dialogue import Slot
from turnwise.corpus.slots.detector import Detector, DetectorError

if TYPE_CHECKING:
    from spacy.language import Language
    from spacy.tokens import Doc

#: What a pipeline may have that entities do not need.
_UNNEEDED = (
    "tagger",
    "morphologizer",
    "parser",
    "senter",
    "lemmatizer",
    "attribute_ruler",
    "textcat",
    "textcat_multilabel",
)
#: Texts that a model reads at once.
_BATCH = 256


class SpacyDetector(Detector):
    """Finds what a spaCy model takes for named entities; a slot's name is the entity's label.

    Attributes:
        model: an installed package such as 'en_core_web_lg', or the folder of a model.
    """

    KIND = "spacy"

    def __init__(self, model: str):
        """Loads the model.

        Raises:
            DetectorError: if spaCy or the model is not installed.
        """
        self.model = model
        self._pipeline = _load(model)

    def find(self, text: str) -> tuple[Slot, ...]:
        """The slots of a text: from left to right, without overlaps."""
        return _entities(self._pipeline(text))

    def find_all(self, texts: Iterable[str]) -> Iterator[tuple[Slot, ...]]:
        """The slots of every text, in the same order; the model reads many texts at once."""
        return map(_entities, self._pipeline.pipe(texts, batch_size=_BATCH))

    def to_json(self) -> dict[str, Any]:
        """What makes the same detector again, where the same model is installed."""
        return {"kind": self.KIND, "model": self.model}

    @classmethod
    def from_json(cls, json: dict[str, Any]) -> "SpacyDetector":
        """The detector that `to_json` wrote."""
        return cls(json["model"])


def _load(model: str) -> "Language":
    try:
        import spacy
    except ImportError:
        raise DetectorError(
            "spaCy is not installed: pip install 'turnwise[ner]', then python -m spacy download MODEL"
        ) from None
    try:
        return spacy.load(model, exclude=_UNNEEDED)
    except OSError as error:
        raise DetectorError(
            f"spaCy cannot load the model {model!r} ({error}): install it with python -m spacy download {model}, or name the "
            "folder of a model"
        ) from None


def _entities(document: "Doc") -> tuple[Slot, ...]:
    return tuple(
        Slot.from_text(document.text, entity.label_, entity.start_char, entity.end_char) for entity in document.ents
    )
