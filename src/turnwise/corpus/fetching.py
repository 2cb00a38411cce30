"""Fetching a public corpus: its files are downloaded into a folder, and archives are unpacked there.

Neither a broken connection nor a kill costs what has already arrived:

- `NAME.part`, `NAME.part.json`: what has arrived so far, and the version of the remote file it belongs to (ETag,
  Last-Modified, size). The next attempt requests the rest, and starts over if the answer is of another version.
- `NAME`: the complete file, once its SHA-256 sum is verified.
- `NAME.corrupt`: a complete file with a wrong checksum. It is never used; the next download starts over.
- `SHA256SUMS`: the checksums of all complete files, in the format of `sha256sum --check`.
- `NAME.unpacking`, `NAME.unpacked`: a temporary folder, and the checksum of the archive, written when all its files
  are in place.
"""

import json
import os
import shutil
import tarfile
import time
import zipfile
import zlib
from collections.abc import Sequence
from lzma import LZMAError
from pathlib import Path
from typing import Any

import httpx
from filelock import FileLock, Timeout

from turnwise.core.errors import CorpusError
from turnwise.core.files import read_json, sha256, sync_to_disk, write_atomic
from turnwise.core.progress import Progress, silent
from turnwise.corpus.registry import OWN_SUFFIXES, SUMS, Download

ATTEMPTS = 5  # consecutive attempts that may bring nothing before a download fails
PAUSE = 1.0  # seconds before the second attempt; doubled for each further one that brings nothing
TIMEOUT = 30.0  # seconds without a byte after which a connection counts as broken
_LOCK = ".lock"
_ARCHIVE_SUFFIXES = (".zip", ".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tar.xz")
_DAMAGED_ARCHIVE = (zipfile.BadZipFile, tarfile.TarError, zlib.error, LZMAError, EOFError, ValueError, RuntimeError)


def fetch(downloads: Sequence[Download], destination: Path, progress: Progress = silent) -> list[Path]:
    """Fetch files into a folder, unpack archives there, return their paths; after an error, the same call resumes."""
    reserved = {SUMS, _LOCK, *(download.file_name + suffix for download in downloads for suffix in ("", *OWN_SUFFIXES))}
    headers = {"User-Agent": "turnwise", "Accept-Encoding": "identity"}
    try:
        destination.mkdir(parents=True, exist_ok=True)
        # two processes that append to the same part would corrupt it
        with (
            FileLock(destination / _LOCK, timeout=0),
            httpx.Client(headers=headers, follow_redirects=True, timeout=TIMEOUT) as client,
        ):
            for download in downloads:
                file = _File(download, destination, client, progress)
                checksum = file.complete()
                if file.target.name.lower().endswith(_ARCHIVE_SUFFIXES):
                    file.unpack(checksum, reserved)
    except Timeout as error:
        raise CorpusError(f"{destination}: another process is fetching into this folder; wait for it") from error
    except OSError as error:  # of the file system: those of the network are no OSErrors in httpx
        advice = "What has arrived is kept: fix that and run the same command again to resume"
        raise CorpusError(f"{destination}: {error}. {advice}") from error
    return [destination / download.file_name for download in downloads]


class _File:
    """A file to download into a folder; the module's docstring explains what lies beside it."""

    def __init__(self, download: Download, folder: Path, client: httpx.Client, progress: Progress) -> None:
        self.target = folder / download.file_name
        self._url = download.url
        self._publisher_sum = None if download.sha256 is None else download.sha256.lower()
        self._part = self._beside(".part")
        self._state = self._beside(".part.json")
        self._sums = folder / SUMS
        self._client = client
        self._progress = progress

    def _beside(self, suffix: str) -> Path:
        return self.target.with_name(self.target.name + suffix)

    def complete(self) -> str:
        """Download and verify the file unless that is done; return its checksum."""
        expected = self._publisher_sum or self._read_sums().get(self.target.name)
        if self.target.is_file() and (checksum := sha256(self.target)) == (expected or checksum):
            self._record_sum(checksum)
            return checksum
        # a damaged file, or one of an older release, is kept until the new one is complete and verified
        self._download()
        checksum = sha256(self._part)
        if checksum != (expected or checksum):
            corrupt = self._part.replace(self._beside(".corrupt"))
            self._state.unlink(missing_ok=True)
            advice = "Run the same command again; if the sum is wrong again, the publisher has changed the file"
            if self._publisher_sum is None:
                advice = (
                    "The expected sum is that of an earlier fetch, so the publisher has changed the file; to use it, "
                    f"remove the line of {self.target.name} from {self._sums} and run the same command again"
                )
            raise CorpusError(
                f"{self._url} has the wrong checksum: SHA-256 {checksum}, expected {expected}. It was moved to "
                f"{corrupt} and is not used. {advice}"
            )
        sync_to_disk(self._part)
        # first the record: after a kill in between, the next run verifies the complete part against it
        self._record_sum(checksum)
        self._part.replace(self.target)
        self._state.unlink(missing_ok=True)
        return checksum

    def _read_sums(self) -> dict[str, str]:
        """Return the checksums by file name; a line has 64 hexadecimal digits, two characters, and the name."""
        lines = self._sums.read_text(encoding="utf-8").splitlines() if self._sums.exists() else []
        return {line[66:]: line[:64].lower() for line in lines}

    def _record_sum(self, checksum: str | None) -> None:
        """Set the checksum of the file (None: remove it)."""
        sums = self._read_sums() | {self.target.name: checksum}
        write_atomic(self._sums, "".join(f"{value}  {name}\n" for name, value in sums.items() if value))

    def _size(self) -> int:
        return self._part.stat().st_size if self._part.exists() else 0

    def _download(self) -> None:
        """Try until the part is complete."""
        failures, longest = 0, self._size()
        while problem := self._attempt():
            failures = 0 if self._size() > longest else failures + 1
            longest = max(longest, self._size())
            if failures >= ATTEMPTS:
                raise CorpusError(
                    f"{self._url} could not be fetched: {problem}. {self._size()} bytes are in {self._part} and are"
                    " kept: run the same command again to resume"
                )
            time.sleep(PAUSE * 2 ** max(failures - 1, 0))

    def _attempt(self) -> str:
        """Send one request and append the response to the part; return why the part is incomplete, '' if it is not."""
        size = self._size()
        state = read_json(self._state) if size and self._state.exists() else {}
        if state.get("url") != self._url:
            state = {}
        if state and state["total"] == size:
            return ""
        headers = {"Range": f"bytes={size}-"} if state else {}
        try:
            with self._client.stream("GET", self._url, headers=headers) as response:
                return self._receive(response, size, state)
        except (httpx.HTTPError, httpx.InvalidURL, UnicodeError) as error:
            return f"the connection broke off ({error or type(error).__name__})"

    def _receive(self, response: httpx.Response, size: int, state: dict[str, Any]) -> str:
        code, status = response.status_code, f"{response.status_code} {response.reason_phrase}"
        if code in (408, 429) or code >= 500:
            return f"the server answered {status}"
        content_range = response.headers.get("Content-Range", "")
        total = response.headers.get("Content-Length", "") if code == 200 else content_range.rpartition("/")[2]
        version = {
            "url": self._url,
            "etag": response.headers.get("ETag"),
            "last_modified": response.headers.get("Last-Modified"),
            "total": int(total) if total.isdecimal() else None,
        }
        if code == 200:  # to the first request, or by a server that does not resume
            self._part.write_bytes(b"")
            # while the part is empty, so that a kill leaves no wrong pair
            write_atomic(self._state, json.dumps(version))
            size = 0
        elif code not in (206, 416) or not state:
            advice = "Check the address: the publisher may have moved the file"
            if code in (401, 403):
                advice = f"It may require a login: download it manually to {self.target} and run this again"
            raise CorpusError(f"{self._url} answered {status}. {advice}")
        else:
            is_same = all(version[key] == state[key] for key in ("etag", "last_modified"))
            is_same = is_same and state["total"] in (None, version["total"])
            if not is_same or not content_range.startswith(f"bytes {size}-"):
                self._part.write_bytes(b"")
                return "the file has changed on the server"
        with self._part.open("ab") as file:
            for block in response.iter_raw():
                file.write(block)
                file.flush()  # a kill must not cost what is in a buffer
                size += len(block)
                self._progress(f"fetching {self.target.name}", size, version["total"])
        if version["total"] is not None and size < version["total"]:
            return f"the connection was closed after {size} of {version['total']} bytes"
        return ""

    def unpack(self, checksum: str, reserved: set[str]) -> None:
        """Unpack the archive beside itself unless that is done: into a temporary folder first, then files are moved."""
        folder, unpacking, unpacked = self.target.parent, self._beside(".unpacking"), self._beside(".unpacked")
        if unpacked.exists() and unpacked.read_text(encoding="utf-8") == checksum:
            return
        try:
            shutil.rmtree(unpacking, ignore_errors=True)
            self._extract(unpacking)
            if taken := sorted(reserved & {path.name for path in unpacking.iterdir()}):
                raise CorpusError(f"{self.target} was not unpacked: it would overwrite {folder / taken[0]}")
            shutil.copytree(unpacking, folder, dirs_exist_ok=True, copy_function=os.replace)
            write_atomic(unpacked, checksum)
        finally:
            shutil.rmtree(unpacking, ignore_errors=True)

    def _extract(self, folder: Path) -> None:
        """Extract all members but links; whatever their names are, they stay inside the folder."""
        self._progress(f"unpacking {self.target.name}", 0)
        try:
            folder.mkdir()
            if self.target.name.lower().endswith(".zip"):
                with zipfile.ZipFile(self.target) as archive:
                    archive.extractall(folder)
            else:
                with tarfile.open(self.target) as tar:
                    tar.extractall(folder, [member for member in tar if not member.issym()], filter="data")
        except tarfile.FilterError as error:
            raise CorpusError(f"{self.target} was not unpacked: {error}") from error
        except (*_DAMAGED_ARCHIVE, OSError) as error:
            if isinstance(error, OSError) and error.errno is not None:  # not damaged data of gzip or bz2
                raise
            advice = "Its checksum is the expected one: the publisher's file is damaged"
            if self._publisher_sum is None:  # it may be an error page: the next fetch must not keep it
                corrupt = self.target.replace(self._beside(".corrupt"))
                self._record_sum(None)
                advice = f"It was moved to {corrupt}: inspect it, or run the same command again to fetch it afresh"
            reason = str(error) or type(error).__name__
            raise CorpusError(
                f"{self.target}, fetched from {self._url}, cannot be unpacked: {reason}. {advice}"
            ) from error
