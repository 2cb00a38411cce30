"""Exports that are zip files: chat tools offer them for download."""

import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory

from turnwise.core.errors import CorpusError
from turnwise.corpus.source.corpus_source import CorpusSource


@contextmanager
def unpacked(source: CorpusSource, *patterns: str) -> Iterator[None]:
    """Unpack the source's root if it is a zip file: meanwhile the root is a temporary folder.

    Only members whose names match a pattern are unpacked. Names of files in rejections are relative to the zip file.

    Raises:
        CorpusError: if the zip file cannot be read, or no member matches.
    """
    archive = source.root
    if archive.suffix.lower() != ".zip" or not archive.is_file():
        yield
        return
    with TemporaryDirectory(prefix="turnwise-") as temporary:
        folder = Path(temporary, archive.stem)  # readers use its name where an unpacked export has its own
        _unpack(archive, folder, patterns)
        source.root = folder
        try:
            yield
        finally:
            source.root = archive


def _unpack(archive: Path, folder: Path, patterns: tuple[str, ...]) -> None:
    try:
        with zipfile.ZipFile(archive) as file:
            members = [info for info in file.infolist() if not info.is_dir() and _matches(info.filename, patterns)]
            for member in members:
                file.extract(member, folder)  # keeps members inside the folder, whatever their names say
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError, OSError, ValueError) as error:
        advice = "unpack it with another program, and import the folder"
        raise CorpusError(f"{archive} cannot be unpacked ({error}): {advice}") from error
    if not members:
        raise CorpusError(f"{archive} contains no such file: expected {' or '.join(patterns)}")


def _matches(name: str, patterns: tuple[str, ...]) -> bool:
    path = PurePosixPath(name)
    if path.parts[:1] == ("__MACOSX",):  # what macOS keeps beside each file
        return False
    return any(fnmatchcase(path.name, pattern) for pattern in patterns)
