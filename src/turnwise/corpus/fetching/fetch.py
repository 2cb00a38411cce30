"""Fetching a corpus: its files are downloaded into a folder, and archives are unpacked there.

`download.py` explains the files of a download. Unpacking NAME adds `NAME.unpacking`, a temporary folder, and
`NAME.unpacked`, the list of the unpacked files. It is written last: after a kill before that, the next run unpacks
again.
"""

import errno
import json
import os
import posixpath
import re
import shutil
import tarfile
import zipfile
import zlib
from collections.abc import Collection, Sequence
from lzma import LZMAError
from pathlib import Path, PurePosixPath

import httpx
from filelock import FileLock, Timeout

from turnwise.core.errors import CorpusError
from turnwise.core.files import read_json, write_atomic
from turnwise.core.progress import Progress, silent
from turnwise.corpus.fetching.download import FileDownload
from turnwise.corpus.registry import OWN_SUFFIXES, SUMS, Download

_LOCK = ".lock"
_BLOCK = 1 << 20
_ARCHIVE_SUFFIXES = (".zip", ".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tar.xz")
_DAMAGED_ARCHIVE = (zipfile.BadZipFile, tarfile.TarError, zlib.error, LZMAError, EOFError, ValueError, RuntimeError)


def fetch(
    downloads: Sequence[Download],
    destination: Path,
    *,
    progress: Progress = silent,
    attempts: int = 5,
    timeout: float = 30.0,
    pause: float = 1.0,
) -> list[Path]:
    """Fetch files into a folder, unpack archives there, and return the path of each file.

    A complete file with the right checksum is not fetched again; one without a known checksum (copied there manually)
    is accepted as it is. If two archives contain a file of the same name, the later one wins.

    Args:
        downloads: the files, in this order.
        destination: the folder; created if necessary.
        progress: called with the bytes that have arrived, and the members unpacked.
        attempts: how many consecutive attempts may bring no bytes before a file is given up, and how often a file may
            start over because the server does not resume.
        timeout: seconds without a byte after which a connection counts as broken.
        pause: seconds before the second attempt; doubled for each further one that brings no bytes.

    Raises:
        CorpusError: if a file cannot be fetched, verified or unpacked. What has arrived is kept: the same call resumes.
    """
    if attempts < 1:
        raise ValueError(f"attempts must be at least 1, got {attempts}")
    names = [download.file_name for download in downloads]
    if repeated := sorted({name for name in names if names.count(name) > 1}):
        raise CorpusError(f"several downloads are called {', '.join(repeated)}: give each its own `name`")
    reserved = {SUMS, _LOCK, *(name + suffix for name in names for suffix in ("", *OWN_SUFFIXES))}
    lock = destination / _LOCK
    headers = {"User-Agent": "turnwise", "Accept-Encoding": "identity"}
    try:
        destination.mkdir(parents=True, exist_ok=True)
        # two processes that append to the same part would corrupt it
        with FileLock(lock, timeout=0), httpx.Client(headers=headers, follow_redirects=True, timeout=timeout) as client:
            try:
                for download in downloads:
                    file = FileDownload(download, destination, client, progress)
                    checksum = file.complete(attempts, pause)
                    if file.target.name.lower().endswith(_ARCHIVE_SUFFIXES):
                        _unpack(file, checksum, reserved, progress)
            finally:
                lock.unlink(missing_ok=True)
    except Timeout as error:
        raise CorpusError(f"{destination}: another process is fetching into this folder; wait for it") from error
    except OSError as error:  # of the file system: those of the network are no OSErrors in httpx
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            advice = "What has arrived is kept: free some space and run the same command again to resume"
            raise CorpusError(f"{destination}: no space left on the disk. {advice}") from error
        raise CorpusError(f"{destination}: {error}. Fix that and run the same command again") from error
    return [destination / name for name in names]


def _unpack(file: FileDownload, checksum: str, reserved: Collection[str], progress: Progress) -> None:
    """Unpack an archive beside itself unless that is done: into a temporary folder first, then all files are moved."""
    archive = file.target
    unpacking, unpacked = (archive.with_name(archive.name + suffix) for suffix in (".unpacking", ".unpacked"))
    if _is_unpacked(archive.parent, unpacked, checksum):
        return
    try:
        shutil.rmtree(unpacking, ignore_errors=True)
        unpacking.mkdir()
        _extract(archive, unpacking, reserved, progress)
        files = _move_files(unpacking, archive.parent)
        write_atomic(unpacked, json.dumps({"sha256": checksum, "files": files}))
    except tarfile.FilterError as error:
        raise CorpusError(f"{archive} was not unpacked: {error}") from error
    except (*_DAMAGED_ARCHIVE, OSError) as error:
        if isinstance(error, OSError) and error.errno is not None:  # not damaged data of gzip or bz2
            raise
        advice = "Its checksum is the expected one: the publisher's file is damaged"
        if file.publisher_sum is None:  # it may be an error page: the next fetch must not keep it
            advice = f"It was moved to {file.discard()}: inspect it, or run the same command again to fetch it afresh"
        reason = str(error) or type(error).__name__
        raise CorpusError(f"{archive}, fetched from {file.url}, cannot be unpacked: {reason}. {advice}") from error
    finally:
        shutil.rmtree(unpacking, ignore_errors=True)


def _is_unpacked(folder: Path, unpacked: Path, checksum: str) -> bool:
    try:
        record = read_json(unpacked)
        return record["sha256"] == checksum and all(os.path.lexists(folder / name) for name in record["files"])
    except (FileNotFoundError, ValueError, TypeError, KeyError):
        return False


def _extract(archive: Path, folder: Path, reserved: Collection[str], progress: Progress) -> None:
    """Extract all members; none may be outside the folder or have a reserved name."""
    label = f"unpacking {archive.name}"

    def check(name: str) -> None:
        first, *_ = parts = PurePosixPath(name.replace("\\", "/")).parts or (".",)
        if first == "/" or ".." in parts or re.match(r"[A-Za-z]:", first):
            raise CorpusError(f"{archive} was not unpacked: its member {name!r} would be outside {archive.parent}")
        if first in reserved:
            raise CorpusError(
                f"{archive} was not unpacked: its member {name!r} would overwrite {archive.parent / first}"
            )

    def filter_member(member: tarfile.TarInfo, path: str) -> tarfile.TarInfo:
        check(member.name)
        if member.issym():  # tarfile checks the target of the link now; this is its target after moving
            check(posixpath.normpath(posixpath.join(posixpath.dirname(member.name), member.linkname)))
        return tarfile.data_filter(member, path)

    if archive.name.lower().endswith(".zip"):
        with zipfile.ZipFile(archive) as zip_file:
            members = zip_file.infolist()
            for info in members:  # `extract` would silently change such a name
                check(info.filename)
            for number, info in enumerate(members, 1):
                zip_file.extract(info, folder)
                progress(label, number, len(members))
        return
    with tarfile.open(archive) as tar:
        for number, member in enumerate(tar, 1):
            tar.extract(member, folder, filter=filter_member)
            progress(label, number)
        # the checksums of gzip and xz come after the end of the tar and are verified by reading on
        while tar.fileobj is not None and tar.fileobj.read(_BLOCK):
            pass


def _move_files(source: Path, destination: Path) -> list[str]:
    """Move all files below `source` to the same place below `destination`; return their relative paths."""
    names = []
    for path in sorted(source.rglob("*")):
        name = path.relative_to(source)
        if path.is_dir() and not path.is_symlink():
            (destination / name).mkdir(exist_ok=True)
        else:
            path.replace(destination / name)
            names.append(name.as_posix())
    return names
