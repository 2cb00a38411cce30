"""Downloading the files of a corpus, so that neither a broken connection nor a kill costs what has already arrived.

Files in the destination while and after NAME is fetched:

- `NAME.part`, `NAME.part.json`: what has arrived so far, and the version of the remote file it belongs to (ETag,
  Last-Modified, size). The next attempt requests the rest, on the condition that the remote file is still that version.
- `NAME`: the complete file, once its SHA-256 sum is verified.
- `NAME.corrupt`: a complete file with a wrong checksum. It is never used; the next fetch starts over.
- `SHA256SUMS`: the checksums of all complete files, in the format of `sha256sum --check`.
- `NAME.unpacking`, `NAME.unpacked`: a half unpacked archive, and the list of files of an unpacked one, which is written
  last.

A server that sends neither ETag nor Last-Modified is checked by size only; then only a known checksum detects a file
that changed between two attempts.
"""

import errno
import hashlib
import json
import os
import posixpath
import re
import shutil
import tarfile
import time
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from lzma import LZMAError
from pathlib import Path, PurePosixPath
from typing import IO, Any

import httpx
from filelock import FileLock, Timeout

from turnwise.core.files import sync_to_disk, write_atomic
from turnwise.core.progress import Progress, silent
from turnwise.corpus.registry import OWN_SUFFIXES, SUMS, Download
from turnwise.corpus.source import CorpusError

#: The longest pause between two attempts, in seconds; if a server requests a longer one, the fetch fails.
MAX_PAUSE = 60.0

_BLOCK = 1 << 20
_LOCK = ".lock"
_ARCHIVE_SUFFIXES = (".zip", ".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tar.xz")
_SUM_LINE = re.compile(r"([0-9a-fA-F]{64}) [ *](.+)")
_CONTENT_RANGE = re.compile(r"bytes (?:(\d+)-(\d+)|\*)/(\d+|\*)")
_BAD_ARCHIVE = (zipfile.BadZipFile, tarfile.TarError, zlib.error, LZMAError, EOFError, ValueError, RuntimeError)


class FetchError(CorpusError):
    """A file could not be fetched; the message says which one, why, and what to do."""


class _InterruptedError(Exception):
    """An attempt failed in a way that another one may remedy."""

    def __init__(self, reason: str, pause: float = 0.0) -> None:
        super().__init__(reason)
        self.pause = pause


def fetch(
    downloads: Sequence[Download],
    destination: Path,
    *,
    progress: Progress = silent,
    attempts: int = 5,
    timeout: float = 30.0,
    pause: float = 1.0,
) -> list[Path]:
    """Fetch files into a folder and unpack archives there.

    A complete file with the right checksum is not fetched again; one without a known checksum (copied there manually)
    is accepted as it is. If two archives contain a file of the same name, the later one wins.

    Args:
        downloads: the files, in this order.
        destination: the folder; created if necessary.
        progress: called with the bytes that have arrived or been verified, and the members unpacked.
        attempts: how many consecutive attempts may bring no bytes before a file is given up, and how often a file may
            start over because the server does not resume.
        timeout: seconds without a byte after which a connection counts as broken.
        pause: seconds before the second attempt; doubled for each further one that brings no bytes.

    Returns:
        The path of each file; the members of an archive are beside it.

    Raises:
        FetchError: if a file cannot be fetched, verified or unpacked. What has arrived is kept: the same call resumes.
        ValueError: if `attempts` is below 1.
    """
    if attempts < 1:
        raise ValueError(f"attempts must be at least 1, got {attempts}")
    names = [download.file_name for download in downloads]
    for name in names:
        if names.count(name) > 1:
            raise FetchError(f"several downloads would be called {name!r} in {destination}; give them different names")
    reserved = {SUMS, _LOCK, *(name + suffix for name in names for suffix in ("", *OWN_SUFFIXES))}
    client = httpx.Client(
        headers={"User-Agent": "turnwise", "Accept-Encoding": "identity"},
        follow_redirects=True,
        timeout=timeout,
        event_hooks={"response": [_check_redirect]},
    )
    with _disk_errors(destination), _locked(destination), client:
        transfers = [_Transfer(download, destination, client, progress) for download in downloads]
        for transfer in transfers:
            checksum = transfer.complete(attempts, pause)
            if transfer.target.name.lower().endswith(_ARCHIVE_SUFFIXES):
                transfer.unpack(checksum, reserved)
    return [transfer.target for transfer in transfers]


@contextmanager
def _disk_errors(folder: Path) -> Iterator[None]:
    """Turn errors of the file system into a `FetchError`; those of the network are no OSErrors in httpx."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            advice = "What has arrived is kept: free some space and run the same command again to resume"
            raise FetchError(f"{folder}: no space left on the disk. {advice}") from error
        raise FetchError(f"{folder}: {error}. Fix that and run the same command again") from error


@contextmanager
def _locked(destination: Path) -> Iterator[None]:
    """Lock the folder: two processes that append to the same part would corrupt it."""
    destination.mkdir(parents=True, exist_ok=True)
    lock = FileLock(destination / _LOCK)
    try:
        lock.acquire(timeout=0)
    except Timeout as error:
        raise FetchError(f"{destination}: another process is fetching into this folder; wait for it") from error
    try:
        yield
    finally:
        (destination / _LOCK).unlink(missing_ok=True)
        lock.release()


def _check_redirect(response: httpx.Response) -> None:
    target = response.headers.get("Location", "")
    if response.has_redirect_location and re.match(r"(?!https?:)[a-z][a-z0-9+.-]*:", target, re.IGNORECASE):
        raise FetchError(
            f"{response.url} answered {response.status_code} with a redirect to {target!r}: only http and https are "
            "followed. Check the address"
        )


class _Transfer:
    """The transfer of one file: downloading to its `.part`, verifying, unpacking."""

    def __init__(self, download: Download, destination: Path, client: httpx.Client, progress: Progress) -> None:
        self.download = download
        self.target = destination / download.file_name
        self.part, self.state_file, self.corrupt, self.unpacking, self.unpacked = (
            self.target.with_name(self.target.name + suffix) for suffix in OWN_SUFFIXES
        )
        self.sums = destination / SUMS
        self.client = client
        self.progress = progress
        self.restarts = 0

    def complete(self, attempts: int, pause: float) -> str:
        """Download and verify the file unless that is done; return its checksum."""
        recorded = next((checksum for _, name, checksum in _read_sums(self.sums) if name == self.target.name), None)
        expected = self.download.sha256.lower() if self.download.sha256 is not None else recorded
        if self.target.is_file():
            checksum = self._compute_checksum(self.target)
            if expected in (None, checksum):
                if recorded != checksum:
                    _record_sum(self.sums, self.target.name, checksum)
                return checksum
            # damaged, or an older release: kept until the new file is complete and verified
        self._download(attempts, pause)
        checksum = self._compute_checksum(self.part)
        if expected not in (None, checksum):
            self.part.replace(self.corrupt)
            self.state_file.unlink(missing_ok=True)
            advice = "Run the same command again; if the sum is wrong again, the publisher has changed the file"
            if self.download.sha256 is None:
                advice = (
                    "The expected sum is that of an earlier fetch, so the publisher has changed the file; to use it, "
                    f"remove the line of {self.target.name} from {self.sums} and run the same command again"
                )
            raise FetchError(
                f"{self.download.url} has the wrong checksum: SHA-256 {checksum}, expected {expected}. It was moved to "
                f"{self.corrupt} and is not used. {advice}"
            )
        sync_to_disk(self.part)
        # first the record: after a kill in between, the next run verifies the complete part against it
        _record_sum(self.sums, self.target.name, checksum)
        self.part.replace(self.target)
        self.state_file.unlink(missing_ok=True)
        return checksum

    # ---- downloading

    def _size(self) -> int:
        return self.part.stat().st_size if self.part.exists() else 0

    def _download(self, attempts: int, pause: float) -> None:
        """Try until the part is complete."""
        failures = 0
        while True:
            before = self._size()
            try:
                self._attempt()
                return
            except _InterruptedError as error:
                failures = 0 if self._size() > before else failures + 1
                # restarts bring bytes, but a server that never resumes must not be asked forever
                if failures >= attempts or self.restarts >= attempts:
                    total = self._read_state().get("total") or "an unknown number of"
                    raise FetchError(
                        f"{self.download.url} could not be fetched: {error}. {self._size()} of {total} bytes are in "
                        f"{self.part} and are kept: run the same command again to resume"
                    ) from error
                time.sleep(max(min(pause * 2 ** max(failures - 1, 0), MAX_PAUSE), error.pause))

    def _attempt(self) -> None:
        """Send one request and append the response to the part; return if the part is complete."""
        size = self._size()
        state = self._read_state() if size else {}
        if state and state["total"] == size:
            return
        headers = {}
        if state:
            headers["Range"] = f"bytes={size}-"
            etag = state["etag"]  # a weak ETag does not promise identical bytes and is not allowed in If-Range
            condition = etag if etag and not etag.startswith("W/") else state["last_modified"]
            if condition:
                headers["If-Range"] = condition
        try:
            with self.client.stream("GET", self.download.url, headers=headers) as response:
                self._receive(response, size, state)
        except (httpx.InvalidURL, httpx.UnsupportedProtocol, UnicodeError) as error:
            raise FetchError(f"{self.download.url!r} is not a valid URL: {error}") from error
        except httpx.TimeoutException as error:
            raise _InterruptedError("the server sent nothing for too long") from error
        except httpx.HTTPError as error:
            if "CERTIFICATE_VERIFY_FAILED" in str(error):
                raise FetchError(
                    f"{self.download.url}: the server's certificate is not valid ({error}). Check the address, the "
                    "clock and the certificates of this machine"
                ) from error
            raise _InterruptedError(f"the connection broke off ({error or type(error).__name__})") from error

    def _receive(self, response: httpx.Response, size: int, state: dict[str, Any]) -> None:
        start, end, total = _parse_content_range(response.headers.get("Content-Range", ""))
        if response.status_code == 200:
            length = response.headers.get("Content-Length", "")
            end = total = int(length) if length.isdecimal() else None
        version = {
            "url": self.download.url,
            "etag": response.headers.get("ETag"),
            "last_modified": response.headers.get("Last-Modified"),
            "total": total,
        }
        if response.status_code == 206 and state:
            if start != size or not _is_same_version(state, version):
                self._restart()
                raise _InterruptedError("the file has changed on the server")
            if state["total"] is None and total is not None:
                state["total"] = total
                self._write_state(state)
        elif response.status_code == 200:  # a server that does not resume, or another version
            self._restart()
            size, state = 0, version
            self._write_state(state)
        elif response.status_code == 416 and state:
            if total == size and _is_same_version(state, version):
                return
            self._restart()
            raise _InterruptedError(f"the server has no bytes after the first {size} (416)")
        else:
            raise self._status_error(response)
        with self.part.open("ab") as file:
            for block in response.iter_raw():
                _write(file, block)
                size += len(block)
                self.progress(f"fetching {self.target.name}", size, state["total"])
        expected = end if state["total"] is None else state["total"]
        if expected is not None and size < expected:
            raise _InterruptedError(f"the connection was closed after {size} of {expected} bytes")

    def _status_error(self, response: httpx.Response) -> Exception:
        code, status = response.status_code, f"{response.status_code} {response.reason_phrase}"
        if code in (408, 429) or code >= 500:
            pause = _parse_retry_after(response.headers.get("Retry-After", ""))
            if pause <= MAX_PAUSE:
                return _InterruptedError(f"the server answered {status}", pause)
            advice = (
                f"It requests a pause of {pause:.0f} seconds. {self._size()} bytes are in {self.part} and are kept: "
                "run the same command again after that to resume"
            )
        elif code in (401, 403):
            advice = (
                "It may require a login or the acceptance of a licence: download it manually, put it at "
                f"{self.target}, and run this again"
            )
        else:
            advice = "Check the address: the publisher may have moved the file"
        return FetchError(f"{self.download.url} answered {status}. {advice}")

    def _restart(self) -> None:
        if self._size():
            self.restarts += 1
            os.truncate(self.part, 0)

    def _read_state(self) -> dict[str, Any]:
        """Return the version that the part belongs to; empty if it is unknown, or of another URL."""
        try:
            state = json.loads(self.state_file.read_text(encoding="utf-8"))
            return state if state.keys() >= {"etag", "total"} and state["url"] == self.download.url else {}
        except (FileNotFoundError, ValueError, AttributeError):
            return {}

    def _write_state(self, state: dict[str, Any]) -> None:
        write_atomic(self.state_file, json.dumps(state))  # while the part is empty, so that a kill leaves no wrong pair

    def _compute_checksum(self, path: Path) -> str:
        digest = hashlib.sha256()
        with path.open("rb") as file:
            total = path.stat().st_size
            while block := file.read(_BLOCK):
                digest.update(block)
                self.progress(f"checking {self.target.name}", file.tell(), total)
        return digest.hexdigest()

    # ---- unpacking

    def unpack(self, checksum: str, reserved: set[str]) -> None:
        """Unpack the archive beside itself, unless that is done; no member may have a reserved name.

        Members go to a temporary folder first and are moved once all are there. The list of them is written last: after
        a kill before that, the next run unpacks again.
        """
        if self._is_unpacked(checksum):
            return
        try:
            shutil.rmtree(self.unpacking, ignore_errors=True)
            self.unpacking.mkdir()
            self._extract(reserved)
            files = _move_files(self.unpacking, self.target.parent)
            write_atomic(self.unpacked, json.dumps({"sha256": checksum, "files": files}))
        except _BAD_ARCHIVE as error:
            advice = "Its checksum is the expected one: the publisher's file is damaged"
            if self.download.sha256 is None:  # it may be an error page: the next fetch must not keep it
                self.target.replace(self.corrupt)
                _record_sum(self.sums, self.target.name, None)
                advice = f"It was moved to {self.corrupt}: inspect it, or run the same command again to fetch it afresh"
            reason = str(error) or type(error).__name__
            raise FetchError(
                f"{self.target}, fetched from {self.download.url}, cannot be unpacked: {reason}. {advice}"
            ) from error
        finally:
            shutil.rmtree(self.unpacking, ignore_errors=True)

    def _is_unpacked(self, checksum: str) -> bool:
        try:
            record = json.loads(self.unpacked.read_text(encoding="utf-8"))
            paths = [self.target.parent / name for name in record["files"]]
            return record["sha256"] == checksum and all(os.path.lexists(path) for path in paths)
        except (FileNotFoundError, ValueError, TypeError, KeyError):
            return False

    def _extract(self, reserved: set[str]) -> None:
        label, folder = f"unpacking {self.target.name}", self.target.parent

        def check(name: str) -> None:
            parts = PurePosixPath(name.replace("\\", "/")).parts
            if parts and (parts[0] == "/" or ".." in parts or re.match(r"[A-Za-z]:", parts[0])):
                raise FetchError(f"{self.target} was not unpacked: its member {name!r} would be outside {folder}")
            if parts and parts[0] in reserved:
                raise FetchError(
                    f"{self.target} was not unpacked: its member {name!r} would overwrite {folder / parts[0]}"
                )

        def filter_member(member: tarfile.TarInfo, path: str) -> tarfile.TarInfo | None:
            check(member.name)
            if member.issym():  # tarfile checks the target of the link now; this is its target after moving
                target = posixpath.normpath(posixpath.join(posixpath.dirname(member.name), member.linkname))
                if target == ".." or target.startswith(("/", "../")):
                    raise tarfile.LinkOutsideDestinationError(member, target)
            return tarfile.data_filter(member, path)

        def count(members: tarfile.TarFile) -> Iterator[tarfile.TarInfo]:
            for number, member in enumerate(members, start=1):
                yield member
                self.progress(label, number, None)

        try:
            if self.target.name.lower().endswith(".zip"):
                with zipfile.ZipFile(self.target) as archive:
                    members = archive.infolist()
                    for info in members:  # `extract` would silently change such a name
                        check(info.filename)
                    for number, info in enumerate(members, start=1):
                        archive.extract(info, self.unpacking)
                        self.progress(label, number, len(members))
            else:
                with tarfile.open(self.target) as tar:
                    tar.extractall(self.unpacking, members=count(tar), filter=filter_member)
                    # the checksums of gzip and xz come after the end of the tar and are verified by reading on
                    while tar.fileobj is not None and tar.fileobj.read(_BLOCK):
                        pass
        except tarfile.FilterError as error:
            raise FetchError(f"{self.target} was not unpacked: {error}") from error
        except OSError as error:
            if error.errno is None:  # damaged data of gzip and bz2
                raise ValueError(str(error)) from error
            raise


def _write(file: IO[bytes], block: bytes) -> None:
    file.write(block)
    file.flush()  # a kill must not cost what is in a buffer


def _is_same_version(old: dict[str, Any], new: dict[str, Any]) -> bool:
    """Return whether nothing that both versions state differs; a Last-Modified date counts only without ETags."""
    for keys in (["total"], ["etag", "last_modified"]):
        key = next((key for key in keys if old[key] is not None and new[key] is not None), None)
        if key is not None and old[key] != new[key]:
            return False
    return True


def _parse_content_range(header: str) -> tuple[int | None, int | None, int | None]:
    """Return the first byte, the byte after the last, and the size of the file; None for what is not stated."""
    match = _CONTENT_RANGE.fullmatch(header.strip())
    groups = match.groups() if match else (None, None, None)
    first, last, total = (int(group) if group and group != "*" else None for group in groups)
    return first, None if last is None else last + 1, total


def _parse_retry_after(header: str) -> float:
    """Return the seconds that a `Retry-After` header requests, as a number or a date."""
    if header.strip().isdecimal():
        return float(header)
    try:
        moment = parsedate_to_datetime(header)
    except ValueError:
        return 0.0
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return max((moment - datetime.now(UTC)).total_seconds(), 0.0)


def _read_sums(path: Path) -> list[tuple[str, str, str]]:
    """Return the lines of a file as of `sha256sum`, each with the file name and checksum, or '' for other lines."""
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    matches = [_SUM_LINE.fullmatch(line) for line in lines]
    return [
        (line, match[2], match[1].lower()) if match else (line, "", "")
        for line, match in zip(lines, matches, strict=True)
    ]


def _record_sum(path: Path, name: str, checksum: str | None) -> None:
    """Set the checksum of a file (None: remove it); all other lines stay as they are."""
    lines = [line for line, other, _ in _read_sums(path) if other != name]
    lines += [f"{checksum}  {name}"] if checksum else []
    write_atomic(path, "".join(f"{line}\n" for line in lines))


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
