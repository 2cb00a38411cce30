"""Canned answers from a file: a text a line, or a table with a field `text`."""

import csv
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from turnwise.assist.responses.answers import Answer
from turnwise.errors import TurnwiseError

#: The files that can be read, by their endings.
KINDS = (".txt", ".csv", ".jsonl")


class AnswersError(TurnwiseError):
    """A file of answers cannot be read; the message says why and what to do."""


def read_answers(path: Path) -> list[Answer]:
    """The canned answers of a file.

    Args:
        path: a .txt with an answer a line; a .csv or a .jsonl with a field `text`, and, as wanted, `after` (what it answers: a
            text, in a .jsonl also a list of turns), `source`, `split` and `intent`. Empty lines are passed over.

    Raises:
        AnswersError: if the file cannot be read, or one of its answers cannot be kept.
    """
    if path.suffix not in KINDS:
        raise AnswersError(f"{path} is none of {', '.join(KINDS)}: answers are read from those")
    try:
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise AnswersError(f"{path} is not UTF-8 ({error}): save it as UTF-8") from error
    except OSError as error:
        raise AnswersError(f"{path} cannot be read: {error.strerror}") from error
    answers = []
    for line, record in _records(path, text):
        try:
            answers.append(_answer(record))
        except ValueError as error:
            raise AnswersError(f"{path}, line {line}: {error}") from error
    return answers


def _records(path: Path, text: str) -> Iterator[tuple[int, Any]]:
    """What a file holds, with the line on which each record ends."""
    if path.suffix == ".csv":
        rows = csv.DictReader(text.splitlines(keepends=True))
        for row in rows:
            yield rows.line_num, row
        return
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        if path.suffix == ".txt":
            yield number, {"text": line.strip()}
            continue
        try:
            yield number, json.loads(line)
        except ValueError as error:
            raise AnswersError(f"{path}, line {number} is not JSON: {error}") from error


def _answer(record: Any) -> Answer:
    if not isinstance(record, dict) or not isinstance(record.get("text"), str):
        raise ValueError("an answer needs a field 'text' that holds a text")
    after = record.get("after") or ()
    turns = (after,) if isinstance(after, str) else after
    if not isinstance(turns, list | tuple):
        raise ValueError("what it answers ('after') is neither a text nor a list of texts")
    words = {name: record.get(name) or None for name in ("source", "split", "intent")}
    return Answer(record["text"], tuple(turns), **words)
