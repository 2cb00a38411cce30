"""`turnwise serve` killed while clients make changes: acknowledged changes survive, and nothing is duplicated."""

import contextlib
import random
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import httpx
import pytest

from tests.helpers import HANG_SECONDS
from tests.helpers.trial import MAPPED, Running, build, running, wait_for
from turnwise import Encoder
from turnwise.assist.responses.responder import Responder
from turnwise.serve.settings import ServeSettings

SOURCE = "added by the test"


@dataclass
class Client:
    """Makes one change at a time: the first `acknowledged` are on disk, and the next one may be."""

    number: int
    acknowledged: int = 0
    is_in_progress: bool = False
    sent: list[str] = field(default_factory=list)

    def change(self, http: httpx.Client, path: str, body: object) -> None:
        """Make the last change of `sent`."""
        self.is_in_progress = True
        http.post(path, json=body).raise_for_status()
        self.acknowledged += 1
        self.is_in_progress = False


class Example(Client):
    def once(self, http: httpx.Client) -> None:
        self.sent.append(f"find taxi {self.number} {len(self.sent)}")
        # one example of the client's intent, and one of a new intent
        examples = [
            {"text": self.sent[-1], "intent": f"intent {self.number}"},
            {"text": self.sent[-1], "intent": self.sent[-1]},
        ]
        self.change(http, "/intents/examples", {"examples": examples})

    def check(self, address: str, _: ServeSettings) -> int:
        stored = httpx.get(f"{address}/intents/intent%20{self.number}/examples").json()["examples"]
        counts = {each["intent"]: each["examples"] for each in httpx.get(f"{address}/intents").json()["intents"]}
        assert all(counts[text] == 1 for text in stored)  # both examples of a request are stored, or none
        assert len(stored) == sum(intent.startswith(f"find taxi {self.number} ") for intent in counts)
        return self.check_stored(stored)

    def check_stored(self, stored: list[str]) -> int:
        """Return the number of stored changes: all acknowledged ones, each once, and possibly the one in progress."""
        assert max(Counter(stored).values()) == 1
        assert (
            set(self.sent[: self.acknowledged])
            <= set(stored)
            <= set(self.sent[: self.acknowledged + self.is_in_progress])
        )
        return len(stored)


class CannedAnswer(Example):
    def once(self, http: httpx.Client) -> None:
        self.sent.append(f"a hotel room {self.number} {len(self.sent)}")
        answers = [{"text": self.sent[-1], "source": f"{SOURCE} {self.number}"}]
        self.change(http, "/respond/answers", {"answers": answers})

    def check(self, _: str, settings: ServeSettings) -> int:
        responder = Responder.open(str(settings.responses), Encoder.load(settings.model, device="cpu"))
        stored = responder.table.read(["text"], {"source": f"{SOURCE} {self.number}"}).column("text").to_pylist()
        return self.check_stored(stored)


class Label(Client):
    """The only client that labels: each change relabels one utterance, so the labels show the number of changes."""

    def once(self, http: httpx.Client) -> None:
        self.sent.append(f"label {len(self.sent)}")
        row = (len(self.sent) - 1) % len(MAPPED)
        self.change(http, "/map/label", {"rows": [row], "name": self.sent[-1]})

    def check(self, address: str, _: ServeSettings) -> int:
        state = httpx.get(f"{address}/map").json()
        changes = state["changes"]
        assert self.acknowledged <= changes <= self.acknowledged + self.is_in_progress
        expected: list[str | None] = [None] * len(MAPPED)
        for number in range(changes):
            expected[number % len(MAPPED)] = f"label {number}"
        assert state["labels"] == expected
        return changes


def make_changes(client: Client, address: str, is_over: threading.Event) -> None:
    """Make changes until the service is gone."""
    with httpx.Client(base_url=address, timeout=HANG_SECONDS) as http, contextlib.suppress(httpx.TransportError):
        while not is_over.is_set():
            client.once(http)


@contextlib.contextmanager
def running_clients(clients: list[Client], service: Running) -> Iterator[None]:
    """Run clients in threads."""
    is_over = threading.Event()
    threads = [threading.Thread(target=make_changes, args=(client, service.address, is_over)) for client in clients]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        is_over.set()
        for thread in threads:
            thread.join()


def every_kind() -> list[Client]:
    return [Example(1), Example(2), CannedAnswer(3), CannedAnswer(4), Label(5)]


def kill_and_check(settings: ServeSettings, place: Path, clients: list[Client], kills: int, changes: int) -> None:
    """Kill a service at random moments, after at least `changes` changes of each client."""
    moments = random.Random(kills)
    for number in range(kills + 1):
        with running(settings, place / f"log-{number}") as service:
            for client in clients if number else ():
                # the change in progress may be stored; the client continues from what it finds
                stored_changes = client.check(service.address, settings)
                client.acknowledged, client.is_in_progress = stored_changes, False
                del client.sent[stored_changes:]
            if number == kills:
                return
            before = [client.acknowledged for client in clients]
            with running_clients(clients, service):
                wait_for(changed(clients, before, changes))
                threading.Event().wait(moments.uniform(0, 0.2))
                service.process.kill()
                service.process.join()
            assert sum(client.is_in_progress for client in clients) >= 1  # it was killed while running_clients


def changed(clients: list[Client], before: list[int], changes: int) -> Callable[[], bool]:
    return lambda: all(client.acknowledged >= count + changes for client, count in zip(clients, before, strict=True))


@pytest.fixture
def settings(tmp_path: Path, tiny_folder) -> ServeSettings:
    return replace(build(tmp_path, tiny_folder("bert")), conversations=None, reranker=None, report=None)


def test_acknowledged_changes_survive_a_kill(settings: ServeSettings, tmp_path: Path) -> None:
    kill_and_check(settings, tmp_path, every_kind(), kills=1, changes=3)


def test_acknowledged_examples_of_many_clients_survive_a_kill(settings: ServeSettings, tmp_path: Path) -> None:
    """Examples are acknowledged before the classifier is recalibrated: most of them are pending at the kill."""
    only_intents = replace(settings, responses=None, map=None)
    kill_and_check(only_intents, tmp_path, [Example(number) for number in range(6)], kills=2, changes=10)


@pytest.mark.full
def test_acknowledged_changes_survive_many_kills(settings: ServeSettings, tmp_path: Path) -> None:
    kill_and_check(settings, tmp_path, every_kind(), kills=10, changes=10)
