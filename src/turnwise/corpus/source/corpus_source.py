"""What a reader works with: the files of a corpus, read by format; whatever is wrong becomes a `Rejection`."""

import codecs
import csv
import gzip
import hashlib
import re
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from io import BufferedReader, RawIOBase, TextIOWrapper
from pathlib import Path
from typing import IO, Any, TypeVar

from turnwise.core.dialogue import Dialogue
from turnwise.core.errors import CorpusError
from turnwise.corpus.source.dialogue_builder import DialogueBuilder, ImportLog
from turnwise.corpus.source.encodings import DETECT, detect_encoding, open_decompressed, read_sample
from turnwise.corpus.source.json_text import JsonTextError, iterate_json, parse_json
from turnwise.corpus.source.tables import TableDialect, detect_dialect, implied_delimiter

_UNDECODED = re.compile("[\udc80-\udcff]")

#: What reading a damaged file raises; it is reported when the file is read to its end.
_FILE_ERRORS = (OSError, EOFError, zlib.error)

_Record = TypeVar("_Record")
Dialogues = Iterator[Dialogue]  # what a reader returns


class _HashingFile(RawIOBase):
    """A binary file that is hashed while it is read."""

    def __init__(self, path: Path, on_read: Callable[[int], None]):
        self._file = path.open("rb", buffering=0)
        self._on_read = on_read
        self.digest = hashlib.sha256()
        self.bytes = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int:
        count = self._file.readinto(buffer) or 0
        self.digest.update(buffer[:count])
        self.bytes += count
        self._on_read(count)
        return count

    def close(self) -> None:
        self._file.close()
        super().close()


@dataclass(frozen=True, slots=True)
class CorpusSource(ImportLog):
    """The files of a corpus, read by format."""

    encoding: str = "utf-8"  # the encoding of the texts, or `DETECT`
    on_bytes: Callable[[int], None] = lambda _: None  # called with the number of bytes read so far
    #: A folder to ignore: the store being written may lie under the root, and its files look like logs.
    excluded: Path | None = None
    scratch: Path | None = None  # the folder to unpack archives in; None: the system's folder of temporary files
    selected: frozenset[Path] | None = None  # the files to read; None: those whose names the reader expects
    inputs: list[dict[str, Any]] = field(default_factory=list)  # name, size and checksum of the files read so far
    _encodings: dict[Path, str] = field(default_factory=dict)

    # ---- files

    def files(self, *patterns: str) -> list[Path]:
        """Return the root if it is a file, else the files under it that match a pattern; without any, a CorpusError."""
        if self.root.is_file():
            return [self.root]
        if self.selected is not None:
            return sorted(self.selected)
        paths = {path for pattern in patterns for path in self.root.rglob(pattern) if path.is_file()}
        if self.excluded is not None and (excluded := self.excluded.resolve()).is_relative_to(self.root.resolve()):
            paths = {path for path in paths if not path.resolve().is_relative_to(excluded)}
        if not paths:
            problem = "does not exist" if not self.root.exists() else "contains no such file"
            raise CorpusError(f"{self.root} {problem}: expected {' or '.join(patterns)}")
        return sorted(paths)

    def records(
        self, read: Callable[[Path], Iterator[tuple[int, _Record]]], *patterns: str
    ) -> Iterator[tuple[Path, int, _Record]]:
        """Read all files that match a pattern with one of the format methods; yield path, line and record."""
        for path in self.files(*patterns):
            for line, record in read(path):
                yield path, line, record

    def record_input(self, path: Path, size: int, sha256: str) -> None:
        """Record that a file was read."""
        self.inputs.append({"name": self.reported_name(path), "bytes": size, "sha256": sha256})

    def dialogue(self, path: Path, line: int | None, split: str | None = None) -> DialogueBuilder:
        """Return a builder, to be filled in a `with` block."""
        return DialogueBuilder(self, path, line, split)

    @contextmanager
    def _open(self, path: Path, errors: str = "surrogateescape") -> Iterator[IO[str]]:
        """Open a file for one pass over it; its size and hash are recorded at the end."""
        raw = _HashingFile(path, self._add_bytes)
        stream: Any = BufferedReader(raw, 1 << 18)
        if path.suffix == ".gz":
            stream = gzip.GzipFile(fileobj=stream)
        # newline="" keeps line ends inside quoted CSV cells; surrogateescape allows to reject single lines
        with raw, TextIOWrapper(stream, encoding=self._codec(path), errors=errors, newline="") as file:
            try:
                yield file
            except (*_FILE_ERRORS, UnicodeDecodeError) as error:
                self.reject(path, None, "file", f"cannot be read to its end: {error}")
            self.record_input(path, raw.bytes, raw.digest.hexdigest())

    def _codec(self, path: Path) -> str:
        """Return the encoding to decode a file with, which removes a byte order mark."""
        encoding = self._encoding_of(path)
        return "utf-8-sig" if codecs.lookup(encoding).name == "utf-8" else encoding

    def _encoding_of(self, path: Path) -> str:
        if self.encoding != DETECT or path in self._encodings:
            return self._encodings.get(path, self.encoding)
        encoding = "utf-8"
        with suppress(*_FILE_ERRORS):
            encoding = detect_encoding(read_sample(path))
        self._encodings[path] = encoding
        if encoding != "utf-8":
            fact = f"{encoding}, as detected; --encoding names another one"
            self.facts.setdefault("encodings", {})[self.reported_name(path)] = fact
        return encoding

    def _check_decoded(self, path: Path, number: int, text: str) -> bool:
        undecoded = None if text.isascii() else _UNDECODED.search(text)
        if undecoded:
            self.reject(path, number, "dialogue", self._decoding_error(path, ord(undecoded[0]) - 0xDC00), text=text)
        return undecoded is None

    def _decoding_error(self, path: Path, byte: int) -> str:
        encoding = self._encoding_of(path)
        advice = "save the file as UTF-8; `turnwise corpus import` also reads others (--encoding latin-1)"
        return f"byte 0x{byte:02x} is not {encoding}: {advice}"

    def _add_bytes(self, count: int) -> None:
        self.counts.bytes += count
        self.on_bytes(self.counts.bytes)

    # ---- formats

    def read_text(self, path: Path) -> str | None:
        """Return the text of a file; None, and a rejection, if it cannot be decoded."""
        with self._open(path, errors="strict") as file:
            try:
                return file.read()
            except UnicodeDecodeError as error:
                line = error.object.count(b"\n", 0, error.start) + 1
                self.reject(path, line, "file", self._decoding_error(path, error.object[error.start]))
        return None

    def lines(self, path: Path) -> Iterator[tuple[int, str]]:
        """Yield numbered lines without line ends, one at a time; undecodable ones are rejected."""
        with self._open(path) as file:
            for number, line in enumerate(file, 1):
                if self.has_sample:
                    return
                if self._check_decoded(path, number, line):
                    yield number, line.rstrip("\r\n")

    def blocks(self, path: Path) -> Iterator[tuple[int, list[tuple[int, str]]]]:
        """Yield the blocks of numbered lines between blank lines, each with the number of its first line."""
        block: list[tuple[int, str]] = []
        for number, line in self.lines(path):
            if line.strip():
                block.append((number, line))
            elif block:
                yield block[0][0], block
                block = []
        if block:
            yield block[0][0], block

    def json_array(self, path: Path) -> Iterator[tuple[int, Any]]:
        """Yield the elements of a file that is one JSON array, each with its line."""
        return ((line, value) for line, (_, value) in self.json_members(path, openings="["))

    def json_object(self, path: Path) -> Iterator[tuple[int, tuple[str, Any]]]:
        """Yield the entries (key, value) of a file that is one JSON object, each with its line."""
        return self.json_members(path, openings="{")

    def json_members(
        self, path: Path, opened: Sequence[str] = (), openings: str = "[{"
    ) -> Iterator[tuple[int, tuple[str, Any]]]:
        """Yield the entries (key, value; '' in arrays) of a JSON file; of values under the keys `opened` theirs."""
        text = None if self.has_sample else self.read_text(path)
        try:
            for line, key, value in () if text is None else iterate_json(text, openings, opened):
                if self.has_sample:
                    return
                yield line, (key, value)
        except JsonTextError as error:
            self.reject(path, error.line, "file", str(error), text=error.text)

    def json_lines(self, path: Path, parse: Callable[[str], Any] = parse_json) -> Iterator[tuple[int, Any]]:
        """Yield the values of a JSON Lines file with their lines; invalid lines are rejected, blank ones ignored."""
        for number, line in self.lines(path):
            if not line or line.isspace():
                continue
            try:
                value = parse(line)
            except ValueError as error:
                self.reject(path, number, "dialogue", str(error), text=line)
            else:
                yield number, value

    def csv_rows(
        self,
        path: Path,
        dialect: TableDialect | str = "",
        check: Callable[[list[str]], object] = lambda header: None,
    ) -> Iterator[tuple[int, dict[str, str | None]]]:
        """Yield the rows of a table with a header; malformed ones are rejected.

        `dialect` may be a delimiter alone; `check` is called with the header.
        """
        if isinstance(dialect, str):
            dialect = TableDialect(dialect or implied_delimiter(path))
        header: list[str] | None = None
        with self._open(path) as file:
            for number, row in dialect.rows(file):
                if self.has_sample:
                    return
                if isinstance(row, csv.Error):
                    self.reject(path, number, "dialogue", f"not a valid row: {row}")
                elif not row or not all(self._check_decoded(path, number, cell) for cell in row):
                    continue
                elif header is None:
                    header = row
                    check(header)
                elif len(row) > len(header):
                    reason = f"{len(row)} cells under {len(header)} columns: is a delimiter or a quote missing?"
                    self.reject(path, number, "dialogue", reason, text=dialect.delimiter.join(row))
                else:
                    yield number, dict(zip(header, row + [None] * (len(header) - len(row)), strict=True))

    def read_start(self, path: Path) -> str:
        """Return the beginning of a file, to decide how to read it; empty if it cannot be read."""
        try:
            return read_sample(path).decode(self._codec(path), "replace")
        except _FILE_ERRORS:
            return ""

    def first_line(self, path: Path) -> str:
        """Return the first line that is not blank, to decide how to read a file; empty if there is none."""
        with suppress(*_FILE_ERRORS), open_decompressed(path) as file:
            lines = TextIOWrapper(file, encoding=self._codec(path), errors="replace")
            return next(filter(None, map(str.strip, lines)), "")
        return ""

    def detect_dialect(self, path: Path, columns: Sequence[str]) -> TableDialect:
        """Return the dialect of a table in which these columns are expected."""
        implied = implied_delimiter(path)
        dialect = detect_dialect(self.read_start(path), implied, columns)
        if dialect != TableDialect(implied):
            self.facts.setdefault("tables", {})[self.reported_name(path)] = str(dialect)
        return dialect
