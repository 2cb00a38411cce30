"""Texts with their intents from files that people have: CSV, TSV, JSON lines, Parquet, plain lines, or a store."""

import csv
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from turnwise.assist.intents.examples import IntentError, Pair

#: What can be read, by the ending of its name.
KINDS = (".csv", ".tsv", ".jsonl", ".parquet")

_DELIMITERS = {".csv": ",", ".tsv": "\t"}


def read_labelled(path: Path, text: str = "text", intent: str = "intent", speakers: Sequence[str] = ("user",)) -> list[Pair]:
    """Texts and intents of a file, or of the turns of a store; those that have no intent are left out.

    Args:
        path: the file, or the store.
        text: the column of texts.
        intent: the column of intents.
        speakers: whose turns are read of a store.

    Raises:
        IntentError: if it cannot be read, or nothing in it has an intent.
    """
    if path.is_dir():
        found = _of_store(path, speakers)
    else:
        rows = _rows(path, (text, intent))
        found = [(said, asked) for said, asked in rows if said.strip() and asked.strip()]
    if not found:
        raise IntentError(f"{path} has no text with an intent: there is nothing to learn from")
    return found


def read_texts(path: Path, text: str = "text") -> list[str]:
    """Texts of a file: a line each of a .txt file, or a column of a table.

    Raises:
        IntentError: if it cannot be read.
    """
    if path.suffix == ".txt":
        return [line for line in _read(path).splitlines() if line.strip()]
    return [said for (said,) in _rows(path, (text,)) if said.strip()]


def _of_store(path: Path, speakers: Sequence[str]) -> list[Pair]:
    from turnwise.corpus.store import is_store, read_corpus

    if not is_store(path):
        raise IntentError(f"{path} is a folder, and not a store: name a file ({', '.join(KINDS)}) or a store")
    turns = (turn for dialogue in read_corpus(path) for turn in dialogue.turns if turn.speaker in speakers)
    return [(turn.text, turn.intent) for turn in turns if turn.intent]


def _rows(path: Path, columns: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """The values of columns, a tuple a row; what is missing or null is an empty text."""
    if path.suffix in _DELIMITERS:
        yield from _of_table(path, columns)
    elif path.suffix == ".jsonl":
        yield from _of_lines(path, columns)
    elif path.suffix == ".parquet":
        yield from _of_parquet(path, columns)
    else:
        raise IntentError(f"{path} is neither {', '.join(KINDS[:-1])} nor {KINDS[-1]}: give a table of texts")


def _of_table(path: Path, columns: Sequence[str]) -> Iterator[tuple[str, ...]]:
    reader = csv.DictReader(_read(path).splitlines(keepends=True), delimiter=_DELIMITERS[path.suffix], strict=True)
    try:
        _check(path, reader.fieldnames or (), columns)
        for row in reader:
            yield tuple(row[column] or "" for column in columns)
    except csv.Error as error:
        raise IntentError(f"{path}, line {reader.line_num:,} is no table: {error}") from error


def _of_lines(path: Path, columns: Sequence[str]) -> Iterator[tuple[str, ...]]:
    for number, line in enumerate(_read(path).splitlines(), 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except ValueError as error:
            raise IntentError(f"{path}, line {number:,} is not JSON: {error}") from error
        if not isinstance(row, dict):
            raise IntentError(f"{path}, line {number:,} is not an object such as {{{columns[0]!r}: …}}")
        _check(path, row, columns[:1], f", line {number:,}")
        yield tuple(_word(row.get(column), path, number) for column in columns)


def _of_parquet(path: Path, columns: Sequence[str]) -> Iterator[tuple[str, ...]]:
    import pyarrow.parquet as pq
    from pyarrow import ArrowException

    try:
        with pq.ParquetFile(path) as file:
            _check(path, file.schema_arrow.names, columns)
            for batch in file.iter_batches(columns=list(columns)):
                for number, row in enumerate(batch.to_pylist(), 1):
                    yield tuple(_word(row[column], path, number) for column in columns)
    except (OSError, ArrowException) as error:
        raise IntentError(f"{path} cannot be read: {error}") from error


def _check(path: Path, known: Any, columns: Sequence[str], where: str = "") -> None:
    missing = [column for column in columns if column not in known]
    if missing:
        names = ", ".join(map(str, known)) or "none"
        raise IntentError(f"{path}{where} has no column {missing[0]!r}, but {names}: say which one has it")


def _word(value: Any, path: Path, number: int) -> str:
    if value is None:
        return ""
    if not isinstance(value, str):
        raise IntentError(f"{path}, line {number:,} has {value!r} where a text should be")
    return value


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise IntentError(f"{path} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise IntentError(f"{path} is not UTF-8 (at byte {error.start:,}): save it as UTF-8") from error
