"""How the cells of a table are separated and quoted, and detecting it."""

import csv
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from io import StringIO
from pathlib import Path

from turnwise.corpus.source.encodings import SAMPLE_SIZE

CSV_DELIMITERS = {".csv": ",", ".tsv": "\t", ".tab": "\t"}  # delimiters of table files by suffix
_DELIMITERS = (",", ";", "\t", "|")


@dataclass(frozen=True, slots=True)
class TableDialect:
    """How the cells of a table are separated and quoted."""

    delimiter: str = ","
    quote: str = '"'  # empty: quotation marks are part of the text
    backslash: bool = False  # whether a backslash, not a doubled quotation mark, escapes a quotation mark within a cell

    def rows(self, lines: Iterable[str]) -> Iterator[tuple[int, list[str] | csv.Error]]:
        """Yield each row with its first line, counted from 1; in place of a malformed row, what is wrong with it."""
        allow_long_csv_cells()
        reader = csv.reader(
            lines,
            delimiter=self.delimiter,
            quotechar=self.quote or None,
            quoting=csv.QUOTE_MINIMAL if self.quote else csv.QUOTE_NONE,
            escapechar="\\" if self.backslash else None,
            doublequote=not self.backslash,
            strict=True,
        )
        while True:
            number = reader.line_num + 1
            try:
                yield number, next(reader)
            except StopIteration:
                return
            except csv.Error as error:
                yield number, error

    def __str__(self) -> str:
        delimiter = {"\t": "tab"}.get(self.delimiter, self.delimiter)
        quoting = f"quoted by {self.quote}" if self.quote else "without quoting"
        return f"delimiter {delimiter}, {quoting}{', backslash escapes' if self.backslash else ''}"


def detect_dialect(sample: str, preferred: str = ",", columns: Sequence[str] = ()) -> TableDialect:
    """Return the dialect with the expected columns in which most rows have as many cells as the header."""
    delimiters = sorted(_DELIMITERS, key=lambda delimiter: delimiter != preferred)
    quoting = (('"', False), ('"', True), ("", False), ("'", False))
    dialects = [TableDialect(delimiter, *variant) for variant in quoting for delimiter in delimiters]
    return max(dialects, key=lambda dialect: _fit(dialect, sample, columns))  # the first one of several equal ones


def _fit(dialect: TableDialect, sample: str, columns: Sequence[str]) -> tuple[int, bool, float]:
    """Return how many expected columns the header has, whether it has several, and the fraction of complete rows."""
    widths, header = [], None
    for _, row in dialect.rows(StringIO(sample, newline="")):
        if isinstance(row, csv.Error):
            widths.append(-1)
        elif header is None and row:
            header = row
        elif row:
            widths.append(len(row))
    if header is None:
        return 0, False, 0.0
    if len(sample) >= SAMPLE_SIZE:  # the last row is cut off
        del widths[-1:]
    found = sum(column in header for column in columns)
    return found, len(header) > 1, sum(width == len(header) for width in widths) / max(1, len(widths))


def implied_delimiter(path: Path) -> str:
    """Return the delimiter that the suffixes of a file imply; a comma if they imply none."""
    suffixes = (suffix.lower() for suffix in reversed(path.suffixes))
    return next((CSV_DELIMITERS[suffix] for suffix in suffixes if suffix in CSV_DELIMITERS), ",")


def allow_long_csv_cells() -> None:
    """Lift the csv module's limit of 128 KiB for a cell, which may hold a whole e-mail; the setting is global."""
    csv.field_size_limit(max(csv.field_size_limit(), sys.maxsize))
