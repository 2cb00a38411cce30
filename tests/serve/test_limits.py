"""Invalid requests: every error has the same shape, and the service goes on."""

import json
import shutil
import threading
from pathlib import Path
from unittest.mock import ANY

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.testclient import TestClient

from tests.helpers import HANG_SECONDS
from tests.helpers.served import is_error, served
from tests.helpers.trial import build, listening, wait_for
from turnwise.models.encoder import Encoder
from turnwise.serve.errors import public_message
from turnwise.serve.settings import Limits, ServeSettings

JSON = {"content-type": "application/json"}


@pytest.fixture(scope="module")
def client(tiny_folder) -> TestClient:
    with served(
        ServeSettings(model=str(tiny_folder("bert")), limits=Limits(body=200_000, request_characters=100_000))
    ) as client:
        yield client


@pytest.mark.parametrize(
    "body",
    [b"{", b'{"inputs": ["a"]} x', b'{"inputs": ["\\ud800"]}', b'{"inputs": [NaN]}', b"[" * 50_000 + b"]" * 50_000],
)
def test_invalid_json(client: TestClient, body: bytes) -> None:
    assert is_error(client.post("/embed", content=body, headers=JSON), 400, "not_json")


@given(st.binary(max_size=200))
def test_random_bytes_never_fail(client: TestClient, body: bytes) -> None:
    answer = client.post("/embed", content=body, headers=JSON)
    assert answer.status_code in (400, 422)
    assert is_error(answer, answer.status_code)


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
        lambda inner: (
            st.lists(inner) | st.dictionaries(st.text() | st.sampled_from(["inputs", "speaker", "text"]), inner)
        ),
    )
)
def test_random_json_never_fails(client: TestClient, value: object) -> None:
    content = json.dumps({"inputs": value}).encode()
    answer = client.post("/embed", content=content, headers=JSON)
    assert answer.status_code in (200, 400, 422)
    assert answer.status_code == 200 or is_error(answer, answer.status_code)


def test_large_bodies(client: TestClient) -> None:
    large = b'{"inputs": ["' + b"a" * 200_000 + b'"]}'
    assert is_error(client.post("/embed", content=large, headers=JSON), 413, "body_too_large")

    def in_parts():
        for _ in range(400):
            yield b"a" * 1_000

    assert is_error(client.post("/embed", content=in_parts(), headers=JSON), 413, "body_too_large")
    assert is_error(
        client.post("/embed", content=large, headers={**JSON, "expect": "100-continue"}), 413, "body_too_large"
    )
    assert client.post("/embed", json={"inputs": ["still there"]}).status_code == 200


def test_content_types(client: TestClient) -> None:
    body = b'{"inputs": ["a"]}'
    for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data", "", "application/jsonx"):
        assert is_error(client.post("/embed", content=body, headers={"content-type": kind}), 415, "not_json")
    assert is_error(client.post("/embed", content=body, headers={**JSON, "content-encoding": "gzip"}), 415, "not_json")
    for kind in ("application/json; charset=utf-8", "Application/JSON"):
        assert client.post("/embed", content=body, headers={"content-type": kind}).status_code == 200


def test_unknown_routes_and_missing_features(client: TestClient) -> None:
    assert is_error(client.get("/nowhere"), 404, "not_found")
    assert is_error(client.get("/embed"), 405, "method_not_allowed")
    assert is_error(client.request("BREW", "/embed"), 405)
    assert is_error(client.get("/page/nothing.js"), 404)
    assert is_error(client.get("/page/../../settings.py"), 404)
    assert is_error(client.post("/embed"), 422)
    getting = {"/intents": "--intents", "/map": "--map", "/report": "--report", "/conversations/clusters": "--conv"}
    posting = {"/respond": "--responses", "/conversations/similar": "--conv", "/coherence": "--reranker"}
    for path, option in (getting | posting).items():
        answer = client.get(path) if path in getting else client.post(path, json={"conversation": ["hello", "there"]})
        assert is_error(answer, 404, "not_configured") and option in answer.json()["error"]["message"]


def test_request_ids(client: TestClient) -> None:
    assert client.get("/health", headers={"x-request-id": "abc-1.2_3"}).headers["x-request-id"] == "abc-1.2_3"
    for invalid in ("a b", "x" * 65, "a\tb", ""):
        assert client.get("/health", headers={"x-request-id": invalid}).headers["x-request-id"] != invalid


def test_security_headers(client: TestClient) -> None:
    page = client.get("/")
    assert page.status_code == 200
    assert "default-src 'self'" in page.headers["content-security-policy"]
    assert page.headers["x-content-type-options"] == "nosniff"
    script = client.get("/page/app.js", headers={"accept-encoding": "gzip"})
    assert script.headers["content-type"].startswith("text/javascript")
    assert client.get("/page/app.js", headers={"if-none-match": script.headers["etag"]}).status_code == 304


def test_cors(tiny_folder, client: TestClient) -> None:
    origin = {"origin": "https://example.org"}
    preflight = {**origin, "access-control-request-method": "POST", "access-control-request-headers": "content-type"}
    assert "access-control-allow-origin" not in client.get("/about", headers=origin).headers
    assert client.options("/embed", headers=preflight).status_code == 405
    with served(ServeSettings(model=str(tiny_folder("bert")), cors=("https://example.org",))) as allowing:
        assert allowing.get("/about", headers=origin).headers["access-control-allow-origin"] == "https://example.org"
        assert allowing.options("/embed", headers=preflight).status_code == 200
        refused = allowing.options("/embed", headers={**preflight, "origin": "https://example.com"})
        assert "access-control-allow-origin" not in refused.headers


def test_host_check(tiny_folder) -> None:
    with served(ServeSettings(model=str(tiny_folder("bert")), hosts=("localhost", "::1", "testserver"))) as client:
        for host in ("localhost", "localhost:8000", "LOCALHOST:1", "[::1]:8000"):
            assert client.get("/health", headers={"host": host}).status_code == 200
        for host in ("example.org", "localhost.example.org:8000", "", "[::2]"):
            assert is_error(client.get("/health", headers={"host": host}), 421, "unknown_host")
        for host in ("[localhost]evil.com", "[::1]evil.com", "localhost:80@evil.com", "localhost:", "a b"):
            assert is_error(client.get("/health", headers={"host": host}), 400, "not_http")


def test_number_of_headers(client: TestClient) -> None:
    assert client.get("/about", headers={f"x-{number}": "a" for number in range(90)}).status_code == 200
    answer = client.get("/about", headers={f"x-{number}": "a" for number in range(101)})
    assert is_error(answer, 431, "too_many_headers")


def test_only_the_files_of_the_page_are_stored_by_browsers(client: TestClient) -> None:
    assert client.get("/about").headers["cache-control"] == "no-store"
    assert client.post("/embed", json={"inputs": ["a"]}).headers["cache-control"] == "no-store"
    assert client.get("/nowhere").headers["cache-control"] == "no-store"
    assert client.get("/").headers["cache-control"] == "no-cache"


def test_time_limit(tiny_folder, monkeypatch: pytest.MonkeyPatch) -> None:
    held = threading.Event()
    encode = Encoder.encode_sequences
    monkeypatch.setattr(Encoder, "encode_sequences", lambda *given, **named: held.wait(10) and encode(*given, **named))
    with served(ServeSettings(model=str(tiny_folder("bert")), limits=Limits(seconds=0.05))) as client:
        assert is_error(client.post("/embed", json={"inputs": ["a"]}), 504, "timeout")
        held.set()


def test_full_queue(tiny_folder, monkeypatch: pytest.MonkeyPatch) -> None:
    from turnwise.serve.batching import Batcher, QueueFullError

    async def full(*_, **__):
        raise QueueFullError(7)

    with served(ServeSettings(model=str(tiny_folder("bert")))) as client:
        monkeypatch.setattr(Batcher, "encode", full)
        answer = client.post("/embed", json={"inputs": ["a"]})
        assert is_error(answer, 503, "queue_full")
        assert answer.headers["retry-after"] == "7"
        assert "turnwise_refused_total 1.0" in client.get("/metrics").text


def test_work_of_a_request(client: TestClient) -> None:
    long = ["a" * 20_000] * 3
    answer = client.post("/embed", json={"inputs": [*long, long]})
    assert is_error(answer, 422, "too_long") and "100,000 characters" in answer.json()["error"]["message"]
    assert "--max-characters" in answer.json()["error"]["message"]
    assert client.post("/embed", json={"inputs": long}).status_code == 200


def test_request_of_a_client_that_has_gone_is_not_encoded(tiny_folder, monkeypatch: pytest.MonkeyPatch) -> None:
    go, encoded = threading.Event(), []
    encode = Encoder.encode_sequences

    def encode_slowly(encoder, sequences, **named):
        assert go.wait(HANG_SECONDS)
        encoded.append(len(sequences))
        return encode(encoder, sequences, **named)

    monkeypatch.setattr(Encoder, "encode_sequences", encode_slowly)
    settings = ServeSettings(model=str(tiny_folder("bert")), limits=Limits(batch_tokens=30))
    with listening(settings) as address:
        for _ in range(3):
            with pytest.raises(httpx.ReadTimeout):
                httpx.post(f"{address}/embed", json={"inputs": ["a taxi"] * 50}, timeout=0.3)
        wait_for(lambda: "turnwise_waiting_texts 0.0" in httpx.get(f"{address}/metrics").text)
        go.set()
        assert httpx.post(f"{address}/embed", json={"inputs": ["a taxi"]}).status_code == 200
    assert sum(encoded) < 20


def test_missing_body_is_an_empty_object(client: TestClient) -> None:
    assert client.post("/reload").json() == client.post("/reload", json={}).json() | {"seconds": ANY}
    assert is_error(client.post("/reload", json={"x": 1}), 422)
    assert is_error(client.post("/map/undo"), 404, "not_configured")
    # a page of another origin can send this without asking
    assert is_error(client.post("/reload", headers={"origin": "https://example.org"}), 415, "not_json")
    assert client.post("/reload", json={}, headers={"origin": "https://example.org"}).status_code == 200


@pytest.mark.parametrize(
    ("message", "public"),
    [
        ("/srv/a b/intents is damaged", "a b/intents is damaged"),
        ("run `turnwise map --out /srv/logs/map`, see 'https://example.org/a/b'", None),
        ("the file '/srv/x/keys.txt' (/srv/y) and/or s3://bucket/x", "the file 'keys.txt' (y) and/or s3://bucket/x"),
    ],
)
def test_messages_without_folders(message: str, public: str | None) -> None:
    assert public_message(message) == (public or message.replace("/srv/logs/", ""))


def test_errors_show_no_path_of_the_server(tiny_folder, tmp_path: Path) -> None:
    settings = build(tmp_path, tiny_folder("bert"))
    with served(settings) as client:
        answers = {
            404: client.get("/conversations/dialogue", params={"id": "none"}),
            422: client.post("/v1/embeddings", json={"input": "a", "model": "none", "dimensions": 7}),
        }
        shutil.rmtree(tmp_path / "intents")
        answers[409] = client.post("/reload")
        for status, answer in answers.items():
            assert is_error(answer, status), answer.text
            assert str(tmp_path) not in answer.text and str(tiny_folder("bert")) not in answer.text
