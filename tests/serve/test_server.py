"""A service on a port: slow and broken clients, reload and shutdown under load."""

import asyncio
import contextlib
import json
import os
import signal
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import numpy as np
import pytest

from tests.helpers import HANG_SECONDS
from tests.helpers.command_line import run
from tests.helpers.served import served
from tests.helpers.trial import build, listening, running, wait_for
from turnwise import Encoder
from turnwise.core.errors import TurnwiseError
from turnwise.serve.app import create_app
from turnwise.serve.server import listen
from turnwise.serve.settings import Limits, ServeSettings

TEXTS = ["find a taxi", "a cheap hotel room", "when is the train", "yes please"]


@pytest.fixture(scope="module")
def port(tiny_folder) -> Iterator[int]:
    limits = Limits(body=100_000, header_seconds=0.3, body_seconds=0.3, connections=20)
    with listening(ServeSettings(model=str(tiny_folder("bert")), limits=limits)) as address:
        yield int(address.rpartition(":")[2])


def send(port: int, *parts: bytes, pause: float = 0.0) -> bytes:
    """Send parts one after the other, and return everything received until the connection ends."""
    with socket.create_connection(("127.0.0.1", port), timeout=HANG_SECONDS) as connection:
        with contextlib.suppress(OSError):
            for part in parts:
                connection.sendall(part)
                time.sleep(pause)
        answer = b""
        with contextlib.suppress(ConnectionResetError):
            while part := connection.recv(65_536):
                answer += part
        return answer


def error_of(answer: bytes) -> tuple[int, str]:
    """Return the status and the error code of a response."""
    head, _, body = answer.partition(b"\r\n\r\n")
    return int(head.split(b" ")[1]), json.loads(body)["error"]["code"]


HEAD = b"POST /embed HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"


def test_slow_requests(port: int) -> None:
    assert error_of(send(port, b"POST /embed HTTP/1.1\r\nhost:")) == (408, "slow_head")
    assert error_of(send(port, *[b"a"] * 40, pause=0.02)) == (408, "slow_head")
    assert send(port) == b""
    assert error_of(send(port, HEAD + b"content-length: 100\r\n\r\n{")) == (408, "slow_body")
    assert error_of(send(port, HEAD + b"transfer-encoding: chunked\r\n\r\n", *[b"1\r\n[\r\n"] * 40, pause=0.02)) == (
        408,
        "slow_body",
    )


def test_invalid_http(port: int) -> None:
    assert error_of(send(port, b"\0\1\2\3\r\n\r\n")) == (400, "not_http")
    assert error_of(send(port, b"GET /" + b"a" * 70_000 + b" HTTP/1.1\r\n\r\n")) == (400, "not_http")
    assert error_of(send(port, HEAD + b"content-length: -5\r\n\r\n")) == (400, "not_http")
    assert error_of(send(port, HEAD + b"content-length: 5\r\ncontent-length: 6\r\n\r\n")) == (400, "not_http")
    both = b"content-length: 5\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n"
    assert error_of(send(port, HEAD + both)) == (400, "not_http")


def test_idle_connections_do_not_block_others(port: int) -> None:
    with contextlib.ExitStack() as opened:
        for _ in range(20):
            opened.enter_context(contextlib.closing(socket.create_connection(("127.0.0.1", port))))
        wait_for(lambda: httpx.get(f"http://127.0.0.1:{port}/health").status_code == 200)


def batchers() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if thread.name == "batcher"}


def test_reload_under_load_drops_no_request(tmp_path: Path, tiny_folder) -> None:
    """Every response has vectors of the old or the new model, and after the reload of the new one."""
    models = [Encoder.load(tiny_folder(family)) for family in ("bert", "electra")]
    link = tmp_path / "model"
    link.symlink_to(tiny_folder("bert"))
    right = [np.asarray(model.encode(TEXTS, normalise=True)) for model in models]
    app = create_app(ServeSettings(model=str(link)))
    reloads, threads = 4, batchers()

    async def run() -> tuple[list[int], list[int]]:
        seen: list[int] = []
        transport = httpx.ASGITransport(app)
        done = asyncio.Event()
        async with (
            app.router.lifespan_context(app),
            httpx.AsyncClient(transport=transport, base_url="http://x") as client,
        ):
            while (await client.get("/ready")).status_code != 200:
                await asyncio.sleep(0.01)

            async def ask() -> None:
                while not done.is_set():
                    answer = await client.post("/embed", json={"inputs": TEXTS})
                    assert answer.status_code == 200, answer.text
                    vectors = np.array(answer.json()["vectors"])
                    fits = [each.shape == vectors.shape and np.abs(each - vectors).max() < 1e-5 for each in right]
                    assert sum(fits) == 1
                    seen.append(fits.index(True))

            askers = [asyncio.create_task(ask()) for _ in range(8)]
            uses_new_model = []
            for number in range(1, reloads + 1):
                link.unlink()
                link.symlink_to(tiny_folder(("bert", "electra")[number % 2]))
                answer = await client.post("/reload", json={})
                assert answer.status_code == 200, answer.text
                vectors = np.array((await client.post("/embed", json={"inputs": TEXTS})).json()["vectors"])
                uses_new_model.append(int(np.abs(right[1] - vectors).max() < 1e-5))
            # a failed reload changes nothing
            link.unlink()
            answer = await client.post("/reload", json={})
            assert (answer.status_code, answer.json()["error"]["code"]) == (409, "not_reloaded")
            assert (await client.post("/embed", json={"inputs": TEXTS})).status_code == 200
            done.set()
            await asyncio.gather(*askers)
        return seen, uses_new_model

    seen, uses_new_model = asyncio.run(run())
    assert uses_new_model == [1, 0, 1, 0]
    assert {0, 1} == set(seen)
    # the threads of replaced models have ended
    assert batchers() == threads


def test_port_in_use(port: int) -> None:
    with pytest.raises(TurnwiseError, match=f"port {port}.*--port"):
        listen("127.0.0.1", port)


def test_command_serves_reloads_and_shuts_down_gracefully(tmp_path: Path, tiny_folder) -> None:
    log = tmp_path / "log.jsonl"
    with running(ServeSettings(model=str(tiny_folder("bert"))), log) as service:
        pid, address = service.process.pid, f"{service.address}/"
        assert pid is not None
        assert httpx.post(address + "embed", json={"inputs": TEXTS}).status_code == 200
        assert httpx.get(address + "health", headers={"host": "example.org"}).status_code == 421
        os.kill(pid, signal.SIGHUP)
        wait_for(lambda: '"reloaded"' in log.read_text())

        answers: list[int] = []
        is_sent = threading.Semaphore(0)

        def ask() -> None:
            with httpx.Client(timeout=HANG_SECONDS) as client:
                client.get(address + "health")  # the connection is open
                is_sent.release()
                answers.append(
                    client.post(address + "embed", json={"inputs": [" ".join(TEXTS * 40)] * 200}).status_code
                )

        threads = [threading.Thread(target=ask) for _ in range(4)]
        for thread in threads:
            thread.start()
        for _ in threads:
            is_sent.acquire()
        # until all four are accepted
        wait_for(lambda: accepted(address) >= 4 * 200)
        os.kill(pid, signal.SIGTERM)
        for thread in threads:
            thread.join()
        assert answers == [200] * 4
        service.process.join(HANG_SECONDS)
        assert service.process.exitcode == 0
        lines = [json.loads(line) for line in log.read_text().splitlines()]
        assert lines[-1]["event"] == "stopped"
        assert not [line for line in lines if line["level"] == "error"]


def accepted(address: str) -> float:
    """Return the number of texts waiting to be encoded."""
    for line in httpx.get(address + "metrics").text.splitlines():
        if line.startswith("turnwise_waiting_texts "):
            return float(line.split()[1])
    return 0


def test_missing_model(tmp_path: Path) -> None:
    answer = run("serve", "--port", 0, "--model", tmp_path / "nothing", code=1)
    assert "error: " in answer.stderr and "nothing" in answer.stderr
    assert "Traceback" not in answer.stderr


def test_missing_folders(tmp_path: Path, tiny_folder) -> None:
    for settings, message in (
        (ServeSettings(map=tmp_path / "none"), "there is no folder"),
        (ServeSettings(report=tmp_path), "has no report.html"),
        (ServeSettings(model=str(tiny_folder("bert")), intents=tmp_path), "holds no intent classifier"),
        (ServeSettings(model=str(tiny_folder("bert")), map=tmp_path), "is not a map"),
    ):
        with pytest.raises(AssertionError, match=message), served(settings):
            pass


def test_reading_commands_work_beside_a_service(tmp_path: Path, tiny_folder) -> None:
    settings = build(tmp_path, tiny_folder("bert"), with_reranker=False)
    model = ("--model", settings.model)
    with listening(settings) as address:
        httpx.post(f"{address}/map/name", json={"group": 0, "name": "taxis"}).raise_for_status()
        assert "taxis" in run("labels", "status", settings.map).stdout
        run("labels", "next", settings.map)
        run("labels", "export", settings.map, "--out", tmp_path / "labels.csv")
        run("intents", "predict", settings.intents, "find a taxi")
        run("intents", "examples", "export", settings.intents, "--out", tmp_path / "examples.csv")
        run("responses", "suggest", settings.responses, "hello", *model)
        run("conversations", "similar", settings.conversations, "hello", *model)
        assert "in another process" in run("labels", "undo", settings.map, code=1).stderr
