"""MSR-E2E: `{movie,restaurant,taxi}_all.tsv`, a message per row, its acts in the columns after the text."""

import re
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

from turnwise.core.dialogue import SYSTEM, USER, Dialogue
from turnwise.corpus.readers.shared.annotations import act, find_spans
from turnwise.corpus.source.corpus_source import CorpusSource

_SPEAKERS = {"user": USER, "agent": SYSTEM}
_ACT = re.compile(r"\s*(\w+)\((.*)\)\s*", re.DOTALL)


def read(source: CorpusSource) -> Iterator[Dialogue]:
    """Read the files; consecutive rows of one session are one dialogue."""
    for path in source.files("*_all.tsv"):
        for session, rows in groupby(_read_rows(source, path), key=lambda row: row[1]):
            messages = list(rows)
            with source.dialogue(path, messages[0][0]) as builder:
                builder.id = f"{path.stem.removesuffix('_all')}/{session}"
                for number, _, speaker, text, cells in messages:
                    labels = [label for cell in cells for label in _parse_act(cell)]
                    acts = list(dict.fromkeys(act(name, slot) for name, slot, _ in labels))
                    spans = find_spans(text, [(slot, value) for _, slot, value in labels if slot and value])
                    builder.add_turn(_SPEAKERS.get(speaker, speaker), text, acts=acts, spans=spans, line=number)
            yield from builder.result()


def _read_rows(source: CorpusSource, path: Path) -> Iterator[tuple[int, str, str, str, list[str]]]:
    """Yield line, session, speaker, text, and the cells of acts."""
    columns: list[str] = []
    for number, line in source.lines(path):
        cells = line.split("\t")
        if not columns:
            columns = [cell.lower() for cell in cells[:5]]
        elif len(cells) < 5:
            source.reject(path, number, "turn", f"expected at least 5 cells, got {len(cells)}", text=line)
        else:
            row = dict(zip(columns, cells, strict=False))
            with source.guard(path, number):
                yield number, row["session.id"], row["message.from"].strip(), row["message.text"], cells[5:]


def _parse_act(cell: str) -> Iterator[tuple[str, str | None, str | None]]:
    """Yield (act, slot, value) for 'request(date;city)' or 'inform(date=today;numberofpeople=2)'."""
    match = _ACT.fullmatch(cell)
    if not match:
        return
    arguments = [argument for argument in match[2].split(";") if argument.strip()]
    if not arguments:
        yield match[1], None, None
    for argument in arguments:
        slot, equals, value = argument.partition("=")
        yield match[1], slot.strip(), value.strip(" {}") if equals else None
