"""Reading a corpus without writing a store."""

from pathlib import Path
from typing import Any

from turnwise.core.dialogue import Dialogue
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
