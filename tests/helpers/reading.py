"""Reading a corpus without writing a store."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

from tests.helpers.outcomes import Outcome
from turnwise.core.dialogue import Dialogue
from turnwise.core.errors import CorpusError
from turnwise.corpus.registry import get_reader
from turnwise.corpus.source.corpus_source import CorpusSource
from turnwise.corpus.storage.store import Rejection


def read_directly(
    reader: str, path: Path, **options: Any
) -> tuple[tuple[Dialogue, ...], list[Rejection], CorpusSource]:
    """Return the dialogues, the rejections, and the source with its counts."""
    spec = get_reader(reader)
    rejections: list[Rejection] = []
    source = CorpusSource(path, reader, rejections.append, spec.encoding, holes=spec.holes, start_times={})
    return tuple(spec.read(source, **options)), rejections, source


def try_reading(reader: str, path: Path, **options: Any) -> Outcome:
    """Return the outcome of reading: dialogues, rejections and what was left out, or an error."""
    try:
        dialogues, rejections, source = read_directly(reader, path, **options)
    except CorpusError as error:
        return Outcome(error=str(error) or "an error without a message")
    left_out = {name: count for name, count in source.skipped.items() if count}
    rejected = tuple(asdict(rejection) for rejection in rejections)
    return Outcome(dialogues, rejected, {"left_out": left_out}, "" if dialogues else "no dialogue")
