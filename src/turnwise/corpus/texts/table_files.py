"""Reading the rows of CSV, TSV, JSON Lines, Parquet and plain text files, one at a time."""

import csv
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from turnwise.core.errors import CorpusError
from turnwise.corpus.source.tables import CSV_DELIMITERS, allow_long_csv_cells

#: Suffixes of files with columns.
TABLE_SUFFIXES = (".csv", ".tsv", ".jsonl", ".parquet")

#: The same, and plain text with a text per line.
TEXT_FILE_SUFFIXES = (".txt", *TABLE_SUFFIXES)

#: Lone surrogates, which JSON can represent and UTF-8 cannot.
_LONE_SURROGATE = re.compile("[\ud800-\udfff]")


@dataclass(frozen=True, slots=True)
class TableRow:
    """A row of a file."""

    path: Path
    #: Its (last) line, counted from 1; in a Parquet file the number of the row.
    line: int
    #: By column; a missing value is None or absent.
    values: Mapping[str, Any]

    @property
    def where(self) -> str:
        """The file and line, for messages."""
        return f"{self.path}, {'row' if _suffix(self.path) == '.parquet' else 'line'} {self.line:,}"

    def text(self, column: str) -> str:
        """Return the text in a column; raise a CorpusError if it is missing, or not a valid string."""
        value = self.values.get(column)
        if not isinstance(value, str):
            given = "nothing" if value is None else f"{value!r:.40}"
            raise CorpusError(f"{self.where}: {column!r} must be a text, got {given}: add one, or remove the row")
        if _LONE_SURROGATE.search(value):
            raise CorpusError(f"{self.where}: {column!r} contains a lone surrogate (half a character): correct it")
        return value

    def optional_text(self, column: str) -> str:
        """Return the text in a column, or '' if it is missing."""
        return "" if self.values.get(column) is None else self.text(column)


def check_suffix(path: Path, suffixes: Sequence[str]) -> None:
    """Raise a CorpusError if a file has none of these suffixes."""
    if _suffix(path) not in suffixes:
        raise CorpusError(f"{path} has none of the suffixes {', '.join(suffixes)}: use a file of one of these types")


def read_rows(
    path: Path,
    columns: Sequence[str],
    optional: Sequence[str] = (),
    suffixes: Sequence[str] = TABLE_SUFFIXES,
    hint: str = "Give the right one that name",
) -> Iterator[TableRow]:
    """Yield the rows of a file in order, one at a time; an invalid row raises a CorpusError when it is reached.

    A line of a .txt file, and a JSON line that is a string, is the value of the first column. A JSON object may lack
    all columns but the first. Blank lines are rows only in a .txt file.

    Args:
        path: the file, in UTF-8 (with or without a byte order mark) unless it is Parquet.
        columns: required columns.
        optional: columns that are read if present.
        suffixes: accepted suffixes, of `TEXT_FILE_SUFFIXES`.
        hint: what to do if a column is missing, for the message.
    """
    check_suffix(path, suffixes)
    try:
        match _suffix(path):
            case ".txt":
                yield from _read_lines(path, columns[0])
            case ".jsonl":
                yield from _read_json_lines(path, columns[0], hint)
            case ".parquet":
                yield from _read_parquet(path, columns, optional, hint)
            case suffix:
                yield from _read_csv(path, CSV_DELIMITERS[suffix], columns, optional, hint)
    except UnicodeDecodeError:
        line = _first_undecodable_line(path)
        raise CorpusError(f"{path}, line {line:,} is not UTF-8: save the file as UTF-8") from None
    except OSError as error:
        raise CorpusError(f"{path} cannot be read: {error.strerror or error}") from error


def _suffix(path: Path) -> str:
    return path.suffix.lower()


def _read_lines(path: Path, column: str) -> Iterator[TableRow]:
    with path.open(encoding="utf-8-sig") as file:
        for number, line in enumerate(file, 1):
            yield TableRow(path, number, {column: line.removesuffix("\n")})


def _read_json_lines(path: Path, column: str, hint: str) -> Iterator[TableRow]:
    with path.open(encoding="utf-8-sig") as file:
        for number, line in enumerate(file, 1):
            if not line.strip():
                continue
            where = f"{path}, line {number:,}"
            try:
                value = json.loads(line)
            except (ValueError, RecursionError) as error:
                raise CorpusError(f"{where} is not JSON: {error}") from None
            if isinstance(value, str):
                value = {column: value}
            if not isinstance(value, dict):
                raise CorpusError(f'{where} is neither an object such as {{"{column}": …}} nor a string')
            _check_columns(where, list(value), [column], hint)
            yield TableRow(path, number, value)


def _read_parquet(path: Path, columns: Sequence[str], optional: Sequence[str], hint: str) -> Iterator[TableRow]:
    import pyarrow.parquet as pq
    from pyarrow import ArrowException

    number = 0
    try:
        with pq.ParquetFile(path) as file:
            present = file.schema_arrow.names
            _check_columns(str(path), present, columns, hint, optional)
            selected = [column for column in dict.fromkeys((*columns, *optional)) if column in present]
            for batch in file.iter_batches(columns=selected):
                for values in batch.to_pylist():
                    number += 1
                    yield TableRow(path, number, values)
    except ArrowException as error:
        raise CorpusError(f"{path} cannot be read: {error}") from error
    except UnicodeDecodeError:
        raise CorpusError(f"{path} has a text that is not UTF-8, after row {number:,}: write it again") from None


def _read_csv(
    path: Path, delimiter: str, columns: Sequence[str], optional: Sequence[str], hint: str
) -> Iterator[TableRow]:
    with path.open(encoding="utf-8-sig", newline="") as file:
        allow_long_csv_cells()
        rows = csv.DictReader(file, delimiter=delimiter, strict=True)
        try:
            present = rows.fieldnames or []
            _check_columns(str(path), present, columns, hint, optional)
            for values in rows:
                if any(values.pop(None, ())):  # an unquoted delimiter would cut off the end of a text
                    raise CorpusError(
                        f"{path}, line {rows.line_num:,} has more fields than the {len(present)} of the header: "
                        f"put quotation marks around texts that contain {delimiter!r}"
                    )
                yield TableRow(path, rows.line_num, values)
        except csv.Error as error:
            # line_num is the line before the row, which without a closing quotation mark extends to the end of the file
            raise CorpusError(
                f"{path}, line {rows.line_num + 1:,} is not a valid row: {error}; "
                "put quotation marks around a whole field, and double those inside it"
            ) from None


def _check_columns(
    where: str, present: Sequence[str], columns: Sequence[str], hint: str, optional: Sequence[str] = ()
) -> None:
    for column in columns:
        if column not in present:
            names = ", ".join(map(repr, present)) or "none"
            raise CorpusError(f"{where} has no column {column!r}; it has {names}. {hint}")
    for column in (*columns, *optional):
        if present.count(column) > 1:
            raise CorpusError(f"{where} has {present.count(column)} columns {column!r}: rename all but one")


def _first_undecodable_line(path: Path) -> int:
    # the error of a stream knows its position only within a block
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            try:
                line.decode()
            except UnicodeDecodeError:
                return number
    raise CorpusError(f"{path} changed while it was read: try again")
