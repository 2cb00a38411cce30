"""Reading files in JSON or JSON Lines, tables (CSV, Parquet, Excel), and zip files."""

import os
import zipfile
import zlib
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from datetime import datetime
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath
from tempfile import gettempdir
from typing import Any

from turnwise.core.errors import CorpusError
from turnwise.core.files import sha256, temporary_folder
from turnwise.corpus.source.corpus_source import CorpusSource
from turnwise.corpus.source.json_text import parse_json

#: Names of files in JSON or JSON Lines.
JSON_FILES = ("*.json", "*.jsonl", "*.ndjson", "*.json.gz", "*.jsonl.gz", "*.ndjson.gz")


def json_records(source: CorpusSource, path: Path) -> Iterator[tuple[int, Any]]:
    """Yield records with their lines, as the contents decide: elements of an array, JSON Lines, or one object."""
    if is_json_array(source, path):
        yield from source.json_array(path)
    elif _is_named_lines(path) or _is_json(source.first_line(path)):
        yield from source.json_lines(path)
    elif entries := dict(entry for _, entry in source.json_object(path)):
        yield 1, entries


def is_json_array(source: CorpusSource, path: Path) -> bool:
    """Return whether a file is one array, rather than JSON Lines, whose records may be arrays too."""
    first_line = source.first_line(path)
    return first_line.startswith("[") and not (_is_named_lines(path) and _is_json(first_line))


def _is_named_lines(path: Path) -> bool:
    return not {".jsonl", ".ndjson"}.isdisjoint(path.suffixes)


def _is_json(text: str) -> bool:
    try:
        parse_json(text)
    except ValueError:
        return False
    return True


def require_columns(where: Path | str, columns: Sequence[str], present: Collection[str], advice: str) -> list[str]:
    """Return the columns; raise a CorpusError with the advice if one of them is missing."""
    if missing := [column for column in columns if column not in present]:
        names = ", ".join(map(repr, present)) or "none"
        raise CorpusError(f"{where} has no column {missing[0]!r}; it has {names}. {advice}")
    return list(columns)


def parquet_rows(
    source: CorpusSource, path: Path, select: Callable[[list[str]], list[str]]
) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the rows of a file with their numbers; `select` gets the names of all columns and returns those to read."""
    import pyarrow.parquet as pq
    from pyarrow import ArrowException

    source.record_input(path, path.stat().st_size, sha256(path))
    try:
        with pq.ParquetFile(path) as parquet:
            columns = select(parquet.schema_arrow.names)
            batches = parquet.iter_batches(batch_size=8192, columns=columns)
            yield from enumerate((row for batch in batches for row in batch.to_pylist()), 1)
    except (ArrowException, OSError, UnicodeDecodeError) as error:
        source.reject(path, None, "file", f"not a complete Parquet file: {error}")


def excel_rows(
    source: CorpusSource, path: Path, select: Callable[[list[str]], object]
) -> Iterator[tuple[int, dict[str, str]]]:
    """Yield the rows of a workbook with their numbers, all cells as texts; sheets that `select` refuses are left out.

    If it refuses all, its first CorpusError is raised.
    """
    from openpyxl import load_workbook

    source.record_input(path, path.stat().st_size, sha256(path))
    refused: CorpusError | None = None
    is_read = False
    try:
        with zipfile.ZipFile(path) as archive:
            _check_size(path, sum(member.file_size for member in archive.infolist()))
        with closing(load_workbook(path, read_only=True, data_only=True)) as workbook:
            for sheet in workbook.worksheets:
                sheet.reset_dimensions()  # which some programs state wrongly
                cells = ([_excel_text(value) for value in row] for row in sheet.iter_rows(values_only=True))
                rows = ((number, row) for number, row in enumerate(cells, 1) if any(row))
                header = next(rows, (0, []))[1]
                width = max((number for number, name in enumerate(header, 1) if name), default=0)
                try:
                    is_read = bool(header and [select(header[:width])]) or is_read
                except CorpusError as error:
                    refused = refused or error
                    source.facts.setdefault("sheets not read", []).append(f"{sheet.title} of {path.name}")
                    continue
                for number, row in rows:
                    if any(row[width:]):
                        source.reject(path, number, "dialogue", f"cells to the right of the {width} columns")
                    else:
                        yield number, dict(zip(header, row[:width] + [""] * (width - len(row)), strict=False))
    except (*_ARCHIVE_ERRORS, KeyError, SyntaxError, TypeError) as error:
        source.reject(path, None, "file", f"not a complete Excel file (.xlsx): {error}")
        return
    if refused is not None and not is_read:
        raise refused


def _excel_text(value: Any) -> str:
    return "" if value is None else value.isoformat(" ") if isinstance(value, datetime) else str(value)


def table_rows(
    source: CorpusSource, path: Path, select: Callable[[list[str]], list[str]], columns: Sequence[str] = ()
) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the rows of a table of any format with their numbers; `columns` are expected.

    `select` gets the names of all columns, and may raise a CorpusError; of a Parquet file, it returns those to read.
    """
    match path.suffix.lower():
        case ".parquet":
            return parquet_rows(source, path, select)
        case ".xlsx":
            return excel_rows(source, path, select)
    return source.csv_rows(path, source.detect_dialect(path, columns), select)


#: What reading a damaged archive raises.
_ARCHIVE_ERRORS = (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError, OSError, ValueError)

#: Limits on unpacked archives: the environment variable that replaces both, GB, times the archive's size, and the bytes
#: up to which any ratio is accepted.
_LIMIT, _MAX_GIGABYTES, _MAX_RATIO, _HARMLESS = "TURNWISE_UNPACKED_GB", 20, 200, 100_000_000


@contextmanager
def unpacked(source: CorpusSource, *patterns: str) -> Iterator[CorpusSource]:
    """Yield a source of the matching files of a zip file, unpacked temporarily; the source itself otherwise."""
    archive = source.root
    if archive.suffix.lower() != ".zip" or not archive.is_file():
        yield source
        return
    with temporary_folder(source.scratch or Path(gettempdir())) as temporary:
        folder = temporary / archive.stem  # readers use its name where an unpacked export has its own
        _unpack(archive, folder, patterns)
        try:
            yield replace(source, root=folder)
        except CorpusError as error:  # names the archive, not where it was unpacked
            raise CorpusError(str(error).replace(str(folder), str(archive))) from error


def _check_size(archive: Path, unpacked_size: int) -> None:
    """Raise a CorpusError if an archive would unpack to more than is plausible; no file becomes larger than it says."""
    limit = float(os.environ.get(_LIMIT, _MAX_GIGABYTES)) * 1e9
    ratio = unpacked_size / max(1, archive.stat().st_size)
    if unpacked_size > limit or (ratio > _MAX_RATIO and unpacked_size > _HARMLESS and _LIMIT not in os.environ):
        raise CorpusError(
            f"{archive} would unpack to {unpacked_size / 1e9:.1f} GB, {ratio:,.0f} times its size: if that is right,"
            f" set {_LIMIT}={unpacked_size / 1e9 + 1:.0f}"
        )


def _unpack(archive: Path, folder: Path, patterns: tuple[str, ...]) -> None:
    try:
        with zipfile.ZipFile(archive) as file:
            # beside each file, macOS keeps one of the same name
            names = [name for name in file.namelist() if not name.startswith("__MACOSX/")]
            members = [name for name in names if any(fnmatchcase(PurePosixPath(name).name, it) for it in patterns)]
            _check_size(archive, sum(file.getinfo(name).file_size for name in members))
            file.extractall(folder, members)  # inside the folder, whatever the names say
    except _ARCHIVE_ERRORS as error:
        advice = "unpack it with another program, and import the folder"
        raise CorpusError(f"{archive} cannot be unpacked ({error}): {advice}") from error
    if not members:
        raise CorpusError(f"{archive} contains no such file: expected {' or '.join(patterns)}")
