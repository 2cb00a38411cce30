"""Texts to be encoded, out of whatever holds them: the turns of a store, the lines of a file, the rows of a table."""

import csv
import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from turnwise.corpus.store import Store, is_store, read_corpus
from turnwise.dialogue import Turn
from turnwise.errors import TurnwiseError
from turnwise.files import sha256

#: Files that hold texts, by how they are read.
KINDS = (".txt", ".csv", ".tsv", ".jsonl", ".parquet")

#: What an encoder is given: a text, or a turn of which it may want to know the speaker.
Item = str | tuple[Turn]

#: An item, and what tells where it is from, the text last.
Row = tuple[Item, tuple[Any, ...]]


#: Halves of characters, which JSON can spell and UTF-8 cannot.
_BROKEN = re.compile("[\ud800-\udfff]")


class TextsError(TurnwiseError):
    """Texts cannot be read; the message says where and why."""


@dataclass(frozen=True, slots=True)
class Texts:
    """Texts that can be read as often as one likes, always in the same order.

    Attributes:
        schema: of what goes with each.
        identity: the same for the same texts.
        rows: reads them.
    """

    schema: pa.Schema
    identity: str
    rows: Callable[[], Iterator[Row]]


def read_texts(source: Path, column: str = "text", splits: Sequence[str] = (), speakers: Sequence[str] = ()) -> Texts:
    """The texts of a store or a file; nothing is read but what is needed to know that it can be.

    Args:
        source: a store; a .txt file, a text a line; a .csv, .tsv, .jsonl or .parquet file.
        column: the column of texts; in JSON Lines a key, or lines that are texts themselves.
        splits: of a store, dialogues of these splits alone; none: all.
        speakers: of a store, turns by these speakers alone; none: all.

    Raises:
        TextsError: if there is no such file, it is of another kind, or splits and speakers are asked of it.
    """
    if source.is_dir() and is_store(source):
        return _turns(source, splits, speakers)
    if source.is_dir():
        raise TextsError(f"{source} is a folder but not a store: import a log first, by `turnwise corpus import`")
    if not source.is_file():
        raise TextsError(f"{source} does not exist")
    if source.suffix.lower() not in KINDS:
        raise TextsError(f"{source} is neither a store nor one of {', '.join(KINDS)}")
    if splits or speakers:
        raise TextsError(f"{source} has no splits and no speakers to choose by: only a store has")

    def rows() -> Iterator[Row]:
        try:
            for number, text in _read(source, column):
                if not isinstance(text, str):
                    raise TextsError(f"{source}, row {number}: {column!r} holds no text but {_short(text)}")
                if _BROKEN.search(text):
                    raise TextsError(f"{source}, row {number}: the text holds half a character (a lone surrogate)")
                yield text, (text,)
        except UnicodeDecodeError as error:
            raise TextsError(f"{source} is not UTF-8 text ({error.reason} at byte {error.start} of a block)") from None
        except (csv.Error, pa.ArrowException, OSError) as error:
            raise TextsError(f"{source} cannot be read: {error}") from None

    return Texts(pa.schema([("text", pa.string())]), f"{sha256(source)} {column}", rows)


def _turns(folder: Path, splits: Sequence[str], speakers: Sequence[str]) -> Texts:
    store = Store(folder)

    def rows() -> Iterator[Row]:
        for dialogue in read_corpus(folder, splits=splits or None):
            for number, turn in enumerate(dialogue.turns):
                if not speakers or turn.speaker in speakers:
                    yield (turn,), (dialogue.id, number, turn.speaker, turn.text)

    schema = pa.schema([("dialogue", pa.string()), ("turn", pa.int32()), ("speaker", pa.string()), ("text", pa.string())])
    return Texts(schema, f"{store.manifest['generation']} {sorted(splits)} {sorted(speakers)}", rows)


def _read(path: Path, column: str) -> Iterator[tuple[int, Any]]:
    """The number of each row, counted from 1, and what it holds."""
    kind = path.suffix.lower()
    if kind == ".txt":
        with path.open(encoding="utf-8-sig") as file:
            yield from ((number, line.removesuffix("\n")) for number, line in enumerate(file, 1))
    elif kind == ".jsonl":
        yield from _json_lines(path, column)
    elif kind == ".parquet":
        yield from _parquet(path, column)
    else:
        with path.open(encoding="utf-8-sig", newline="") as file:
            table = csv.DictReader(file, delimiter="\t" if kind == ".tsv" else ",")
            _expect_column(path, column, table.fieldnames or ())
            yield from ((number, row[column]) for number, row in enumerate(table, 1))


def _json_lines(path: Path, column: str) -> Iterator[tuple[int, Any]]:
    with path.open(encoding="utf-8-sig") as file:
        for number, line in enumerate(file, 1):
            try:
                value = json.loads(line)
            except (ValueError, RecursionError) as error:
                raise TextsError(f"{path}, line {number} is not JSON: {error}") from None
            if isinstance(value, dict):
                _expect_column(f"{path}, line {number}", column, value)
                value = value[column]
            yield number, value


def _parquet(path: Path, column: str) -> Iterator[tuple[int, Any]]:
    with pq.ParquetFile(path) as parquet:
        _expect_column(path, column, parquet.schema_arrow.names)
        number = 0
        for batch in parquet.iter_batches(columns=[column]):
            for value in batch.column(0).to_pylist():
                number += 1
                yield number, value


def _expect_column(where: Path | str, column: str, there: Any) -> None:
    if column not in there:
        named = ", ".join(map(repr, there)) or "none"
        raise TextsError(f"{where} has no column {column!r}; it has {named}. Name the right one by --column")


def _short(value: Any) -> str:
    return "nothing" if value is None else f"{value!r:.40}"
