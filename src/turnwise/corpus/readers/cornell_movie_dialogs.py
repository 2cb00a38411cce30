"""Cornell Movie-Dialogs: `movie_lines.txt` and `movie_conversations.txt`, separated by ` +++$+++ `, in latin-1."""

import ast
from collections.abc import Iterator

from turnwise.core.dialogue import Dialogue
from turnwise.corpus.source.corpus_source import CorpusSource

_SEPARATOR = " +++$+++ "


def read(source: CorpusSource) -> Iterator[Dialogue]:
    """Read both files; the two characters of a conversation have no roles."""
    lines: dict[str, tuple[str, str]] = {}
    for path, number, line in source.records(source.lines, "movie_lines.txt"):
        fields = line.split(_SEPARATOR, 4)
        if len(fields) == 5:
            lines[fields[0]] = fields[1], fields[4]
        elif len(fields) == 4 and line.rstrip().endswith("+++$+++"):  # a line without text
            lines[fields[0]] = fields[1], ""
        elif line.strip():
            source.reject(path, number, "turn", f"expected 5 fields, got {len(fields)}", text=line)
    for path, number, line in source.records(source.lines, "movie_conversations.txt"):
        if not line.strip():
            continue
        with source.dialogue(path, number) as builder:
            _, _, movie, names = line.split(_SEPARATOR, 3)
            line_ids = _parse_line_ids(names)
            builder.id = f"{movie}/{line_ids[0]}"
            for line_id in line_ids:
                character, text = lines[line_id]
                builder.add_turn(builder.peer(character), text)
        yield from builder.result()


def _parse_line_ids(names: str) -> list[str]:
    try:
        line_ids = ast.literal_eval(names.strip())
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        line_ids = None
    if not isinstance(line_ids, list):
        raise ValueError(f"expected a list of lines, as in ['L1', 'L2'], got {names[:80]!r}")
    return line_ids
