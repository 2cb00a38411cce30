"""Downloads the files of a corpus so that neither a bad line nor a kill costs what has already arrived.

What lies in the destination while and after a file NAME is fetched:

* `NAME.part`, `NAME.part.json`: what has arrived so far, and which state of the remote file it belongs to (ETag,
  Last-Modified, size). The next try asks for the rest only, on the condition that the remote file is still that one.
* `NAME`: the whole file; it takes this name only once its SHA-256 sum is known to be right.
* `NAME.corrupt`: a whole file whose sum was wrong. Never used; the next fetch starts afresh.
* `SHA256SUMS`: the sum of every finished file; `sha256sum --check SHA256SUMS` reads it too.
* `NAME.unpacking`, `NAME.unpacked`: a half unpacked archive, and the list of files that an archive has given. The
  archive stays beside what was unpacked from it: as long as `NAME.unpacked` is missing, unpacking is still due.

The remote file is trusted to be the same one when its ETag (or else Last-Modified) and its size are. A server that
sends neither ETag nor Last-Modified is held to the size alone; there only a known checksum notices a file that was
changed between two tries.
"""

import errno
import hashlib
import http.client
import json
import os
import posixpath
import re
import shutil
import ssl
import sys
import tarfile
import time
import urllib.error
import urllib.parse
import urllib.request
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from lzma import LZMAError
from pathlib import Path, PurePosixPath
from typing import IO

from turnwise.core.errors import TurnwiseError
from turnwise.core.progress import Progress, silent

if sys.platform != "win32":
    import fcntl

#: The file, in the destination, that holds the checksum of every finished file.
SUMS = "SHA256SUMS"

#: The longest pause between two tries, in seconds; a server that asks for a longer one is left in peace.
LONGEST_PAUSE = 60.0

_BLOCK = 256 * 1024
_SCHEMES = ("http", "https")
_TAR_SUFFIXES = (".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tar.xz")
_OWN_SUFFIXES = (".part", ".part.json", ".corrupt", ".unpacking", ".unpacked")
_SUM_LINE = re.compile(r"([0-9a-fA-F]{64}) [ *](.+)")
_CONTENT_RANGE = re.compile(r"bytes (?:(\d+)-(\d+)|\*)/(\d+|\*)")


class FetchError(TurnwiseError):
    """A file could not be fetched; the message says which one, why, and what to do."""


@dataclass(frozen=True, slots=True)
class Download:
    """One file to fetch.

    Attributes:
        url: where it is; http or https.
        sha256: its checksum in hexadecimal; None where the publisher gives none. Then the first one seen is recorded,
            and what is fetched later is held against that.
        name: what it is called in the destination; None takes the last part of the URL's path.
    """

    url: str
    sha256: str | None = None
    name: str | None = None

    def __post_init__(self) -> None:
        try:
            parts = urllib.parse.urlsplit(self.url)
        except ValueError as error:
            raise FetchError(f"{self.url!r} is not a valid URL: {error}") from error
        if parts.scheme not in _SCHEMES or not parts.hostname:
            raise FetchError(f"{self.url!r} cannot be fetched: only http:// and https:// URLs can")
        if self.sha256 is not None and not re.fullmatch(r"[0-9a-fA-F]{64}", self.sha256):
            raise FetchError(f"{self.url}: {self.sha256!r} is not a SHA-256 sum, which is 64 hexadecimal digits")
        name = self.file_name
        if (
            name in ("", ".", "..", SUMS)
            or name.endswith(_OWN_SUFFIXES)
            or re.search(r"[/\\\x00-\x1f\x7f]", name) is not None
        ):
            raise FetchError(f"{self.url}: a file cannot be called {name!r} here; give the download another `name`")

    @property
    def file_name(self) -> str:
        """What the file is called in the destination."""
        if self.name is not None:
            return self.name
        return PurePosixPath(urllib.parse.unquote(urllib.parse.urlsplit(self.url).path)).name


def fetch(
    downloads: Sequence[Download],
    destination: Path,
    *,
    progress: Progress = silent,
    attempts: int = 5,
    timeout: float = 30.0,
    pause: float = 1.0,
) -> list[Path]:
    """Fetches files into a folder and unpacks those that are archives.

    A file that is there already, with the right checksum, is not fetched again; one that is there and of which no
    checksum is known (put there by hand) is taken as it is. Of two archives that hold a file of the same name, the
    later one wins.

    Args:
        downloads: what to fetch, in this order.
        destination: the folder; made if need be.
        progress: told the bytes of each file as they arrive and are checked, and the members that are unpacked.
        attempts: how many tries in a row may bring nothing new before a file is given up, and how often a file may
            start from the beginning because the server does not continue.
        timeout: seconds without a single byte after which a connection counts as broken.
        pause: seconds before the second try; doubled with each further one that brings nothing.

    Returns:
        One path for each download: the file itself. What an archive held lies beside it, in `destination`.

    Raises:
        FetchError: where a file cannot be fetched, is not what it should be, or cannot be unpacked. What has arrived
            is kept: the same call continues.
        ValueError: where `attempts` is below 1.
    """
    if attempts < 1:
        raise ValueError(f"attempts is {attempts}: at least one is needed")
    names = [download.file_name for download in downloads]
    for name in names:
        if names.count(name) > 1:
            raise FetchError(f"several downloads would be called {name!r} in {destination}; give them different names")
    reserved = frozenset(name + suffix for name in names for suffix in ("", *_OWN_SUFFIXES)) | {SUMS}
    with _disk_errors(destination, "making the folder"):
        destination.mkdir(parents=True, exist_ok=True)
    opener = _opener()
    paths = []
    with _alone_in(destination):
        for download in downloads:
            transfer = _Transfer(download, destination, opener, progress, timeout)
            checksum = _finish(transfer, attempts, pause)
            if _is_archive(transfer.target.name):
                _unpack(transfer, checksum, reserved)
            paths.append(transfer.target)
    return paths


@contextmanager
def _disk_errors(path: Path, doing: str) -> Iterator[None]:
    """Turns what the file system refuses into a `FetchError`; only for blocks that do nothing on the network."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise FetchError(
                f"{path}: no space left on the disk while {doing}. What has arrived is kept: free some space and run "
                "the same command again, it continues from there"
            ) from error
        raise FetchError(f"{path}: {doing} failed: {error}. Mend that and run the same command again") from error


@contextmanager
def _alone_in(destination: Path) -> Iterator[None]:
    """Keeps a second process out: two that append to the same part would mix it up."""
    if sys.platform == "win32":
        yield
        return
    with _disk_errors(destination, "opening the folder"):
        # The lock is on the folder itself, and goes with the process: nothing is left behind by a kill.
        folder = os.open(destination, os.O_RDONLY)
    try:
        try:
            fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise FetchError(
                f"{destination}: another process is fetching into this folder; wait until it is done"
            ) from error
        except OSError:
            pass  # Some network file systems have no locks; fetching without one is better than not at all.
        yield
    finally:
        os.close(folder)


# --- The network ------------------------------------------------------------------------------------------------------


class _WebRedirects(urllib.request.HTTPRedirectHandler):
    """Follows redirects to http and https only; the handler it extends would also follow one to ftp."""

    def redirect_request(
        self,
        req: urllib.request.Request,
        fp: IO[bytes],
        code: int,
        msg: str,
        headers: http.client.HTTPMessage,
        newurl: str,
    ) -> urllib.request.Request | None:
        if urllib.parse.urlsplit(newurl).scheme not in _SCHEMES:
            raise urllib.error.HTTPError(newurl, code, "a redirect to another scheme than http or https", headers, fp)
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def _opener() -> urllib.request.OpenerDirector:
    """An opener that speaks http and https and nothing else (`build_opener` would add file, ftp and data)."""
    opener = urllib.request.OpenerDirector()
    for handler in (
        urllib.request.ProxyHandler(),
        urllib.request.UnknownHandler(),
        urllib.request.HTTPHandler(),
        urllib.request.HTTPSHandler(),
        urllib.request.HTTPDefaultErrorHandler(),
        _WebRedirects(),
        urllib.request.HTTPErrorProcessor(),
    ):
        opener.add_handler(handler)
    return opener


class _BrokenOffError(Exception):
    """A try ended without the whole file, in a way that may be better next time."""

    def __init__(self, reason: str, pause: float = 0.0) -> None:
        super().__init__(reason)
        self.pause = pause


@dataclass(frozen=True, slots=True)
class _Version:
    """Which state of the remote file a part belongs to."""

    url: str
    etag: str | None
    last_modified: str | None
    total: int | None

    @property
    def condition(self) -> str | None:
        """What `If-Range` may hold: a weak ETag promises no identical bytes and is not allowed there."""
        if self.etag is not None and not self.etag.startswith("W/"):
            return self.etag
        return self.last_modified

    def agrees_with(self, other: "_Version") -> bool:
        """Whether nothing says that the two are different states. What only one of them tells does not count."""
        if self.total is not None and other.total is not None and self.total != other.total:
            return False
        if self.etag is not None and other.etag is not None:
            return self.etag == other.etag
        if self.last_modified is not None and other.last_modified is not None:
            return self.last_modified == other.last_modified
        return True


class _Transfer:
    """Brings one file to its `.part`, in as many tries as it takes."""

    def __init__(
        self,
        download: Download,
        destination: Path,
        opener: urllib.request.OpenerDirector,
        progress: Progress,
        timeout: float,
    ) -> None:
        self.download = download
        self.target = destination / download.file_name
        self.part = self.beside(".part")
        self.memory = self.beside(".part.json")
        self.progress = progress
        self.opener = opener
        self.timeout = timeout
        self.restarts = 0

    def beside(self, suffix: str) -> Path:
        """The path of one of the companions of the file."""
        return self.target.with_name(self.target.name + suffix)

    def size(self) -> int:
        """How many bytes have arrived."""
        try:
            return self.part.stat().st_size
        except FileNotFoundError:
            return 0

    def run(self, attempts: int, pause: float) -> None:
        """Tries until the part is whole."""
        fruitless = 0
        while True:
            before = self.size()
            try:
                self.try_once()
                return
            except _BrokenOffError as error:
                fruitless = 0 if self.size() > before else fruitless + 1
                # Restarts have a count of their own: each brings bytes, and still a server that never continues would
                # otherwise be asked for ever.
                if fruitless >= attempts or self.restarts >= attempts:
                    raise self.given_up(error) from error
                wait = min(pause * 2 ** max(fruitless - 1, 0), LONGEST_PAUSE)
                time.sleep(max(wait, error.pause))

    def given_up(self, reason: _BrokenOffError) -> FetchError:
        """The error after the last try."""
        version = self.remembered()
        total = "an unknown number of" if version is None or version.total is None else str(version.total)
        return FetchError(
            f"{self.download.url} could not be fetched: {reason}. {self.size()} of {total} bytes are in {self.part} "
            "and are kept: run the same command again, it continues from there"
        )

    def try_once(self) -> None:
        """Sends one request and writes what it brings; returns once the part is whole.

        Raises:
            _BrokenOffError: where another try may bring more.
            FetchError: where none will.
        """
        have = self.size()
        version = self.remembered() if have else None
        if version is not None and version.total == have:
            return
        headers = {"User-Agent": "turnwise", "Accept-Encoding": "identity"}
        if version is not None:
            headers["Range"] = f"bytes={have}-"
            if version.condition is not None:
                headers["If-Range"] = version.condition
        try:
            with self.open(headers) as response:
                self.receive(response, have, version)
        except urllib.error.HTTPError as error:
            with error:
                self.refused(error, have, version)

    def open(self, headers: Mapping[str, str]) -> http.client.HTTPResponse:
        """Sends the request; lets an `HTTPError` (any status but 2xx) through."""
        try:
            request = urllib.request.Request(self.download.url, headers=dict(headers))
            response = self.opener.open(request, timeout=self.timeout)
        except urllib.error.HTTPError:
            raise
        except (ValueError, http.client.InvalidURL) as error:
            raise FetchError(f"{self.download.url!r} is not a valid URL: {error}") from error
        except (OSError, http.client.HTTPException) as error:
            reason = error.reason if isinstance(error, urllib.error.URLError) else error
            if isinstance(reason, ssl.SSLCertVerificationError):
                raise FetchError(
                    f"{self.download.url}: the server cannot prove who it is ({reason}). Check the address, the clock "
                    "and the certificates of this machine"
                ) from error
            raise _BrokenOffError(_in_words(reason)) from error
        assert isinstance(response, http.client.HTTPResponse)
        return response

    def receive(self, response: http.client.HTTPResponse, have: int, version: _Version | None) -> None:
        """Writes the body of a 200 or 206 answer to the part.

        Args:
            response: the answer.
            have: the bytes in the part.
            version: what they belong to; None where the whole file was asked for.
        """
        sent = _Version(
            self.download.url, response.headers.get("ETag"), response.headers.get("Last-Modified"), response.length
        )
        end = response.length
        if response.status == 206 and version is not None:
            start, stop, total = _content_range(response.headers.get("Content-Range"))
            sent = _Version(sent.url, sent.etag, sent.last_modified, total)
            if start != have or not version.agrees_with(sent):
                self.restart()
                raise _BrokenOffError("the file has changed on the server")
            end = stop
            if version.total is None and total is not None:
                version = _Version(version.url, version.etag, version.last_modified, total)
                self.remember(version)
        elif response.status == 200:
            # Asked for the rest, the server sends everything: it cannot continue, or the file is not the same any more.
            self.restart()
            have = 0
            version = sent
            self.remember(version)
        else:
            raise FetchError(
                f"{self.download.url} answered {response.status} {response.reason}, which is no file. Check the address"
            )
        with _disk_errors(self.part, "opening the part"):
            file = self.part.open("ab")
        with file:
            while end is None or have < end:
                try:
                    # One system call at a time: `read` would lose what it has gathered when the line breaks.
                    block = response.read1(_BLOCK if end is None else min(_BLOCK, end - have))
                except (OSError, http.client.HTTPException) as error:
                    raise _BrokenOffError(_in_words(error)) from error
                if not block:
                    break
                with _disk_errors(self.part, "writing what arrives"):
                    _write(file, block)
                have += len(block)
                self.progress(f"fetching {self.target.name}", have, version.total)
        expected = end if version.total is None else version.total
        if expected is not None and have < expected:
            raise _BrokenOffError(f"the connection was closed after {have} of {expected} bytes")

    def refused(self, error: urllib.error.HTTPError, have: int, version: _Version | None) -> None:
        """Deals with any status but 2xx; returns where it means that the part is whole."""
        status = f"{error.code} {error.reason}"
        if error.code == 416 and version is not None:
            total = _content_range(error.headers.get("Content-Range"))[2]
            sent = _Version(self.download.url, error.headers.get("ETag"), error.headers.get("Last-Modified"), total)
            if total == have and version.agrees_with(sent):
                return
            self.restart()
            raise _BrokenOffError(f"the server has no bytes after the first {have} ({status})")
        if error.code in (408, 429) or error.code >= 500:
            asked = _retry_after(error.headers.get("Retry-After"))
            if asked > LONGEST_PAUSE:
                raise FetchError(
                    f"{self.download.url} answered {status} and asks for a pause of {asked:.0f} seconds. {have} bytes "
                    f"are in {self.part} and are kept: run the same command again after that, it continues from there"
                ) from error
            raise _BrokenOffError(f"the server answered {status}", asked) from error
        if error.code in (401, 403):
            advice = (
                f"It may ask for a login or a licence: fetch it by hand, put it at {self.target}, and run this again"
            )
        else:
            advice = "Check the address: the publisher may have moved the file"
        raise FetchError(f"{self.download.url} answered {status}. {advice}") from error

    def restart(self) -> None:
        """Empties the part, which is of no more use."""
        with _disk_errors(self.part, "emptying the part"):
            if self.size():
                self.restarts += 1
                os.truncate(self.part, 0)

    def remembered(self) -> _Version | None:
        """What the part belongs to; None where that is not known for this URL, so that nothing can be continued."""
        try:
            with _disk_errors(self.memory, "reading the state of the download"):
                text = self.memory.read_text(encoding="utf-8") if self.memory.exists() else ""
            version = _Version(**json.loads(text))
        except (ValueError, TypeError):
            return None
        return version if version.url == self.download.url else None

    def remember(self, version: _Version) -> None:
        """Writes down what the part belongs to; first done while it is empty, so that a kill leaves no wrong pair."""
        with _disk_errors(self.memory, "noting the state of the download"):
            _replace_text(self.memory, json.dumps(asdict(version)))


def _write(file: IO[bytes], block: bytes) -> None:
    file.write(block)
    # A kill must not cost what lies in a buffer.
    file.flush()


def _in_words(error: object) -> str:
    if isinstance(error, TimeoutError):
        return "the server sent nothing for too long"
    return f"the connection broke off ({error or type(error).__name__})"


def _content_range(header: str | None) -> tuple[int | None, int | None, int | None]:
    """First byte, byte after the last, and size of the whole file; None for what the header does not tell."""
    match = _CONTENT_RANGE.fullmatch((header or "").strip())
    if match is None:
        return None, None, None
    first, last, total = match.groups()
    return (
        int(first) if first is not None else None,
        int(last) + 1 if last is not None else None,
        int(total) if total != "*" else None,
    )


def _retry_after(header: str | None) -> float:
    """The seconds that a `Retry-After` header asks for, which may be given as a number or as a date."""
    if header is None:
        return 0.0
    if header.strip().isdecimal():
        return float(header)
    try:
        moment = parsedate_to_datetime(header)
    except ValueError:
        return 0.0
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return max((moment - datetime.now(UTC)).total_seconds(), 0.0)


# --- Checksums --------------------------------------------------------------------------------------------------------


def _finish(transfer: _Transfer, attempts: int, pause: float) -> str:
    """Has the file whole, checked, recorded and under its final name; returns its checksum."""
    download, target, part = transfer.download, transfer.target, transfer.part
    sums = target.with_name(SUMS)
    recorded = _recorded_sums(sums).get(target.name)
    known = download.sha256.lower() if download.sha256 is not None else recorded
    if target.is_file():
        found = _checksum(target, transfer.progress)
        if known is None or found == known:
            if recorded != found:
                _record_sum(sums, target.name, found)
            return found
        # Damaged, or of an older release: fetched again, and kept until the new one is whole and right.
    transfer.run(attempts, pause)
    found = _checksum(part, transfer.progress)
    if known is not None and found != known:
        corrupt = transfer.beside(".corrupt")
        with _disk_errors(part, "putting a corrupt file aside"):
            part.replace(corrupt)
            transfer.memory.unlink(missing_ok=True)
        if download.sha256 is not None:
            advice = "Run the same command again; if the sum is wrong again, the publisher has changed the file"
        else:
            advice = (
                f"The recorded sum is that of an earlier fetch, so the publisher has changed the file; if the new one "
                f"is to be used, remove the line of {target.name} from {sums} and run the same command again"
            )
        raise FetchError(
            f"{download.url} has the wrong checksum: SHA-256 {found}, expected {known}. It was put aside as {corrupt} "
            f"and is not used. {advice}"
        )
    with _disk_errors(target, "finishing the file"):
        with part.open("rb+") as file:
            os.fsync(file.fileno())
        # Recorded first: a kill before the renaming leaves a whole part, which the next run checks against the record.
        _record_sum(sums, target.name, found)
        part.replace(target)
        transfer.memory.unlink(missing_ok=True)
    return found


def _checksum(path: Path, progress: Progress) -> str:
    """The SHA-256 sum of a file, in hexadecimal."""
    digest = hashlib.sha256()
    done = 0
    what = f"checking {path.name.removesuffix('.part')}"
    with _disk_errors(path, "reading it for its checksum"):
        total = path.stat().st_size
        with path.open("rb") as file:
            while block := file.read(4 * _BLOCK):
                digest.update(block)
                done += len(block)
                progress(what, done, total)
    return digest.hexdigest()


def _recorded_sums(sums: Path) -> dict[str, str]:
    """The checksums in a file as `sha256sum` writes it, by file name."""
    with _disk_errors(sums, "reading the recorded checksums"):
        lines = sums.read_text(encoding="utf-8").splitlines() if sums.exists() else []
    matches = (_SUM_LINE.fullmatch(line) for line in lines)
    return {match[2]: match[1].lower() for match in matches if match is not None}


def _record_sum(sums: Path, name: str, checksum: str | None) -> None:
    """Writes the checksum of a file into `sums` (None: takes it out); every other line stays as it is."""
    with _disk_errors(sums, "recording a checksum"):
        lines = sums.read_text(encoding="utf-8").splitlines() if sums.exists() else []
        kept = [line for line in lines if (match := _SUM_LINE.fullmatch(line)) is None or match[2] != name]
        if checksum is not None:
            kept.append(f"{checksum}  {name}")
        _replace_text(sums, "".join(f"{line}\n" for line in kept))


def _replace_text(path: Path, text: str) -> None:
    """Writes a text file as a whole or not at all."""
    new = path.with_name(path.name + ".new")
    new.write_text(text, encoding="utf-8", newline="\n")
    new.replace(path)


# --- Archives ---------------------------------------------------------------------------------------------------------


def _is_archive(name: str) -> bool:
    return name.lower().endswith((".zip", *_TAR_SUFFIXES))


def _unpack(transfer: _Transfer, checksum: str, reserved: frozenset[str]) -> None:
    """Unpacks an archive beside itself, unless that has been done.

    The members go to a folder of their own first and are moved once all of them are there. The list of them, written
    last, says that unpacking is done; a kill at any moment before means that the next run does it again.

    Args:
        transfer: whose target the archive is.
        checksum: that of the archive; the list is only good for the same archive.
        reserved: names in the destination that no member may take.
    """
    archive, destination = transfer.target, transfer.target.parent
    done, temporary = transfer.beside(".unpacked"), transfer.beside(".unpacking")
    if _is_unpacked(done, checksum):
        return
    try:
        with _disk_errors(archive, "unpacking"):
            shutil.rmtree(temporary, ignore_errors=True)
            temporary.mkdir()
            try:
                _extract(archive, temporary, reserved, transfer.progress)
                files = _move_into(temporary, destination)
                _replace_text(done, json.dumps({"sha256": checksum, "files": files}))
            finally:
                shutil.rmtree(temporary, ignore_errors=True)
    except _BadArchiveError as error:
        advice = "Its checksum is the one expected: the publisher's file is at fault"
        if transfer.download.sha256 is None:
            # Nobody vouches for this file (it may be a page that says "not found"): the next fetch must not keep to it.
            corrupt = transfer.beside(".corrupt")
            with _disk_errors(archive, "putting a corrupt file aside"):
                archive.replace(corrupt)
                _record_sum(destination / SUMS, archive.name, None)
            advice = f"It was put aside as {corrupt}: look into it, or run the same command again to fetch it afresh"
        raise FetchError(
            f"{archive}, fetched from {transfer.download.url}, cannot be unpacked: {error}. {advice}"
        ) from error


class _BadArchiveError(Exception):
    """What should be an archive is damaged, or of another kind than its name says."""


def _is_unpacked(done: Path, checksum: str) -> bool:
    """Whether an archive with this checksum was unpacked, and all that came out of it is still there."""
    try:
        record = json.loads(done.read_text(encoding="utf-8"))
        return record["sha256"] == checksum and all(os.path.lexists(done.parent / name) for name in record["files"])
    except (FileNotFoundError, ValueError, TypeError, KeyError):
        return False


def _extract(archive: Path, folder: Path, reserved: frozenset[str], progress: Progress) -> None:
    """Writes the members of an archive into an empty folder."""
    what = f"unpacking {archive.name}"
    if not hasattr(tarfile, "data_filter"):
        raise FetchError(f"{archive} was not unpacked: doing so safely needs Python 3.11.4 or later")

    def check(name: str) -> None:
        parts = PurePosixPath(name.replace("\\", "/")).parts
        if not parts:
            return  # "./", the folder itself
        if parts[0] == "/" or ".." in parts or re.match(r"[A-Za-z]:", parts[0]):
            raise FetchError(f"{archive} was not unpacked: its member {name!r} would land outside {folder.parent}")
        if parts[0] in reserved:
            raise FetchError(
                f"{archive} was not unpacked: its member {name!r} would overwrite {folder.parent / parts[0]}"
            )

    def tar_filter(member: tarfile.TarInfo, path: str) -> tarfile.TarInfo | None:
        check(member.name)
        if member.issym():
            # The filter below looks at where a link leads now; this at where it leads once it has been moved.
            leads_to = posixpath.normpath(posixpath.join(posixpath.dirname(member.name), member.linkname))
            if leads_to == ".." or leads_to.startswith(("/", "../")):
                raise FetchError(
                    f"{archive} was not unpacked: its link {member.name!r} leads outside {folder.parent}, to {member.linkname!r}"
                )
        return tarfile.data_filter(member, path)

    def counted(members: tarfile.TarFile) -> Iterator[tarfile.TarInfo]:
        for number, member in enumerate(members, start=1):
            yield member
            progress(what, number, None)

    try:
        if archive.name.lower().endswith(".zip"):
            with zipfile.ZipFile(archive) as zipped:
                infos = zipped.infolist()
                # All before the first: `extract` would quietly bend such a name into one inside.
                for info in infos:
                    check(info.filename)
                for number, info in enumerate(infos, start=1):
                    zipped.extract(info, folder)
                    progress(what, number, len(infos))
        else:
            with tarfile.open(archive) as tarred:
                tarred.extractall(folder, members=counted(tarred), filter=tar_filter)
                # tarfile stops at the end mark of the tar; the sums of gzip and xz come after it, and are only compared
                # by reading on.
                while tarred.fileobj is not None and tarred.fileobj.read(_BLOCK):
                    pass
    except FetchError:
        raise
    except tarfile.FilterError as error:
        raise FetchError(f"{archive} was not unpacked: {error}") from error
    # RuntimeError is a zip that asks for a password; NotImplementedError, one packed by an unknown method.
    except (zipfile.BadZipFile, tarfile.TarError, zlib.error, LZMAError, EOFError, ValueError, RuntimeError) as error:
        raise _BadArchiveError(str(error) or type(error).__name__) from error
    except OSError as error:
        # gzip and bz2 report damaged data as an OSError, but without a number from the system.
        if error.errno is None:
            raise _BadArchiveError(str(error)) from error
        raise


def _move_into(source: Path, destination: Path, prefix: str = "") -> list[str]:
    """Moves all files below `source` to the same place below `destination`; returns their relative paths."""
    moved = []
    for entry in sorted(source.iterdir()):
        target = destination / entry.name
        name = prefix + entry.name
        if entry.is_dir() and not entry.is_symlink():
            target.mkdir(exist_ok=True)
            moved += _move_into(entry, target, f"{name}/")
        else:
            entry.replace(target)
            moved.append(name)
    return moved
