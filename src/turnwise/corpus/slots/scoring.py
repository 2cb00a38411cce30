"""How well a detector finds the slots that people annotated."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from turnwise.core.dialogue import USER, Dialogue, Slot
from turnwise.corpus.slots.detector import Detector, DetectorError
from turnwise.corpus.slots.template import slots_in_place
from turnwise.corpus.slots.templates import turns_of
from turnwise.corpus.store import Corpus, Store


@dataclass(frozen=True, slots=True)
class Agreement:
    """How many slots agree: found ones with annotated ones, and annotated ones with found ones.

    Attributes:
        found: slots that the detector found.
        annotated: slots that people marked.
        right: found slots that agree with an annotated one.
        recalled: annotated slots that agree with a found one; where places have to be equal, as many as are right.
    """

    found: int
    annotated: int
    right: int
    recalled: int

    @property
    def precision(self) -> float:
        """The share of found slots that are right; 0 where none is found."""
        return self.right / self.found if self.found else 0.0

    @property
    def recall(self) -> float:
        """The share of annotated slots that are found; 0 where none is annotated."""
        return self.recalled / self.annotated if self.annotated else 0.0

    @property
    def f1(self) -> float:
        """The harmonic mean of precision and recall."""
        both = self.precision + self.recall
        return 2 * self.precision * self.recall / both if both else 0.0

    def as_dict(self) -> dict[str, Any]:
        """The same for programs."""
        return {"precision": self.precision, "recall": self.recall, "f1": self.f1}


@dataclass(frozen=True, slots=True)
class NameScore:
    """How well the slots of one annotated name are found.

    Attributes:
        annotated: slots of that name.
        exact: how many of them are found at their place, under whatever name.
        overlapping: how many are found at least in part, under whatever name.
        named: slots that the detector gives that name, against those that people gave it, at the same place.
    """

    annotated: int
    exact: int
    overlapping: int
    named: Agreement

    def as_dict(self) -> dict[str, Any]:
        """The same for programs."""
        return {
            "annotated": self.annotated,
            "exact_recall": self.exact / self.annotated,
            "overlapping_recall": self.overlapping / self.annotated,
            "named": self.named.as_dict(),
        }


@dataclass(frozen=True, slots=True)
class DetectorScore:
    """A detector against annotated slots.

    Attributes:
        utterances: turns that were read.
        exact: slots agree if they have the same place.
        overlapping: slots agree if their places share a character.
        named: slots agree if they have the same place and the same name.
        by_name: by annotated name, most frequent first, equal counts in alphabetical order.
    """

    utterances: int
    exact: Agreement
    overlapping: Agreement
    named: Agreement
    by_name: dict[str, NameScore]

    def as_dict(self) -> dict[str, Any]:
        """The same for programs."""
        return {
            "utterances": self.utterances,
            "found": self.exact.found,
            "annotated": self.exact.annotated,
            "exact": self.exact.as_dict(),
            "overlapping": self.overlapping.as_dict(),
            "named": self.named.as_dict(),
            "by_name": {name: score.as_dict() for name, score in self.by_name.items()},
        }


def score_detector(corpus: Iterable[Dialogue], detector: Detector, speaker: str | None = USER) -> DetectorScore:
    """Precision and recall of a detector on the turns of a speaker (None: of all); of annotated slots that overlap one counts.

    Raises:
        DetectorError: if no turn has a slot.
    """
    turns = [(turn.text, slots_in_place(turn)) for _, turn in turns_of(corpus, speaker)]
    annotated: Counter[str] = Counter()
    found: Counter[str] = Counter()
    exact: Counter[str] = Counter()
    overlapping: Counter[str] = Counter()
    named: Counter[str] = Counter()
    touched = 0  # found slots that share a character with an annotated one
    for (_, marked), slots in zip(turns, detector.find_all([text for text, _ in turns]), strict=True):
        found.update(slot.name for slot in slots)
        touched += sum(_overlaps(slot, marked) for slot in slots)
        names = {(slot.start, slot.end): slot.name for slot in slots}
        for slot in marked:
            name = names.get((slot.start, slot.end))
            annotated[slot.name] += 1
            exact[slot.name] += name is not None
            named[slot.name] += name == slot.name
            overlapping[slot.name] += _overlaps(slot, slots)
    if not annotated:
        raise DetectorError(
            f"no turn of {speaker or 'any speaker'} has a slot, so there is nothing to compare a detector with"
        )

    def agreement(right: int, recalled: int) -> Agreement:
        return Agreement(found.total(), annotated.total(), right, recalled)

    return DetectorScore(
        len(turns),
        agreement(exact.total(), exact.total()),
        agreement(touched, overlapping.total()),
        agreement(named.total(), named.total()),
        {
            name: NameScore(
                count, exact[name], overlapping[name], Agreement(found[name], count, named[name], named[name])
            )
            for name, count in sorted(annotated.items(), key=lambda item: (-item[1], item[0]))
        },
    )


def _overlaps(slot: Slot, others: Sequence[Slot]) -> bool:
    return any(slot.start < other.end and other.start < slot.end for other in others)


def view_for_scores(store: Path | str, learnt_from: Sequence[Path | str] = ()) -> Corpus:
    """The part of a store that a detector is measured on: 'test', else 'valid', else everything where there are no splits.

    Args:
        store: a store with annotated slots.
        learnt_from: the stores whose split 'train' the detector has learnt from.

    Raises:
        DetectorError: if the store has splits but neither of these, or no splits and the detector has learnt from it.
    """
    opened = Store(store)
    found = {
        name
        for batch in opened.batches(["split"])
        for name in batch.column("split").unique().to_pylist()
        if name is not None
    }
    for split in ("test", "valid"):
        if split in found:
            return Corpus([opened], [split])
    if found:
        raise DetectorError(
            f"{store} has neither a test nor a valid split to measure on, only {', '.join(sorted(found))}"
        )
    if any(Path(store).samefile(other) for other in learnt_from):
        raise DetectorError(
            f"{store} has no splits: a detector that has learnt from all of it cannot be measured on it"
        )
    return Corpus([opened])
