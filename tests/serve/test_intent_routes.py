"""Intents over HTTP: decisions, and examples that are on disk before they are acknowledged."""

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from tests.helpers import HANG_SECONDS
from tests.helpers.served import is_error, served
from tests.helpers.trial import EXAMPLES, INTENTS, TEXTS
from turnwise import Encoder
from turnwise.assist.intents.classifier import IntentClassifier
from turnwise.assist.intents.examples import IntentExamples
from turnwise.assist.intents.model import IntentModel
from turnwise.assist.intents.storage import IntentFolder
from turnwise.core.dialogue import OUT_OF_SCOPE
from turnwise.serve.settings import Limits, ServeSettings


@pytest.fixture
def folder(tmp_path: Path, tiny_folder) -> Path:
    IntentClassifier(str(tiny_folder("bert")), head="prototypes").fit(TEXTS, INTENTS).save(tmp_path / "intents")
    return tmp_path / "intents"


@pytest.fixture
def client(folder: Path, tiny_folder) -> TestClient:
    with served(ServeSettings(model=str(tiny_folder("bert")), intents=folder, limits=Limits(texts=50))) as client:
        yield client


def test_list_intents(client: TestClient) -> None:
    body = client.get("/intents").json()
    assert body["intents"] == [{"intent": intent, "examples": 4} for intent in sorted(EXAMPLES)]
    assert (body["head"], body["false_rejection"], body["out_of_scope"]) == ("prototypes", 0.05, 0)
    assert client.get("/about").json()["intents"] is True
    assert sorted(client.get("/intents/hotel/examples").json()["examples"]) == sorted(EXAMPLES["hotel"])
    assert is_error(client.get("/intents/none/examples"), 404, "no_such_intent")
    assert is_error(client.get("/intents/a%00b/examples"), 404)


def test_conversations(tmp_path: Path, tiny_folder) -> None:
    texts = [[f"shall I {verb} it", answer] for verb in ("book", "cancel") for answer in ("yes", "okay then")]
    intents = ["book", "book", "cancel", "cancel"]
    fitted = IntentClassifier(str(tiny_folder("bert")), head="prototypes", use_names=False).fit(texts, intents)
    assert fitted.uses_context
    fitted.save(tmp_path / "intents")
    turns = ["shall I cancel it", "yes"]
    forms = [
        turns,
        [{"speaker": "system", "text": turns[0]}, {"speaker": "user", "text": turns[1]}],
        [
            {"role": "system", "content": "You are helpful."},
            {"role": "assistant", "content": turns[0]},
            {"role": "user", "content": turns[1]},
        ],
    ]
    with served(ServeSettings(model=str(tiny_folder("bert")), intents=tmp_path / "intents")) as client:
        answer = client.post("/intents/predict", json={"texts": [*forms, "yes"]}).json()["predictions"]
        expected = fitted.decide([turns, "yes"])
        assert [each["score"] for each in answer] == pytest.approx(
            [expected[row].score for row in (0, 0, 0, 1)], abs=1e-5
        )
        assert {each["text"] for each in answer} == {"yes"}
        new = {"text": ["book it now?", "of course"], "intent": "book"}
        assert client.post("/intents/examples", json={"examples": [new], "wait": True}).json()["added"] == 1
        assert new["text"] in client.get("/intents/book/examples").json()["examples"]
        assert client.post("/intents/examples/remove", json={"examples": [new]}).json()["removed"] == 1
        only_prompt = [{"role": "system", "content": "You are helpful."}]
        assert is_error(client.post("/intents/predict", json={"texts": [only_prompt]}), 422, "invalid")
        assert is_error(client.post("/intents/predict", json={"texts": [[]]}), 422)


def test_decisions_equal_the_classifiers(client: TestClient, folder: Path) -> None:
    texts = ["where is it", "book a taxi and cancel the hotel room", "xyzzy plugh"]
    classifier = IntentClassifier.load(folder)
    for several in (False, True):
        body = client.post("/intents/predict", json={"texts": texts, "neighbours": 2, "several": several}).json()[
            "predictions"
        ]
        for decision, expected in zip(body, classifier.decide(texts, neighbours=2, several=several), strict=True):
            assert set(decision) == set(expected.__slots__)
            assert (decision["text"], decision["intent"], decision["abstained"]) == (
                expected.text,
                expected.intent,
                expected.abstained,
            )
            assert decision["intents"] == list(expected.intents)
            assert decision["score"] == pytest.approx(expected.score, abs=1e-5)
            assert [each["intent"] for each in decision["ranked"]] == [each.intent for each in expected.ranked]
            assert [each["text"] for each in decision["nearest"]] == [each.text for each in expected.nearest]
            assert decision["reason"]


GREETINGS = [{"text": text, "intent": "greet"} for text in ("hello you", "hello hello", "thanks hello")]


def test_added_examples_apply_after_waiting_and_after_a_reload(client: TestClient, folder: Path) -> None:
    new = {"examples": GREETINGS, "wait": True}
    assert client.post("/intents/examples", json=new).json() == {"added": 3, "intents": 4, "pending": 0}
    assert client.post("/intents/examples", json=new).json() == {"added": 0, "intents": 4, "pending": 0}
    # already on disk, as a killed process would leave it
    journal = (folder / "changes.jsonl").read_text()
    assert "hello you" in journal
    body = client.post("/intents/predict", json={"texts": ["hello you"]}).json()
    assert (body["predictions"][0]["intent"], body["pending"]) == ("greet", 0)
    outside = {"examples": [{"text": "tell me a joke", "intent": OUT_OF_SCOPE}]}
    added = client.post("/intents/examples", json=outside).json()
    assert (added["added"], added["intents"]) == (1, 4)
    assert client.get("/intents").json()["out_of_scope"] == 1
    # a reload opens the folder again
    assert client.post("/reload", json={}).status_code == 200
    assert {"intent": "greet", "examples": 3} in client.get("/intents").json()["intents"]


@pytest.fixture
def paused(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """Recalibrations wait for this event."""
    may_continue, with_examples = threading.Event(), IntentModel.with_examples

    def wait_first(model: IntentModel, examples: IntentExamples) -> IntentModel:
        assert may_continue.wait(HANG_SECONDS)
        return with_examples(model, examples)

    monkeypatch.setattr(IntentModel, "with_examples", wait_first)
    yield may_continue
    may_continue.set()


def test_nothing_waits_for_a_recalibration(paused: threading.Event, client: TestClient) -> None:
    def predict() -> tuple[str | None, int]:
        body = client.post("/intents/predict", json={"texts": ["hello you"], "neighbours": 1}).json()
        return body["predictions"][0]["nearest"][0]["intent"], body["pending"]

    for number, each in enumerate(GREETINGS, 1):
        added = client.post("/intents/examples", json={"examples": [each]}).json()
        assert added == {"added": 1, "intents": 4, "pending": number}
    duplicate = client.post("/intents/examples", json={"examples": GREETINGS[:1]}).json()
    assert duplicate == {"added": 0, "intents": 4, "pending": 3}
    removed = client.post("/intents/examples/remove", json={"intent": "hotel"}).json()
    assert removed == {"removed": 4, "pending": 7}
    state = client.get("/intents").json()
    assert (state["pending"], state["failure"]) == (7, None)
    assert [each["intent"] for each in state["intents"]] == ["greet", "taxi", "train"]
    assert len(client.get("/intents/greet/examples").json()["examples"]) == 3
    before, pending = predict()
    assert (before != "greet", pending) == (True, 7)
    paused.set()
    # waits for the recalibration that applies everything
    assert client.post("/intents/examples", json={"examples": GREETINGS, "wait": True}).json()["pending"] == 0
    assert predict() == ("greet", 0)


def test_a_failed_recalibration_is_reported(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(model: IntentModel, examples: IntentExamples) -> IntentModel:
        raise MemoryError("too large")

    with monkeypatch.context() as patch:
        patch.setattr(IntentModel, "with_examples", fail)
        for each in GREETINGS[:2]:
            waiting = client.post("/intents/examples", json={"examples": [each], "wait": True})
            assert is_error(waiting, 500, "not_recalibrated")
        state = client.get("/intents").json()
        assert (state["pending"], state["failure"]) == (2, "MemoryError: too large")
        assert {"intent": "greet", "examples": 2} in state["intents"]
        assert 'turnwise_recalibrations_total{outcome="failed"} 2.0' in client.get("/metrics").text
    added = client.post("/intents/examples", json={"examples": GREETINGS[2:], "wait": True}).json()
    assert added == {"added": 1, "intents": 4, "pending": 0}
    assert client.get("/intents").json()["failure"] is None
    assert 'turnwise_recalibrations_total{outcome="done"} 1.0' in client.get("/metrics").text


def test_too_many_pending_examples(folder: Path, tiny_folder, paused: threading.Event) -> None:
    settings = ServeSettings(model=str(tiny_folder("bert")), intents=folder, limits=Limits(queue=2))
    with served(settings) as client:
        assert client.post("/intents/examples", json={"examples": GREETINGS}).json()["pending"] == 3
        refused = client.post("/intents/examples", json={"examples": GREETINGS[:1]})
        assert is_error(refused, 503, "queue_full") and refused.headers["retry-after"] == "1"
        paused.set()


def test_remove_examples(client: TestClient) -> None:
    def remove(body: dict[str, object]) -> int:
        return client.post("/intents/examples/remove", json={**body, "wait": True}).json()["removed"]

    one = {"examples": [{"text": "find a taxi", "intent": "taxi"}, {"text": "never there", "intent": "taxi"}]}
    assert remove(one) == 1
    assert remove({"intent": "taxi"}) == 3
    assert remove({"intent": "taxi"}) == 0
    assert remove({"intent": "hotel"}) == 4
    assert (
        client.post("/intents/predict", json={"texts": ["taxi"]}).json()["predictions"][0]["ranked"][0]["intent"]
        == "train"
    )
    # the last example cannot be removed
    assert is_error(client.post("/intents/examples/remove", json={"intent": "train"}), 409, "refused")
    assert [each["intent"] for each in client.get("/intents").json()["intents"]] == ["train"]


def test_invalid_requests(client: TestClient) -> None:
    for path, body in (
        ("predict", {"texts": []}),
        ("predict", {"texts": [""]}),
        ("predict", {"texts": ["a"] * 51}),
        ("predict", {"texts": ["a"], "neighbours": 21}),
        ("predict", {"texts": ["a"], "neighbours": 2.5}),
        ("examples", {"examples": [{"text": "a", "intent": " "}]}),
        ("examples", {"examples": [{"text": "a", "intent": "b" * 201}]}),
        ("examples", {"examples": [{"text": "\0", "intent": "b"}]}),
        ("examples/remove", {}),
        ("examples/remove", {"examples": []}),
        ("examples/remove", {"intent": "a", "examples": [{"text": "a", "intent": "b"}]}),
    ):
        assert is_error(client.post(f"/intents/{path}", json=body), 422), (path, body)


def test_classifier_with_its_own_encoder(tmp_path: Path, tiny_folder) -> None:
    other = Encoder.load(tiny_folder("distilbert"))
    IntentClassifier(other).fit(TEXTS, INTENTS).save(tmp_path / "own")
    IntentClassifier(str(tiny_folder("distilbert"))).fit(TEXTS, INTENTS).save(tmp_path / "named")
    expected = IntentClassifier.load(tmp_path / "own").decide(["where is it"])[0]
    for name in ("own", "named"):
        with served(ServeSettings(model=str(tiny_folder("bert")), intents=tmp_path / name)) as client:
            body = client.post("/intents/predict", json={"texts": ["where is it"]}).json()["predictions"][0]
            assert (body["intent"], body["score"]) == (expected.intent, pytest.approx(expected.score, abs=1e-5))
            assert (
                client.post("/intents/examples", json={"examples": [{"text": "hi", "intent": "greet"}]}).json()["added"]
                == 1
            )


def test_folder_open_in_another_process(folder: Path, tiny_folder) -> None:
    settings = ServeSettings(model=str(tiny_folder("bert")), intents=folder)
    with IntentFolder.open(folder), pytest.raises(AssertionError, match="open in another process"), served(settings):
        pass


def test_parts_of_texts_are_limited(folder: Path, tiny_folder) -> None:
    body = {"texts": ["one, two, three, four, five, six, seven, eight"] * 3, "several": True}
    with served(ServeSettings(model=str(tiny_folder("bert")), intents=folder, limits=Limits(parts=100))) as client:
        answer = client.post("/intents/predict", json=body)
        assert is_error(answer, 422, "too_many") and "111 parts" in answer.json()["error"]["message"]
        for allowed in ({"texts": body["texts"][:2]}, {"several": False}):
            assert client.post("/intents/predict", json=body | allowed).status_code == 200
