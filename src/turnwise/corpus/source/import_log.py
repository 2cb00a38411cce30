"""What an import reads, skips and rejects."""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from turnwise.corpus.hygiene.edits import HolePolicy
from turnwise.corpus.storage.rejections import EXCERPT_LENGTH, Rejection, RejectionKind

#: Characters of a rejected row that are masked before it is cut to its excerpt.
_MASKED_LENGTH = 4_000

#: What a wrong type or a missing key raises while a reader takes a record apart.
RECORD_ERRORS = (KeyError, IndexError, TypeError, AttributeError, ValueError)


@dataclass(slots=True)
class ReadCounts:
    """What is in the files, whether accepted or not."""

    dialogues: int = 0
    utterances: int = 0
    #: Rejections other than of single slots.
    rejected_rows: int = 0
    #: Dialogues that were split at holes.
    split_dialogues: int = 0
    bytes: int = 0


@dataclass(frozen=True, slots=True)
class ImportLog:
    """The rules of an import, and a record of what it reads, skips and rejects."""

    #: The file or folder to read; files are reported relative to it, so that no local path leaks.
    root: Path
    #: The `source` of the dialogues.
    name: str
    #: Called for everything that is rejected; may raise to stop.
    on_rejection: Callable[[Rejection], None]
    #: Masks personal data in what is reported of rejected rows.
    mask: Callable[[str], str] = lambda text: text
    #: What becomes of the turns around one that cannot be read.
    holes: HolePolicy = "keep"
    #: Returns the split of the conversation with that id; None: the splits of the source.
    assign_split: Callable[[str], str] | None = None
    #: When dialogues began, in seconds since 1970, by id; None: not recorded.
    start_times: dict[str, float] | None = None
    counts: ReadCounts = field(default_factory=ReadCounts)
    #: What the reader leaves out by design (tool messages, negatives), by name.
    skipped: Counter[str] = field(default_factory=Counter)
    #: Values that the reader determines and the manifest records.
    facts: dict[str, Any] = field(default_factory=dict)
    _ids: set[str] = field(default_factory=set)

    @property
    def rejected_rows(self) -> int:
        """The rejections so far, other than of single slots."""
        return self.counts.rejected_rows

    def relative_name(self, path: Path) -> str:
        """Return the name of a file relative to the root."""
        name = path.name if path == self.root else path.relative_to(self.root).as_posix()
        return name.encode("utf-8", "backslashreplace").decode()  # a file name need not be valid Unicode

    def reported_name(self, path: Path) -> str:
        """Return the name of a file in rejections and manifests."""
        return self.mask(self.relative_name(path))

    def claim_id(self, dialogue_id: str) -> None:
        """Register a dialogue's id; raise a ValueError for a duplicate."""
        if dialogue_id in self._ids:
            raise ValueError(f"the id {dialogue_id!r} was there before")
        self._ids.add(dialogue_id)

    @contextmanager
    def guard(self, path: Path, line: int) -> Iterator[None]:
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
        dialogue_id = None if dialogue is None else self._excerpt(dialogue)
        name, reason = self.reported_name(path), self._excerpt(reason, 2 * EXCERPT_LENGTH)
        self.counts.rejected_rows += kind != "slot"
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
