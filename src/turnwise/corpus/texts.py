"""Texts in files: the rows of tables and plain text files, and texts to encode, which may be turns of a store."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from turnwise.core.dialogue import Dialogue, Turn
from turnwise.core.errors import CorpusError
from turnwise.core.files import sha256, unescape_formula
from turnwise.corpus.readers.shared.files import excel_rows, parquet_rows, require_columns
from turnwise.corpus.source.corpus_source import CorpusSource
from turnwise.corpus.source.encodings import DETECT
from turnwise.corpus.storage.rejections import Rejection

if TYPE_CHECKING:
    import pyarrow as pa

TABLE_SUFFIXES = (".csv", ".tsv", ".xlsx", ".jsonl", ".parquet")  # suffixes of files with columns
TEXT_FILE_SUFFIXES = (".txt", *TABLE_SUFFIXES)  # the same, and plain text with a text per line
_LONE_SURROGATE = re.compile("[\ud800-\udfff]")  # lone surrogates, which JSON can represent and UTF-8 cannot
EncoderInput = str | tuple[Turn]  # what an encoder takes: a text, or a turn, whose speaker it may use
TextRow = tuple[EncoderInput, tuple[Any, ...]]  # an input, and the columns that identify it, the text last
TURN_COLUMNS = ("dialogue", "turn", "speaker", "text")  # the columns that identify a turn of a store


@dataclass(frozen=True, slots=True)
class TableRow:
    """A row of a file."""

    path: Path
    line: int  # its first line, counted from 1; in a Parquet or Excel file the number of the row
    values: Mapping[str, Any]  # by column; a missing value is None or absent

    @property
    def where(self) -> str:
        """The file and line, for messages."""
        return f"{self.path}, {'row' if self.path.suffix.lower() in ('.parquet', '.xlsx') else 'line'} {self.line:,}"

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
    if path.suffix.lower() not in suffixes:
        raise CorpusError(f"{path} has none of the suffixes {', '.join(suffixes)}: use a file of one of these types")


def read_rows(
    path: Path,
    columns: Sequence[str],
    suffixes: Sequence[str] = TABLE_SUFFIXES,
    hint: str = "Give the right one that name",
    all_columns: bool = True,
) -> Iterator[TableRow]:
    """Yield the rows of a file in order, one at a time; an invalid row raises a CorpusError when it is reached.

    A line of a .txt file, and a JSON line that is a string, is the value of the first column. A JSON object may lack
    all columns but the first. Blank lines are rows only in a .txt file. Encoding and delimiter are detected; in a
    table, an apostrophe before a formula is left out. `hint` says what to do if a column is missing. Without
    `all_columns`, the other columns of a Parquet file are not read.
    """

    def refuse(rejection: Rejection) -> None:
        line = "" if rejection.line is None else f", line {rejection.line:,}"
        raise CorpusError(f"{path}{line}: {rejection.reason}")

    def check(present: Sequence[str]) -> list[str]:
        require_columns(path, columns, present, hint)
        if repeated := [column for column in columns if present.count(column) > 1]:
            raise CorpusError(f"{path} has several columns {repeated[0]!r}: rename all but one")
        return list(present if all_columns else columns)

    check_suffix(path, suffixes)
    if not path.is_file():
        raise CorpusError(f"{path} cannot be read: there is no such file")
    source, suffix = CorpusSource(path, path.name, refuse, encoding=DETECT), path.suffix.lower()
    rows: Iterator[tuple[int, Any]]
    match suffix:
        case ".txt":
            rows = source.lines(path)
        case ".jsonl":
            rows = source.json_lines(path)
        case ".parquet":
            rows = parquet_rows(source, path, check)
        case _:
            if suffix == ".xlsx":
                rows = excel_rows(source, path, check)
            else:  # an unclosed quotation mark is an error, and no sign of a file without quoting
                rows = source.csv_rows(path, source.detect_dialect(path, columns).delimiter, check)
            rows = ((line, {key: cell and unescape_formula(cell) for key, cell in row.items()}) for line, row in rows)
    for line, value in rows:
        values = {columns[0]: value} if isinstance(value, str) else value
        if not isinstance(values, dict):
            raise CorpusError(f"{path}, line {line:,} is neither an object nor a string")
        if suffix == ".jsonl":
            require_columns(f"{path}, line {line:,}", columns[:1], values, hint)
        yield TableRow(path, line, values)


@dataclass(frozen=True, slots=True)
class TextSource:
    """Texts that can be read any number of times, always in the same order."""

    columns: tuple[str, ...]  # the names of the identifying columns
    identity: str  # equal for equal texts
    rows: Callable[[], Iterator[TextRow]]


def open_text_source(
    path: Path, column: str = "text", splits: Sequence[str] = (), speakers: Sequence[str] = ()
) -> TextSource:
    """Open a store, or some splits and speakers of it, or a file of texts, without reading the texts yet."""
    if path.is_dir():
        return _open_store(path, splits, speakers)
    if not path.is_file():
        raise CorpusError(f"{path} does not exist")
    check_suffix(path, TEXT_FILE_SUFFIXES)
    if splits or speakers:
        raise CorpusError(f"{path} is not a store: only a store has splits and speakers to select")

    def rows() -> Iterator[TextRow]:
        hint = "Name the right one by --column"
        for row in read_rows(path, [column], TEXT_FILE_SUFFIXES, hint, all_columns=False):
            text = row.text(column)
            yield text, (text,)

    return TextSource(("text",), f"{sha256(path)} {column}", rows)


def columns_schema(columns: Sequence[str]) -> "pa.Schema":
    """Return identifying columns with their types: the number of a turn is an integer, the others are strings."""
    import pyarrow as pa

    return pa.schema([(name, pa.int32() if name == "turn" else pa.string()) for name in columns])


def _open_store(folder: Path, splits: Sequence[str], speakers: Sequence[str]) -> TextSource:
    from turnwise.corpus.storage.corpus import read_corpus
    from turnwise.corpus.storage.store import Store, is_store, require_speakers

    if not is_store(folder):
        raise CorpusError(f"{folder} is a folder but not a store: import a log first, by `turnwise corpus import`")
    store = Store(folder)
    require_speakers([store], speakers)

    def rows() -> Iterator[TextRow]:
        for row in turn_rows(read_corpus(folder, splits=splits or None)):
            if not speakers or row[0][0].speaker in speakers:
                yield row

    return TextSource(TURN_COLUMNS, f"{store.manifest['generation']} {sorted(splits)} {sorted(speakers)}", rows)


def turn_rows(dialogues: Iterable[Dialogue]) -> Iterator[tuple[tuple[Turn], tuple[str, int, str, str]]]:
    """Yield the turns of dialogues, each with the columns of `TURN_COLUMNS`."""
    for dialogue in dialogues:
        for number, turn in enumerate(dialogue.turns):
            yield (turn,), (dialogue.id, number, turn.speaker, turn.text)
