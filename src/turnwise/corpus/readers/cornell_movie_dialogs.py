"""Cornell Movie-Dialogs: `movie_lines.txt` and `movie_conversations.txt`, fields parted by ` +++$+++ `, in latin-1."""

import ast
from collections.abc import Iterator

from turnwise.core.dialogue import Dialogue
from turnwise.corpus.intake import Intake

_SEPARATOR = " +++$+++ "


def read(intake: Intake) -> Iterator[Dialogue]:
    """Reads both files; the two characters of a conversation are equals."""
    lines: dict[str, tuple[str, str]] = {}
    for path in intake.files("movie_lines.txt"):
        for number, line in intake.lines(path):
            fields = line.split(_SEPARATOR, 4)
            if len(fields) == 5:
                lines[fields[0]] = fields[1], fields[4]
            elif len(fields) == 4 and line.rstrip().endswith("+++$+++"):  # a line without words
                lines[fields[0]] = fields[1], ""
            elif line.strip():
                intake.reject(path, number, "turn", f"expected 5 fields, got {len(fields)}", text=line)
    for path in intake.files("movie_conversations.txt"):
        for number, line in intake.lines(path):
            if not line.strip():
                continue
            with intake.dialogue(path, number) as draft:
                _, _, movie, names = line.split(_SEPARATOR, 3)
                numbers = _line_numbers(names)
                draft.id = f"{movie}/{numbers[0]}"
                for name in numbers:
                    character, text = lines[name]
                    draft.say(draft.peer(character), text)
            yield from draft.done()


def _line_numbers(names: str) -> list[str]:
    try:
        numbers = ast.literal_eval(names.strip())
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        raise ValueError(f"expected a list of lines, as in ['L1', 'L2'], got {names[:80]!r}") from None
    if not isinstance(numbers, list):
        raise ValueError(f"expected a list of lines, as in ['L1', 'L2'], got a {type(numbers).__name__}")
    return numbers
