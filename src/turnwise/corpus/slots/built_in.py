"""The detector that comes with turnwise: values of annotated corpora, and patterns. Nothing has to be downloaded."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from turnwise.core.dialogue import USER, Slot, Turn
from turnwise.corpus.slots.detector import Detector, DetectorError
from turnwise.corpus.slots.gazetteer import Gazetteer
from turnwise.corpus.slots.patterns import pattern_slots
from turnwise.corpus.slots.template import slots_in_place
from turnwise.corpus.slots.templates import view_for_templates
from turnwise.corpus.store import Corpus

#: A value is kept if it is a whole slot in so many of the places where its words stand, …
LEAST_SHARE = 0.5
#: … and that often at least.
LEAST_COUNT = 2


@dataclass(frozen=True, slots=True)
class BuiltInDetector(Detector):
    """Finds the values of a gazetteer, and money, dates, times, ordinals and numbers by patterns.

    Of places that overlap the longest counts, of equally long ones the earlier, of one place the pattern's.

    Attributes:
        gazetteer: values and their slots; empty: patterns alone.
        learnt_from: the stores that the gazetteer comes from, for people.
        least_share: how often, of the places where a value's words stand, they had to be a slot.
        least_count: how often they had to be one at least.
    """

    KIND = "built-in"

    gazetteer: Gazetteer = field(default_factory=Gazetteer)
    learnt_from: tuple[str, ...] = ()
    least_share: float = LEAST_SHARE
    least_count: int = LEAST_COUNT

    @classmethod
    def learnt(
        cls, stores: Sequence[Path | str], least_share: float = LEAST_SHARE, least_count: int = LEAST_COUNT
    ) -> "BuiltInDetector":
        """Learns the values of the slots of annotated stores, of all speakers.

        Only split 'train' is read, or everything where no dialogue of a store has a split.

        Raises:
            CorpusError: if a store has splits but no 'train'.
            DetectorError: if a store has no slots there.
        """
        views = [view_for_templates(store) for store in stores]
        for view in views:
            _need_annotation(view)
        return cls(
            Gazetteer.learnt(views, least_share, least_count), tuple(map(_told, views)), least_share, least_count
        )

    def find(self, text: str) -> tuple[Slot, ...]:
        """The slots of a text: from left to right, without overlaps."""
        candidates = (*pattern_slots(text), *self.gazetteer.slots(text))
        return slots_in_place(Turn(USER, text, slots=candidates)) if candidates else ()

    def to_json(self) -> dict[str, Any]:
        """What makes the same detector again."""
        return {
            "kind": self.KIND,
            "learnt_from": list(self.learnt_from),
            "least_share": self.least_share,
            "least_count": self.least_count,
            "values": dict(self.gazetteer.names),
        }

    @classmethod
    def from_json(cls, json: dict[str, Any]) -> "BuiltInDetector":
        """The detector that `to_json` wrote."""
        return cls(Gazetteer(json["values"]), tuple(json["learnt_from"]), json["least_share"], json["least_count"])


def _need_annotation(view: Corpus) -> None:
    if not any(turn.slots for dialogue in view for turn in dialogue.turns):
        raise DetectorError(
            f"no turn of {_told(view)} has a slot, so no value can be learnt from it: name stores with annotated slots "
            "(turnwise corpus stats counts them)"
        )


def _told(view: Corpus) -> str:
    """Which store was read, and what of it."""
    (store,) = view.stores
    part = f"split {', '.join(view.splits)}" if view.splits else "all dialogues"
    return f"{store.folder.name} ({store.manifest.get('reader', 'unknown')}, generation {store.manifest['generation']}), {part}"
