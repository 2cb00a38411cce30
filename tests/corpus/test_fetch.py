"""Tests downloads against broken connections, faulty servers, kills, wrong checksums and hostile archives."""

import errno
import hashlib
import io
import json
import os
import random
import re
import signal
import socket
import struct
import subprocess
import sys
import tarfile
import threading
import time
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

import turnwise
from tests.helpers import HANG_SECONDS
from turnwise.core.errors import CorpusError
from turnwise.corpus.fetching.download import MAX_PAUSE
from turnwise.corpus.fetching.fetch import fetch
from turnwise.corpus.registry import Download

CONTENT = random.Random(1).randbytes(200_000)
OTHER_CONTENT = random.Random(2).randbytes(200_000)
TIMES: dict[str, Any] = {"pause": 0.01, "timeout": 5.0}


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


@dataclass
class Answer:
    """How the server treats one request; the default is as it should be."""

    status: int | None = None
    headers: dict[str, str] = field(default_factory=dict)
    #: Bytes of the body after which the connection ends, and how.
    break_after: int | None = None
    reset: bool = False
    #: Seconds before each block, and before any byte of the answer.
    gap: float = 0.0
    block: int = 16_384
    #: Seconds of silence after `break_after` bytes, instead of an end.
    silence: float = 0.0
    ranges: bool = True
    conditions: bool = True
    chunked: bool = False
    #: What Content-Length claims beyond the truth.
    excess: int = 0
    #: The most bytes that a 206 answer gives.
    at_most: int | None = None


@dataclass
class Remote:
    """A file on a server, the answers still to be given, and the requests and the bytes sent."""

    address: str
    content: bytes = CONTENT
    etag: str | None = '"one"'
    last_modified: str | None = None
    answers: list[Answer] = field(default_factory=list)
    requests: list[dict[str, str]] = field(default_factory=list)
    sent: list[tuple[int, int]] = field(default_factory=list)
    stopped: threading.Event = field(default_factory=threading.Event)

    def url(self, name: str = "corpus.bin") -> str:
        return f"{self.address}/files/{name}"

    def download(self, name: str = "corpus.bin") -> Download:
        return Download(self.url(name), sha256(self.content))

    def ranges(self) -> list[str | None]:
        return [request.get("Range") for request in self.requests]

    def bytes_sent(self) -> int:
        return sum(stop - start for start, stop in self.sent)


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: object) -> None:
        pass

    def do_GET(self) -> None:
        remote: Remote = self.server.remote  # type: ignore[attr-defined]
        answer = remote.answers.pop(0) if remote.answers else Answer()
        remote.requests.append(dict(self.headers.items()))
        self.close_connection = True
        start, status = 0, answer.status or 200
        requested = re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range", ""))
        condition = self.headers.get("If-Range")
        unchanged = not answer.conditions or condition in (None, remote.etag, remote.last_modified)
        stop = len(remote.content)
        if status == 200 and requested and answer.ranges and unchanged:
            start = int(requested[1])
            status = 206 if start < stop else 416
            if answer.at_most is not None:
                stop = min(stop, start + answer.at_most)
        body = remote.content[start:stop] if status in (200, 206) else b"an explanation"
        self.send_response(status)
        if status == 206:
            self.send_header("Content-Range", f"bytes {start}-{stop - 1}/{len(remote.content)}")
        if status == 416:
            self.send_header("Content-Range", f"bytes */{len(remote.content)}")
        if remote.etag:
            self.send_header("ETag", remote.etag)
        if remote.last_modified:
            self.send_header("Last-Modified", remote.last_modified)
        if answer.chunked:
            self.send_header("Transfer-Encoding", "chunked")
        else:
            self.send_header("Content-Length", str(len(body) + answer.excess))
        for name, value in answer.headers.items():
            self.send_header(name, value)
        self.end_headers()
        sent = 0
        limit = len(body) if answer.break_after is None else min(answer.break_after, len(body))
        while sent < limit:
            if answer.gap:
                remote.stopped.wait(answer.gap)
            block = body[sent : min(sent + answer.block, limit)]
            sent += len(block)
            if sent == limit and status in (200, 206):  # before the last block, which lets the client finish
                remote.sent.append((start, start + sent))
            self.wfile.write(b"%x\r\n%s\r\n" % (len(block), block) if answer.chunked else block)
        if answer.chunked and answer.break_after is None:
            self.wfile.write(b"0\r\n\r\n")
        self.wfile.flush()
        if answer.silence:
            remote.stopped.wait(answer.silence)
        if answer.reset:
            # A reset throws away what the other side has not read yet; let it read.
            remote.stopped.wait(0.1)
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.connection.close()


class Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def handle_error(self, request: object, client_address: object) -> None:
        pass  # A client that hangs up, as the killed ones do.


@pytest.fixture
def remote(monkeypatch: pytest.MonkeyPatch) -> Iterator[Remote]:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with Server(("127.0.0.1", 0), Handler) as server:
        remote = Remote(f"http://127.0.0.1:{server.server_port}")
        server.remote = remote  # type: ignore[attr-defined]
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        thread.start()
        yield remote
        remote.stopped.set()
        server.shutdown()
        thread.join()


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The pauses that were taken, none of which takes any time."""
    taken: list[float] = []
    monkeypatch.setattr(time, "sleep", taken.append)
    return taken


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def fetch_one(remote: Remote, folder: Path, *, known: bool = True, **options: Any) -> None:
    """Fetch corpus.bin, with or without a known checksum, and check its contents."""
    fetch([remote.download() if known else Download(remote.url())], folder, **{**TIMES, **options})
    assert (folder / "corpus.bin").read_bytes() == remote.content


def fail_to_fetch(remote: Remote, folder: Path, match: str | None = None, *, known: bool = True, **options: Any) -> str:
    """Return the message of the error."""
    with pytest.raises(CorpusError, match=match) as caught:
        fetch([remote.download() if known else Download(remote.url())], folder, **{**TIMES, **options})
    return str(caught.value)


# --- Whole files ---


def test_fetches_checks_and_records(remote: Remote, tmp_path: Path) -> None:
    seen: list[tuple[str, int, int | None]] = []
    destination = tmp_path / "new" / "folder"
    paths = fetch(
        [remote.download()], destination, progress=lambda what, done, total=None: seen.append((what, done, total))
    )
    assert paths == [destination / "corpus.bin"]
    assert paths[0].read_bytes() == CONTENT
    assert names(destination) == ["SHA256SUMS", "corpus.bin"]
    assert (destination / "SHA256SUMS").read_text() == f"{sha256(CONTENT)}  corpus.bin\n"
    fetching = [step for step in seen if step[0] == "fetching corpus.bin"]
    assert fetching[-1] == ("fetching corpus.bin", len(CONTENT), len(CONTENT))
    assert [done for _, done, _ in fetching] == sorted(done for _, done, _ in fetching)


def test_checksum_file_is_readable_by_sha256sum(remote: Remote, tmp_path: Path) -> None:
    fetch([Download(remote.url("view"), name="a.gz"), Download(remote.url("c%20d.txt?x=1"))], tmp_path, **TIMES)
    assert names(tmp_path) == ["SHA256SUMS", "a.gz", "c d.txt"]  # only archives are unpacked
    subprocess.run(["sha256sum", "--check", "--strict", "SHA256SUMS"], cwd=tmp_path, check=True, capture_output=True)


@pytest.mark.parametrize("known", [True, False])
def test_finished_file_sends_no_request(remote: Remote, tmp_path: Path, known: bool) -> None:
    download = remote.download() if known else Download(remote.url())
    fetch([download], tmp_path)
    remote.requests.clear()
    assert fetch([download], tmp_path) == [tmp_path / "corpus.bin"]
    assert remote.requests == []


def test_manually_copied_file_is_accepted_and_recorded(remote: Remote, tmp_path: Path) -> None:
    (tmp_path / "corpus.bin").write_bytes(b"copied manually")
    fetch([Download(remote.url())], tmp_path)
    assert remote.requests == []
    assert sha256(b"copied manually") in (tmp_path / "SHA256SUMS").read_text()


def test_damaged_finished_file_is_fetched_again(remote: Remote, tmp_path: Path) -> None:
    fetch_one(remote, tmp_path, known=False)
    (tmp_path / "corpus.bin").write_bytes(CONTENT[:-1] + b"?")
    fetch_one(remote, tmp_path, known=False)


# --- Checksums ---


def test_wrong_checksum_is_rejected_and_file_moved(remote: Remote, tmp_path: Path) -> None:
    (tmp_path / "SHA256SUMS").write_text(f"{'0' * 64}  other.bin\na line of somebody else\n")
    expected = "a" * 64
    with pytest.raises(CorpusError, match="checksum") as caught:
        fetch([Download(remote.url(), expected)], tmp_path, **TIMES)
    assert expected in str(caught.value) and sha256(CONTENT) in str(caught.value)
    assert names(tmp_path) == ["SHA256SUMS", "corpus.bin.corrupt"]
    assert (tmp_path / "SHA256SUMS").read_text() == f"{'0' * 64}  other.bin\na line of somebody else\n"
    # The next fetch starts afresh and leaves the lines of others alone.
    remote.requests.clear()
    fetch([remote.download()], tmp_path, **TIMES)
    assert remote.ranges() == [None]
    assert (tmp_path / "SHA256SUMS").read_text().startswith(f"{'0' * 64}  other.bin\na line of somebody else\n")


def test_wrong_checksum_keeps_the_previous_file(remote: Remote, tmp_path: Path) -> None:
    (tmp_path / "corpus.bin").write_bytes(b"older")
    with pytest.raises(CorpusError, match="checksum"):
        fetch([Download(remote.url(), "a" * 64)], tmp_path, **TIMES)
    assert (tmp_path / "corpus.bin").read_bytes() == b"older"


def test_changed_content_fails_the_recorded_checksum(remote: Remote, tmp_path: Path) -> None:
    fetch([Download(remote.url())], tmp_path)
    (tmp_path / "corpus.bin").unlink()
    remote.content, remote.etag = OTHER_CONTENT, '"two"'
    with pytest.raises(CorpusError, match="publisher has changed") as caught:
        fetch([Download(remote.url())], tmp_path)
    assert sha256(CONTENT) in str(caught.value) and sha256(OTHER_CONTENT) in str(caught.value)
    assert not (tmp_path / "corpus.bin").exists()
    # What the message advises works.
    (tmp_path / "SHA256SUMS").unlink()
    fetch([Download(remote.url())], tmp_path)
    assert (tmp_path / "corpus.bin").read_bytes() == OTHER_CONTENT


def test_publisher_checksum_overrides_the_recorded_one(remote: Remote, tmp_path: Path) -> None:
    fetch([Download(remote.url())], tmp_path)
    remote.content, remote.etag = OTHER_CONTENT, '"two"'
    fetch([Download(remote.url(), sha256(OTHER_CONTENT).upper())], tmp_path)
    assert (tmp_path / "corpus.bin").read_bytes() == OTHER_CONTENT
    assert (tmp_path / "SHA256SUMS").read_text() == f"{sha256(OTHER_CONTENT)}  corpus.bin\n"


# --- Broken lines ---


def test_resumes_after_each_interruption(remote: Remote, tmp_path: Path) -> None:
    # More breaks than attempts: each brings something, so none of them counts.
    remote.answers = [Answer(break_after=30_000) for _ in range(5)]
    fetch([remote.download()], tmp_path, attempts=2, **TIMES)
    assert (tmp_path / "corpus.bin").read_bytes() == CONTENT
    assert remote.ranges() == [None, *(f"bytes={30_000 * number}-" for number in range(1, 6))]
    assert [request.get("If-Range") for request in remote.requests] == [None] + ['"one"'] * 5
    assert remote.bytes_sent() == len(CONTENT)
    assert names(tmp_path) == ["SHA256SUMS", "corpus.bin"]


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(Answer(break_after=60_000, reset=True), id="reset"),
        # without a Content-Length, only the missing last chunk tells
        pytest.param(Answer(break_after=60_000, chunked=True), id="chunked"),
        pytest.param(Answer(break_after=60_000, silence=HANG_SECONDS), id="silence"),
    ],
)
def test_resumes_after_an_interruption(remote: Remote, tmp_path: Path, answer: Answer) -> None:
    remote.answers = [answer]
    # The timeout ends the silence. It must never end an answer of a busy machine.
    fetch_one(remote, tmp_path, timeout=5 if answer.silence else 60)
    assert remote.ranges() == [None, "bytes=60000-"]
    assert remote.bytes_sent() == len(CONTENT)


@pytest.mark.parametrize("content", [CONTENT, b""])
@pytest.mark.parametrize("chunked", [True, False])
def test_complete_response_needs_one_request(remote: Remote, tmp_path: Path, content: bytes, chunked: bool) -> None:
    remote.content, remote.answers = content, [Answer(chunked=chunked)]
    fetch_one(remote, tmp_path, known=False)
    assert len(remote.requests) == 1


@pytest.mark.parametrize("modified", [None, formatdate(1_700_000_000, usegmt=True)])
@pytest.mark.parametrize("etag", [None, 'W/"weak"'])
def test_resumes_without_a_strong_etag(remote: Remote, tmp_path: Path, etag: str | None, modified: str | None) -> None:
    remote.etag, remote.last_modified = etag, modified
    remote.answers = [Answer(break_after=60_000)]
    fetch_one(remote, tmp_path)
    assert remote.ranges() == [None, "bytes=60000-"]
    assert remote.requests[1].get("If-Range") == modified
    assert remote.bytes_sent() == len(CONTENT)


def test_requests_the_rest_of_a_partial_response(remote: Remote, tmp_path: Path) -> None:
    remote.answers = [Answer(break_after=50_000), Answer(at_most=50_000), Answer(at_most=50_000)]
    fetch_one(remote, tmp_path)
    assert remote.sent == [(0, 50_000), (50_000, 100_000), (100_000, 150_000), (150_000, 200_000)]


def test_less_than_content_length_is_incomplete(remote: Remote, tmp_path: Path) -> None:
    remote.answers = [Answer(excess=1_000, ranges=False) for _ in range(20)]
    with pytest.raises(CorpusError) as caught:
        fetch([Download(remote.url())], tmp_path, attempts=3, **TIMES)
    message = str(caught.value)
    assert "200000 of 201000 bytes" in message
    assert "same command" in message
    assert remote.url() in message
    assert not (tmp_path / "corpus.bin").exists()
    assert (tmp_path / "corpus.bin.part").read_bytes() == CONTENT


def test_gives_up_after_attempts_without_progress_and_keeps_the_part(
    remote: Remote, tmp_path: Path, pauses: list[float]
) -> None:
    remote.answers = [Answer(break_after=70_000), *(Answer(break_after=0) for _ in range(4))]
    with pytest.raises(CorpusError, match="70000 of 200000 bytes"):
        fetch([remote.download()], tmp_path, attempts=4, pause=1.0)
    assert len(remote.requests) == 5
    assert pauses == [1.0, 1.0, 2.0, 4.0]
    assert (tmp_path / "corpus.bin.part").read_bytes() == CONTENT[:70_000]
    fetch([remote.download()], tmp_path)
    assert remote.ranges()[-1] == "bytes=70000-"
    assert (tmp_path / "corpus.bin").read_bytes() == CONTENT


def test_pause_has_an_upper_limit(remote: Remote, tmp_path: Path, pauses: list[float]) -> None:
    remote.answers = [Answer(break_after=0) for _ in range(12)]
    fetch([remote.download()], tmp_path, attempts=13, pause=1.0)
    assert pauses[-1] == max(pauses) == MAX_PAUSE


def test_connection_refused(tmp_path: Path, pauses: list[float]) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))  # Bound and not listening: whoever connects is refused.
        with pytest.raises(CorpusError, match=r"refused.*0 of an unknown number of bytes"):
            fetch([Download(f"http://127.0.0.1:{unused.getsockname()[1]}/x.bin")], tmp_path, attempts=3)
    assert len(pauses) == 2


@pytest.mark.full
def test_slow_but_steady_download_needs_one_request(remote: Remote, tmp_path: Path) -> None:
    remote.answers = [Answer(gap=0.6, block=10_000)]
    began = time.monotonic()
    fetch([remote.download()], tmp_path, timeout=10.0, pause=0.01)
    assert time.monotonic() - began > 10.0, "too fast to show anything"
    assert len(remote.requests) == 1


# --- Servers that do not continue ---


def test_server_that_ignores_ranges_restarts_the_file(remote: Remote, tmp_path: Path) -> None:
    remote.answers = [Answer(break_after=150_000), Answer(ranges=False, break_after=40_000), Answer()]
    fetch_one(remote, tmp_path, known=False)
    # After the restart, what had arrived since is continued.
    assert remote.sent == [(0, 150_000), (0, 40_000), (40_000, 200_000)]


def test_server_that_never_resumes_is_given_up(remote: Remote, tmp_path: Path, pauses: list[float]) -> None:
    # A little more each time: that is progress, and would go on for ever if restarts were not counted.
    remote.answers = [Answer(ranges=False, break_after=1_000 * number) for number in range(1, 100)]
    fail_to_fetch(remote, tmp_path, "same command", attempts=4)
    assert len(remote.requests) == 5


@pytest.mark.parametrize("conditions", [True, False], ids=["If-Range honoured", "If-Range ignored"])
@pytest.mark.parametrize("etag", [True, False], ids=["ETag", "Last-Modified"])
def test_file_that_changes_between_attempts_is_not_mixed(
    remote: Remote, tmp_path: Path, conditions: bool, etag: bool
) -> None:
    def version(number: int) -> None:
        remote.etag = f'"{number}"' if etag else None
        remote.last_modified = None if etag else formatdate(1_700_000_000 + number, usegmt=True)

    version(1)
    remote.answers = [Answer(break_after=60_000), Answer(break_after=0), Answer(break_after=0)]
    fail_to_fetch(remote, tmp_path, known=False, attempts=2)
    version(2)
    remote.content = OTHER_CONTENT
    remote.requests.clear()
    remote.answers = [Answer(conditions=conditions)]
    fetch([Download(remote.url())], tmp_path, **TIMES)
    assert remote.ranges()[0] == "bytes=60000-"
    assert (tmp_path / "corpus.bin").read_bytes() == OTHER_CONTENT


@pytest.mark.parametrize("changed", [OTHER_CONTENT + b"more", OTHER_CONTENT[:50_000]], ids=["longer", "shorter"])
def test_file_that_changes_its_size_is_not_mixed(remote: Remote, tmp_path: Path, changed: bytes) -> None:
    remote.etag = None
    remote.answers = [Answer(break_after=60_000), Answer(break_after=0)]
    fail_to_fetch(remote, tmp_path, known=False, attempts=1)
    remote.content = changed
    fetch_one(remote, tmp_path, known=False)
    assert remote.ranges()[-2:] == ["bytes=60000-", None]


def test_416_for_a_complete_part_finishes_it(remote: Remote, tmp_path: Path) -> None:
    # As a kill leaves it after a chunked answer, which does not state the size.
    (tmp_path / "corpus.bin.part").write_bytes(CONTENT)
    state = {"url": remote.url(), "etag": remote.etag, "last_modified": None, "total": None}
    (tmp_path / "corpus.bin.part.json").write_text(json.dumps(state))
    fetch([remote.download()], tmp_path, **TIMES)
    assert remote.ranges() == [f"bytes={len(CONTENT)}-"]
    assert remote.bytes_sent() == 0
    assert names(tmp_path) == ["SHA256SUMS", "corpus.bin"]


@pytest.mark.parametrize(
    "state",
    [
        None,
        "no json",
        "[]",
        '{"url": "http://127.0.0.1"}',
        '{"url": "http://elsewhere/corpus.bin", "etag": "\\"one\\"", "last_modified": null, "total": 200000}',
    ],
)
def test_part_of_unknown_origin_is_not_resumed(remote: Remote, tmp_path: Path, state: str | None) -> None:
    (tmp_path / "corpus.bin.part").write_bytes(OTHER_CONTENT[:1_000])
    if state is not None:
        (tmp_path / "corpus.bin.part.json").write_text(state)
    fetch([Download(remote.url())], tmp_path, **TIMES)
    assert remote.ranges() == [None]
    assert (tmp_path / "corpus.bin").read_bytes() == CONTENT


# --- Statuses ---


@pytest.mark.parametrize("status", [204, 400, 401, 403, 404, 410, 416])
def test_client_error_is_not_retried(remote: Remote, tmp_path: Path, status: int) -> None:
    remote.answers = [Answer(status=status)]
    with pytest.raises(CorpusError, match=str(status)) as caught:
        fetch([remote.download()], tmp_path, **TIMES)
    assert remote.url() in str(caught.value)
    assert len(remote.requests) == 1
    assert names(tmp_path) == []


@pytest.mark.parametrize("status", [408, 429, 500, 502, 503])
def test_temporary_error_is_retried(remote: Remote, tmp_path: Path, status: int) -> None:
    remote.answers = [Answer(status=status) for _ in range(5)]
    fail_to_fetch(remote, tmp_path, str(status), attempts=3)
    assert len(remote.requests) == 3
    fetch_one(remote, tmp_path)
    assert len(remote.requests) == 6


@pytest.mark.parametrize(
    ("header", "low", "high"),
    [("7", 7.0, 7.0), ("0", 0.5, 0.5), ("nonsense", 0.5, 0.5), ("in 55 seconds", 1.0, 55.0)],
)
def test_retry_after_is_honoured(
    remote: Remote, tmp_path: Path, pauses: list[float], header: str, low: float, high: float
) -> None:
    if header == "in 55 seconds":
        header = formatdate(time.time() + 55, usegmt=True)
    remote.answers = [Answer(status=429, headers={"Retry-After": header})]
    fetch([remote.download()], tmp_path, pause=0.5)
    assert len(pauses) == 1
    assert low <= pauses[0] <= high


def test_long_retry_after_is_an_error(remote: Remote, tmp_path: Path, pauses: list[float]) -> None:
    remote.answers = [Answer(break_after=60_000), Answer(status=503, headers={"Retry-After": "3600"})]
    with pytest.raises(CorpusError, match="3600 seconds"):
        fetch([remote.download()], tmp_path, pause=0.5)
    assert pauses == [0.5]
    assert (tmp_path / "corpus.bin.part").read_bytes() == CONTENT[:60_000]


# --- Addresses ---


@pytest.mark.parametrize(
    "url",
    [
        *("file:///etc/passwd", "ftp://host/x.zip", "data:text/plain,x", "x.zip", "http:///x.zip", ""),
        *("http://host:port/x.zip", "http://host:99999/x.zip", "http://[::1/x.zip"),
    ],
)
def test_other_urls_are_rejected(url: str) -> None:
    with pytest.raises(CorpusError, match=r"cannot be fetched|not a valid URL"):
        Download(url)


@pytest.mark.parametrize(
    "name", ["", ".", "..", "a/b", "a\\b", "a\nb", "/etc/passwd", "SHA256SUMS", "x.part", "x.corrupt", "x.unpacked"]
)
def test_invalid_file_names_are_rejected(name: str) -> None:
    with pytest.raises(CorpusError, match="file name"):
        Download("http://host/file.bin", name=name)


@pytest.mark.parametrize("checksum", ["", "abc", "g" * 64, "a" * 63])
def test_invalid_checksums_are_rejected(checksum: str) -> None:
    with pytest.raises(CorpusError, match="SHA-256"):
        Download("http://host/x.zip", checksum)


@pytest.mark.parametrize("url", ["http://a..b/x.zip", "http://host/a\x01b.zip"])
def test_urls_that_httpx_rejects_are_not_retried(tmp_path: Path, pauses: list[float], url: str) -> None:
    with pytest.raises(CorpusError, match="not a valid URL"):
        fetch([Download(url, name="x.zip")], tmp_path)
    assert pauses == []


@pytest.mark.parametrize("name", ["a b.bin", "ä.bin"])
def test_characters_outside_urls_are_escaped(remote: Remote, tmp_path: Path, name: str) -> None:
    assert fetch([remote.download(name)], tmp_path, **TIMES) == [tmp_path / name]


def test_url_without_a_file_name_needs_a_name() -> None:
    with pytest.raises(CorpusError, match="name"):
        Download("http://host/")
    assert Download("http://host/?id=3", name="x.zip").file_name == "x.zip"
    assert Download("http://host/a/b%20c.zip?download=1#top").file_name == "b c.zip"


def test_two_downloads_of_the_same_name_are_refused(remote: Remote, tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match="several"):
        fetch([Download(remote.url("a/x.zip")), Download(remote.url("b/x.zip"))], tmp_path)
    assert remote.requests == []


def test_redirect_is_followed_with_the_range(remote: Remote, tmp_path: Path) -> None:
    redirect = Answer(status=302, headers={"Location": "/elsewhere/other-name.bin"})
    remote.answers = [redirect, Answer(break_after=60_000), redirect, Answer()]
    fetch_one(remote, tmp_path)
    assert remote.sent == [(0, 60_000), (60_000, 200_000)]


@pytest.mark.parametrize("location", ["file:///etc/passwd", "ftp://127.0.0.1:1/x", "data:text/plain,x"])
def test_redirect_to_another_scheme_is_refused(remote: Remote, tmp_path: Path, location: str) -> None:
    remote.answers = [Answer(status=302, headers={"Location": location})]
    fail_to_fetch(remote, tmp_path, r"corpus\.bin' is not a valid URL, or redirects to one that is not", known=False)
    assert names(tmp_path) == []
    assert len(remote.requests) == 1


def test_no_other_command_imports_the_http_client() -> None:
    program = "import sys, turnwise.corpus.importing.pipeline, turnwise.cli.corpus; assert 'httpx' not in sys.modules"
    environment = {**os.environ, "PYTHONPATH": str(Path(turnwise.__file__).parents[1])}
    subprocess.run([sys.executable, "-c", program], env=environment, check=True, timeout=HANG_SECONDS)


# --- Kills, full disks, company ---


def run_and_kill(remote: Remote, name: str, destination: Path, what: str, done: int) -> None:
    """Fetches in a process that SIGKILL ends once `done` of `what` are reported."""
    program = f"""
import os, signal
from pathlib import Path
from turnwise.corpus.fetching.fetch import fetch
from turnwise.corpus.registry import Download
def progress(what, done, total=None):
    if what.startswith({what!r}) and done >= {done}:
        os.kill(os.getpid(), signal.SIGKILL)
fetch([Download({remote.url(name)!r})], Path({str(destination)!r}), progress=progress)
"""
    environment = {**os.environ, "PYTHONPATH": str(Path(turnwise.__file__).parents[1])}
    process = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, timeout=HANG_SECONDS
    )
    assert process.returncode == -signal.SIGKILL, process.stderr.decode()


def test_killed_download_is_resumed(remote: Remote, tmp_path: Path) -> None:
    # Blocks smaller than any buffer: what was reported must be on the disk all the same.
    remote.answers = [Answer(gap=0.005, block=500)]
    run_and_kill(remote, "corpus.bin", tmp_path, "fetching", 20_000)
    arrived = (tmp_path / "corpus.bin.part").stat().st_size
    assert 20_000 <= arrived < len(CONTENT)
    assert not (tmp_path / "corpus.bin").exists()
    remote.requests.clear()
    fetch([remote.download()], tmp_path, **TIMES)
    assert remote.ranges() == [f"bytes={arrived}-"]
    assert (tmp_path / "corpus.bin").read_bytes() == CONTENT
    assert names(tmp_path) == ["SHA256SUMS", "corpus.bin"]


def test_kill_before_the_checksum_needs_no_request(remote: Remote, tmp_path: Path) -> None:
    run_and_kill(remote, "corpus.bin", tmp_path, "fetching", len(CONTENT))
    assert names(tmp_path) == [".lock", "corpus.bin.part", "corpus.bin.part.json"]
    remote.requests.clear()
    fetch([remote.download()], tmp_path, **TIMES)
    assert remote.requests == []
    assert names(tmp_path) == ["SHA256SUMS", "corpus.bin"]


def test_kill_while_unpacking_is_detected(remote: Remote, tmp_path: Path) -> None:
    remote.content = zipped({f"data/{number}.txt": b"text" for number in range(5)})
    run_and_kill(remote, "corpus.zip", tmp_path, "unpacking", 3)
    assert not (tmp_path / "data").exists()
    assert (tmp_path / "corpus.zip.unpacking").exists()
    remote.requests.clear()
    fetch([Download(remote.url("corpus.zip"))], tmp_path, **TIMES)
    assert remote.requests == []
    assert names(tmp_path / "data") == [f"{number}.txt" for number in range(5)]
    assert not (tmp_path / "corpus.zip.unpacking").exists()


def test_full_disk_keeps_the_part(remote: Remote, tmp_path: Path) -> None:
    def fill_the_disk(what: str, done: int, total: int | None = None) -> None:
        if done >= 100_000:
            raise OSError(errno.ENOSPC, "No space left on device")

    remote.answers = [Answer(block=10_000)]
    with pytest.raises(CorpusError, match="no space left") as caught:
        fetch([remote.download()], tmp_path, progress=fill_the_disk, **TIMES)
    assert str(tmp_path) in str(caught.value)
    assert len(remote.requests) == 1, "a full disk is not retried"
    part = (tmp_path / "corpus.bin.part").read_bytes()
    assert len(part) >= 100_000 and CONTENT.startswith(part)
    fetch([remote.download()], tmp_path, **TIMES)
    assert remote.ranges()[-1] == f"bytes={len(part)}-"
    assert (tmp_path / "corpus.bin").read_bytes() == CONTENT


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_real_full_device_is_recognised(remote: Remote, tmp_path: Path) -> None:
    (tmp_path / "corpus.bin.part").symlink_to("/dev/full")
    fail_to_fetch(remote, tmp_path, "no space left")


def test_second_process_is_locked_out(remote: Remote, tmp_path: Path) -> None:
    messages: list[str] = []

    def fetch_too(what: str, done: int, total: int | None = None) -> None:
        if not messages:
            messages.append(fail_to_fetch(remote, tmp_path, "another process"))

    fetch_one(remote, tmp_path, progress=fetch_too)
    assert messages


def test_zero_attempts_are_rejected(remote: Remote, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="attempts"):
        fetch([remote.download()], tmp_path, attempts=0)


# --- Archives ---

FILES = {"readme.txt": b"about", "data/train.json": b"{}" * 1_000, "data/deep/er/test.json": b"[]"}


def zipped(files: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return buffer.getvalue()


def tarred(files: dict[str, bytes], mode: str = "w", links: dict[str, str] | None = None, kind: bytes = b"") -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode=mode) as archive:  # type: ignore[call-overload]
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
        for name, target in (links or {}).items():
            member = tarfile.TarInfo(name)
            member.type, member.linkname = kind or tarfile.SYMTYPE, target
            archive.addfile(member)
    return buffer.getvalue()


PACKERS: dict[str, Callable[[dict[str, bytes]], bytes]] = {
    "corpus.zip": zipped,
    "corpus.ZIP": zipped,
    "corpus.tar": tarred,
    "corpus.tar.gz": lambda files: tarred(files, "w:gz"),
    "corpus.tgz": lambda files: tarred(files, "w:gz"),
    "corpus.tar.bz2": lambda files: tarred(files, "w:bz2"),
    "corpus.tar.xz": lambda files: tarred(files, "w:xz"),
}


@pytest.mark.parametrize("name", PACKERS)
def test_archives_are_unpacked_once(remote: Remote, tmp_path: Path, name: str) -> None:
    remote.content = PACKERS[name](FILES)
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "mine.txt").write_text("not from the archive")
    assert fetch([remote.download(name)], tmp_path, **TIMES) == [tmp_path / name]
    for member, content in FILES.items():
        assert (tmp_path / member).read_bytes() == content
    assert names(tmp_path) == sorted(["SHA256SUMS", name, f"{name}.unpacked", "data", "readme.txt"])
    assert (tmp_path / "data" / "mine.txt").exists()
    # Not again, as an edit that survives shows; but again once something is missing.
    (tmp_path / "readme.txt").write_text("edited")
    fetch([remote.download(name)], tmp_path, **TIMES)
    assert (tmp_path / "readme.txt").read_text() == "edited"
    (tmp_path / "data" / "train.json").unlink()
    fetch([remote.download(name)], tmp_path, **TIMES)
    assert (tmp_path / "data" / "train.json").read_bytes() == FILES["data/train.json"]
    assert len(remote.requests) == 1


def test_new_release_is_unpacked_again(remote: Remote, tmp_path: Path) -> None:
    remote.content = zipped({"a.txt": b"one"})
    fetch([remote.download("corpus.zip")], tmp_path)
    remote.content, remote.etag = zipped({"a.txt": b"two"}), '"two"'
    fetch([remote.download("corpus.zip")], tmp_path)
    assert (tmp_path / "a.txt").read_bytes() == b"two"


@pytest.mark.parametrize("name", ["corpus.zip", "corpus.tar.gz"])
@pytest.mark.parametrize("member", ["../escaped.txt", "data/../../escaped.txt", "/tmp/escaped.txt", "..\\escaped.txt"])
def test_member_that_escapes_is_refused(remote: Remote, tmp_path: Path, name: str, member: str) -> None:
    destination = tmp_path / "destination"
    remote.content = PACKERS[name]({"good.txt": b"good", member: b"bad"})
    with pytest.raises(CorpusError, match="outside"):
        fetch([remote.download(name)], destination, **TIMES)
    assert names(tmp_path) == ["destination"]
    assert names(destination) == ["SHA256SUMS", name]


@pytest.mark.parametrize(
    ("link", "target", "kind"),
    [
        ("link", "/etc/passwd", tarfile.SYMTYPE),
        ("link", "../outside.txt", tarfile.SYMTYPE),
        # Inside the folder in which it is unpacked, outside once it has been moved.
        ("sub/link", "../../corpus.tar.unpacking/good.txt", tarfile.SYMTYPE),
        ("link", "../outside.txt", tarfile.LNKTYPE),
        ("pipe", "", tarfile.FIFOTYPE),
    ],
)
def test_link_that_escapes_is_refused(remote: Remote, tmp_path: Path, link: str, target: str, kind: bytes) -> None:
    (tmp_path / "outside.txt").write_text("secret")
    destination = tmp_path / "destination"
    remote.content = tarred({"good.txt": b"good"}, links={link: target}, kind=kind)
    with pytest.raises(CorpusError, match="not unpacked"):
        fetch([remote.download("corpus.tar")], destination, **TIMES)
    assert names(destination) == ["SHA256SUMS", "corpus.tar"]


def test_link_that_stays_inside_is_kept(remote: Remote, tmp_path: Path) -> None:
    remote.content = tarred({"data/train.txt": b"text"}, links={"links/train.txt": "../data/train.txt"})
    fetch([remote.download("corpus.tar")], tmp_path, **TIMES)
    assert (tmp_path / "links" / "train.txt").is_symlink()
    assert (tmp_path / "links" / "train.txt").read_bytes() == b"text"


@pytest.mark.parametrize("member", ["SHA256SUMS", "corpus.zip", "corpus.zip.unpacked/x", "second.bin"])
def test_member_must_not_overwrite_own_files(remote: Remote, tmp_path: Path, member: str) -> None:
    remote.content = zipped({member: b"bad"})
    with pytest.raises(CorpusError, match="overwrite"):
        fetch([remote.download("corpus.zip"), remote.download("second.bin")], tmp_path, **TIMES)
    assert (tmp_path / "SHA256SUMS").read_text() == f"{sha256(remote.content)}  corpus.zip\n"


@pytest.mark.parametrize(
    ("name", "damage"),
    [
        (name, damage)
        for name in PACKERS
        for damage in ("a page", "cut", "scrambled")
        # A plain tar has no sum of its contents.
        if (name, damage) != ("corpus.tar", "scrambled")
    ],
)
def test_damaged_archive_without_a_checksum_is_moved(remote: Remote, tmp_path: Path, name: str, damage: str) -> None:
    good = PACKERS[name]({"noise.bin": CONTENT})
    middle = len(good) // 2
    remote.content = {
        "a page": b"<html>not found</html>",
        "cut": good[:middle],
        "scrambled": good[:middle] + bytes(byte ^ 255 for byte in good[middle : middle + 64]) + good[middle + 64 :],
    }[damage]
    with pytest.raises(CorpusError, match="cannot be unpacked"):
        fetch([Download(remote.url(name))], tmp_path, **TIMES)
    assert names(tmp_path) == sorted(["SHA256SUMS", f"{name}.corrupt"])
    # The next fetch takes the correct file.
    remote.content, remote.etag = good, '"two"'
    fetch([Download(remote.url(name))], tmp_path, **TIMES)
    assert (tmp_path / "noise.bin").read_bytes() == CONTENT


def test_damaged_archive_with_the_right_checksum(remote: Remote, tmp_path: Path) -> None:
    remote.content = b"no archive"
    with pytest.raises(CorpusError, match="publisher"):
        fetch([remote.download("corpus.zip")], tmp_path, **TIMES)
    assert names(tmp_path) == ["SHA256SUMS", "corpus.zip"]


def test_folder_with_the_name_of_a_file(remote: Remote, tmp_path: Path) -> None:
    (tmp_path / "readme.txt").mkdir()
    remote.content = zipped(FILES)
    with pytest.raises(CorpusError, match=r"readme\.txt"):
        fetch([remote.download("corpus.zip")], tmp_path, **TIMES)
    (tmp_path / "readme.txt").rmdir()
    fetch([remote.download("corpus.zip")], tmp_path, **TIMES)
    assert (tmp_path / "readme.txt").read_bytes() == b"about"
    assert len(remote.requests) == 1
