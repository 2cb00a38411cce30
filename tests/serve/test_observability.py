"""The log, which does not contain texts of requests, and metrics."""

import json
import logging

import pytest

from tests.helpers.served import is_error, served
from turnwise.models.encoder import Encoder
from turnwise.serve.observability import JsonFormatter
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
