"""Downloading a file so that neither a broken connection nor a kill costs what has already arrived.

- `NAME.part`, `NAME.part.json`: what has arrived so far, and the version of the remote file it belongs to (ETag,
  Last-Modified, size). The next attempt requests the rest, on the condition that the remote file is still that version.
- `NAME`: the complete file, once its SHA-256 sum is verified.
- `NAME.corrupt`: a complete file with a wrong checksum. It is never used; the next download starts over.
- `SHA256SUMS`: the checksums of all complete files, in the format of `sha256sum --check`.

A server that sends neither ETag nor Last-Modified is checked by size only; then only a known checksum detects a file
that changed between two attempts.
"""

import json
import os
import re
import time
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any

import httpx

from turnwise.core.errors import CorpusError
from turnwise.core.files import sha256, sync_to_disk, write_atomic
from turnwise.core.progress import Progress
from turnwise.corpus.registry import SUMS, Download

#: The longest pause between two attempts, in seconds; if a server requests a longer one, the download fails.
MAX_PAUSE = 60.0

_CONTENT_RANGE = re.compile(r"bytes (?:(\d+)-\d+|\*)/(\d+|\*)")


class _InterruptedError(Exception):
    """An attempt failed in a way that another one, after a pause in seconds, may remedy."""

    def __init__(self, reason: str, pause: float = 0.0) -> None:
        super().__init__(reason)
        self.pause = pause


class FileDownload:
    """The download of one file into a folder; the module's docstring explains its files."""

    def __init__(self, download: Download, folder: Path, client: httpx.Client, progress: Progress) -> None:
        self.url = download.url
        self.publisher_sum = None if download.sha256 is None else download.sha256.lower()
        self.target = folder / download.file_name
        self._part, self._state_file, self._corrupt = (
            self.target.with_name(self.target.name + suffix) for suffix in (".part", ".part.json", ".corrupt")
        )
        self._sums = folder / SUMS
        self._client = client
        self._progress = progress
        self._restarts = 0

    def complete(self, attempts: int, pause: float) -> str:
        """Download and verify the file unless that is done; return its checksum."""
        recorded = next((line[:64].lower() for line in self._read_sums() if line[66:] == self.target.name), None)
        expected = self.publisher_sum or recorded
        if self.target.is_file() and (checksum := sha256(self.target)) == (expected or checksum):
            self._record_sum(checksum)
            return checksum
        # a damaged file, or one of an older release, is kept until the new one is complete and verified
        self._download(attempts, pause)
        checksum = sha256(self._part)
        if checksum != (expected or checksum):
            self._part.replace(self._corrupt)
            self._state_file.unlink(missing_ok=True)
            advice = "Run the same command again; if the sum is wrong again, the publisher has changed the file"
            if self.publisher_sum is None:
                advice = (
                    "The expected sum is that of an earlier fetch, so the publisher has changed the file; to use it, "
                    f"remove the line of {self.target.name} from {self._sums} and run the same command again"
                )
            raise CorpusError(
                f"{self.url} has the wrong checksum: SHA-256 {checksum}, expected {expected}. It was moved to "
                f"{self._corrupt} and is not used. {advice}"
            )
        sync_to_disk(self._part)
        # first the record: after a kill in between, the next run verifies the complete part against it
        self._record_sum(checksum)
        self._part.replace(self.target)
        self._state_file.unlink(missing_ok=True)
        return checksum

    def discard(self) -> Path:
        """Move the complete file aside, so that the next run downloads it again; return its new path."""
        self.target.replace(self._corrupt)
        self._record_sum(None)
        return self._corrupt

    def _read_sums(self) -> list[str]:
        """Return the lines of the checksum file: 64 hexadecimal digits, two characters, a file name."""
        return self._sums.read_text(encoding="utf-8").splitlines() if self._sums.exists() else []

    def _record_sum(self, checksum: str | None) -> None:
        """Set the checksum of the file (None: remove it); all other lines stay as they are."""
        lines = [line for line in self._read_sums() if line[66:] != self.target.name]
        lines += [f"{checksum}  {self.target.name}"] if checksum else []
        write_atomic(self._sums, "".join(f"{line}\n" for line in lines))

    def _size(self) -> int:
        return self._part.stat().st_size if self._part.exists() else 0

    def _read_state(self) -> dict[str, Any]:
        """Return the version that the part belongs to; empty if it is unknown, or of another URL."""
        try:
            state = json.loads(self._state_file.read_text(encoding="utf-8"))
            return state if state.keys() >= {"etag", "last_modified", "total"} and state["url"] == self.url else {}
        except (FileNotFoundError, ValueError, AttributeError):
            return {}

    def _restart(self) -> None:
        if self._size():
            self._restarts += 1
            os.truncate(self._part, 0)

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
                if failures >= attempts or self._restarts >= attempts:
                    total = self._read_state().get("total") or "an unknown number of"
                    raise CorpusError(
                        f"{self.url} could not be fetched: {error}. {self._size()} of {total} bytes are in "
                        f"{self._part} and are kept: run the same command again to resume"
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
            with self._client.stream("GET", self.url, headers=headers) as response:
                self._receive(response, size, state)
        except (httpx.InvalidURL, httpx.UnsupportedProtocol, UnicodeError) as error:
            raise CorpusError(f"{self.url!r} is not a valid URL, or redirects to one that is not: {error}") from error
        except httpx.TimeoutException as error:
            raise _InterruptedError("the server sent nothing for too long") from error
        except httpx.HTTPError as error:
            raise _InterruptedError(f"the connection broke off ({error or type(error).__name__})") from error

    def _receive(self, response: httpx.Response, size: int, state: dict[str, Any]) -> None:
        match = _CONTENT_RANGE.fullmatch(response.headers.get("Content-Range", "").strip())
        start, total = match.groups() if match else (None, None)
        if response.status_code == 200:
            total = response.headers.get("Content-Length", "")
        version = {
            "url": self.url,
            "etag": response.headers.get("ETag"),
            "last_modified": response.headers.get("Last-Modified"),
            "total": int(total) if total and total.isdecimal() else None,
        }
        if response.status_code == 200:  # to the first request, by a server that does not resume, or of another version
            self._restart()
            size, state = 0, version
            # while the part is empty, so that a kill leaves no wrong pair
            write_atomic(self._state_file, json.dumps(version))
        elif response.status_code in (206, 416) and state:
            same_version = _is_same_version(state, version)
            if response.status_code == 416 and version["total"] == size and same_version:
                return
            if start != str(size) or not same_version:
                self._restart()
                raise _InterruptedError("the file has changed on the server")
        else:
            raise self._status_error(response)
        expected = version["total"] or state["total"]
        with self._part.open("ab") as file:
            for block in response.iter_raw():
                file.write(block)
                file.flush()  # a kill must not cost what is in a buffer
                size += len(block)
                self._progress(f"fetching {self.target.name}", size, expected)
        if expected is not None and size < expected:
            raise _InterruptedError(f"the connection was closed after {size} of {expected} bytes")

    def _status_error(self, response: httpx.Response) -> Exception:
        code, status = response.status_code, f"{response.status_code} {response.reason_phrase}"
        advice = "Check the address: the publisher may have moved the file"
        if code in (408, 429) or code >= 500:
            pause = _parse_retry_after(response.headers.get("Retry-After", ""))
            if pause <= MAX_PAUSE:
                return _InterruptedError(f"the server answered {status}", pause)
            advice = f"It requests a pause of {pause:.0f} seconds: run the same command again after that to resume"
        elif code in (401, 403):
            advice = f"It may require a login or a licence: download it manually to {self.target} and run this again"
        return CorpusError(f"{self.url} answered {status}. {advice}")


def _is_same_version(old: dict[str, Any], new: dict[str, Any]) -> bool:
    """Return whether nothing that both versions state differs; a Last-Modified date counts only without ETags."""
    keys = ("total", "etag" if old["etag"] and new["etag"] else "last_modified")
    return all(old[key] == new[key] for key in keys if old[key] is not None and new[key] is not None)


def _parse_retry_after(header: str) -> float:
    """Return the seconds that a `Retry-After` header requests, as a number or a date."""
    try:
        return float(header) if header.isdecimal() else parsedate_to_datetime(header).timestamp() - time.time()
    except ValueError:
        return 0.0
