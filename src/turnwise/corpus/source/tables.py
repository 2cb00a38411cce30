"""How the cells of a table are separated and quoted, and detecting it."""

import csv
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from io import StringIO
from typing import TYPE_CHECKING

from turnwise.corpus.source.encodings import SAMPLE_SIZE

if TYPE_CHECKING:
    import _csv

#: Delimiters of table files by suffix.
CSV_DELIMITERS = {".csv": ",", ".tsv": "\t", ".tab": "\t"}

_DELIMITERS = (",", ";", "\t", "|")


@dataclass(frozen=True, slots=True)
class TableDialect:
    """How the cells of a table are separated and quoted."""

    delimiter: str = ","
    #: Empty: quotation marks are part of the text.
    quote: str = '"'
    #: Whether a backslash, not a doubled quotation mark, escapes a quotation mark within a cell.
    backslash: bool = False

    def rows(self, lines: Iterator[str]) -> "_csv.Reader":
        """Return a reader of the rows; it raises a csv.Error at a malformed one."""
        return csv.reader(
            lines,
            delimiter=self.delimiter,
            quotechar=self.quote or None,
            quoting=csv.QUOTE_MINIMAL if self.quote else csv.QUOTE_NONE,
            escapechar="\\" if self.backslash else None,
            doublequote=not self.backslash,
            strict=True,
        )

    def __str__(self) -> str:
        delimiter = {"\t": "tab"}.get(self.delimiter, self.delimiter)
        quoting = f"quoted by {self.quote}" if self.quote else "without quoting"
        return f"delimiter {delimiter}, {quoting}{', backslash escapes' if self.backslash else ''}"


def detect_dialect(sample: str, preferred: str = ",", columns: Sequence[str] = ()) -> TableDialect:
    """Return the dialect in which most rows of a table have as many cells as the header.

    Args:
        sample: the beginning of the table, with the header.
        preferred: the delimiter to choose if several fit equally well.
        columns: the expected columns; a dialect in which the header has them comes first.
    """
    delimiters = sorted(_DELIMITERS, key=lambda delimiter: delimiter != preferred)
    quoting = (('"', False), ('"', True), ("", False), ("'", False))
    dialects = [TableDialect(delimiter, *variant) for variant in quoting for delimiter in delimiters]
    return max(dialects, key=lambda dialect: _fit(dialect, sample, columns))  # the first one of several equal ones


def _fit(dialect: TableDialect, sample: str, columns: Sequence[str]) -> tuple[int, bool, float]:
    """Return how many expected columns the header has, whether it has several, and the fraction of complete rows."""
    rows = dialect.rows(iter(StringIO(sample, newline="")))
    widths, header = [], None
    while True:
        try:
            row = next(rows)
        except StopIteration:
            break
        except csv.Error:
            widths.append(-1)
            continue
        if header is None and row:
            header = [row[0].removeprefix("\ufeff"), *row[1:]]
        elif row:
            widths.append(len(row))
    if header is None:
        return 0, False, 0.0
    if len(sample) >= SAMPLE_SIZE:  # the last row is cut off
        del widths[-1:]
    found = sum(column in header for column in columns)
    return found, len(header) > 1, sum(width == len(header) for width in widths) / max(1, len(widths))


def allow_long_csv_cells() -> None:
    """Lift the csv module's limit of 128 KiB for a cell, which may hold a whole e-mail; the setting is global."""
    csv.field_size_limit(max(csv.field_size_limit(), sys.maxsize))
