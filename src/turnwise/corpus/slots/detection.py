"""Slot detection in a store, and its evaluation against annotated slots."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

from turnwise.core.dialogue import USER, Dialogue, Slot
from turnwise.core.errors import CorpusError
from turnwise.core.progress import Progress, silent
from turnwise.corpus.slots.detectors import Detector
from turnwise.corpus.slots.templates import iterate_turns, non_overlapping_slots
from turnwise.corpus.storage.corpus import Corpus
from turnwise.corpus.storage.store import Store
from turnwise.corpus.storage.writing import StoreWriter, derived_provenance, open_for_copy

_BATCH = 512  # dialogues in memory at once, so that a detector can read many texts together


def detect_slots(
    corpus: Iterable[Dialogue], detector: Detector, *, speaker: str | None = USER, replace_slots: bool = False
) -> Iterator[Dialogue]:
    """Yield dialogues with detected slots in the turns of a speaker (None: of all).

    Raises a CorpusError if such a turn has slots already, unless `replace_slots` is set.
    """
    dialogues = iter(corpus)
    while batch := list(islice(dialogues, _BATCH)):
        turns = list(iterate_turns(batch, speaker))
        for dialogue, turn in turns if not replace_slots else ():
            if turn.slots:
                raise CorpusError(
                    f"dialogue {dialogue.id} already has slots ({turn.slots[0].name} in {turn.text!r}): "
                    "replace them by detected ones with --replace"
                )
        found = iter(detector.find_all([turn.text for _, turn in turns]))
        for dialogue in batch:
            changed = (
                replace(turn, slots=next(found)) if speaker in (None, turn.speaker) else turn for turn in dialogue.turns
            )
            yield replace(dialogue, turns=tuple(changed))


def detect_store(
    store: Path | str,
    out: Path | str,
    detector: Detector,
    *,
    speaker: str | None = USER,
    replace_slots: bool = False,
    progress: Progress = silent,
) -> Store:
    """Write a store with the slots detected in the turns of a speaker (None: of all); its manifest has the detector."""
    opened = open_for_copy(store, out)
    facts = Counter(utterances=0, with_slots=0, slots=0)
    with StoreWriter(Path(out)) as writer:
        for dialogue in detect_slots(opened, detector, speaker=speaker, replace_slots=replace_slots):
            writer.write(dialogue)
            for _, turn in iterate_turns([dialogue], speaker):
                facts.update(utterances=1, with_slots=bool(turn.slots), slots=len(turn.slots))
            if writer.counts.dialogues % _BATCH == 0:
                progress("detecting slots", writer.counts.dialogues, len(opened))
        if not facts["utterances"]:
            raise CorpusError(f"{store} has no turn of the speaker {speaker}: name another --speaker")
        options = {"speaker": speaker, "replace": replace_slots}
        read = {"dialogues": writer.counts.dialogues, "utterances": writer.counts.utterances}
        manifest = derived_provenance(opened, "detect", options, read, facts)
        return writer.commit(manifest | {"detector": detector.to_json()})


def score_detector(corpus: Iterable[Dialogue], detector: Detector, speaker: str | None = USER) -> dict[str, Any]:
    """Return precision, recall and F1 of a detector on the turns of a speaker (None: of all), for JSON.

    `exact` counts slots with the same span, `overlapping` those that share a character, `named` those with the same
    span and name; `by_name` has the counts and recalls by annotated name, most frequent first. Raise a CorpusError if
    no turn has a slot.
    """
    turns = [(turn.text, non_overlapping_slots(turn)) for _, turn in iterate_turns(corpus, speaker)]
    annotated, detected, exact, overlapping, named = (Counter[str]() for _ in range(5))
    right_in_part = 0  # detected slots that share a character with an annotated one
    for (_, expected), slots in zip(turns, detector.find_all([text for text, _ in turns]), strict=True):
        detected.update(slot.name for slot in slots)
        right_in_part += sum(_overlaps(slot, expected) for slot in slots)
        names = {(slot.start, slot.end): slot.name for slot in slots}
        for slot in expected:
            name = names.get((slot.start, slot.end))
            annotated[slot.name] += 1
            exact[slot.name] += name is not None
            named[slot.name] += name == slot.name
            overlapping[slot.name] += _overlaps(slot, slots)
    if not annotated:
        raise CorpusError(f"no turn of {speaker or 'any speaker'} has a slot to compare a detector with")
    found, total = detected.total(), annotated.total()
    return {
        "utterances": len(turns),
        "found": found,
        "annotated": total,
        "exact": _agreement(exact.total(), found, exact.total(), total),
        "overlapping": _agreement(right_in_part, found, overlapping.total(), total),
        "named": _agreement(named.total(), found, named.total(), total),
        "by_name": {
            name: {
                "annotated": count,
                "exact_recall": exact[name] / count,
                "overlapping_recall": overlapping[name] / count,
                "named": _agreement(named[name], detected[name], named[name], count),
            }
            for name, count in sorted(annotated.items(), key=lambda item: (-item[1], item[0]))
        },
    }


def _agreement(right: int, found: int, recalled: int, annotated: int) -> dict[str, float]:
    """Return how far detected slots, some of them right, and annotated slots, some of them recalled, agree."""
    precision, recall = right / max(1, found), recalled / max(1, annotated)
    return {"precision": precision, "recall": recall, "f1": 2 * precision * recall / ((precision + recall) or 1)}


def _overlaps(slot: Slot, others: Sequence[Slot]) -> bool:
    return any(slot.start < other.end and other.start < slot.end for other in others)


def open_test_split(store: Path | str, learnt_from: Sequence[Path | str] = ()) -> Corpus:
    """Open what a detector is tested on: 'test', else 'valid', else a store without splits that it has not read."""
    opened = Store(store)
    splits = opened.splits()
    for split in ("test", "valid"):
        if split in splits:
            return Corpus([opened], [split])
    if splits:
        raise CorpusError(f"{store} has no test or valid split to evaluate on, only {', '.join(sorted(splits))}")
    if any(Path(store).samefile(other) for other in learnt_from):
        raise CorpusError(f"{store} has no splits: a detector that has learnt from it cannot be evaluated on it")
    return Corpus([opened])
