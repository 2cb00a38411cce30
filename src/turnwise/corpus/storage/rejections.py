"""What an import counts and leaves out; for modules that do without pyarrow, which the store needs."""

from dataclasses import dataclass
from typing import Literal

NOT_READ = "not read"  # the fact of an import that lists the files that no reader fits
WITHOUT_ROLE = "turns of speakers without a role"  # the fact of an import that counts them
EXCERPT_LENGTH = 200  # characters of the source that a rejection quotes
RejectionKind = Literal["file", "dialogue", "turn", "slot"]  # what a rejection concerns


@dataclass(frozen=True, slots=True)
class Rejection:
    """A part of the source that is not in the store, and why."""

    file: str
    line: int | None
    kind: RejectionKind
    reason: str
    dialogue: str | None = None
    text: str | None = None


@dataclass(slots=True)
class CorpusCounts:
    """Dialogues and utterances."""

    dialogues: int = 0
    utterances: int = 0
