"""Tests downloads against broken connections, faulty servers, kills, wrong checksums and hostile archives."""

import errno
import hashlib
import io
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
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

import turnwise
from tests.helpers import HANG_SECONDS
from turnwise.core.errors import CorpusError
from turnwise.corpus import fetching
from turnwise.corpus.fetching import ATTEMPTS, fetch
from turnwise.corpus.registry import Download

CONTENT = random.Random(1).randbytes(200_000)
OTHER_CONTENT = random.Random(2).randbytes(200_000)


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


@dataclass
class Answer:
    """How the server treats one request; the default is as it should be."""

    status: int | None = None
    location: str = ""
    #: Bytes of the body after which the connection ends, or is reset, or says nothing for long.
    break_after: int | None = None
    reset: bool = False
    silence: bool = False
    #: Seconds before each block.
    gap: float = 0.0
    block: int = 16_384
    ranges: bool = True
    chunked: bool = False


@dataclass
class Remote:
    """A file on a server, the answers still to be given, and the ranges that were requested and sent."""

    address: str
    content: bytes = CONTENT
    headers: dict[str, str] = field(default_factory=lambda: {"ETag": '"one"'})
    answers: list[Answer] = field(default_factory=list)
    requests: list[str | None] = field(default_factory=list)
    sent: list[tuple[int, int]] = field(default_factory=list)
    stopped: threading.Event = field(default_factory=threading.Event)

    def url(self, name: str = "corpus.bin") -> str:
        return f"{self.address}/files/{name}"

    def download(self, name: str = "corpus.bin") -> Download:
        return Download(self.url(name), sha256(self.content))

    def release(self, content: bytes) -> None:
        self.content, self.headers = content, {"ETag": '"two"'}


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: object) -> None:
        pass

    def do_GET(self) -> None:
        remote: Remote = self.server.remote  # type: ignore[attr-defined]
        answer = remote.answers.pop(0) if remote.answers else Answer()
        remote.requests.append(self.headers.get("Range"))
        self.close_connection = True
        start, stop, status = 0, len(remote.content), answer.status or 200
        requested = re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range", ""))
        headers = dict(remote.headers)
        if status == 200 and requested and answer.ranges:
            start = int(requested[1])
            status = 206 if start < stop else 416
            part = f"{start}-{stop - 1}" if status == 206 else "*"
            headers["Content-Range"] = f"bytes {part}/{len(remote.content)}"
        body = remote.content[start:stop] if status in (200, 206) else b"an explanation"
        headers |= {"Transfer-Encoding": "chunked"} if answer.chunked else {"Content-Length": str(len(body))}
        if answer.location:
            headers["Location"] = answer.location
        self.send_response(status)
        for name, value in headers.items():
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
            remote.stopped.wait(HANG_SECONDS)
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


@pytest.fixture(autouse=True)
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The pauses that were taken, none of which takes any time."""
    taken: list[float] = []
    monkeypatch.setattr(fetching.time, "sleep", taken.append)
    return taken


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if path.name != ".lock")


def fetch_one(remote: Remote, folder: Path, *, known: bool = True, **options: Any) -> None:
    fetch([remote.download() if known else Download(remote.url())], folder, **options)
    assert (folder / "corpus.bin").read_bytes() == remote.content


def fail_to_fetch(remote: Remote, folder: Path, match: str | None = None, *, known: bool = True, **options: Any) -> str:
    with pytest.raises(CorpusError, match=match) as caught:
        fetch([remote.download() if known else Download(remote.url())], folder, **options)
    return str(caught.value)


# --- Whole files ---


def test_fetches_checks_and_records(remote: Remote, tmp_path: Path) -> None:
    seen: list[tuple[str, int, int | None]] = []
    destination = tmp_path / "new" / "folder"
    paths = fetch([remote.download()], destination, lambda what, done, total=None: seen.append((what, done, total)))
    assert paths == [destination / "corpus.bin"]
    assert paths[0].read_bytes() == CONTENT
    assert names(destination) == ["SHA256SUMS", "corpus.bin"]
    assert (destination / "SHA256SUMS").read_text() == f"{sha256(CONTENT)}  corpus.bin\n"
    assert seen[-1] == ("fetching corpus.bin", len(CONTENT), len(CONTENT))
    assert [done for _, done, _ in seen] == sorted(done for _, done, _ in seen)


def test_checksum_file_is_readable_by_sha256sum(remote: Remote, tmp_path: Path) -> None:
    fetch([Download(remote.url("view"), name="a.gz"), Download(remote.url("c%20d.txt?x=1"))], tmp_path)
    assert names(tmp_path) == ["SHA256SUMS", "a.gz", "c d.txt"]  # only archives are unpacked
    subprocess.run(["sha256sum", "--check", "--strict", "SHA256SUMS"], cwd=tmp_path, check=True, capture_output=True)


@pytest.mark.parametrize("known", [True, False])
def test_finished_file_sends_no_request(remote: Remote, tmp_path: Path, known: bool) -> None:
    fetch_one(remote, tmp_path, known=known)
    fetch_one(remote, tmp_path, known=known)
    assert remote.requests == [None]


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
    (tmp_path / "SHA256SUMS").write_text(f"{'0' * 64}  other.bin\n")
    (tmp_path / "corpus.bin").write_bytes(b"older")
    expected = "a" * 64
    with pytest.raises(CorpusError, match="checksum") as caught:
        fetch([Download(remote.url(), expected)], tmp_path)
    assert expected in str(caught.value) and sha256(CONTENT) in str(caught.value)
    assert names(tmp_path) == ["SHA256SUMS", "corpus.bin", "corpus.bin.corrupt"]
    assert (tmp_path / "corpus.bin").read_bytes() == b"older"
    assert (tmp_path / "SHA256SUMS").read_text() == f"{'0' * 64}  other.bin\n"
    # The next fetch starts afresh and leaves the lines of others alone.
    fetch_one(remote, tmp_path)
    assert remote.requests == [None, None]
    assert (tmp_path / "SHA256SUMS").read_text().startswith(f"{'0' * 64}  other.bin\n")


def test_changed_content_fails_the_recorded_checksum(remote: Remote, tmp_path: Path) -> None:
    fetch_one(remote, tmp_path, known=False)
    (tmp_path / "corpus.bin").unlink()
    remote.release(OTHER_CONTENT)
    message = fail_to_fetch(remote, tmp_path, "publisher has changed", known=False)
    assert sha256(CONTENT) in message and sha256(OTHER_CONTENT) in message
    assert not (tmp_path / "corpus.bin").exists()
    # What the message advises works.
    (tmp_path / "SHA256SUMS").unlink()
    fetch_one(remote, tmp_path, known=False)


def test_publisher_checksum_overrides_the_recorded_one(remote: Remote, tmp_path: Path) -> None:
    fetch_one(remote, tmp_path, known=False)
    remote.release(OTHER_CONTENT)
    fetch([Download(remote.url(), sha256(OTHER_CONTENT).upper())], tmp_path)
    assert (tmp_path / "corpus.bin").read_bytes() == OTHER_CONTENT
    assert (tmp_path / "SHA256SUMS").read_text() == f"{sha256(OTHER_CONTENT)}  corpus.bin\n"


# --- Broken lines ---


def test_resumes_after_each_interruption(remote: Remote, tmp_path: Path) -> None:
    # More breaks than attempts: each brings something, so none of them counts.
    breaks = ATTEMPTS + 1
    remote.answers = [Answer(break_after=30_000) for _ in range(breaks)]
    fetch_one(remote, tmp_path)
    assert remote.requests == [None, *(f"bytes={30_000 * number}-" for number in range(1, breaks + 1))]
    assert sum(stop - start for start, stop in remote.sent) == len(CONTENT)
    assert names(tmp_path) == ["SHA256SUMS", "corpus.bin"]


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(Answer(break_after=60_000, reset=True), id="reset"),
        # without a Content-Length, only the missing last chunk tells
        pytest.param(Answer(break_after=60_000, chunked=True), id="chunked"),
        pytest.param(Answer(break_after=60_000, silence=True), id="silence"),
    ],
)
def test_resumes_after_an_interruption(
    remote: Remote, tmp_path: Path, answer: Answer, monkeypatch: pytest.MonkeyPatch
) -> None:
    remote.answers = [answer]
    # The timeout ends the silence. It must never end an answer of a busy machine.
    monkeypatch.setattr(fetching, "TIMEOUT", 5.0 if answer.silence else 60.0)
    fetch_one(remote, tmp_path)
    assert remote.sent == [(0, 60_000), (60_000, 200_000)]


@pytest.mark.parametrize("content", [CONTENT, b""])
@pytest.mark.parametrize("chunked", [True, False])
def test_complete_response_needs_one_request(remote: Remote, tmp_path: Path, content: bytes, chunked: bool) -> None:
    remote.content, remote.answers = content, [Answer(chunked=chunked)]
    fetch_one(remote, tmp_path, known=False)
    assert len(remote.requests) == 1


@pytest.mark.parametrize("headers", [{}, {"ETag": 'W/"weak"'}, {"Last-Modified": "Tue, 14 Nov 2023 22:13:20 GMT"}])
def test_resumes_without_a_strong_etag(remote: Remote, tmp_path: Path, headers: dict[str, str]) -> None:
    remote.headers, remote.answers = headers, [Answer(break_after=60_000)]
    fetch_one(remote, tmp_path)
    assert remote.sent == [(0, 60_000), (60_000, 200_000)]


def test_gives_up_after_attempts_without_progress_and_keeps_the_part(
    remote: Remote, tmp_path: Path, pauses: list[float]
) -> None:
    remote.answers = [Answer(break_after=70_000), *(Answer(break_after=0) for _ in range(ATTEMPTS))]
    message = fail_to_fetch(remote, tmp_path, "70000 bytes")
    assert "same command" in message and remote.url() in message
    assert len(remote.requests) == ATTEMPTS + 1
    assert pauses == [1.0, 1.0, 2.0, 4.0, 8.0]
    assert (tmp_path / "corpus.bin.part").read_bytes() == CONTENT[:70_000]
    assert not (tmp_path / "corpus.bin").exists()
    fetch_one(remote, tmp_path)
    assert remote.requests[-1] == "bytes=70000-"


# --- Servers that do not continue ---


def test_server_that_ignores_ranges_restarts_the_file(remote: Remote, tmp_path: Path) -> None:
    remote.answers = [Answer(break_after=150_000), Answer(ranges=False, break_after=40_000), Answer()]
    fetch_one(remote, tmp_path, known=False)
    # After the restart, what had arrived since is continued.
    assert remote.sent == [(0, 150_000), (0, 40_000), (40_000, 200_000)]


def test_server_that_never_resumes_is_given_up(remote: Remote, tmp_path: Path) -> None:
    remote.answers = [Answer(ranges=False, break_after=1_000) for _ in range(100)]
    fail_to_fetch(remote, tmp_path, "same command")
    assert len(remote.requests) == ATTEMPTS + 1


@pytest.mark.parametrize("header", ["ETag", "Last-Modified", None])
@pytest.mark.parametrize("changed", [OTHER_CONTENT + b"more", OTHER_CONTENT[:50_000]], ids=["longer", "shorter"])
def test_file_that_changes_between_attempts_is_not_mixed(
    remote: Remote, tmp_path: Path, header: str | None, changed: bytes
) -> None:
    remote.headers = {header: "one"} if header else {}
    remote.answers = [Answer(break_after=60_000), *(Answer(break_after=0) for _ in range(ATTEMPTS))]
    fail_to_fetch(remote, tmp_path, known=False)
    remote.headers = {header: "two"} if header else {}
    remote.content = changed
    fetch_one(remote, tmp_path, known=False)
    assert remote.requests[-2:] == ["bytes=60000-", None]


@pytest.mark.parametrize("state", ["", '{"url": "http://elsewhere/corpus.bin", "etag": "\\"one\\"", "total": 200000}'])
def test_part_of_unknown_origin_is_not_resumed(remote: Remote, tmp_path: Path, state: str) -> None:
    (tmp_path / "corpus.bin.part").write_bytes(OTHER_CONTENT[:1_000])
    if state:
        (tmp_path / "corpus.bin.part.json").write_text(state)
    fetch_one(remote, tmp_path, known=False)
    assert remote.requests == [None]


# --- Statuses and addresses ---


@pytest.mark.parametrize("status", [204, 403, 404, 416])
def test_client_error_is_not_retried(remote: Remote, tmp_path: Path, status: int) -> None:
    remote.answers = [Answer(status=status)]
    assert remote.url() in fail_to_fetch(remote, tmp_path, str(status))
    assert len(remote.requests) == 1
    assert names(tmp_path) == []


@pytest.mark.parametrize("status", [408, 429, 503])
def test_temporary_error_is_retried(remote: Remote, tmp_path: Path, status: int) -> None:
    remote.answers = [Answer(status=status) for _ in range(ATTEMPTS)]
    fail_to_fetch(remote, tmp_path, str(status))
    assert len(remote.requests) == ATTEMPTS
    fetch_one(remote, tmp_path)


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


def test_url_without_a_file_name_needs_a_name() -> None:
    with pytest.raises(CorpusError, match="name"):
        Download("http://host/")
    assert Download("http://host/?id=3", name="x.zip").file_name == "x.zip"
    assert Download("http://host/a/b%20c.zip?download=1#top").file_name == "b c.zip"


def test_redirect_is_followed_with_the_range(remote: Remote, tmp_path: Path) -> None:
    redirect = Answer(status=302, location="/elsewhere/other-name.bin")
    remote.answers = [redirect, Answer(break_after=60_000), redirect, Answer()]
    fetch_one(remote, tmp_path)
    assert remote.sent == [(0, 60_000), (60_000, 200_000)]


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
from turnwise.corpus.fetching import fetch
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
    fetch_one(remote, tmp_path)
    assert remote.requests == [None, f"bytes={arrived}-"]
    assert names(tmp_path) == ["SHA256SUMS", "corpus.bin"]


def test_kill_before_the_checksum_needs_no_request(remote: Remote, tmp_path: Path) -> None:
    run_and_kill(remote, "corpus.bin", tmp_path, "fetching", len(CONTENT))
    assert names(tmp_path) == ["corpus.bin.part", "corpus.bin.part.json"]
    fetch_one(remote, tmp_path)
    assert remote.requests == [None]
    assert names(tmp_path) == ["SHA256SUMS", "corpus.bin"]


def test_kill_before_unpacking_is_detected(remote: Remote, tmp_path: Path) -> None:
    remote.content = zipped({f"data/{number}.txt": b"text" for number in range(5)})
    run_and_kill(remote, "corpus.zip", tmp_path, "unpacking", 0)
    assert not (tmp_path / "data").exists()
    (tmp_path / "corpus.zip.unpacking").mkdir()  # as a later kill leaves it
    fetch([Download(remote.url("corpus.zip"))], tmp_path)
    assert remote.requests == [None]
    assert names(tmp_path / "data") == [f"{number}.txt" for number in range(5)]
    assert not (tmp_path / "corpus.zip.unpacking").exists()


def test_full_disk_keeps_the_part(remote: Remote, tmp_path: Path) -> None:
    def fill_the_disk(what: str, done: int, total: int | None = None) -> None:
        if done >= 100_000:
            raise OSError(errno.ENOSPC, "No space left on device")

    remote.answers = [Answer(block=10_000)]
    message = fail_to_fetch(remote, tmp_path, "No space left", progress=fill_the_disk)
    assert str(tmp_path) in message
    assert len(remote.requests) == 1, "a full disk is not retried"
    part = (tmp_path / "corpus.bin.part").read_bytes()
    assert len(part) >= 100_000 and CONTENT.startswith(part)
    fetch_one(remote, tmp_path)
    assert remote.requests[-1] == f"bytes={len(part)}-"


def test_second_process_is_locked_out(remote: Remote, tmp_path: Path) -> None:
    messages: list[str] = []

    def fetch_too(what: str, done: int, total: int | None = None) -> None:
        if not messages:
            messages.append(fail_to_fetch(remote, tmp_path, "another process"))

    fetch_one(remote, tmp_path, progress=fetch_too)
    assert messages


# --- Archives ---

FILES = {"readme.txt": b"about", "data/train.json": b"{}" * 1_000, "data/deep/er/test.json": b"[]"}


def zipped(files: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return buffer.getvalue()


def tarred(files: dict[str, bytes], mode: str = "w", link: tuple[str, str, bytes] | None = None) -> bytes:
    """Pack files, and a link (name, target, type) if there is one."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode=mode) as archive:  # type: ignore[call-overload]
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
        if link:
            member = tarfile.TarInfo(link[0])
            _, member.linkname, member.type = link
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
    assert fetch([remote.download(name)], tmp_path) == [tmp_path / name]
    for member, content in FILES.items():
        assert (tmp_path / member).read_bytes() == content
    assert names(tmp_path) == sorted(["SHA256SUMS", name, f"{name}.unpacked", "data", "readme.txt"])
    assert (tmp_path / "data" / "mine.txt").exists()
    # Not again, as an edit that survives shows.
    (tmp_path / "readme.txt").write_text("edited")
    fetch([remote.download(name)], tmp_path)
    assert (tmp_path / "readme.txt").read_text() == "edited"
    assert len(remote.requests) == 1


def test_new_release_is_unpacked_again(remote: Remote, tmp_path: Path) -> None:
    remote.content = zipped({"a.txt": b"one"})
    fetch([remote.download("corpus.zip")], tmp_path)
    remote.release(zipped({"a.txt": b"two"}))
    fetch([remote.download("corpus.zip")], tmp_path)
    assert (tmp_path / "a.txt").read_bytes() == b"two"


@pytest.mark.parametrize("name", ["corpus.zip", "corpus.tar.gz"])
@pytest.mark.parametrize("member", ["../escaped.txt", "data/../../escaped.txt", "/tmp/escaped.txt", "..\\escaped.txt"])
def test_no_member_escapes(remote: Remote, tmp_path: Path, name: str, member: str) -> None:
    destination = tmp_path / "destination"
    remote.content = PACKERS[name]({"good.txt": b"good", member: b"bad"})
    try:
        fetch([remote.download(name)], destination)
    except CorpusError as error:
        assert "outside the destination" in str(error)
        assert names(destination) == ["SHA256SUMS", name]
    assert names(tmp_path) == ["destination"]
    assert not Path("/tmp/escaped.txt").exists()


@pytest.mark.parametrize(
    ("link", "target", "kind"), [("link", "../outside.txt", tarfile.LNKTYPE), ("pipe", "", tarfile.FIFOTYPE)]
)
def test_special_members_are_refused(remote: Remote, tmp_path: Path, link: str, target: str, kind: bytes) -> None:
    (tmp_path / "outside.txt").write_text("secret")
    destination = tmp_path / "destination"
    remote.content = tarred({"good.txt": b"good"}, link=(link, target, kind))
    with pytest.raises(CorpusError, match="not unpacked"):
        fetch([remote.download("corpus.tar")], destination)
    assert names(destination) == ["SHA256SUMS", "corpus.tar"]


@pytest.mark.parametrize("target", ["/etc/passwd", "../outside.txt", "good.txt"])
def test_symbolic_links_are_left_out(remote: Remote, tmp_path: Path, target: str) -> None:
    remote.content = tarred({"good.txt": b"good"}, link=("link", target, tarfile.SYMTYPE))
    fetch([remote.download("corpus.tar")], tmp_path)
    assert names(tmp_path) == ["SHA256SUMS", "corpus.tar", "corpus.tar.unpacked", "good.txt"]


@pytest.mark.parametrize("member", ["SHA256SUMS", "corpus.zip", "corpus.zip.unpacked/x", "second.bin"])
def test_member_must_not_overwrite_own_files(remote: Remote, tmp_path: Path, member: str) -> None:
    remote.content = zipped({member: b"bad"})
    with pytest.raises(CorpusError, match="overwrite"):
        fetch([remote.download("corpus.zip"), remote.download("second.bin")], tmp_path)
    assert (tmp_path / "SHA256SUMS").read_text() == f"{sha256(remote.content)}  corpus.zip\n"


@pytest.mark.parametrize("name", PACKERS)
@pytest.mark.parametrize("damage", ["a page", "cut"])
def test_damaged_archive_without_a_checksum_is_moved(remote: Remote, tmp_path: Path, name: str, damage: str) -> None:
    good = PACKERS[name]({"noise.bin": CONTENT})
    remote.content = b"<html>not found</html>" if damage == "a page" else good[: len(good) // 2]
    with pytest.raises(CorpusError, match="cannot be unpacked"):
        fetch([Download(remote.url(name))], tmp_path)
    assert names(tmp_path) == sorted(["SHA256SUMS", f"{name}.corrupt"])
    # The next fetch takes the correct file.
    remote.release(good)
    fetch([Download(remote.url(name))], tmp_path)
    assert (tmp_path / "noise.bin").read_bytes() == CONTENT


def test_damaged_archive_with_the_right_checksum(remote: Remote, tmp_path: Path) -> None:
    remote.content = b"no archive"
    with pytest.raises(CorpusError, match="publisher"):
        fetch([remote.download("corpus.zip")], tmp_path)
    assert names(tmp_path) == ["SHA256SUMS", "corpus.zip"]
