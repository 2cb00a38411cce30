"""Intents over HTTP: decisions, and examples that are on disk before they are acknowledged."""

from pathlib import Path

import pytest
from starlette.testclient import TestClient

from tests.helpers.served import is_error, served
from turnwise import Encoder
from turnwise.assist.intents.classifier import IntentClassifier
from turnwise.assist.intents.storage import IntentFolder
from turnwise.core.dialogue import OUT_OF_SCOPE
from turnwise.serve.settings import Limits, ServeSettings

EXAMPLES = {
    "taxi": ["find a taxi", "book a taxi now", "where is the taxi", "i need a taxi tonight"],
    "hotel": ["a hotel room please", "find a cheap hotel", "cancel the hotel room", "which hotel is good"],
    "train": ["when is the train", "a train to the north", "change the train", "train tomorrow please"],
}
TEXTS = [text for texts in EXAMPLES.values() for text in texts]
INTENTS = [intent for intent, texts in EXAMPLES.items() for _ in texts]


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


def test_added_examples_apply_at_once_and_after_a_reload(client: TestClient, folder: Path) -> None:
    new = [{"text": text, "intent": "greet"} for text in ("hello you", "hello hello", "thanks hello")]
    assert client.post("/intents/examples", json={"examples": new}).json() == {"added": 3, "intents": 4}
    assert client.post("/intents/examples", json={"examples": new}).json() == {"added": 0, "intents": 4}
    # already on disk, as a killed process would leave it
    journal = (folder / "changes.jsonl").read_text()
    assert "hello you" in journal
    assert client.post("/intents/predict", json={"texts": ["hello you"]}).json()["predictions"][0]["intent"] == "greet"
    outside = [{"text": "tell me a joke", "intent": OUT_OF_SCOPE}]
    assert client.post("/intents/examples", json={"examples": outside}).json() == {"added": 1, "intents": 4}
    assert client.get("/intents").json()["out_of_scope"] == 1
    # a reload opens the folder again
    assert client.post("/reload", json={}).status_code == 200
    assert {"intent": "greet", "examples": 3} in client.get("/intents").json()["intents"]


def test_remove_examples(client: TestClient) -> None:
    one = {"examples": [{"text": "find a taxi", "intent": "taxi"}, {"text": "never there", "intent": "taxi"}]}
    assert client.post("/intents/examples/remove", json=one).json() == {"removed": 1}
    assert client.post("/intents/examples/remove", json={"intent": "taxi"}).json() == {"removed": 3}
    assert client.post("/intents/examples/remove", json={"intent": "taxi"}).json() == {"removed": 0}
    assert client.post("/intents/examples/remove", json={"intent": "hotel"}).json() == {"removed": 4}
    # the last example cannot be removed
    assert is_error(client.post("/intents/examples/remove", json={"intent": "train"}), 409, "refused")
    assert [each["intent"] for each in client.get("/intents").json()["intents"]] == ["train"]


def test_invalid_requests(client: TestClient) -> None:
    for path, body in (
        ("predict", {}),
        ("predict", {"texts": []}),
        ("predict", {"texts": "one"}),
        ("predict", {"texts": [""]}),
        ("predict", {"texts": ["a"] * 51}),
        ("predict", {"texts": ["a"], "neighbours": -1}),
        ("predict", {"texts": ["a"], "neighbours": 21}),
        ("predict", {"texts": ["a"], "neighbours": 2.5}),
        ("predict", {"texts": ["a"], "several": 1}),
        ("examples", {"examples": []}),
        ("examples", {"examples": [{"text": "a"}]}),
        ("examples", {"examples": [{"text": "a", "intent": " "}]}),
        ("examples", {"examples": [{"text": "a", "intent": "b" * 201}]}),
        ("examples", {"examples": [{"text": "\0", "intent": "b"}]}),
        ("examples/remove", {}),
        ("examples/remove", {"intent": None}),
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
