"""The log, which does not contain texts of requests, and metrics."""

import json
import logging
import os
import pty
import re
import signal
import subprocess
import sys

import httpx
import pytest

from tests.helpers import HANG_SECONDS
from tests.helpers.served import is_error, served
from turnwise.models.encoder import Encoder
from turnwise.serve.observability import JsonFormatter, TextFormatter
from turnwise.serve.settings import ServeSettings


@pytest.fixture
def lines():
    """Collect the lines of the log."""
    collected: list[str] = []

    class Collect(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            collected.append(JsonFormatter().format(record))

    logger, handler = logging.getLogger("turnwise.serve"), Collect()
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    yield collected
    logger.removeHandler(handler)


def test_one_line_per_request_without_texts(tiny_folder, lines: list[str]) -> None:
    with served(ServeSettings(model=str(tiny_folder("bert")))) as client:
        lines.clear()
        tokens = len(Encoder.load(tiny_folder("bert")).tokenise(["a very secret thing"])[0])
        client.post("/embed", json={"inputs": ["a very secret thing", "b"]}, headers={"x-request-id": "r1"})
        client.post("/embed", json={"inputs": ["a very secret thing", 7]})
        client.get("/intents/secret/examples?secret=1")
        client.get("/secret")
    entries = [json.loads(line) for line in lines]
    assert [(each["method"], each["path"], each["status"]) for each in entries] == [
        ("POST", "/embed", 200),
        ("POST", "/embed", 422),
        ("GET", "/intents/{intent}/examples", 404),
        ("GET", "unknown", 404),
    ]
    assert entries[0]["request_id"] == "r1"
    assert (entries[0]["texts"], entries[0]["tokens"] >= tokens) == (2, True)
    assert all(each["milliseconds"] > 0 and each["time"] for each in entries)
    assert "secret" not in "".join(lines)


def test_log_texts(tiny_folder, lines: list[str]) -> None:
    with served(ServeSettings(model=str(tiny_folder("bert")), log_texts=True)) as client:
        lines.clear()
        client.post("/embed", json={"inputs": ["a very secret thing"]})
    assert json.loads(json.loads(lines[0])["body"]) == {"inputs": ["a very secret thing"]}


def test_failure_is_500_and_logged_without_its_message(
    tiny_folder, lines: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(*_, **__):
        raise RuntimeError("the secret made it fail")

    with served(ServeSettings(model=str(tiny_folder("bert")))) as client:
        monkeypatch.setattr(Encoder, "encode_sequences", failing)
        answer = client.post("/embed", json={"inputs": ["a secret"]})
        monkeypatch.undo()
        assert is_error(answer, 500, "failed")
        assert "secret" not in answer.text
        assert client.post("/embed", json={"inputs": ["a secret"]}).status_code == 200
    entries = next(json.loads(line) for line in lines if '"failure"' in line)
    assert (entries["level"], entries["failure"], entries["status"]) == ("error", "RuntimeError", 500)
    assert any("failing" in frame for frame in entries["where"])
    assert entries["request_id"] in answer.json()["error"]["message"]
    assert "secret" not in "".join(lines)


def test_metrics(tiny_folder) -> None:
    with served(ServeSettings(model=str(tiny_folder("bert")))) as client:
        for _ in range(3):
            client.post("/embed", json={"inputs": ["one", "two"]})
        client.request("BREW", "/embed")
        client.get("/made/up")
        text = client.get("/metrics").text
    metrics = dict(line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
    assert float(metrics['turnwise_requests_total{method="POST",path="/embed",status="200"}']) == 3
    assert float(metrics['turnwise_requests_total{method="other",path="/embed",status="405"}']) == 1
    assert float(metrics['turnwise_requests_total{method="GET",path="unknown",status="404"}']) == 1
    assert float(metrics["turnwise_texts_total"]) == 6
    assert float(metrics["turnwise_tokens_total"]) > 6
    assert float(metrics["turnwise_pass_texts_sum"]) == 6
    assert float(metrics["turnwise_waiting_texts"]) == 0
    assert float(metrics["turnwise_ready"]) == 1
    assert "made" not in text


# ---- for people


def as_text(level: int = logging.INFO, **fields: object) -> str:
    record = logging.LogRecord("turnwise.serve", level, "", 0, "", None, None)
    record.fields = fields
    return TextFormatter().format(record)


def test_text_of_a_request() -> None:
    request = {"event": "request", "method": "POST", "path": "/embed", "status": 200, "milliseconds": 12.34}
    line = as_text(**request, texts=1, tokens=1200, request_id="r1", key="monitoring")
    assert re.fullmatch(r"\d\d:\d\d:\d\d  POST /embed +200 +12.3 ms  1 text, 1,200 tokens  key monitoring", line)
    assert "text" not in as_text(**request, texts=0, tokens=0, request_id="r1")
    failed = request | {"status": 500, "failure": "RuntimeError", "where": ["batching.py:7 run"]}
    lines = as_text(logging.ERROR, **failed, texts=0, tokens=0, request_id="r1").splitlines()
    assert lines[0].endswith("RuntimeError, request id r1")
    assert [line.strip() for line in lines[1:]] == ["batching.py:7 run"]


def test_logged_bodies_cannot_control_the_terminal() -> None:
    request = {"event": "request", "method": "POST", "path": "/embed", "status": 200, "milliseconds": 1.0}
    text = as_text(**request, texts=1, tokens=1, request_id="r1", body="\x1b[2J\x9b2J\nsecond line")
    assert "\x1b" not in text and "\x9b" not in text
    assert len(text.splitlines()) == 2


@pytest.mark.parametrize(
    ("terminal", "options", "form"),
    [
        (True, [], "text"),
        pytest.param(False, [], "json", marks=pytest.mark.full),  # other tests of services read such a log
        pytest.param(False, ["--log-format", "text"], "text", marks=pytest.mark.full),
    ],
)
def test_the_command_logs_text_on_a_terminal_and_json_elsewhere(
    terminal: bool, options: list[str], form: str, tiny_folder
) -> None:
    reading, writing = pty.openpty() if terminal else os.pipe()
    command = [sys.executable, "-m", "turnwise", "serve", "--model", str(tiny_folder("bert")), "--port", "0", *options]
    environment = {name: value for name, value in os.environ.items() if name != "NO_COLOR"}
    process = subprocess.Popen(command, stderr=writing, env=environment)
    os.close(writing)
    log = ""
    try:
        while "ready" not in log:
            log += os.read(reading, 65_536).decode()
        address = re.search(r"http://[\d.:]+/", log)
        assert address is not None
        httpx.post(f"{address[0]}embed", json={"inputs": ["a secret"]}, timeout=HANG_SECONDS)
        httpx.get(f"{address[0]}nothing", timeout=HANG_SECONDS)
        process.send_signal(signal.SIGINT)
        while "stopped" not in log:
            log += os.read(reading, 65_536).decode()
        assert process.wait(HANG_SECONDS) == 0
    finally:
        process.kill()
        process.wait()
        os.close(reading)
    assert "secret" not in log
    lines = log.splitlines()
    if form == "json":
        assert [json.loads(line)["event"] for line in lines] == ["listening", "ready", "request", "request", "stopped"]
        return
    assert re.search(r"turnwise \S+ at http://", lines[0])
    assert lines[1].split() == ["model", str(tiny_folder("bert"))]
    assert "POST /embed" in lines[3] and "GET  unknown" in lines[4]
    assert "\x1b" not in log
