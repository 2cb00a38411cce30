"""Files whose contents matter: their hash, that they are whole, and the certainty that they are on disk; and JSON."""

import hashlib
import json
import os
from pathlib import Path
from typing import Any


def sha256(path: Path) -> str:
    """The SHA-256 of a file, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def sync(path: Path) -> None:
    """Waits until a file, or a folder's entries, are on disk: a commit may not overtake what it commits."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def write_whole(path: Path, text: str) -> None:
    """Writes a text under another name and renames it: whoever reads finds all of it, or what was there before."""
    unfinished = path.with_name(f".writing-{path.name}")
    unfinished.write_text(text, encoding="utf-8")
    unfinished.replace(path)


def read_json(path: Path) -> Any:
    """What a JSON file holds."""
    return json.loads(path.read_text(encoding="utf-8"))


def write_json(path: Path, value: Any) -> None:
    """Writes a JSON file that people can read, and the folder that it lies in if that is missing."""
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(value, indent=2) + "\n", encoding="utf-8")
