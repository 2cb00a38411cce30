"""Detecting the encoding of a text file, and the delimiter and quoting of a table."""

import codecs
import csv
import gzip
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import IO, TYPE_CHECKING

if TYPE_CHECKING:
    import _csv

#: The bytes at the beginning of a file that are looked at.
SAMPLE_SIZE = 1 << 18

#: As the name of an encoding: to be detected for each file.
DETECT = "detect"

_BYTE_ORDER_MARKS = {codecs.BOM_UTF8: "utf-8", codecs.BOM_UTF16_LE: "utf-16", codecs.BOM_UTF16_BE: "utf-16"}

#: Encodings of text that is not UTF-8. Code pages for Latin script other than cp1252 cannot be distinguished from it.
_OTHER_ENCODINGS = ["cp1252", "cp1251", "cp1253", "shift_jis", "gb18030", "big5", "euc_kr"]

#: Bytes above 127 that a sample needs to tell these from each other.
_MIN_EVIDENCE = 20

_DELIMITERS = (",", ";", "\t", "|")


def open_decompressed(path: Path) -> IO[bytes]:
    """Open a file for reading, decompressed if its name ends in .gz."""
    return gzip.open(path) if path.suffix == ".gz" else path.open("rb")  # type: ignore[return-value]


def read_sample(path: Path) -> bytes:
    """Return the beginning of a file."""
    with open_decompressed(path) as file:
        return file.read(SAMPLE_SIZE)


def detect_encoding(sample: bytes) -> str:
    """Return the encoding of the text that begins with `sample`.

    Text is UTF-8 if most lines with other characters than ASCII are valid UTF-8: a few damaged lines do not change the
    encoding of a file.
    """
    for mark, encoding in _BYTE_ORDER_MARKS.items():
        if sample.startswith(mark):
            return encoding
    even, odd = sample[::2].count(0), sample[1::2].count(0)
    if max(even, odd) > len(sample) / 8 and min(even, odd) < max(even, odd) / 8:
        return "utf-16-le" if odd > even else "utf-16-be"
    lines = sample.splitlines()
    if len(sample) == SAMPLE_SIZE:  # the last line may end within a character
        del lines[-1:]
    foreign = [line for line in lines if not line.isascii()]
    if sum(map(_is_utf8, foreign)) * 2 >= len(foreign):
        return "utf-8"
    if sum(byte > 127 for line in foreign for byte in line) < _MIN_EVIDENCE:
        return "cp1252"
    from charset_normalizer import from_bytes

    best = from_bytes(b"\n".join(foreign), cp_isolation=_OTHER_ENCODINGS).best()
    return best.encoding if best else "cp1252"


def _is_utf8(line: bytes) -> bool:
    try:
        line.decode()
    except UnicodeDecodeError:
        return False
    return True


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
