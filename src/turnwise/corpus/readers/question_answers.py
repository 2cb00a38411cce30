"""Questions and answers as dialogues of two turns: AmazonQA's files, or any JSON Lines, CSV or TSV with two such fields."""

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from turnwise.core.dialogue import SYSTEM, USER, Dialogue
from turnwise.corpus.intake import Intake

_DELIMITERS = {".csv": ",", ".tsv": "\t"}


def read(intake: Intake, *, question: str = "question", answer: str = "answer") -> Iterator[Dialogue]:
    """Reads the files.

    Args:
        intake: where to read.
        question: the field of the question.
        answer: the field of the answer.
    """
    for path in intake.files("*.json", "*.jsonl", "*.json.gz", "*.jsonl.gz", "*.csv", "*.tsv"):
        for line, record in _records(intake, path):
            with intake.dialogue(path, line) as draft:
                draft.id = f"{intake.name(path)}/{line}"
                draft.say(USER, record[question])
                draft.say(SYSTEM, record[answer])
            yield from draft.done()


def _records(intake: Intake, path: Path) -> Iterator[tuple[int, Mapping[str, Any]]]:
    if path.suffix in _DELIMITERS:
        yield from intake.table(path, _DELIMITERS[path.suffix])
        return
    for number, line in intake.lines(path):
        if not line.strip():
            continue
        try:
            record = _record(intake, line)
        except ValueError as error:
            intake.reject(path, number, "dialogue", str(error), text=line)
        else:
            yield number, record


def _record(intake: Intake, line: str) -> Any:
    try:
        return intake.json(line)
    except ValueError as error:
        # AmazonQA writes Python's dict literals, which JSON is not; a literal is data and runs nothing
        try:
            return ast.literal_eval(line.strip())
        except (ValueError, SyntaxError, MemoryError, RecursionError):
            raise ValueError(f"{error}; nor is it a Python literal") from None
