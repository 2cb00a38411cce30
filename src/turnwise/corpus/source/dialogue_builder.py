"""Dialogues under construction, as a reader fills them in."""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Self

from turnwise.core.dialogue import Dialogue, Slot, Turn, peer
from turnwise.corpus.hygiene.edits import apply_hole_policy
from turnwise.corpus.source.import_log import RECORD_ERRORS, ImportLog, layout_error
from turnwise.corpus.storage.rejections import RejectionKind


class DialogueBuilder:
    """A dialogue under construction.

    Fill it in a `with` block: a missing key or a wrong type there rejects this dialogue and no other. Afterwards
    `result()` yields the dialogue, or nothing if it was rejected.
    """

    def __init__(self, log: ImportLog, path: Path, line: int | None, split: str | None):
        self._log = log
        self._line = line
        self._peers: dict[str, str] = {}
        self._dialogues: list[Dialogue] = []
        self._holes: set[int] = set()
        self.path = path
        self.id = ""
        self.source = log.name
        self.split = split
        #: What the dialogue is a part of, if it shares turns with others; they are all in the same split.
        self.conversation = ""
        #: When the dialogue began, in seconds since 1970.
        self.time: float | None = None
        self.turns: list[Turn] = []

    def peer(self, name: str) -> str:
        """Return the speaker of a participant without a role, numbered by first appearance in this dialogue."""
        return self._peers.setdefault(name, peer(len(self._peers) + 1))

    def add_turn(
        self,
        speaker: str,
        text: str,
        intent: str | None = None,
        acts: Sequence[str] = (),
        spans: Iterable[tuple[str, int, int]] = (),
        line: int | None = None,
    ) -> None:
        """Add a turn, or reject it; surrounding space is stripped, and the spans (slot, start, end) are adjusted.

        `line` is the turn's own line, where it differs from the dialogue's.
        """
        self._log.counts.utterances += 1
        try:
            stripped = text.strip()
            slots = self._slots(text, stripped, spans, line) if spans else ()
            self.turns.append(Turn(speaker, stripped, intent or None, tuple(acts), slots))
        except (ValueError, AttributeError) as error:
            reason = str(error) if isinstance(text, str) else f"the text is a {type(text).__name__}, not a string"
            self._reject("turn", reason, text, line)
            self.mark_hole()

    def mark_hole(self) -> None:
        """Record that a turn is missing here."""
        self._holes.add(len(self.turns))

    def _slots(
        self, text: str, stripped: str, spans: Iterable[tuple[str, int, int]], line: int | None
    ) -> tuple[Slot, ...]:
        shift = len(text) - len(text.lstrip())
        slots = []
        for name, start, end in spans:
            try:
                slots.append(Slot.from_text(stripped, name, start - shift, end - shift))
            except ValueError as error:
                self._reject("slot", str(error), text, line)
        slots.sort(key=lambda slot: (slot.start, slot.end, slot.name))
        return tuple(slots)

    def _reject(self, kind: RejectionKind, reason: str, text: object = None, line: int | None = None) -> None:
        line = self._line if line is None else line
        self._log.reject(self.path, line, kind, reason, dialogue=self.id or None, text=text)

    def __enter__(self) -> Self:
        self._log.counts.dialogues += 1
        return self

    def __exit__(self, _: object, error: BaseException | None, *__: object) -> bool:
        if isinstance(error, RECORD_ERRORS):
            self._reject("dialogue", layout_error(error))
            return True
        if error is None:
            try:
                self._dialogues = self._finish()
            except ValueError as invalid:
                self._reject("dialogue", str(invalid))
        return False

    def _finish(self) -> list[Dialogue]:
        log = self._log
        split = log.assign_split(self.conversation or self.id) if log.assign_split else self.split
        dialogue = Dialogue(self.id, tuple(self.turns), self.source, split)
        parts = apply_hole_policy(dialogue, self._holes, log.holes)
        if not parts:
            raise ValueError("turns of this dialogue are missing (--holes drop-dialogue)")
        for part in parts:
            log.claim_id(part.id)
            if log.start_times is not None and self.time is not None:
                log.start_times[part.id] = self.time
        log.counts.split_dialogues += len(parts) > 1
        return parts

    def result(self) -> Iterator[Dialogue]:
        """Yield the finished dialogue, its parts if it has holes, or nothing: `yield from builder.result()`."""
        yield from self._dialogues
