"""Canned answers from a file: a text a line, or a table with a field `text`."""

from pathlib import Path

from turnwise.assist.responses.answers import Answer
from turnwise.core.errors import TurnwiseError
from turnwise.corpus.table_files import KINDS, Row, read_rows

__all__ = ["KINDS", "AnswersError", "read_answers"]


class AnswersError(TurnwiseError):
    """An answer of a file cannot be kept; the message says where and why."""


def read_answers(path: Path) -> list[Answer]:
    """The canned answers of a file.

    Args:
        path: a .txt with an answer a line; a .csv, .tsv, .jsonl or .parquet with a field `text`, and, as wanted, `after` (what it
            answers: a text, in a .jsonl or .parquet also a list of turns), `source`, `split` and `intent`. Empty lines are passed
            over.

    Raises:
        TableFileError: if the file cannot be read.
        AnswersError: if one of its answers cannot be kept.
    """
    lines = path.suffix.lower() == ".txt"
    answers = []
    for row in read_rows(path, ["text"], ["after", "source", "split", "intent"], KINDS):
        text = row.text("text").strip() if lines else row.text("text")
        if lines and not text:
            continue
        try:
            answers.append(_answer(text, row))
        except ValueError as error:
            raise AnswersError(f"{row.where}: {error}") from error
    return answers


def _answer(text: str, row: Row) -> Answer:
    after = row.values.get("after") or ()
    turns = (after,) if isinstance(after, str) else after
    if not isinstance(turns, list | tuple):
        raise ValueError("what it answers ('after') is neither a text nor a list of texts")
    words = {name: row.values.get(name) or None for name in ("source", "split", "intent")}
    return Answer(text, tuple(turns), **words)
