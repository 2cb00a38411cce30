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
import zlib
from collections import Counter
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from io import BufferedReader, RawIOBase, TextIOWrapper
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self, TypeVar

from turnwise.core.dialogue import Dialogue, Slot, Turn, peer
from turnwise.core.errors import CorpusError
from turnwise.corpus.hygiene.holes import HolePolicy, apply_hole_policy
from turnwise.corpus.source.encodings import DETECT, detect_encoding, open_decompressed, read_sample
from turnwise.corpus.source.json_text import parse_json
from turnwise.corpus.source.tables import (
    CSV_DELIMITERS,
    TableDialect,
    allow_long_csv_cells,
    detect_dialect,
)
from turnwise.corpus.storage.store import EXCERPT_LENGTH, CorpusCounts, Rejection, RejectionKind

#: Characters of a rejected row that are masked before it is cut to its excerpt.
MASKED_LENGTH = 4_000

#: What a wrong type or a missing key raises while a reader takes a record apart.
_RECORD_ERRORS = (KeyError, IndexError, TypeError, AttributeError, ValueError)

_WHITESPACE = re.compile(r"[ \t\n\r]*")
_UNDECODED = re.compile("[\udc80-\udcff]")

_Record = TypeVar("_Record")


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
    #: The encoding of the texts, or `DETECT`.
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
    #: What becomes of the turns around one that cannot be read.
    holes: HolePolicy = "keep"
    #: Returns the split of the conversation with that id; None: the splits of the source.
    assign_split: Callable[[str], str] | None = None
    #: When dialogues began, in seconds since 1970, by id; None: not recorded.
    start_times: dict[str, float] | None = None
    #: Rejections so far, other than of single slots.
    rejected_rows: int = 0
    #: Dialogues that were split at holes.
    split_dialogues: int = 0
    #: Name, size and checksum of the files read so far.
    inputs: list[dict[str, Any]] = field(default_factory=list)
    _ids: set[str] = field(default_factory=set)
    _encodings: dict[Path, str] = field(default_factory=dict)
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
        """Return the name of a file relative to the root, so that no local path leaks."""
        name = path.name if path == self.root else path.relative_to(self.root).as_posix()
        return name.encode("utf-8", "backslashreplace").decode()  # a file name need not be valid Unicode

    def reported_name(self, path: Path) -> str:
        """Return the name of a file in rejections and manifests."""
        return self.mask(self.relative_name(path))

    def record_input(self, path: Path, size: int, sha256: str) -> None:
        """Record that a file was read."""
        self.inputs.append({"name": self.reported_name(path), "bytes": size, "sha256": sha256})

    def read_text(self, path: Path) -> str | None:
        """Return the text of a file; None, and a rejection, if it cannot be decoded."""
        with self._open(path, errors="strict") as file:
            try:
                return file.read().removeprefix("\ufeff")
            except UnicodeDecodeError as error:
                line = error.object.count(b"\n", 0, error.start) + 1
                self.reject(path, line, "file", self._decoding_error(path, error.object[error.start]))
        return None

    @contextmanager
    def _open(self, path: Path, errors: str = "surrogateescape") -> Iterator[IO[str]]:
        """Open a file for one pass over it; its size and hash are recorded at the end."""
        raw = _HashingFile(path, self._add_bytes)
        stream: Any = BufferedReader(raw, 1 << 18)
        if path.suffix == ".gz":
            stream = gzip.GzipFile(fileobj=stream)
        encoding = self._encoding_of(path)
        # newline="" keeps line ends inside quoted CSV cells; surrogateescape allows to reject single lines
        with raw, TextIOWrapper(stream, encoding=encoding, errors=errors, newline="") as file:
            try:
                yield file
            except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
                self.reject(path, None, "file", f"cannot be read to its end: {error}")
            self.record_input(path, raw.bytes, raw.digest.hexdigest())

    def _encoding_of(self, path: Path) -> str:
        if self.encoding != DETECT:
            return self.encoding
        if path in self._encodings:
            return self._encodings[path]
        try:
            encoding = detect_encoding(read_sample(path))
        except (OSError, EOFError, zlib.error):  # reported when the file is read
            encoding = "utf-8"
        self._encodings[path] = encoding
        if encoding != "utf-8":
            fact = f"{encoding}, as detected; --encoding names another one"
            self.facts.setdefault("encodings", {})[self.reported_name(path)] = fact
        return encoding

    def _check_decoded(self, path: Path, number: int, text: str) -> bool:
        if text.isascii() or (undecoded := _UNDECODED.search(text)) is None:
            return True
        self.reject(path, number, "dialogue", self._decoding_error(path, ord(undecoded[0]) - 0xDC00), text=text)
        return False

    def _decoding_error(self, path: Path, byte: int) -> str:
        encoding = self._encoding_of(path)
        return f"byte 0x{byte:02x} is not {encoding}: convert the file, or name its encoding (--encoding latin-1)"

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
        for line, _, value in self._json_items(path, "["):
            yield line, value

    def json_object(self, path: Path) -> Iterator[tuple[int, tuple[str, Any]]]:
        """Yield the entries (key, value) of a file that is one JSON object, each with its line."""
        for line, key, value in self._json_items(path, "{"):
            yield line, (key, value)

    def json_members(self, path: Path, *opened: str) -> Iterator[tuple[int, tuple[str, Any]]]:
        """Yield the entries (key, value) of a file that is one JSON object, or the elements of an array with key ''.

        A value under one of the keys `opened` is opened: its own entries, or its elements with that key, are yielded
        instead. So the large arrays of an export are decoded one element at a time.
        """
        for line, key, value in self._json_items(path, "[{", opened):
            yield line, (key, value)

    def _json_items(self, path: Path, openings: str, opened: Collection[str] = ()) -> Iterator[tuple[int, str, Any]]:
        text = self.read_text(path)
        if text is None:
            return
        decode = json.JSONDecoder().raw_decode
        line, counted = 1, 0

        def skip_space(position: int) -> int:
            match = _WHITESPACE.match(text, position)
            return match.end() if match else position

        def skip_mark(mark: str, position: int, message: str) -> int:
            position = skip_space(position)
            if not text.startswith(mark, position):
                raise json.JSONDecodeError(message, text, position)
            return skip_space(position + 1)

        def members(position: int, key: str) -> Generator[tuple[int, str, Any], None, int]:
            """Yield the members of the array or object at a position; return the position behind it."""
            nonlocal line, counted
            is_object = text.startswith("{", position)
            closing = "}" if is_object else "]"
            position = skip_space(position + 1)
            at_end = text.startswith(closing, position)
            while not at_end:
                line, counted = line + text.count("\n", counted, position), position
                if is_object:
                    key, position = decode(text, position)
                    if not isinstance(key, str):
                        raise json.JSONDecodeError("expected a key and ':'", text, skip_space(position))
                    position = skip_mark(":", position, "expected a key and ':'")
                if is_object and key in opened and text.startswith(("[", "{"), position):
                    position = yield from members(position, key)
                else:
                    value, position = decode(text, position)
                    yield line, key, value
                position = skip_space(position)
                at_end = text.startswith(closing, position)
                if not at_end:
                    position = skip_mark(",", position, "the file ends or breaks off here")
            return position + 1

        try:
            position = skip_space(0)
            if not text.startswith(tuple(openings), position):
                expected = " or ".join("array" if opening == "[" else "object" for opening in openings)
                raise json.JSONDecodeError(f"expected a JSON {expected}", text, position)
            position = yield from members(position, "")
            if (position := skip_space(position)) < len(text):
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

    def csv_rows(self, path: Path, dialect: TableDialect | str = "") -> Iterator[tuple[int, dict[str, str | None]]]:
        """Yield the rows of a table with a header; malformed ones are rejected.

        `dialect` may be a delimiter alone; the file's suffix implies it otherwise.
        """
        allow_long_csv_cells()
        if isinstance(dialect, str):
            dialect = TableDialect(dialect or _implied_delimiter(path))
        with self._open(path) as file:
            rows = dialect.rows(file)
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
                    self.reject(path, number, "dialogue", reason, text=dialect.delimiter.join(row))
                else:
                    yield number, dict(zip(header, row + [None] * (len(header) - len(row)), strict=True))

    def read_start(self, path: Path) -> str:
        """Return the beginning of a file, to decide how to read it; empty if it cannot be read."""
        try:
            return read_sample(path).decode(self._encoding_of(path), "replace").removeprefix("\ufeff")
        except (OSError, EOFError, zlib.error):  # reported when the file is read
            return ""

    def first_line(self, path: Path) -> str:
        """Return the first line that is not blank, to decide how to read a file; empty if there is none."""
        try:
            with open_decompressed(path) as file:
                text = TextIOWrapper(file, encoding=self._encoding_of(path), errors="replace")
                return next(filter(None, (line.removeprefix("\ufeff").strip() for line in text)), "")
        except (OSError, EOFError, zlib.error):  # reported when the file is read
            return ""

    def detect_dialect(self, path: Path, columns: Sequence[str]) -> TableDialect:
        """Return the dialect of a table in which these columns are expected."""
        implied = _implied_delimiter(path)
        dialect = detect_dialect(self.read_start(path), implied, columns)
        if dialect != TableDialect(implied):
            self.facts.setdefault("tables", {})[self.reported_name(path)] = str(dialect)
        return dialect

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
        kind: RejectionKind,
        reason: str,
        *,
        dialogue: str | None = None,
        text: object = None,
    ) -> None:
        """Report that something is left out."""
        excerpt = None if text is None else self._excerpt(text)
        dialogue_id = None if dialogue is None else self._excerpt(dialogue)
        name, reason = self.reported_name(path), self._excerpt(reason, 2 * EXCERPT_LENGTH)
        self.rejected_rows += kind != "slot"
        self.on_rejection(Rejection(name, line, kind, reason, dialogue_id, excerpt))

    def _excerpt(self, value: object, length: int = EXCERPT_LENGTH) -> str:
        """Return the beginning of a value, masked before it is cut: half a number would not be recognised."""
        return _quote(self.mask(_quote(value, MASKED_LENGTH)), length)


class DialogueBuilder:
    """A dialogue under construction.

    Fill it in a `with` block: a missing key or a wrong type there rejects this dialogue and no other. Afterwards
    `result()` yields the dialogue, or nothing if it was rejected.
    """

    __slots__ = (
        "_dialogues",
        "_holes",
        "_line",
        "_peers",
        "_source",
        "conversation",
        "id",
        "path",
        "source",
        "split",
        "time",
        "turns",
    )

    def __init__(self, source: CorpusSource, path: Path, line: int | None, split: str | None):
        self._source = source
        self._line = line
        self._peers: dict[str, str] = {}
        self._dialogues: list[Dialogue] = []
        self._holes: set[int] = set()
        self.path = path
        self.id = ""
        self.source = source.name
        self.split = split
        #: What the dialogue is a part of, if it shares turns with others; they are all in the same split.
        self.conversation = ""
        #: When the dialogue began, in seconds since 1970.
        self.time: float | None = None
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
            self.mark_hole()

    def mark_hole(self) -> None:
        """Record that a turn is missing here."""
        self._holes.add(len(self.turns))

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

    def _reject(self, kind: RejectionKind, reason: str, text: object = None, line: int | None = None) -> None:
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
                self._dialogues = self._finish()
            except ValueError as invalid:
                self._reject("dialogue", str(invalid))
        return False

    def _finish(self) -> list[Dialogue]:
        source = self._source
        split = source.assign_split(self.conversation or self.id) if source.assign_split else self.split
        dialogue = Dialogue(self.id, tuple(self.turns), self.source, split)
        parts = apply_hole_policy(dialogue, self._holes, source.holes)
        if not parts:
            raise ValueError("turns of this dialogue are missing (--holes drop-dialogue)")
        for part in parts:
            source.claim_id(part.id)
            if source.start_times is not None and self.time is not None:
                source.start_times[part.id] = self.time
        source.split_dialogues += len(parts) > 1
        return parts

    def result(self) -> Iterator[Dialogue]:
        """Yield the finished dialogue, its parts if it has holes, or nothing: `yield from builder.result()`."""
        yield from self._dialogues


def _implied_delimiter(path: Path) -> str:
    suffixes = (suffix.lower() for suffix in reversed(path.suffixes))
    return next((CSV_DELIMITERS[suffix] for suffix in suffixes if suffix in CSV_DELIMITERS), ",")


def _quote(value: object, length: int = EXCERPT_LENGTH) -> str:
    try:
        text = str(value)
    except (RecursionError, ValueError):  # nested too deeply, or an integer with too many digits
        text = f"a {type(value).__name__}"
    return text[:length].encode("utf-8", "backslashreplace").decode()  # it may contain the undecodable bytes


def _layout_error(error: BaseException) -> str:
    return f"not the expected layout: {f'{error.args[0]!r} is missing' if isinstance(error, KeyError) else error}"
