"""A journal: changes in the order in which they were made, each on disk before whoever made it is told so.

A line a change, as JSON. A process that is killed while it writes leaves a last line that is cut off: it was acknowledged to
nobody, and the next one that opens the journal drops it. One process at a time has a journal open.
"""

import fcntl
import json
import os
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from turnwise.core.errors import TurnwiseError
from turnwise.core.files import sync


class JournalError(TurnwiseError):
    """A journal cannot be read or written; the message says why and what to do."""


class Journal:
    """Changes on disk, in order.

    Attributes:
        path: the file.
        entries: every change that is on disk, oldest first.
    """

    def __init__(self, path: Path):
        """Opens a journal, and makes it where there is none.

        Raises:
            JournalError: if another process has it open, or a line other than the last cannot be read.
        """
        self.path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        is_new = not path.exists()
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(self._file)
            raise JournalError(
                f"{path} is open in another process: stop that one, or give this one a folder of its own"
            ) from None
        try:
            self.entries: list[dict[str, Any]] = self._read()
        except BaseException:
            self.close()
            raise
        if is_new:
            sync(path.parent)

    def append(self, entry: Mapping[str, Any]) -> None:
        """Writes a change; when this comes back, it is on disk.

        Raises:
            JournalError: if the disk does not take it; the journal is then as it was before.
        """
        line = (json.dumps(entry, ensure_ascii=False) + "\n").encode()
        before = os.fstat(self._file).st_size
        try:
            written = os.write(self._file, line)
            if written < len(line):
                raise OSError(f"only {written} of {len(line)} bytes were written")
            os.fsync(self._file)
        except OSError as error:
            os.ftruncate(self._file, before)
            raise JournalError(f"{self.path} cannot be written: {error}") from error
        self.entries.append(dict(entry))

    def clear(self) -> None:
        """Forgets every change, once they are kept elsewhere."""
        os.ftruncate(self._file, 0)
        os.fsync(self._file)
        self.entries.clear()

    def close(self) -> None:
        """Lets another process open it."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def __enter__(self) -> "Journal":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _read(self) -> list[dict[str, Any]]:
        with self.path.open("rb") as file:
            content = file.read()
        whole, end, _ = content.rpartition(b"\n")
        if len(whole) + len(end) < len(content):  # cut off while it was written
            os.ftruncate(self._file, len(whole) + len(end))
            os.fsync(self._file)
        return _entries(whole if end else b"", self.path)


def read_entries(path: Path) -> list[dict[str, Any]]:
    """The entries of a journal that another process may have open; none where there is no journal.

    A last one that is not whole was acknowledged to nobody yet.

    Raises:
        JournalError: if a line other than the last cannot be read.
    """
    whole, _, _ = (path.read_bytes() if path.is_file() else b"").rpartition(b"\n")
    return _entries(whole, path)


def _entries(lines: bytes, path: Path) -> list[dict[str, Any]]:
    entries = []
    for number, line in enumerate(lines.splitlines(), 1):
        try:
            entries.append(json.loads(line))
        except ValueError as error:
            raise JournalError(f"{path}, line {number} is not JSON ({error}): mend that line or remove it") from error
    return entries
