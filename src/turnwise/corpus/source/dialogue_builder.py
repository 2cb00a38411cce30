"""Dialogues under construction, as a reader fills them in, and what an import reads, skips and rejects."""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from turnwise.core.dialogue import Dialogue, Slot, Turn, peer
from turnwise.corpus.hygiene.edits import HolePolicy, apply_hole_policy
from turnwise.corpus.storage.rejections import EXCERPT_LENGTH, Rejection, RejectionKind

if TYPE_CHECKING:
    from turnwise.corpus.storage.fingerprints import TextSet

_MASKED_LENGTH = 4_000  # characters of a rejected row that are masked before it is cut to its excerpt

#: What a wrong type or a missing key raises while a reader takes a record apart.
RECORD_ERRORS = (KeyError, IndexError, TypeError, AttributeError, ValueError)


def empty_text_set() -> "TextSet":
    """Return a set of no texts."""
    from turnwise.corpus.storage.fingerprints import TextSet  # here, because it imports NumPy

    return TextSet()


@dataclass(slots=True)
class ReadCounts:
    """What is in the files, whether accepted or not."""

    dialogues: int = 0
    utterances: int = 0
    accepted: int = 0  # utterances of dialogues that were accepted
    rejected_rows: int = 0  # rejections other than of single slots
    messages: int = 0  # messages of logs that are sorted
    split_dialogues: int = 0  # dialogues that were split at holes
    bytes: int = 0


@dataclass(frozen=True, slots=True)
class ImportLog:
    """The rules of an import, and a record of what it reads, skips and rejects."""

    root: Path  # the file or folder to read; files are reported relative to it, so that no local path leaks
    name: str  # the `source` of the dialogues
    on_rejection: Callable[[Rejection], None]  # called for everything that is rejected; may raise to stop
    mask: Callable[[str], str] = lambda text: text  # masks personal data in what is reported of rejected rows
    mask_id: Callable[[str], str] = lambda text: text  # masks the ids of dialogues and the names of files
    holes: HolePolicy = "keep"  # what becomes of the turns around one that cannot be read
    sample: int | None = None  # the messages of a log to read before it is sorted; None: all
    #: Returns the split of a conversation by its id and its split in the source; None: the splits of the source.
    assign_split: Callable[[str, str | None], str] | None = None
    #: When dialogues began, in seconds since 1970, by id; None: not recorded.
    start_times: dict[str, float] | None = None
    counts: ReadCounts = field(default_factory=ReadCounts)
    #: What the reader leaves out although it may belong to a conversation (messages without text), by name.
    skipped: Counter[str] = field(default_factory=Counter)
    #: What it leaves out because it is no part of a conversation, or not wanted (events, private notes), by name.
    by_design: Counter[str] = field(default_factory=Counter)
    facts: dict[str, Any] = field(default_factory=dict)  # values that the reader determines and the manifest records
    intent_descriptions: dict[str, str] = field(default_factory=dict)  # by intent, where the format has them
    ids: "TextSet" = field(default_factory=empty_text_set)  # the ids of the dialogues so far

    @property
    def left_out(self) -> dict[str, int]:
        """Everything that the reader left out, by name."""
        return {name: count for name, count in (self.skipped + self.by_design).items() if count}

    def relative_name(self, path: Path) -> str:
        """Return the name of a file relative to the root."""
        name = path.name if path == self.root else path.relative_to(self.root).as_posix()
        return name.encode("utf-8", "backslashreplace").decode()  # a file name need not be valid Unicode

    def reported_name(self, path: Path) -> str:
        """Return the name of a file in rejections and manifests."""
        return self.mask_id(self.relative_name(path))

    @property
    def has_sample(self) -> bool:
        """Whether the sample is complete; then nothing more is read."""
        return self.sample is not None and self.counts.messages >= self.sample

    def count_fact(self, fact: str) -> None:
        """Count an occurrence of something that the manifest records."""
        self.facts[fact] = self.facts.get(fact, 0) + 1

    def describe_intent(self, intent: str, description: Any) -> None:
        """Record the description of an intent, if there is one."""
        if isinstance(description, str) and description.strip():
            self.intent_descriptions[intent] = description.strip()

    @contextmanager
    def guard(self, path: Path, line: int | None) -> Iterator[None]:
        """Reject a record, and only that one, if taking it apart fails."""
        try:
            yield
        except RECORD_ERRORS as error:
            self.reject(path, line, "dialogue", layout_error(error))

    def reject(
        self,
        path: Path,
        line: int | None,
        kind: RejectionKind,
        reason: str,
        *,
        dialogue: str | None = None,
        text: object = None,
    ) -> None:
        """Report that something is left out."""
        excerpt = None if text is None else self._excerpt(text)
        dialogue_id = (
            None if dialogue is None else _quote(self.mask_id(_quote(dialogue, _MASKED_LENGTH)), EXCERPT_LENGTH)
        )
        name, reason = self.reported_name(path), self._excerpt(reason, 2 * EXCERPT_LENGTH)
        self.counts.rejected_rows += kind != "slot"
        self.counts.utterances += kind == "turn"
        self.on_rejection(Rejection(name, line, kind, reason, dialogue_id, excerpt))

    def _excerpt(self, value: object, length: int = EXCERPT_LENGTH) -> str:
        """Return the beginning of a value, masked before it is cut: half a number would not be recognised."""
        return _quote(self.mask(_quote(value, _MASKED_LENGTH)), length)


def layout_error(error: BaseException) -> str:
    """Return the reason for rejecting a record that could not be taken apart."""
    return f"not the expected layout: {f'{error.args[0]!r} is missing' if isinstance(error, KeyError) else error}"


def _quote(value: object, length: int) -> str:
    try:
        text = str(value)
    except (RecursionError, ValueError):  # nested too deeply, or an integer with too many digits
        text = f"a {type(value).__name__}"
    return text[:length].encode("utf-8", "backslashreplace").decode()  # it may contain the undecodable bytes


class DialogueBuilder:
    """A dialogue, filled in a `with` block, in which errors reject it alone; then `result()` yields it or nothing."""

    def __init__(self, log: ImportLog, path: Path, line: int | None, split: str | None):
        self._log = log
        self._line = line
        self._peers: dict[str, str] = {}
        self._peer_names = map(peer, count(1))
        self._dialogues: list[Dialogue] = []
        self._holes: set[int] = set()
        self.path = path
        self.id = ""
        self.source = log.name
        self.split = split
        #: What the dialogue is a part of, if it shares turns with others; they are all in the same split.
        self.conversation = ""
        self.time: float | None = None  # when the dialogue began, in seconds since 1970
        self.turns: list[Turn] = []

    def peer(self, name: str, taken: Collection[str] = ()) -> str:
        """Return the speaker of a participant without a role, numbered by first appearance, but none of `taken`."""
        if name not in self._peers:
            self._peers[name] = next(speaker for speaker in self._peer_names if speaker not in taken)
        return self._peers[name]

    def add_turn(
        self,
        speaker: str,
        text: str,
        intent: str | None = None,
        acts: Sequence[str] = (),
        spans: Iterable[tuple[str, int, int]] = (),
        line: int | None = None,
    ) -> None:
        """Add a turn, stripped and with its spans (slot, start, end) adjusted, or reject it; `line` is its own."""
        try:
            stripped = text.strip()
            slots = self._slots(text, stripped, spans, line) if spans else ()
            self.turns.append(Turn(speaker, stripped, intent or None, tuple(acts), slots))
            self._log.counts.utterances += 1
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
        shift, slots = len(text) - len(text.lstrip()), []
        for name, start, end in spans:
            try:
                slots.append(Slot.from_text(stripped, name, start - shift, end - shift))
            except ValueError as error:
                self._reject("slot", str(error), text, line)
        return tuple(sorted(slots, key=lambda slot: (slot.start, slot.end, slot.name)))

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
        split = log.assign_split(self.conversation or self.id, self.split) if log.assign_split else self.split
        dialogue = Dialogue(self.id, tuple(self.turns), self.source, split)
        parts = apply_hole_policy(dialogue, self._holes, log.holes)
        if not parts:
            raise ValueError("turns of this dialogue are missing (--holes drop-dialogue)")
        for part in parts:
            if not log.ids.add(part.id):
                raise ValueError(f"the id {part.id!r} was there before")
            if log.start_times is not None and self.time is not None:
                log.start_times[part.id] = self.time
        log.counts.accepted += sum(len(part.turns) for part in parts)
        log.counts.split_dialogues += len(parts) > 1
        return parts

    def result(self) -> Iterator[Dialogue]:
        """Yield the finished dialogue, its parts if it has holes, or nothing: `yield from builder.result()`."""
        yield from self._dialogues
