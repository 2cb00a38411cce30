"""Files: hashes, durable and atomic writes, JSON, CSV, YAML and safetensors, and items on disk for a second pass."""

import csv
import glob
import hashlib
import io
import json
import os
import pickle
import re
import shutil
import stat
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from importlib.resources import files
from pathlib import Path
from tempfile import TemporaryDirectory, TemporaryFile
from typing import Any, TypeVar

from turnwise.core.errors import TurnwiseError

Item = TypeVar("Item")
_TEMPORARY = "temporary"  # the name of temporary folders

#: The beginning of a formula, or of a text that differs from one by apostrophes; numbers are no formulas.
_FORMULA = re.compile(r"'*(?:[=@\t\r]|[+-](?![\d.,]*\Z))")


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


@contextmanager
def replacing(path: Path, *, durable: bool = False) -> Iterator[Path]:
    """Yield a temporary path whose file or folder takes the place of `path` at the end, on disk if `durable`.

    If several write the same file at once, the last one wins. A folder may only take the place of an empty one, since
    no kill can then lose what was there; otherwise, an OSError is raised.
    """
    remove_leftovers(path.parent, path.name)
    part = path.with_name(f".writing-{path.name}-{os.getpid()}-{threading.get_ident()}")
    try:
        yield part
        if durable:
            for written in (*part.rglob("*"), part):
                sync_to_disk(written)
        part.replace(path)
    finally:
        _remove(part)
    if durable:
        sync_to_disk(path.parent)


@contextmanager
def temporary_folder(parent: Path) -> Iterator[Path]:
    """Yield a folder in `parent` that only its owner may read; remove it, and what killed processes left there."""
    missing = [each for each in (parent, *parent.parents) if not each.exists()]
    parent.mkdir(parents=True, exist_ok=True)
    remove_leftovers(parent)
    try:
        with TemporaryDirectory(prefix=f".writing-{_TEMPORARY}-{os.getpid()}-", dir=parent) as folder:
            yield Path(folder)
    finally:
        with suppress(OSError):  # something was written to it meanwhile
            for each in missing:
                each.rmdir()


def remove_leftovers(folder: Path, name: str = _TEMPORARY) -> None:
    """Remove what processes that were killed left in a folder: temporary folders, or by `replacing` a file."""
    for leftover in folder.glob(f".writing-{glob.escape(name)}-*-*"):
        process = leftover.name.rsplit("-", 2)[1]
        if process.isdecimal() and not is_running(int(process)):
            _remove(leftover)


def is_running(process: int) -> bool:
    """Return whether there is a process with a number."""
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # it belongs to another user
        pass
    return True


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def write_atomic(path: Path, text: str, *, durable: bool = False) -> None:
    """Write a text file; readers see the old contents or the new ones, never a part (see `replacing`)."""
    with replacing(path, durable=durable) as part:
        part.write_text(text, encoding="utf-8")


def reset_permissions(path: Path) -> None:
    """Give a file the permissions of a new one: safetensors makes its files readable by their owner only."""
    sample = path.with_name(f".permissions-{path.name}")  # the umask cannot be read without changing it for a moment
    sample.touch()
    path.chmod(stat.S_IMODE(sample.stat().st_mode))
    sample.unlink()


def write_tensors(path: Path, tensors: Mapping[str, Any], metadata: Mapping[str, str] | None = None) -> None:
    """Write NumPy arrays or torch tensors, which must be contiguous, as safetensors, completely or not at all."""
    import numpy as np  # here, so that commands that write no tensors start quickly
    from safetensors import SafetensorError

    values, header = dict(tensors), None if metadata is None else dict(metadata)
    if all(isinstance(value, np.ndarray) for value in values.values()):
        from safetensors import numpy as library
    else:
        from safetensors import torch as library  # type: ignore[no-redef]
    with replacing(path) as part:
        try:
            library.save_file(values, part, header)
        except SafetensorError as error:  # which hides the errors of the operating system
            number = re.search(r"os error (\d+)", str(error))
            if number is None:
                raise
            raise OSError(int(number[1]), os.strerror(int(number[1])), str(path)) from error
        reset_permissions(part)


def escape_formula(cell: Any) -> Any:
    """Return a cell for a CSV file, with an apostrophe before a text that a spreadsheet would run as a formula."""
    return f"'{cell}" if isinstance(cell, str) and _FORMULA.match(cell) else cell


def unescape_formula(cell: str) -> str:
    """Return the cell that `escape_formula` was given."""
    return cell[1:] if cell.startswith("'") and _FORMULA.match(cell) else cell


def csv_text(header: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """Return rows as CSV with a byte order mark, which spreadsheets need to recognise UTF-8; formulas are escaped."""
    file = io.StringIO()
    file.write("\ufeff")
    writer = csv.writer(file)
    writer.writerows(map(escape_formula, row) for row in (header, *rows))
    return file.getvalue()


def package_yaml(package: str, name: str) -> Any:
    """Return the contents of a YAML file of a package."""
    import yaml

    text = files(package).joinpath(name).read_text(encoding="utf-8")
    # the C parser is ten times as fast, but not every build of PyYAML has it
    return yaml.load(text, getattr(yaml, "CSafeLoader", yaml.SafeLoader))


def spool(items: Iterable[Item]) -> Iterator[Item]:
    """Read all items into a temporary file, then return an iterator over them; memory stays constant."""
    file = TemporaryFile()  # noqa: SIM115 (closed after the second pass)
    for item in items:
        pickle.dump(item, file, pickle.HIGHEST_PROTOCOL)
    file.seek(0)

    def replay() -> Iterator[Item]:
        with file:
            while True:
                try:
                    yield pickle.load(file)
                except EOFError:
                    return

    return replay()


@contextmanager
def explaining_damage(path: Path, error: type[TurnwiseError], advice: str) -> Iterator[None]:
    """Raise whatever the contents of a damaged file cause inside as an `error` that names the file and gives advice."""
    try:
        yield
    except TurnwiseError:
        raise
    except FileNotFoundError as reason:
        raise error(f"{reason.filename or path} is missing: {advice}") from reason
    except Exception as reason:
        raise error(f"{path} is damaged ({type(reason).__name__}: {reason}): {advice}") from reason


def check_digests(folder: Path, digests: Mapping[str, str]) -> None:
    """Raise a ValueError if a file of a folder has another SHA-256 than the one that was recorded."""
    for name, digest in digests.items():
        if sha256(folder / name) != digest:
            raise ValueError(f"the contents of {name} are not those that were written")


def read_json(path: Path) -> Any:
    """Return the contents of a JSON file."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except RecursionError:
        raise ValueError(f"{path} is nested too deeply") from None


def write_json(path: Path, value: Any) -> None:
    """Write an indented JSON file, and create its folder if that is missing."""
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(value, indent=2) + "\n", encoding="utf-8")
