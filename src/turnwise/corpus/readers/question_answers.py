"""Questions and answers as dialogues of two turns: AmazonQA, or any JSON Lines, CSV or TSV with two fields."""

import ast
from collections.abc import Iterator
from typing import Any

from turnwise.core.dialogue import SYSTEM, USER, Dialogue
from turnwise.corpus.source.corpus_source import CorpusSource
from turnwise.corpus.source.json_text import parse_json
from turnwise.corpus.source.tables import CSV_DELIMITERS

_PATTERNS = ("*.json", "*.jsonl", "*.json.gz", "*.jsonl.gz", "*.csv", "*.tsv")


def read(source: CorpusSource, *, question: str = "question", answer: str = "answer") -> Iterator[Dialogue]:
    """Read the files.

    Args:
        source: the files to read.
        question: the field of the question.
        answer: the field of the answer.
    """
    for path in source.files(*_PATTERNS):
        records: Iterator[tuple[int, Any]] = (
            source.csv_rows(path) if path.suffix in CSV_DELIMITERS else source.json_lines(path, _parse_record)
        )
        for line, record in records:
            with source.dialogue(path, line) as builder:
                builder.id = f"{source.relative_name(path)}/{line}"
                builder.add_turn(USER, record[question])
                builder.add_turn(SYSTEM, record[answer])
            yield from builder.result()


def _parse_record(line: str) -> Any:
    try:
        return parse_json(line)
    except ValueError as error:
        # AmazonQA has Python dict literals instead of JSON; evaluating a literal runs no code
        try:
            return ast.literal_eval(line.strip())
        except (ValueError, SyntaxError, MemoryError, RecursionError):
            raise ValueError(f"{error}; nor is it a Python literal") from None
