"""The desk at the door: what a reader is handed to take conversations in.

An `Intake` finds the files, reads and hashes them, counts what they hold and writes down what had to be left out. A reader
knows one layout and nothing else; it drafts dialogues, and whatever is wrong in the source (a truncated file, a missing key,
an empty turn) ends up as one `Rejection` with file, line and reason, never as a lost afternoon.
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
from typing import IO, Any, Literal, Self

from turnwise.core.dialogue import Dialogue, Slot, Turn, peer
from turnwise.core.errors import TurnwiseError

#: How much of what was left out is quoted in a rejection: enough to find it, not enough to fill the disk.
EXCERPT = 200

#: What a wrong type or a missing key in somebody's file raises while a reader walks through it.
SHAPE_ERRORS = (KeyError, IndexError, TypeError, AttributeError, ValueError)

_WHITESPACE = re.compile(r"[ \t\n\r]*")
_UNDECODED = re.compile("[\udc80-\udcff]")


class CorpusError(TurnwiseError):
    """The input or the store cannot be used as asked; the message says what, where and what to do."""


@dataclass(frozen=True, slots=True)
class Rejection:
    """Something of the source that is not in the store, and why."""

    file: str
    line: int | None
    kind: Literal["file", "dialogue", "turn", "slot"]
    reason: str
    dialogue: str | None = None
    text: str | None = None


@dataclass(slots=True)
class Counts:
    """Dialogues and utterances."""

    dialogues: int = 0
    utterances: int = 0


@dataclass(frozen=True, slots=True)
class InputFile:
    """A file that was read, by name relative to what was imported, so that a store can say what it was made of."""

    name: str
    bytes: int
    sha256: str


class _Hashing(RawIOBase):
    """A binary file that hashes what passes, so that nothing is read twice."""

    def __init__(self, path: Path, passed: Callable[[int], None]):
        self._file = path.open("rb", buffering=0)
        self._passed = passed
        self.digest = hashlib.sha256()
        self.bytes = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int:
        count = self._file.readinto(buffer) or 0
        self.digest.update(buffer[:count])
        self.bytes += count
        self._passed(count)
        return count

    def close(self) -> None:
        self._file.close()
        super().close()


@dataclass(slots=True)
class Intake:
    """What a reader takes conversations in with.

    Attributes:
        root: the file or folder being imported.
        source: the name that the dialogues carry as their `source`.
        encoding: how the texts are encoded.
        on_rejection: told of everything that is left out; may raise to stop.
        on_bytes: told how many bytes were read so far.
        not_read: a folder to pass over: the store being written may lie under the root, and its files look like logs.
        read: dialogues and utterances that the files hold, whether kept or not.
        left_out: things that a layout's rules leave out on purpose (tool messages, negatives), by name.
        facts: figures that a reader learns on the way and the manifest should keep.
        inputs: the files read so far.
    """

    root: Path
    source: str
    on_rejection: Callable[[Rejection], None]
    encoding: str = "utf-8"
    on_bytes: Callable[[int], None] = lambda _: None
    not_read: Path | None = None
    read: Counts = field(default_factory=Counts)
    left_out: Counter[str] = field(default_factory=Counter)
    facts: dict[str, Any] = field(default_factory=dict)
    inputs: list[InputFile] = field(default_factory=list)
    _ids: set[str] = field(default_factory=set)
    _bytes: int = 0

    # ---- files

    def files(self, *patterns: str) -> list[Path]:
        """The files to read, in a stable order: the root itself, or what lies under it by the patterns.

        Raises:
            CorpusError: if there are none.
        """
        if self.root.is_file():
            return [self.root]
        found = {path for pattern in patterns for path in self.root.rglob(pattern) if path.is_file()}
        if self.not_read is not None and self.not_read.resolve().is_relative_to(self.root.resolve()):
            found = {path for path in found if not path.resolve().is_relative_to(self.not_read.resolve())}
        if not found:
            state = "does not exist" if not self.root.exists() else "has no such file"
            raise CorpusError(f"{self.root} {state}: expected {' or '.join(patterns)}")
        return sorted(found)

    def name(self, path: Path) -> str:
        """How rejections and the manifest call a file: relative to what is imported, so no machine's paths leak."""
        name = path.name if path == self.root else path.relative_to(self.root).as_posix()
        return name.encode("utf-8", "backslashreplace").decode()  # a name on disk need not be Unicode

    def text(self, path: Path) -> str | None:
        """The whole text of a file; None, and a rejection, if it cannot be decoded."""
        content = path.read_bytes()
        self._passed(len(content))
        self.note(path, len(content), hashlib.sha256(content).hexdigest())
        if path.suffix == ".gz":
            try:
                content = gzip.decompress(content)
            except (OSError, EOFError, zlib.error) as error:
                self.reject(path, None, "file", f"not a whole gzip file: {error}")
                return None
        try:
            return content.decode(self.encoding).removeprefix("\ufeff")
        except UnicodeDecodeError as error:
            line = content.count(b"\n", 0, error.start) + 1
            self.reject(path, line, "file", self._undecodable(content[error.start]))
            return None

    def lines(self, path: Path) -> Iterator[tuple[int, str]]:
        """Numbered lines without their ends, one at a time; those that cannot be decoded are rejected."""
        with self._open(path) as file:
            for number, line in enumerate(file, 1):
                if self._decodable(path, number, line):
                    yield number, (line.removeprefix("\ufeff") if number == 1 else line).rstrip("\r\n")

    @contextmanager
    def _open(self, path: Path) -> Iterator[IO[str]]:
        """Opens a file for one pass over its lines; its size and hash are noted when that pass is through."""
        raw = _Hashing(path, self._passed)
        stream: Any = BufferedReader(raw, 1 << 18)
        if path.suffix == ".gz":
            stream = gzip.GzipFile(fileobj=stream)
        # newline="" keeps line ends inside quoted CSV cells; surrogateescape lets one bad line be rejected, not the file.
        with raw, TextIOWrapper(stream, encoding=self.encoding, errors="surrogateescape", newline="") as file:
            try:
                yield file
            except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
                self.reject(path, None, "file", f"cannot be read to its end: {error}")
            self.note(path, raw.bytes, raw.digest.hexdigest())

    def _decodable(self, path: Path, number: int, text: str) -> bool:
        if text.isascii() or (bad := _UNDECODED.search(text)) is None:
            return True
        self.reject(path, number, "dialogue", self._undecodable(ord(bad[0]) - 0xDC00), text=text)
        return False

    def _undecodable(self, byte: int) -> str:
        return f"byte 0x{byte:02x} is not {self.encoding}: convert the file, or name its encoding (--encoding latin-1)"

    def note(self, path: Path, size: int, sha256: str) -> None:
        """Writes down that a file was read."""
        self.inputs.append(InputFile(self.name(path), size, sha256))

    def _passed(self, count: int) -> None:
        self._bytes += count
        self.on_bytes(self._bytes)

    # ---- formats

    def json_array(self, path: Path) -> Iterator[tuple[int, Any]]:
        """The elements of a file that is one JSON array, each with its line, decoded one at a time.

        Unlike `json.load` it keeps what comes before a fault, and holds one element at a time.
        """
        for line, _, value in self._json_items(path, "[", "]"):
            yield line, value

    def json_object(self, path: Path) -> Iterator[tuple[int, str, Any]]:
        """The entries (line, key, value) of a file that is one JSON object, decoded one at a time."""
        yield from self._json_items(path, "{", "}")

    def _json_items(self, path: Path, opening: str, closing: str) -> Iterator[tuple[int, str, Any]]:
        text = self.text(path)
        if text is None:
            return
        decode = json.JSONDecoder().raw_decode

        def skip(position: int) -> int:
            match = _WHITESPACE.match(text, position)
            return match.end() if match else position

        position, line, counted, key = skip(0), 1, 0, ""
        try:
            if not text.startswith(opening, position):
                what = "array" if opening == "[" else "object"
                raise json.JSONDecodeError(f"expected a JSON {what}", text, position)
            position = skip(position + 1)
            empty = text.startswith(closing, position)
            while not empty:
                line, counted = line + text.count("\n", counted, position), position
                if opening == "{":
                    key, position = decode(text, position)
                    position = skip(position)
                    if not isinstance(key, str) or not text.startswith(":", position):
                        raise json.JSONDecodeError("expected a key and ':'", text, position)
                    position = skip(position + 1)
                value, position = decode(text, position)
                yield line, key, value
                position = skip(position)
                if text.startswith(closing, position):
                    break
                if not text.startswith(",", position):
                    raise json.JSONDecodeError("the file ends or breaks off here", text, position)
                position = skip(position + 1)
            if (position := skip(position + 1)) < len(text):
                raise json.JSONDecodeError("the document has ended before this", text, position)
        except json.JSONDecodeError as error:
            reason = (
                f"not valid JSON from here on ({error.msg}, column {error.colno}); what comes after it was not read"
            )
            self.reject(path, error.lineno, "file", reason, text=text[error.pos : error.pos + EXCERPT])
        except ValueError as error:  # a number of more digits than Python converts
            self.reject(path, line, "file", f"not valid JSON from here on ({error}); what comes after it was not read")
        except RecursionError:
            self.reject(path, line, "file", "the JSON is nested too deeply to be a dialogue")

    @staticmethod
    def json(text: str) -> Any:
        """The value of a text that is one JSON document, for use inside a dialogue's `with` block."""
        try:
            return json.loads(text)
        except json.JSONDecodeError as error:
            raise ValueError(f"not valid JSON: {error.msg}, line {error.lineno}, column {error.colno}") from None
        except RecursionError:
            raise ValueError("the JSON is nested too deeply to be a dialogue") from None

    def json_lines(self, path: Path) -> Iterator[tuple[int, Any]]:
        """The values of a JSON Lines file with their lines; a line that is not JSON is rejected, blank ones passed over."""
        for number, line in self.lines(path):
            if not line or line.isspace():
                continue
            try:
                yield number, json.loads(line.removeprefix("\ufeff") if number == 1 else line)
            except json.JSONDecodeError as error:
                reason = f"not valid JSON: {error.msg}, column {error.colno}"
                self.reject(path, number, "dialogue", reason, text=line)
            except ValueError as error:  # a number of more digits than Python converts
                self.reject(path, number, "dialogue", f"not valid JSON: {error}", text=line)
            except RecursionError:
                self.reject(path, number, "dialogue", "the JSON is nested too deeply to be a dialogue", text=line)

    def json_records(self, path: Path) -> Iterator[tuple[int, Any]]:
        """The elements of a `.json` array, or the lines of anything else as JSON Lines."""
        return self.json_array(path) if ".json" in path.suffixes else self.json_lines(path)

    def table(self, path: Path, delimiter: str = ",") -> Iterator[tuple[int, dict[str, str | None]]]:
        """The rows of a CSV or TSV file with a header; rows that cannot be parsed are rejected."""
        # Cells may hold whole e-mails; the module's default limit of 128 KiB would refuse them. The setting is global to
        # the interpreter and only ever widened.
        csv.field_size_limit(max(csv.field_size_limit(), sys.maxsize))
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
                if not row or not all(self._decodable(path, number, cell) for cell in row):
                    continue
                if header is None:
                    header = [row[0].removeprefix("\ufeff"), *row[1:]]
                elif len(row) > len(header):
                    reason = f"{len(row)} cells under {len(header)} columns: is a delimiter or a quote missing?"
                    self.reject(path, number, "dialogue", reason, text=delimiter.join(row))
                else:
                    yield number, dict(zip(header, row + [None] * (len(header) - len(row)), strict=True))

    # ---- dialogues

    def dialogue(self, path: Path, line: int | None, split: str | None = None) -> "Draft":
        """A dialogue to be filled in a `with` block, inside which wrong shapes are caught and become rejections."""
        return Draft(self, path, line, split)

    @contextmanager
    def record(self, path: Path, line: int) -> Iterator[None]:
        """Guards the reading of a record that is not yet a dialogue: a wrong shape rejects it and no other."""
        try:
            yield
        except SHAPE_ERRORS as error:
            self.reject(path, line, "dialogue", f"not the expected layout: {_explain(error)}")

    def claim(self, identity: str) -> None:
        """Refuses an id that was there before: a store's ids are unique."""
        if identity in self._ids:
            raise ValueError(f"the id {identity!r} was there before")
        self._ids.add(identity)

    def reject(
        self,
        path: Path,
        line: int | None,
        kind: Literal["file", "dialogue", "turn", "slot"],
        reason: str,
        *,
        dialogue: str | None = None,
        text: object = None,
    ) -> None:
        """Writes down that something is left out."""
        # backslashreplace: what is quoted may be the very bytes that could not be decoded
        quoted = None if text is None else _quote(text)
        named = None if dialogue is None else _quote(dialogue)
        self.on_rejection(Rejection(self.name(path), line, kind, _quote(reason, 2 * EXCERPT), named, quoted))


class Draft:
    """A dialogue in the making.

    Fill it in a `with` block; a missing key or a wrong type in there rejects this dialogue and no other. Afterwards `done()`
    gives the dialogue, or nothing if no turn was left.
    """

    __slots__ = ("_closed", "_intake", "_line", "_peers", "id", "path", "source", "split", "turns")

    def __init__(self, intake: Intake, path: Path, line: int | None, split: str | None):
        self._intake = intake
        self.path = path
        self._line = line
        self._peers: dict[str, str] = {}
        self._closed: Dialogue | None = None
        self.id = ""
        self.source = intake.source
        self.split = split
        self.turns: list[Turn] = []

    def peer(self, name: str) -> str:
        """The speaker name of a participant without a role, numbered by first appearance in this dialogue."""
        return self._peers.setdefault(name, peer(len(self._peers) + 1))

    def say(
        self,
        speaker: str,
        text: str,
        intent: str | None = None,
        acts: Sequence[str] = (),
        spans: Iterable[tuple[str, int, int]] = (),
        line: int | None = None,
    ) -> None:
        """Adds a turn, or rejects it; space around the text goes, and the spans (slot, start, end) move along.

        `line` is the turn's own, where it differs from the dialogue's.
        """
        self._intake.read.utterances += 1
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
                slots.append(Slot.of(stripped, name, start - shift, end - shift))
            except ValueError as error:
                self._reject("slot", str(error), text, line)
        slots.sort(key=lambda slot: (slot.start, slot.end, slot.name))
        return tuple(slots)

    def _reject(
        self,
        kind: Literal["dialogue", "turn", "slot"],
        reason: str,
        text: object = None,
        line: int | None = None,
    ) -> None:
        where = self._line if line is None else line
        self._intake.reject(self.path, where, kind, reason, dialogue=self.id or None, text=text)

    def __enter__(self) -> Self:
        return self.open()

    def open(self) -> Self:
        """Begins the dialogue, where a source spreads it over rows that no `with` block can hold; `close` ends it."""
        self._intake.read.dialogues += 1
        return self

    def close(self) -> Iterator[Dialogue]:
        """Ends a dialogue begun by `open`, and gives it like `done`."""
        self.__exit__(None, None, None)
        return self.done()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        if isinstance(error, SHAPE_ERRORS):
            self._reject("dialogue", f"not the expected layout: {_explain(error)}")
            return True
        if error is not None:
            return False
        try:
            dialogue = Dialogue(self.id, tuple(self.turns), self.source, self.split)
            self._intake.claim(self.id)
            self._closed = dialogue
        except ValueError as refused:
            self._reject("dialogue", str(refused))
        return False

    def done(self) -> Iterator[Dialogue]:
        """The finished dialogue, or nothing: `yield from draft.done()`."""
        if self._closed is not None:
            yield self._closed


def _quote(value: object, length: int = EXCERPT) -> str:
    try:
        text = str(value)
    except (RecursionError, ValueError):  # nested too deeply, or a number of too many digits
        text = f"a {type(value).__name__}"
    return text[:length].encode("utf-8", "backslashreplace").decode()


def _explain(error: BaseException) -> str:
    if isinstance(error, KeyError):
        return f"{error.args[0]!r} is missing"
    return str(error)
