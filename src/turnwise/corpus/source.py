"""What a reader works with: the files of a corpus, and a record of what was read, skipped and rejected.

A reader knows one file layout. It takes records from a `CorpusSource` and fills in a `DialogueBuilder` for each
dialogue. Whatever is wrong in the source (a truncated file, a missing key, an empty turn) becomes a `Rejection` with
file, line and reason; it never stops the import.
"""

import csv
import gzip
import hashlib
import json
import re
import sys
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from io import BufferedReader, RawIOBase, TextIOWrapper
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Literal, Self, TypeVar

from turnwise.core.dialogue import Dialogue, Slot, Turn, peer
from turnwise.core.errors import TurnwiseError

#: Characters of the source that a rejection quotes.
EXCERPT_LENGTH = 200

#: Characters of a rejected row that are masked before it is cut to its excerpt.
MASKED_LENGTH = 4_000

#: Delimiters of table files by suffix.
CSV_DELIMITERS = {".csv": ",", ".tsv": "\t", ".tab": "\t"}

#: What a wrong type or a missing key raises while a reader takes a record apart.
_RECORD_ERRORS = (KeyError, IndexError, TypeError, AttributeError, ValueError)

_WHITESPACE = re.compile(r"[ \t\n\r]*")
_UNDECODED = re.compile("[\udc80-\udcff]")

_Record = TypeVar("_Record")
_RejectionKind = Literal["file", "dialogue", "turn", "slot"]


class CorpusError(TurnwiseError):
    """The input or the store cannot be used; the message says what is wrong, where, and what to do."""


@dataclass(frozen=True, slots=True)
class Rejection:
    """A part of the source that is not in the store, and why."""

    file: str
    line: int | None
    kind: _RejectionKind
    reason: str
    dialogue: str | None = None
    text: str | None = None


@dataclass(slots=True)
class CorpusCounts:
    """Dialogues and utterances."""

    dialogues: int = 0
    utterances: int = 0


def parse_json(text: str) -> Any:
    """Return the value of a JSON document; raise a ValueError where it is invalid."""
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        position = f"column {error.colno}" if error.lineno == 1 else f"line {error.lineno}, column {error.colno}"
        raise ValueError(f"not valid JSON: {error.msg}, {position}") from None
    except ValueError as error:  # an integer with more digits than Python converts
        raise ValueError(f"not valid JSON: {error}") from None
    except RecursionError:
        raise ValueError("the JSON is nested too deeply to be a dialogue") from None


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
        self._record(buffer[:count])
        return count

    def readall(self) -> bytes:
        content = self._file.readall()
        self._record(content)
        return content

    def _record(self, content: Any) -> None:
        self.digest.update(content)
        self.bytes += len(content)
        self._on_read(len(content))

    def close(self) -> None:
        self._file.close()
        super().close()


@dataclass(slots=True)
class CorpusSource:
    """The files of a corpus, read by format, with a record of what was read, skipped and rejected."""

    #: The file or folder to read.
    root: Path
    #: The `source` of the dialogues.
    name: str
    #: Called for everything that is rejected; may raise to stop.
    on_rejection: Callable[[Rejection], None]
    encoding: str = "utf-8"
    #: Called with the number of bytes read so far.
    on_bytes: Callable[[int], None] = lambda _: None
    #: Masks personal data in what is reported of rejected rows.
    mask: Callable[[str], str] = lambda text: text
    #: A folder to ignore: the store being written may lie under the root, and its files look like logs.
    excluded: Path | None = None
    #: Dialogues and utterances in the files, whether accepted or not.
    counts: CorpusCounts = field(default_factory=CorpusCounts)
    #: What the reader leaves out by design (tool messages, negatives), by name.
    skipped: Counter[str] = field(default_factory=Counter)
    #: Values that the reader determines and the manifest records.
    facts: dict[str, Any] = field(default_factory=dict)
    #: Name, size and checksum of the files read so far.
    inputs: list[dict[str, Any]] = field(default_factory=list)
    _ids: set[str] = field(default_factory=set)
    _bytes: int = 0

    # ---- files

    def files(self, *patterns: str) -> list[Path]:
        """Return the root if it is a file, else the files under it that match a pattern, sorted.

        Raises:
            CorpusError: if there are none.
        """
        if self.root.is_file():
            return [self.root]
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

    def relative_name(self, path: Path) -> str:
        """Return the name of a file in rejections and manifests: relative to the root, so that no local path leaks."""
        name = path.name if path == self.root else path.relative_to(self.root).as_posix()
        return name.encode("utf-8", "backslashreplace").decode()  # a file name need not be valid Unicode

    def record_input(self, path: Path, size: int, sha256: str) -> None:
        """Record that a file was read."""
        self.inputs.append({"name": self.relative_name(path), "bytes": size, "sha256": sha256})

    def read_text(self, path: Path) -> str | None:
        """Return the text of a file; None, and a rejection, if it cannot be decoded."""
        with self._open(path, errors="strict") as file:
            try:
                return file.read().removeprefix("\ufeff")
            except UnicodeDecodeError as error:
                line = error.object.count(b"\n", 0, error.start) + 1
                self.reject(path, line, "file", self._decoding_error(error.object[error.start]))
        return None

    @contextmanager
    def _open(self, path: Path, errors: str = "surrogateescape") -> Iterator[IO[str]]:
        """Open a file for one pass over it; its size and hash are recorded at the end."""
        raw = _HashingFile(path, self._add_bytes)
        stream: Any = BufferedReader(raw, 1 << 18)
        if path.suffix == ".gz":
            stream = gzip.GzipFile(fileobj=stream)
        # newline="" keeps line ends inside quoted CSV cells; surrogateescape allows to reject single lines
        with raw, TextIOWrapper(stream, encoding=self.encoding, errors=errors, newline="") as file:
            try:
                yield file
            except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
                self.reject(path, None, "file", f"cannot be read to its end: {error}")
            self.record_input(path, raw.bytes, raw.digest.hexdigest())

    def _check_decoded(self, path: Path, number: int, text: str) -> bool:
        if text.isascii() or (undecoded := _UNDECODED.search(text)) is None:
            return True
        self.reject(path, number, "dialogue", self._decoding_error(ord(undecoded[0]) - 0xDC00), text=text)
        return False

    def _decoding_error(self, byte: int) -> str:
        return f"byte 0x{byte:02x} is not {self.encoding}: convert the file, or name its encoding (--encoding latin-1)"

    def _add_bytes(self, count: int) -> None:
        self._bytes += count
        self.on_bytes(self._bytes)

    # ---- formats

    def lines(self, path: Path) -> Iterator[tuple[int, str]]:
        """Yield numbered lines without line ends, one at a time; undecodable ones are rejected."""
        with self._open(path) as file:
            for number, line in enumerate(file, 1):
                if self._check_decoded(path, number, line):
                    yield number, (line.removeprefix("\ufeff") if number == 1 else line).rstrip("\r\n")

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
        """Yield the elements of a file that is one JSON array, each with its line.

        Unlike `json.load` it decodes one element at a time and keeps what precedes a syntax error.
        """
        for line, _, value in self._json_items(path, "[", "]"):
            yield line, value

    def json_object(self, path: Path) -> Iterator[tuple[int, tuple[str, Any]]]:
        """Yield the entries (key, value) of a file that is one JSON object, each with its line."""
        for line, key, value in self._json_items(path, "{", "}"):
            yield line, (key, value)

    def _json_items(self, path: Path, opening: str, closing: str) -> Iterator[tuple[int, str, Any]]:
        text = self.read_text(path)
        if text is None:
            return
        decode = json.JSONDecoder().raw_decode

        def skip_space(position: int) -> int:
            match = _WHITESPACE.match(text, position)
            return match.end() if match else position

        def skip_mark(mark: str, position: int, message: str) -> int:
            position = skip_space(position)
            if not text.startswith(mark, position):
                raise json.JSONDecodeError(message, text, position)
            return skip_space(position + 1)

        line, counted, key = 1, 0, ""
        try:
            position = skip_mark(opening, 0, f"expected a JSON {'array' if opening == '[' else 'object'}")
            at_end = text.startswith(closing, position)
            while not at_end:
                line, counted = line + text.count("\n", counted, position), position
                if opening == "{":
                    key, position = decode(text, position)
                    if not isinstance(key, str):
                        raise json.JSONDecodeError("expected a key and ':'", text, skip_space(position))
                    position = skip_mark(":", position, "expected a key and ':'")
                value, position = decode(text, position)
                yield line, key, value
                position = skip_space(position)
                at_end = text.startswith(closing, position)
                if not at_end:
                    position = skip_mark(",", position, "the file ends or breaks off here")
            if (position := skip_space(position + 1)) < len(text):
                raise json.JSONDecodeError("unexpected content after the end of the document", text, position)
        except json.JSONDecodeError as error:
            reason = f"not valid JSON from here on ({error.msg}, column {error.colno}); the rest was not read"
            self.reject(path, error.lineno, "file", reason, text=text[error.pos : error.pos + EXCERPT_LENGTH])
        except ValueError as error:  # an integer with more digits than Python converts
            self.reject(path, line, "file", f"not valid JSON from here on ({error}); the rest was not read")
        except RecursionError:
            self.reject(path, line, "file", "the JSON is nested too deeply to be a dialogue")

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

    def csv_rows(self, path: Path, delimiter: str = "") -> Iterator[tuple[int, dict[str, str | None]]]:
        """Yield the rows of a table with a header; malformed ones are rejected. The suffix implies the delimiter."""
        allow_long_csv_cells()
        suffixes = (suffix.lower() for suffix in reversed(path.suffixes))
        delimiter = delimiter or next((CSV_DELIMITERS[suffix] for suffix in suffixes if suffix in CSV_DELIMITERS), ",")
        with self._open(path) as file:
            rows = csv.reader(file, delimiter=delimiter, strict=True)
            header: list[str] | None = None
            while True:
                number = rows.line_num + 1
                try:
                    row = next(rows)
                except StopIteration:
                    return
                except csv.Error as error:
                    self.reject(path, number, "dialogue", f"not a valid row: {error}")
                    continue
                if not row or not all(self._check_decoded(path, number, cell) for cell in row):
                    continue
                if header is None:
                    header = [row[0].removeprefix("\ufeff"), *row[1:]]
                elif len(row) > len(header):
                    reason = f"{len(row)} cells under {len(header)} columns: is a delimiter or a quote missing?"
                    self.reject(path, number, "dialogue", reason, text=delimiter.join(row))
                else:
                    yield number, dict(zip(header, row + [None] * (len(header) - len(row)), strict=True))

    # ---- dialogues

    def dialogue(self, path: Path, line: int | None, split: str | None = None) -> "DialogueBuilder":
        """Return a builder, to be filled in a `with` block."""
        return DialogueBuilder(self, path, line, split)

    @contextmanager
    def guard(self, path: Path, line: int) -> Iterator[None]:
        """Reject a record, and only that one, if taking it apart fails."""
        try:
            yield
        except _RECORD_ERRORS as error:
            self.reject(path, line, "dialogue", _layout_error(error))

    def claim_id(self, dialogue_id: str) -> None:
        """Register a dialogue's id; raise a ValueError for a duplicate."""
        if dialogue_id in self._ids:
            raise ValueError(f"the id {dialogue_id!r} was there before")
        self._ids.add(dialogue_id)

    def reject(
        self,
        path: Path,
        line: int | None,
        kind: _RejectionKind,
        reason: str,
        *,
        dialogue: str | None = None,
        text: object = None,
    ) -> None:
        """Report that something is left out."""
        excerpt = None if text is None else self._excerpt(text)
        dialogue_id = None if dialogue is None else self._excerpt(dialogue)
        name, reason = self.relative_name(path), self._excerpt(reason, 2 * EXCERPT_LENGTH)
        self.on_rejection(Rejection(name, line, kind, reason, dialogue_id, excerpt))

    def _excerpt(self, value: object, length: int = EXCERPT_LENGTH) -> str:
        """Return the beginning of a value, masked before it is cut: half a number would not be recognised."""
        return _quote(self.mask(_quote(value, MASKED_LENGTH)), length)


class DialogueBuilder:
    """A dialogue under construction.

    Fill it in a `with` block: a missing key or a wrong type there rejects this dialogue and no other. Afterwards
    `result()` yields the dialogue, or nothing if it was rejected.
    """

    __slots__ = ("_dialogue", "_line", "_peers", "_source", "id", "path", "source", "split", "turns")

    def __init__(self, source: CorpusSource, path: Path, line: int | None, split: str | None):
        self._source = source
        self._line = line
        self._peers: dict[str, str] = {}
        self._dialogue: Dialogue | None = None
        self.path = path
        self.id = ""
        self.source = source.name
        self.split = split
        self.turns: list[Turn] = []

    def peer(self, name: str) -> str:
        """Return the speaker of a participant without a role, numbered by first appearance in this dialogue."""
        return self._peers.setdefault(name, peer(len(self._peers) + 1))

    def add_turn(
        self,
        speaker: str,
        text: str,
        intent: str | None = None,
        acts: Sequence[str] = (),
        spans: Iterable[tuple[str, int, int]] = (),
        line: int | None = None,
    ) -> None:
        """Add a turn, or reject it; surrounding space is stripped, and the spans (slot, start, end) are adjusted.

        `line` is the turn's own line, where it differs from the dialogue's.
        """
        self._source.counts.utterances += 1
        try:
            stripped = text.strip()
            slots = self._slots(text, stripped, spans, line) if spans else ()
            self.turns.append(Turn(speaker, stripped, intent or None, tuple(acts), slots))
        except (ValueError, AttributeError) as error:
            reason = str(error) if isinstance(text, str) else f"the text is a {type(text).__name__}, not a string"
            self._reject("turn", reason, text, line)

    def _slots(
        self, text: str, stripped: str, spans: Iterable[tuple[str, int, int]], line: int | None
    ) -> tuple[Slot, ...]:
        shift = len(text) - len(text.lstrip())
        slots = []
        for name, start, end in spans:
            try:
                slots.append(Slot.from_text(stripped, name, start - shift, end - shift))
            except ValueError as error:
                self._reject("slot", str(error), text, line)
        slots.sort(key=lambda slot: (slot.start, slot.end, slot.name))
        return tuple(slots)

    def _reject(self, kind: _RejectionKind, reason: str, text: object = None, line: int | None = None) -> None:
        line = self._line if line is None else line
        self._source.reject(self.path, line, kind, reason, dialogue=self.id or None, text=text)

    def __enter__(self) -> Self:
        self._source.counts.dialogues += 1
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        if isinstance(error, _RECORD_ERRORS):
            self._reject("dialogue", _layout_error(error))
            return True
        if error is None:
            try:
                dialogue = Dialogue(self.id, tuple(self.turns), self.source, self.split)
                self._source.claim_id(self.id)
                self._dialogue = dialogue
            except ValueError as invalid:
                self._reject("dialogue", str(invalid))
        return False

    def result(self) -> Iterator[Dialogue]:
        """Yield the finished dialogue, or nothing: `yield from builder.result()`."""
        if self._dialogue is not None:
            yield self._dialogue


def allow_long_csv_cells() -> None:
    """Lift the csv module's limit of 128 KiB for a cell, which may hold a whole e-mail; the setting is global."""
    csv.field_size_limit(max(csv.field_size_limit(), sys.maxsize))


def _quote(value: object, length: int = EXCERPT_LENGTH) -> str:
    try:
        text = str(value)
    except (RecursionError, ValueError):  # nested too deeply, or an integer with too many digits
        text = f"a {type(value).__name__}"
    return text[:length].encode("utf-8", "backslashreplace").decode()  # it may contain the undecodable bytes


def _layout_error(error: BaseException) -> str:
    return f"not the expected layout: {f'{error.args[0]!r} is missing' if isinstance(error, KeyError) else error}"
