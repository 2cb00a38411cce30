"""Hostile clients against a running `turnwise serve`: each is rejected, and the service goes on."""

import contextlib
import json
import socket
from collections.abc import Iterator

import httpx
import psutil
import pytest

from tests.helpers import HANG_SECONDS
from tests.helpers.trial import Running, build, running

#: The service's limit; bodies of 10 MB are far beyond it.
BODY = 2_000_000

_HEAD = "POST {} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"

JSON = {"content-type": "application/json"}

#: Routes with a body, and a field of it.
ROUTES = {
    "/embed": "inputs",
    "/v1/embeddings": "input",
    "/intents/predict": "texts",
    "/intents/examples": "examples",
    "/intents/examples/remove": "examples",
    "/respond": "conversation",
    "/respond/answers": "answers",
    "/conversations/similar": "conversation",
    "/map/label": "rows",
    "/map/merge": "groups",
}

#: Bodies that are not JSON, or do not match the schema; %s stands for the field.
BODIES = {
    "nothing": b"",
    "a number": b"1",
    "null": b"null",
    "a text": b'"%s"',
    "a list": b"[]",
    "no texts": b'{"%s": []}',
    "a text of blanks": b'{"%s": [" \\t "]}',
    "wrong types": b'{"%s": [{}, 1.5, null, true]}',
    "a wrong type deep inside": b'{"%s": [[["a"]]]}',
    "an object for a list": b'{"%s": {"0": "a"}}',
    "broken off": b'{"%s": ["a"',
    "invalid UTF-8": b'{"%s": ["\xff\xfe\xc3"]}',
    "UTF-8 of a surrogate": b'{"%s": ["\xed\xa0\x80"]}',
    "a lone surrogate": b'{"%s": ["\\ud800"]}',
    "NUL as it is": b'{"%s": ["a\0b"]}',
    "NUL by its number": b'{"%s": ["a\\u0000b"]}',
    "not a number": b'{"%s": [NaN]}',
    "infinity": b'{"%s": [Infinity, -Infinity]}',
    "a number beyond all bounds": b'{"%s": [1e999]}',
    "a huge integer": b'{"%s": [' + b"9" * 5_000 + b"]}",
    "a negative integer": b'{"%s": [-1]}',
    "100,000 brackets": b'{"%s": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    "100,000 braces": b'{"%s":' * 100_000 + b"1" + b"}" * 100_000,
    "100,000 brackets that do not close": b"[" * 100_000,
    "100,000 texts": b'{"%s": [' + b'"a",' * 99_999 + b'"a"]}',
    "100,000 fields": b'{"%s": ["a"], ' + b",".join(b'"%d": 1' % number for number in range(100_000)) + b"}",
    "100,000 fields of a turn": b'{"%s": [{' + b",".join(b'"%d": 1' % number for number in range(100_000)) + b"}]}",
    "100,000 objects": b'{"%s": [' + b"{}," * 99_999 + b"{}]}",
    "10 MB": b'{"%s": ["' + b"a" * 10_000_000 + b'"]}',
    "zeros": b"\0" * 1_000,
}


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory, tiny_folder) -> Iterator[Running]:
    place = tmp_path_factory.mktemp("hostile")
    with running(build(place, tiny_folder("bert")), place / "log") as service:
        yield service


@pytest.fixture
def client(service: Running) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=service.address, timeout=HANG_SECONDS) as client:
        yield client
        assert service.process.is_alive()
        assert client.get("/ready").status_code == 200
        assert len(client.post("/embed", json={"inputs": ["find a taxi"]}).json()["vectors"]) == 1


def is_client_error(answer: httpx.Response) -> bool:
    """Return whether a response is a client error."""
    error = answer.json()["error"]
    assert error["message"] and error["code"], answer.text
    return 400 <= answer.status_code < 500


def body_for(kind: str, part: str) -> bytes:
    return BODIES[kind].replace(b"%s", part.encode())


@pytest.mark.parametrize("kind", BODIES)
def test_hostile_bodies_are_rejected(client: httpx.Client, kind: str) -> None:
    routes = ROUTES if len(BODIES[kind]) < 10_000 else dict(list(ROUTES.items())[:3])
    for route, part in routes.items():
        answer = client.post(route, content=body_for(kind, part), headers=JSON)
        assert is_client_error(answer), (route, answer.status_code, answer.text[:500])
        assert kind != "10 MB" or answer.status_code == 413


def test_endless_bodies_are_cut_off(client: httpx.Client, service: Running) -> None:
    chunk = b"10000\r\n" + b"[" * 0x10000 + b"\r\n"
    with socket.create_connection(("127.0.0.1", service.port), timeout=HANG_SECONDS) as connection:
        sent = 0
        with contextlib.suppress(OSError):
            connection.sendall(_HEAD.format("/embed").encode() + b"transfer-encoding: chunked\r\n\r\n")
            while sent < 100 * BODY:  # the service stops reading before that
                connection.sendall(chunk)
                sent += len(chunk)
        assert sent < 100 * BODY
        answer = receive_all(connection)
    # a client that is still sending may not receive the response
    assert answer == b"" or error_of(answer) == (413, "body_too_large")


def receive_all(connection: socket.socket) -> bytes:
    """Return everything received until the connection ends."""
    answer = b""
    with contextlib.suppress(ConnectionError):
        while part := connection.recv(65_536):
            answer += part
    return answer


def error_of(answer: bytes) -> tuple[int, str]:
    """Return the status and the error code of a response."""
    head, _, body = answer.partition(b"\r\n\r\n")
    return int(head.split(b" ")[1]), json.loads(body)["error"]["code"]


def test_memory_stays_flat(client: httpx.Client, service: Running) -> None:
    """Memory hardly grows after the first rounds, which fill buffers and caches."""
    process = psutil.Process(service.process.pid)
    bodies = [body_for(kind, "inputs") for kind in BODIES]

    def send_all() -> None:
        for body in bodies:
            assert is_client_error(client.post("/embed", content=body, headers=JSON)), body[:100]
        for _ in range(10):
            with socket.create_connection(("127.0.0.1", service.port)) as gone:
                gone.sendall(_HEAD.format("/embed").encode() + b"content-length: 1000000\r\n\r\n" + b"[" * 100_000)

    sizes = []
    for _ in range(9):
        send_all()
        sizes.append(process.memory_info().rss)
    # keeping the bodies of one round would exceed this
    assert min(sizes[7:]) - max(sizes[2:4]) < sum(map(len, bodies)) / 2, sizes
    assert len(process.open_files()) < 100
    assert len(process.net_connections()) < 50
