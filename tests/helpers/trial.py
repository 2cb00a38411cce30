"""Services for tests, in a thread or a process, with all features and a tiny model."""

import contextlib
import json
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from multiprocessing.process import BaseProcess
from pathlib import Path

import httpx
import numpy as np
import torch
from torch import nn

from tests.helpers import HANG_SECONDS
from tests.helpers.processes import start_command
from turnwise import Encoder
from turnwise.assist.conversations import Conversations
from turnwise.assist.intents.classifier import IntentClassifier
from turnwise.assist.map.clustering import describe_clusters
from turnwise.assist.map.utterance_map import MapUtterance, UtteranceMap
from turnwise.assist.responses.responder import Responder
from turnwise.corpus.synthetic.sample import sample_dialogues
from turnwise.models.backbone.inputs import END_OF_TURN, MARKS
from turnwise.models.backbone.load import load_backbone
from turnwise.models.reranker import Reranker
from turnwise.serve.server import Server, listen
from turnwise.serve.settings import Limits, ServeSettings

#: Examples by intent.
EXAMPLES = {
    "taxi": ["find a taxi", "book a taxi now", "where is the taxi", "i need a taxi tonight"],
    "hotel": ["a hotel room please", "find a cheap hotel", "cancel the hotel room", "which hotel is good"],
    "train": ["when is the train", "a train to the north", "change the train", "train tomorrow please"],
}

#: The same as lists of texts and intents.
TEXTS = [text for each in EXAMPLES.values() for text in each]
INTENTS = [intent for intent, each in EXAMPLES.items() for _ in each]

_ENDS = ("now", "tomorrow please", "to the city", "you want", "i need it", "which one is good")

#: The utterances of the map.
MAPPED = [f"{what} {end}" for what in ("find the taxi", "cancel a hotel room", "change train two") for end in _ENDS]


def build(
    place: Path, model: Path | str, limits: Limits | None = None, *, dialogues: int = 20, with_reranker: bool = True
) -> ServeSettings:
    """Create everything that a service can serve in a folder, and return its settings."""
    encoder = Encoder.load(model, device="cpu")
    IntentClassifier(str(model)).fit(TEXTS, INTENTS).save(place / "intents")
    sample = list(sample_dialogues(dialogues, 1))
    Responder.open(str(place / "responses"), encoder).index(sample)
    Conversations.open(str(place / "conversations"), encoder).index(sample)
    build_map(place / "map", encoder, str(model))
    if with_reranker:
        _reranker(model, place / "reranker")
    (place / "report").mkdir()
    (place / "report" / "report.html").write_text("<!doctype html><title>A report</title>", encoding="utf-8")
    return ServeSettings(
        model=str(model),
        intents=place / "intents",
        responses=str(place / "responses"),
        conversations=str(place / "conversations"),
        reranker=str(place / "reranker") if with_reranker else None,
        map=place / "map",
        report=place / "report",
        limits=limits or Limits(),
    )


def build_map(place: Path, encoder: Encoder, model: str) -> None:
    """Save a map of `MAPPED`, of which the first six texts are a group, and the next six another one."""
    vectors = encoder.encode(MAPPED, normalise=True)
    labels = np.repeat([0, 1, -1], len(_ENDS)).astype(np.int32)
    points = np.random.default_rng(1).normal(size=(len(MAPPED), 2)).astype(np.float32)
    utterances = [MapUtterance(text, count=number) for number, text in enumerate(MAPPED, 1)]
    UtteranceMap(utterances, vectors, points, labels, describe_clusters(MAPPED, labels, vectors), model).save(place)


def _reranker(model: Path | str, folder: Path) -> None:
    backbone = load_backbone(model)
    backbone.add_tokens((END_OF_TURN, *MARKS.values()))
    with torch.random.fork_rng():
        torch.manual_seed(1)
        Reranker(backbone, {task: nn.Linear(backbone.hidden, 1) for task in ("selection", "deletion")}).save(folder)


@contextlib.contextmanager
def listening(settings: ServeSettings) -> Iterator[str]:
    """Run a service in a thread and yield its address once it is ready."""
    with contextlib.closing(listen("127.0.0.1", 0)) as place:
        address = f"http://127.0.0.1:{place.getsockname()[1]}"
        server = Server(settings)
        thread = threading.Thread(target=server.run, args=([place],))
        thread.start()
        try:
            wait_for(lambda: httpx.get(f"{address}/ready").status_code == 200)
            yield address
        finally:
            server.should_exit = True
            thread.join(60)
            assert not thread.is_alive()


@dataclass(frozen=True, slots=True)
class Running:
    """A service in its own process."""

    process: BaseProcess
    port: int

    @property
    def address(self) -> str:
        """Its base URL, without a trailing slash."""
        return f"http://127.0.0.1:{self.port}"


@contextlib.contextmanager
def running(settings: ServeSettings, log: Path) -> Iterator[Running]:
    """Run `turnwise serve` in a process until the end of the block, once it is ready."""
    process = start_command(log, "serve", "--port", 0, *options(settings), folder=settings.project)
    try:
        wait_for(lambda: not process.is_alive() or log.read_bytes().endswith(b"\n"))
        assert process.is_alive(), log.read_text()
        address = json.loads(log.read_text().splitlines()[0])["address"]
        wait_for(lambda: not process.is_alive() or httpx.get(f"{address}ready").status_code == 200)
        assert process.is_alive(), log.read_text()
        yield Running(process, int(address.rstrip("/").rpartition(":")[2]))
    finally:
        process.kill()
        process.join()


def options(settings: ServeSettings) -> list[str]:
    """Return the options of `turnwise serve` for settings."""
    values = {
        "--model": settings.model,
        "--intents": settings.intents,
        "--responses": settings.responses,
        "--conversations": settings.conversations,
        "--map": settings.map,
        "--max-body": settings.limits.body,
        "--timeout": settings.limits.seconds,
    }
    return [str(part) for option, value in values.items() if value for part in (option, value)]


def wait_for(condition: Callable[[], bool], seconds: float = HANG_SECONDS) -> None:
    """Wait until a condition holds; connection errors count as not yet."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        with contextlib.suppress(httpx.TransportError):
            if condition():
                return
        time.sleep(0.02)
    raise AssertionError("the condition did not hold in time")
