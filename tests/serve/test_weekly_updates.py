"""Weeks of a project with a running service: newer logs, additions over HTTP and the command line, and kills."""

import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.helpers import HANG_SECONDS
from tests.helpers.chats import write_chats
from tests.helpers.command_line import run
from tests.helpers.processes import start_command
from tests.helpers.small_map import reduce_by_components
from tests.helpers.trial import Running, running, wait_for
from turnwise import Encoder
from turnwise.assist.conversations import Conversations
from turnwise.assist.map.utterance_map import UtteranceMap
from turnwise.assist.responses.responder import Responder
from turnwise.core.project import Project
from turnwise.corpus.storage.store import MANIFEST, Store
from turnwise.corpus.synthetic.sample import sample_dialogues
from turnwise.serve.settings import ServeSettings

FITTED = {"track": ["where is my parcel", "has it shipped"], "cancel": ["cancel my order", "stop the order"]}


def write_rows(path: Path, rows: Sequence[Sequence[str]]) -> Path:
    path.write_text("".join(",".join(row) + "\n" for row in rows))
    return path


@contextmanager
def asking(service: Running, statuses: Counter[int]) -> Iterator[None]:
    """Request everything that is served, all the time, and count the statuses."""
    is_over = threading.Event()

    def ask() -> None:
        with httpx.Client(base_url=service.address, timeout=HANG_SECONDS) as client:
            while not is_over.wait(0.05):
                with suppress(httpx.TransportError):  # the service was killed
                    turns = {"conversation": ["where is my parcel"]}
                    for path in ("/ready", "/overview", "/map/next"):
                        statuses[client.get(path).status_code] += 1
                    statuses[client.post("/respond", json=turns).status_code] += 1
                    statuses[client.post("/conversations/similar", json=turns).status_code] += 1
                    statuses[client.post("/intents/predict", json={"texts": ["hello"]}).status_code] += 1

    thread = threading.Thread(target=ask)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


def is_served(service: Running, conversations: int) -> bool:
    return bool(httpx.get(f"{service.address}/overview").json()["conversations"] == conversations)


class Team:
    """People who use a project, and what they have added."""

    def __init__(self, place: Path):
        self.place = place
        self.answers: list[str] = []
        self.examples: list[str] = []
        self.labelled, self.label = "", ""  # a text of the group that was named last, and its name

    def add_over_http(self, service: Running, week: int) -> None:
        with httpx.Client(base_url=service.address, timeout=HANG_SECONDS) as client:

            def post(path: str, body: object) -> Any:
                return client.post(path, json=body).raise_for_status().json()

            self.answers.append(f"A canned answer of week {week}.")
            post("/respond/answers", {"answers": [{"text": self.answers[-1], "after": ["my router is broken"]}]})
            self.examples.append(f"an example of week {week}")
            post("/intents/examples", {"examples": [{"text": self.examples[-1], "intent": "weekly"}]})
            state, self.label = client.get("/map").json(), f"group {week}"
            self.labelled = state["texts"][state["groups"].index(state["clusters"][0]["number"])]
            post("/map/name", {"group": state["clusters"][0]["number"], "name": self.label})
            if week in (2, 4):
                post("/map/fit", {})

    def add_by_commands(self, week: int) -> None:
        self.answers.append(f"An answer of the file of week {week}.")
        run("responses", "index", write_rows(self.place / "canned.csv", [("text",), (self.answers[-1],)]))
        if week in (1, 3):
            rows = [(text, intent) for intent, texts in FITTED.items() for text in texts]
            run("intents", "fit", write_rows(self.place / "examples.csv", [("text", "intent"), *rows]))


@pytest.mark.parametrize("number", [2, pytest.param(5, marks=pytest.mark.full)])
def test_weeks_lose_and_double_nothing(
    number: int, tmp_path: Path, tiny_folder: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    reduce_by_components(monkeypatch)
    final = list(sample_dialogues(24, 1))
    short = [replace(each, turns=each.turns[: len(each.turns) // 2]) for each in final]
    weeks = [
        final[:6] + short[6:8],
        # overlaps, completes conversations, and has older versions and an unfinished conversation
        short[2:4] + final[4:14] + short[14:15],
        final[12:15],
        final[10:18],
        final,
    ][:number]
    project, statuses = tmp_path / "project", Counter[int]()
    start = ["--out", project, "--no-serve"]
    run("start", write_chats(tmp_path / "chats.jsonl", weeks[0]), *start, "--model", tiny_folder("bert"))
    monkeypatch.chdir(project)
    team, settings = Team(tmp_path), ServeSettings(project=project)
    team.add_by_commands(1)
    for week, log in enumerate(weeks, 1):
        write_chats(tmp_path / "chats.jsonl", log)
        with running(settings, tmp_path / f"service-{week}") as service, asking(service, statuses):
            if week > 1:
                interrupted = start_command(tmp_path / "start", "start", tmp_path / "chats.jsonl", *start)
                manifest = project / "builds" / str(Project.load(project).build + 1) / "store" / MANIFEST
                wait_for(manifest.exists)
                team.add_over_http(service, week)
                interrupted.kill()
                interrupted.join()
                assert "switches to what is new" in run("start", tmp_path / "chats.jsonl", *start).stderr
                team.add_by_commands(week)
                wait_for(partial(is_served, service, len(Store(Project.load(project).part("store")))))
            else:
                team.add_over_http(service, week)
            service.process.kill()
            service.process.join()
    assert statuses[200] > 10 * number and not [status for status in statuses if status not in (200, 503)]

    stored = Project.load(project)
    with running(settings, tmp_path / "service") as service:
        texts = httpx.get(f"{service.address}/intents/weekly/examples").json()["examples"]
        assert sorted(texts) == sorted(team.examples)
        served = {each["intent"] for each in httpx.get(f"{service.address}/intents").json()["intents"]}
        assert f"group {number // 2 * 2}" in served and "track" not in served  # the page fitted last, in an even week
        state = httpx.get(f"{service.address}/map").json()
        assert state["labels"][state["texts"].index(team.labelled)] == team.label
    newest = {each.id: each for each in sorted(chain.from_iterable(weeks), key=lambda each: len(each.turns))}
    write_chats(tmp_path / "chats.jsonl", list(newest.values()))
    run("start", tmp_path / "chats.jsonl", "--out", tmp_path / "fresh", "--no-serve", "--model", tiny_folder("bert"))
    fresh, encoder = Project.load(tmp_path / "fresh"), Encoder.load(tiny_folder("bert"))
    assert {each.id: each for each in Store(stored.part("store"))} == {
        each.id: each for each in Store(fresh.part("store"))
    }
    assert set(UtteranceMap.load(stored.part("map")).texts) == set(UtteranceMap.load(fresh.part("map")).texts)
    assert stored.classifier == number // 2 * 2  # fitted in every week but the fifth
    responder = Responder.open(stored.part("responses"), encoder)
    canned = responder.table.read(["text", "dialogue"]).to_pylist()
    assert Counter(each["text"] for each in canned if each["dialogue"] is None) == Counter(team.answers)
    assert len(canned) - len(team.answers) == len(Responder.open(fresh.part("responses"), encoder))
    assert len(Conversations.open(stored.part("conversations"), encoder)) == len(newest)
