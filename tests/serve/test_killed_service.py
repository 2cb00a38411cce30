"""`turnwise serve` killed while clients change what it keeps: what was acknowledged is there afterwards, and nothing twice."""

import contextlib
import random
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import httpx
import pytest

from tests.helpers.trial import MAPPED, Running, build, running, wait_for
from turnwise import Encoder
from turnwise.assist.responses.responder import Responder
from turnwise.serve.settings import ServeSettings

SOURCE = "added by the test"


@dataclass
class Client:
    """One that makes changes one after the other: the first `acknowledged` are on disk, and the one after them may be."""

    number: int
    acknowledged: int = 0
    is_under_way: bool = False
    sent: list[str] = field(default_factory=list)

    def change(self, http: httpx.Client, path: str, body: object) -> None:
        """Makes the change that was put down last."""
        self.is_under_way = True
        http.post(path, json=body).raise_for_status()
        self.acknowledged += 1
        self.is_under_way = False


class Example(Client):
    def once(self, http: httpx.Client) -> None:
        self.sent.append(f"find taxi {self.number} {len(self.sent)}")
        # a text for the client's intent, and one for an intent of its own
        examples = [
            {"text": self.sent[-1], "intent": f"intent {self.number}"},
            {"text": self.sent[-1], "intent": self.sent[-1]},
        ]
        self.change(http, "/intents/examples", {"examples": examples})

    def check(self, address: str, _: ServeSettings) -> int:
        kept = httpx.get(f"{address}/intents/intent%20{self.number}/examples").json()["examples"]
        counts = {each["intent"]: each["examples"] for each in httpx.get(f"{address}/intents").json()["intents"]}
        assert all(counts[text] == 1 for text in kept)  # both examples of a request are there, or none
        assert len(kept) == sum(intent.startswith(f"find taxi {self.number} ") for intent in counts)
        return self.is_whole(kept)

    def is_whole(self, kept: list[str]) -> int:
        """How many of the changes are there: all that were acknowledged, each once, and perhaps the one that was under way."""
        assert max(Counter(kept).values()) == 1
        assert (
            set(self.sent[: self.acknowledged]) <= set(kept) <= set(self.sent[: self.acknowledged + self.is_under_way])
        )
        return len(kept)


class CannedAnswer(Example):
    def once(self, http: httpx.Client) -> None:
        self.sent.append(f"a hotel room {self.number} {len(self.sent)}")
        answers = [{"text": self.sent[-1], "source": f"{SOURCE} {self.number}"}]
        self.change(http, "/respond/answers", {"answers": answers})

    def check(self, _: str, settings: ServeSettings) -> int:
        responder = Responder.open(str(settings.responses), Encoder.load(settings.model, device="cpu"))
        kept = responder.table.read(["text"], {"source": f"{SOURCE} {self.number}"}).column("text").to_pylist()
        return self.is_whole(kept)


class Label(Client):
    """The only one that labels: each change gives one utterance another label, so that all labels tell how many there were."""

    def once(self, http: httpx.Client) -> None:
        self.sent.append(f"label {len(self.sent)}")
        row = (len(self.sent) - 1) % len(MAPPED)
        self.change(http, "/map/label", {"rows": [row], "name": self.sent[-1]})

    def check(self, address: str, _: ServeSettings) -> int:
        told = httpx.get(f"{address}/map").json()
        changes = told["changes"]
        assert self.acknowledged <= changes <= self.acknowledged + self.is_under_way
        expected: list[str | None] = [None] * len(MAPPED)
        for number in range(changes):
            expected[number % len(MAPPED)] = f"label {number}"
        assert told["labels"] == expected
        return changes


def at_work(client: Client, address: str, is_over: threading.Event) -> None:
    """Makes changes until the service is gone."""
    with httpx.Client(base_url=address, timeout=60) as http, contextlib.suppress(httpx.TransportError):
        while not is_over.is_set():
            client.once(http)


@contextlib.contextmanager
def working(clients: list[Client], service: Running) -> Iterator[None]:
    """Clients that make changes meanwhile."""
    is_over = threading.Event()
    threads = [threading.Thread(target=at_work, args=(client, service.address, is_over)) for client in clients]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        is_over.set()
        for thread in threads:
            thread.join()


def kill_and_check(settings: ServeSettings, place: Path, kills: int, wanted: int) -> None:
    """Kills a service at random moments, at least so many changes of each client after it started."""
    moments = random.Random(kills)
    clients: list[Client] = [Example(1), Example(2), CannedAnswer(3), CannedAnswer(4), Label(5)]
    for number in range(kills + 1):
        with running(settings, place / f"log-{number}") as service:
            for client in clients if number else ():
                # what was under way is there or not; the client goes on from what it finds
                there = client.check(service.address, settings)
                client.acknowledged, client.is_under_way = there, False
                del client.sent[there:]
            if number == kills:
                return
            before = [client.acknowledged for client in clients]
            with working(clients, service):
                wait_for(changed(clients, before, wanted))
                threading.Event().wait(moments.uniform(0, 0.2))
                service.process.kill()
                service.process.wait()
            assert sum(client.is_under_way for client in clients) >= 1  # it was killed in the midst of work


def changed(clients: list[Client], before: list[int], wanted: int) -> Callable[[], bool]:
    return lambda: all(client.acknowledged >= count + wanted for client, count in zip(clients, before, strict=True))


@pytest.fixture
def settings(tmp_path: Path, tiny_folder) -> ServeSettings:
    return replace(build(tmp_path, tiny_folder("bert")), conversations=None, reranker=None, report=None)


def test_what_was_acknowledged_outlives_a_kill(settings: ServeSettings, tmp_path: Path) -> None:
    kill_and_check(settings, tmp_path, kills=1, wanted=3)


@pytest.mark.full
def test_what_was_acknowledged_outlives_many_kills(settings: ServeSettings, tmp_path: Path) -> None:
    kill_and_check(settings, tmp_path, kills=10, wanted=10)
