"""Files: hashes, durable and atomic writes, JSON, CSV and safetensors."""

import csv
import hashlib
import io
import json
import os
import stat
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any


def sha256(path: Path) -> str:
    """Return the SHA-256 of a file in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def sync_to_disk(path: Path) -> None:
    """Wait until a file, or the entries of a folder, are on disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def write_atomic(path: Path, text: str) -> None:
    """Write a text under a temporary name and rename it: readers see the old contents or the new ones, never a part."""
    temporary = path.with_name(f".writing-{path.name}")
    temporary.write_text(text, encoding="utf-8")
    temporary.replace(path)


def reset_permissions(path: Path) -> None:
    """Give a file the permissions of a new one: safetensors makes its files readable by their owner only."""
    sample = path.with_name(f".permissions-{path.name}")  # the umask cannot be read without changing it for a moment
    sample.touch()
    path.chmod(stat.S_IMODE(sample.stat().st_mode))
    sample.unlink()


def write_tensors(path: Path, tensors: Mapping[str, Any], metadata: Mapping[str, str] | None = None) -> None:
    """Write NumPy arrays or torch tensors, which must be contiguous, as safetensors."""
    import numpy as np  # here, so that commands that write no tensors start quickly

    values, header = dict(tensors), None if metadata is None else dict(metadata)
    if all(isinstance(value, np.ndarray) for value in values.values()):
        import safetensors.numpy

        safetensors.numpy.save_file(values, path, header)
    else:
        import safetensors.torch

        safetensors.torch.save_file(values, path, header)
    reset_permissions(path)


def csv_text(header: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """Return rows as CSV with a byte order mark, which spreadsheets need to recognise UTF-8."""
    file = io.StringIO()
    file.write("\ufeff")
    writer = csv.writer(file)
    writer.writerow(header)
    writer.writerows(rows)
    return file.getvalue()


def read_json(path: Path) -> Any:
    """Return the contents of a JSON file."""
    return json.loads(path.read_text(encoding="utf-8"))


def write_json(path: Path, value: Any) -> None:
    """Write an indented JSON file, and create its folder if that is missing."""
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(value, indent=2) + "\n", encoding="utf-8")
