"""Rows of the files that people keep texts in: CSV, TSV, JSON Lines, Parquet, plain lines; read one after another."""

import csv
import json
import re
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from turnwise.core.errors import TurnwiseError

#: Files with columns, by their endings.
TABLES = (".csv", ".tsv", ".jsonl", ".parquet")

#: The same, and files of plain lines.
KINDS = (".txt", *TABLES)

_DELIMITERS = {".csv": ",", ".tsv": "\t"}

#: Halves of characters, which JSON can spell and UTF-8 cannot.
_BROKEN = re.compile("[\ud800-\udfff]")


class TableFileError(TurnwiseError):
    """A file of rows cannot be read; the message says where, why and what to do."""


@dataclass(frozen=True, slots=True)
class Row:
    """A row of a file.

    Attributes:
        path: the file.
        line: its line, counted from 1, the last of several; of a Parquet file, which has none, the number of the row.
        values: what its columns hold; None, or no such key: nothing.
    """

    path: Path
    line: int
    values: Mapping[str, Any]

    @property
    def where(self) -> str:
        """The file and the place in it, for messages."""
        return f"{self.path}, {'row' if _kind(self.path) == '.parquet' else 'line'} {self.line:,}"

    def text(self, column: str) -> str:
        """The text of a column.

        Raises:
            TableFileError: if it holds nothing, something else, or half a character.
        """
        value = self.values.get(column)
        if not isinstance(value, str):
            short = "nothing" if value is None else f"{value!r:.40}"
            raise TableFileError(
                f"{self.where}: {column!r} holds no text but {short}: write a text there, or leave the row out"
            )
        if _BROKEN.search(value):
            raise TableFileError(f"{self.where}: {column!r} holds half a character (a lone surrogate): write it whole")
        return value

    def text_if_any(self, column: str) -> str:
        """The text of a column; empty, if it holds nothing.

        Raises:
            TableFileError: if it holds something else, or half a character.
        """
        return "" if self.values.get(column) is None else self.text(column)


def check_kind(path: Path, kinds: Sequence[str]) -> None:
    """Refuses a file that is not of these kinds.

    Raises:
        TableFileError: if its name has none of these endings.
    """
    if _kind(path) not in kinds:
        raise TableFileError(f"{path} is none of {', '.join(kinds)}: give a file of one of these kinds")


def read_rows(
    path: Path,
    columns: Sequence[str],
    optional: Sequence[str] = (),
    kinds: Sequence[str] = TABLES,
    advice: str = "Give the right one that name",
) -> Iterator[Row]:
    """The rows of a file, in their order, one at a time.

    Blank lines are rows of a .txt file alone. A line of JSON that is a text, and a line of a .txt file, is what the first column
    holds. An object of JSON may leave out all columns but the first.

    Args:
        path: the file, in UTF-8 unless it is Parquet; a byte order mark is passed over.
        columns: those that must be there.
        optional: those that are read if they are there.
        kinds: the endings that are read, of `KINDS`.
        advice: what to do if a column is not there, for the message.

    Raises:
        TableFileError: if it cannot be read; what is wrong with a row is told when its turn comes.
    """
    check_kind(path, kinds)
    try:
        match _kind(path):
            case ".txt":
                yield from _of_lines(path, columns[0])
            case ".jsonl":
                yield from _of_json_lines(path, columns[0], advice)
            case ".parquet":
                yield from _of_parquet(path, columns, optional, advice)
            case kind:
                yield from _of_delimited(path, _DELIMITERS[kind], columns, optional, advice)
    except UnicodeDecodeError:
        raise TableFileError(f"{path}, line {_undecodable(path):,} is not UTF-8: save the file as UTF-8") from None
    except OSError as error:
        raise TableFileError(f"{path} cannot be read: {error.strerror or error}") from error


def _kind(path: Path) -> str:
    return path.suffix.lower()


def _of_lines(path: Path, column: str) -> Iterator[Row]:
    with path.open(encoding="utf-8-sig") as file:
        for number, line in enumerate(file, 1):
            yield Row(path, number, {column: line.removesuffix("\n")})


def _of_json_lines(path: Path, column: str, advice: str) -> Iterator[Row]:
    with path.open(encoding="utf-8-sig") as file:
        for number, line in enumerate(file, 1):
            if not line.strip():
                continue
            where = f"{path}, line {number:,}"
            try:
                value = json.loads(line)
            except (ValueError, RecursionError) as error:
                raise TableFileError(f"{where} is not JSON: {error}") from None
            if isinstance(value, str):
                value = {column: value}
            if not isinstance(value, dict):
                raise TableFileError(f'{where} is not an object such as {{"{column}": …}}, nor a text')
            _expect(where, value, [column], advice)
            yield Row(path, number, value)


def _of_parquet(path: Path, columns: Sequence[str], optional: Sequence[str], advice: str) -> Iterator[Row]:
    import pyarrow.parquet as pq
    from pyarrow import ArrowException

    number = 0
    try:
        with pq.ParquetFile(path) as file:
            known = file.schema_arrow.names
            _expect(str(path), known, columns, advice)
            read = [column for column in dict.fromkeys((*columns, *optional)) if column in known]
            _expect_once(path, known, read)
            for batch in file.iter_batches(columns=read):
                for values in batch.to_pylist():
                    number += 1
                    yield Row(path, number, values)
    except ArrowException as error:
        raise TableFileError(f"{path} cannot be read: {error}") from error
    except UnicodeDecodeError:
        raise TableFileError(f"{path} holds a text that is not UTF-8, after row {number:,}: write it anew") from None


def _of_delimited(
    path: Path, delimiter: str, columns: Sequence[str], optional: Sequence[str], advice: str
) -> Iterator[Row]:
    with path.open(encoding="utf-8-sig", newline="") as file:
        csv.field_size_limit(sys.maxsize)  # a text is as long as it is
        rows = csv.DictReader(file, delimiter=delimiter, strict=True)
        try:
            known = rows.fieldnames or []
            _expect(str(path), known, columns, advice)
            _expect_once(path, known, (*columns, *optional))
            for values in rows:
                # a text with a delimiter in it and no quotation marks around it would lose its end
                if any(values.pop(None, ())):
                    raise TableFileError(
                        f"{path}, line {rows.line_num:,} has more fields than the {len(known)} that the first line names: "
                        f"put quotation marks around texts that hold {delimiter!r}"
                    )
                yield Row(path, rows.line_num, values)
        except csv.Error as error:
            # the line on which the row begins: without its last quotation mark it would end with the file
            raise TableFileError(
                f"{path}, line {rows.line_num + 1:,} is no table: {error}; "
                "quotation marks go around a whole field, and those in it are doubled"
            ) from None


def _expect(where: str, known: Collection[str], columns: Sequence[str], advice: str) -> None:
    for column in columns:
        if column not in known:
            raise TableFileError(
                f"{where} has no column {column!r}; it has {', '.join(map(repr, known)) or 'none'}. {advice}"
            )


def _expect_once(path: Path, known: Sequence[str], columns: Sequence[str]) -> None:
    for column in columns:
        if known.count(column) > 1:
            raise TableFileError(f"{path} has {known.count(column)} columns {column!r}: leave one that name")


def _undecodable(path: Path) -> int:
    """The first line that is not UTF-8: the error in a stream knows its place in a block alone."""
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            try:
                line.decode()
            except UnicodeDecodeError:
                return number
    raise TableFileError(f"{path} changed while it was read: try again")
