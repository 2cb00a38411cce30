"""An append-only journal of changes, each on disk before the caller learns that it was accepted.

One change per line, as JSON. A process that is killed while writing leaves an incomplete last line, which was never
acknowledged; the next process that opens the journal drops it. Only one process at a time can have a journal open.
"""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

from filelock import FileLock, Timeout

from turnwise.core.errors import ProjectError
from turnwise.core.files import sync_to_disk


class Journal:
    """A journal file, opened for writing, or created; `entries` are the changes that are on disk, oldest first.

    With `read_only`, another process may have it open, and nothing is created. Otherwise wait `timeout` seconds for it.
    """

    def __init__(self, path: Path, *, read_only: bool = False, timeout: float = 0):
        self.path = path
        self.read_only = read_only
        self._file = -1
        if read_only:
            self.entries = read_entries(path)
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        self._lock = FileLock(path.with_name(f".{path.name}.lock"), timeout=timeout, thread_local=False)
        try:
            self._lock.acquire()
        except Timeout:
            raise ProjectError(f"{path} is open in another process: stop that process, or use another folder") from None
        is_new = not path.exists()
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
        try:
            content = path.read_bytes()
            end = content.rfind(b"\n") + 1
            if end < len(content):  # an incomplete line
                self._truncate(end)
            self.entries = _parse_entries(content[:end], path)
        except BaseException:
            self.close()
            raise
        if is_new:
            sync_to_disk(path.parent)

    def append(self, *entries: Mapping[str, Any]) -> None:
        """Write changes to disk, with one sync; raise a ProjectError and leave the journal unchanged if that fails."""
        if self._file < 0:
            raise ProjectError(f"{self.path} is not open for writing")
        lines = "".join(json.dumps(entry, ensure_ascii=False) + "\n" for entry in entries).encode()
        size = os.fstat(self._file).st_size
        try:
            written = os.write(self._file, lines)
            if written < len(lines):
                raise OSError(f"only {written} of {len(lines)} bytes were written")
            os.fsync(self._file)
        except OSError as error:
            os.ftruncate(self._file, size)
            raise ProjectError(f"cannot write {self.path}: {error}") from error
        self.entries += map(dict, entries)

    def clear(self) -> None:
        """Remove all changes, once they are stored elsewhere."""
        self._truncate(0)
        self.entries.clear()

    def close(self) -> None:
        """Allow another process to open the journal."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1
            self._lock.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _truncate(self, size: int) -> None:
        os.ftruncate(self._file, size)
        os.fsync(self._file)


def read_entries(path: Path) -> list[dict[str, Any]]:
    """Return the complete entries of a journal that another process may have open; none if there is no journal."""
    content = path.read_bytes() if path.is_file() else b""
    return _parse_entries(content[: content.rfind(b"\n") + 1], path)


def _parse_entries(lines: bytes, path: Path) -> list[dict[str, Any]]:
    entries = []
    for number, line in enumerate(lines.splitlines(), 1):
        try:
            entries.append(dict(json.loads(line)))
        except (ValueError, TypeError, RecursionError) as error:
            raise ProjectError(f"{path}, line {number} is not a JSON object: repair or remove that line") from error
    return entries
