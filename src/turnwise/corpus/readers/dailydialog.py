"""DailyDialog in ConvLab's unified layout: `dialogues.json`; each utterance's act is the authors' (inform, question, …)."""

from collections.abc import Iterator

from turnwise.core.dialogue import Dialogue
from turnwise.corpus.intake import Intake
from turnwise.corpus.readers.unified import read_unified


def read(intake: Intake) -> Iterator[Dialogue]:
    """Reads the file."""
    for path in intake.files("dialogues.json"):
        yield from read_unified(intake, path)
