"""Reading a corpus without writing a store."""

import zipfile
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tests.helpers.outcomes import Outcome
from turnwise.core.dialogue import Dialogue
from turnwise.core.errors import CorpusError
from turnwise.corpus.registry import get_reader
from turnwise.corpus.source.corpus_source import CorpusSource
from turnwise.corpus.storage.rejections import Rejection


def read_directly(
    reader: str, path: Path, **options: Any
) -> tuple[tuple[Dialogue, ...], list[Rejection], CorpusSource]:
    """Return the dialogues, the rejections, and the source with its counts."""
    spec = get_reader(reader)
    rejections: list[Rejection] = []
    encoding = options.pop("encoding", spec.encoding)
    source = CorpusSource(path, reader, rejections.append, encoding=encoding, holes=spec.holes, start_times={})
    return tuple(spec.read(source, **options)), rejections, source


def try_reading(reader: str, path: Path, **options: Any) -> Outcome:
    """Return the outcome of reading: dialogues, rejections and what was left out, or an error."""
    try:
        dialogues, rejections, source = read_directly(reader, path, **options)
    except CorpusError as error:
        return Outcome(error=str(error) or "an error without a message")
    left_out = source.left_out
    rejected = tuple(asdict(rejection) for rejection in rejections)
    return Outcome(dialogues, rejected, {"left_out": left_out}, "" if dialogues else "no dialogue")


def utterances(dialogue: Dialogue) -> list[tuple[str, str]]:
    """Return speaker and text of every turn."""
    return [(turn.speaker, turn.text) for turn in dialogue.turns]


def texts(dialogue: Dialogue) -> list[str]:
    return [turn.text for turn in dialogue.turns]


def zip_up(folder: Path, archive: Path) -> Path:
    """Write the files of a folder into a zip file; return its path."""
    with zipfile.ZipFile(archive, "w") as file:
        for path in sorted(folder.rglob("*")):
            file.write(path, path.relative_to(folder))
    return archive
