"""A store with detected slots, made of one without."""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

from turnwise.core.dialogue import USER, Dialogue, Turn
from turnwise.core.progress import Progress, silent
from turnwise.corpus.slots.detector import Detector
from turnwise.corpus.source import CorpusError
from turnwise.corpus.store import Store, StoreWriter, derived_manifest

#: Dialogues that are held at once, so that a detector can read many texts together.
_TOGETHER = 512


@dataclass(frozen=True, slots=True)
class Detection:
    """What was found in a store.

    Attributes:
        utterances: turns that were read: those of the speaker.
        with_slots: how many of them have a slot now.
        slots: how many slots they have.
    """

    utterances: int
    with_slots: int
    slots: int

    def as_dict(self) -> dict[str, Any]:
        """The same for programs."""
        return asdict(self)


def detect_slots(
    corpus: Iterable[Dialogue], detector: Detector, *, speaker: str | None = USER, replace_slots: bool = False
) -> Iterator[Dialogue]:
    """The same dialogues with detected slots in every turn of a speaker; a stream.

    Args:
        corpus: dialogues.
        detector: what finds the slots.
        speaker: whose turns; None: everyone's. Other turns stay as they are.
        replace_slots: whether slots that such turns have are given up; otherwise they are refused.

    Raises:
        CorpusError: if a turn of the speaker has slots that are not to be replaced.
    """
    dialogues = iter(corpus)
    while together := list(islice(dialogues, _TOGETHER)):
        if not replace_slots:
            _refuse_annotated(together, speaker)
        texts = [turn.text for dialogue in together for turn in dialogue.turns if speaker in (None, turn.speaker)]
        found = iter(detector.find_all(texts))
        for dialogue in together:
            turns = tuple(
                replace(turn, slots=next(found)) if speaker in (None, turn.speaker) else turn for turn in dialogue.turns
            )
            yield replace(dialogue, turns=turns)


def _refuse_annotated(dialogues: Iterable[Dialogue], speaker: str | None) -> None:
    for dialogue in dialogues:
        for turn in dialogue.turns:
            if turn.slots and speaker in (None, turn.speaker):
                raise CorpusError(
                    f"dialogue {dialogue.id} has slots already ({turn.slots[0].name} in {turn.text!r}): detected ones would take "
                    "their place; ask for that with --replace"
                )


def detect_store(
    store: Path | str,
    out: Path | str,
    detector: Detector,
    *,
    speaker: str | None = USER,
    replace_slots: bool = False,
    progress: Progress = silent,
) -> tuple[Store, Detection]:
    """Writes a store with detected slots, all splits in it; its manifest holds the detector and says what the store was made of.

    Args:
        store: the store to read.
        out: the store to write; one that is there is replaced when all is done.
        detector: what finds the slots; the manifest keeps it under `detector`, for `kinds.detector_from`.
        speaker: whose turns; None: everyone's. Other turns stay as they are.
        replace_slots: whether slots that such turns have are given up; otherwise they are refused.
        progress: told how many dialogues were written.

    Raises:
        CorpusError: if a turn of the speaker has slots that are not to be replaced, no turn is the speaker's, or `out` is the
            store that is read.
    """
    store, out = Path(store), Path(out)
    opened = Store(store)
    if out.exists() and out.samefile(store):
        raise CorpusError(f"{out} is the store that is read: choose another --out")
    counts: Counter[str] = Counter()
    with StoreWriter(out) as writer:
        for dialogue in detect_slots(opened, detector, speaker=speaker, replace_slots=replace_slots):
            writer.write(dialogue)
            _count(counts, dialogue.turns, speaker)
            if writer.counts.dialogues % _TOGETHER == 0:
                progress("detecting slots", writer.counts.dialogues, len(opened))
        detection = Detection(counts["utterances"], counts["with_slots"], counts["slots"])
        if not detection.utterances:
            raise CorpusError(f"{store}: no turn is spoken by {speaker}: name another --speaker")
        options = {"speaker": speaker, "replace": replace_slots}
        read = {"dialogues": writer.counts.dialogues, "utterances": writer.counts.utterances}
        manifest = derived_manifest(opened, "detect", options, read, detection.as_dict())
        writer.commit(manifest | {"detector": detector.to_json()})
    return Store(out), detection


def _count(counts: Counter[str], turns: Iterable[Turn], speaker: str | None) -> None:
    for turn in turns:
        if speaker in (None, turn.speaker):
            counts.update(utterances=1, with_slots=bool(turn.slots), slots=len(turn.slots))
