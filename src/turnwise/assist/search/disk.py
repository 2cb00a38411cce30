"""The certainty that what LanceDB has committed to a disk of this machine is on it: LanceDB leaves that to the operating system."""

import os
from contextlib import suppress
from pathlib import Path

from turnwise.core.files import sync


def folder_of(uri: str, name: str) -> Path | None:
    """Where a table's files are; None: not on a disk of this machine."""
    scheme, mark, rest = uri.partition("://")
    if mark and scheme != "file":
        return None
    return Path(rest if mark else uri) / f"{name}.lance"


def flush(folder: Path, began: float) -> None:
    """Waits until what was written to a folder since some moment is on disk."""
    for parent, _, names in os.walk(folder):
        changed = False
        for name in names:
            with suppress(FileNotFoundError):  # put together with others by another process
                path = Path(parent, name)
                if path.stat().st_mtime >= began:
                    sync(path)
                    changed = True
        if changed:
            sync(Path(parent))
