"""Suggested answers, similar conversations and coherence checks over HTTP."""

import json
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path

import pytest
from starlette.testclient import TestClient
from torch import manual_seed, nn

from tests.helpers import HANG_SECONDS
from tests.helpers.served import is_error, served
from turnwise import Encoder
from turnwise.assist.conversations import Conversations
from turnwise.assist.responses.responder import Responder
from turnwise.core.dialogue import Dialogue, Turn
from turnwise.core.errors import SearchError
from turnwise.corpus.synthetic.sample import sample_dialogues
from turnwise.models.backbone.inputs import END_OF_TURN, MARKS
from turnwise.models.backbone.load import load_backbone
from turnwise.models.reranker import Reranker
from turnwise.serve.settings import ServeSettings

CONVERSATION = [
    {"speaker": "system", "text": "hello what is it you need"},
    {"speaker": "user", "text": "i want a cheap hotel room tonight"},
]
TURNS = tuple(Turn(turn["speaker"], turn["text"]) for turn in CONVERSATION)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory, tiny_folder) -> Path:
    place = tmp_path_factory.mktemp("tables")
    encoder = Encoder.load(tiny_folder("bert"))
    dialogues = list(sample_dialogues(30, 1))
    Responder.open(str(place / "responses"), encoder).index(dialogues)
    Conversations.open(str(place / "conversations"), encoder).index(dialogues)
    manual_seed(0)
    backbone = load_backbone(tiny_folder("bert"))
    backbone.add_tokens((END_OF_TURN, *MARKS.values()))
    Reranker(backbone, {task: nn.Linear(backbone.hidden, 1) for task in ("selection", "deletion")}).eval().save(
        place / "reranker"
    )
    return place


@pytest.fixture(scope="module")
def client(place: Path, tiny_folder) -> TestClient:
    settings = ServeSettings(
        model=str(tiny_folder("bert")),
        responses=str(place / "responses"),
        conversations=str(place / "conversations"),
        reranker=str(place / "reranker"),
    )
    with served(settings) as client:
        yield client


def test_suggestions_equal_the_responders(client: TestClient, place: Path, tiny_folder) -> None:
    responder = Responder.open(
        str(place / "responses"), Encoder.load(tiny_folder("bert")), Reranker.load(place / "reranker")
    )
    body = client.post("/respond", json={"conversation": CONVERSATION, "top": 4}).json()["suggestions"]
    expected = responder.suggest(TURNS, top=4)
    assert [each["text"] for each in body] == [each.text for each in expected]
    assert [each["score"] for each in body] == pytest.approx([each.score for each in expected], abs=1e-5)
    assert set(body[0]) == set(expected[0].__slots__)
    assert all(each["rerank"] is not None and each["dialogue"] for each in body)


PRIVATE = (
    "Dear Mr Osgood, born 14 March 1986, parcel AB-4029183 goes to 12 Elm Tree Road, Reading RG1 5AB, tel 07911 123456"
)


def test_suggestions_carry_no_data_of_other_customers(tmp_path: Path, tiny_folder, run_turnwise) -> None:
    """By HTTP, as the page asks for them, and on the command line; the store was not masked."""
    turns = (Turn("user", "where is my zeppelin"), Turn("system", PRIVATE))
    Responder.open(str(tmp_path / "responses"), Encoder.load(tiny_folder("bert"))).index([Dialogue("d", turns)])
    expected = "Dear Mr [NAME], born [DATE_OF_BIRTH], parcel [NUMBER] goes to [ADDRESS], tel [NUMBER]"
    command = ("responses", "suggest", tmp_path / "responses", "a zeppelin", "--model", tiny_folder("bert"), "--json")
    assert json.loads(run_turnwise(*command)[0])["suggestions"][0]["text"] == expected
    with served(ServeSettings(model=str(tiny_folder("bert")), responses=str(tmp_path / "responses"))) as client:
        answer = client.post("/respond", json={"conversation": ["a zeppelin"]})
    assert [each["text"] for each in answer.json()["suggestions"]] == [expected]
    assert not any(secret in answer.text for secret in ("Osgood", "1986", "4029183", "Elm", "07911"))


def test_filters_are_not_sql(client: TestClient) -> None:
    source = client.post("/respond", json={"conversation": CONVERSATION}).json()["suggestions"][0]["source"]
    there = client.post(
        "/respond", json={"conversation": CONVERSATION, "where": {"source": source, "speaker": "system"}}
    ).json()
    assert {each["source"] for each in there["suggestions"]} == {source}
    for value in ("x' OR '1'='1", "'; DROP TABLE responses; --", "nothing", "é\u2028'"):
        assert client.post("/respond", json={"conversation": CONVERSATION, "where": {"source": value}}).json() == {
            "suggestions": []
        }
    assert is_error(client.post("/respond", json={"conversation": CONVERSATION, "where": "source = 'x'"}), 422)
    assert is_error(client.post("/respond", json={"conversation": CONVERSATION, "where": {"text": "x"}}), 422)


def test_added_answers(client: TestClient, place: Path, tiny_folder) -> None:
    answers = [
        {"text": "yes thanks", "source": "canned", "after": ["is it good"]},
        {"text": "no thanks", "source": "canned"},
    ]
    assert client.post("/respond/answers", json={"answers": answers}).json() == {"added": 2}
    assert client.post("/respond/answers", json={"answers": answers}).json() == {"added": 0}
    # another process sees them
    other = Responder.open(str(place / "responses"), Encoder.load(tiny_folder("bert")))
    assert {each.text for each in other.suggest(["is it good"], where={"source": "canned"})} == {
        "yes thanks",
        "no thanks",
    }
    suggestions = client.post("/respond", json={"conversation": ["is it good"], "where": {"source": "canned"}}).json()[
        "suggestions"
    ]
    assert {each["text"] for each in suggestions} == {"yes thanks", "no thanks"}


def test_similar_conversations(client: TestClient, place: Path, tiny_folder) -> None:
    conversations = Conversations.open(str(place / "conversations"), Encoder.load(tiny_folder("bert")))
    body = client.post("/conversations/similar", json={"conversation": CONVERSATION, "top": 3}).json()["conversations"]
    expected = conversations.similar(TURNS, top=3)
    assert [each["dialogue"] for each in body] == [each.dialogue for each in expected]
    assert [each["similarity"] for each in body] == pytest.approx([each.similarity for each in expected], abs=1e-5)
    assert [turn["text"] for turn in body[0]["turns"]] == [turn.text for turn in expected[0].turns]
    assert {frozenset(turn) for each in body for turn in each["turns"]} == {frozenset(("speaker", "text"))}


def test_get_dialogue(client: TestClient, place: Path, tiny_folder) -> None:
    conversations = Conversations.open(str(place / "conversations"), Encoder.load(tiny_folder("bert")))
    nearest = conversations.similar(TURNS, top=1)[0]
    body = client.get("/conversations/dialogue", params={"id": nearest.dialogue}).json()
    assert (body["dialogue"], body["source"], body["split"]) == (nearest.dialogue, nearest.source, nearest.split)
    assert body["turns"] == [{"speaker": turn.speaker, "text": turn.text} for turn in nearest.turns]
    assert is_error(client.get("/conversations/dialogue", params={"id": "nothing"}), 404, "unknown_dialogue")
    assert is_error(client.get("/conversations/dialogue", params={"id": nearest.dialogue, "source": "nowhere"}), 404)
    for parameters in ({}, {"id": ""}, {"id": "a\0"}, {"id": "x" * 201}):
        assert is_error(client.get("/conversations/dialogue", params=parameters), 422)


def test_clusters(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    from turnwise.assist.conversations import ConversationCluster, ConversationClustering

    clusters = [ConversationCluster(0, "hotel, room", ("hotel", "room"), 7, ("a", "b"), ("A", "B"))]
    monkeypatch.setattr(Conversations, "cluster", lambda self: ConversationClustering(clusters, []))
    body = client.get("/conversations/clusters").json()
    assert body == {"clusters": [json.loads(json.dumps(asdict(each))) for each in clusters]}


def test_coherence(client: TestClient, place: Path) -> None:
    expected = Reranker.load(place / "reranker").out_of_place([*TURNS, Turn("system", "yes")])
    body = client.post(
        "/coherence", json={"conversation": [*CONVERSATION, {"speaker": "system", "text": "yes"}]}
    ).json()
    assert body["index"] == expected.index
    assert body["scores"] == pytest.approx(expected.scores, abs=1e-6)


def test_invalid_requests(client: TestClient) -> None:
    for path, body in (
        ("/respond", {"conversation": "hello"}),
        ("/respond", {"conversation": CONVERSATION, "top": 51}),
        ("/respond", {"conversation": CONVERSATION, "k": 5}),
        ("/respond/answers", {"answers": [{"text": "a", "after": [""]}]}),
        ("/conversations/similar", {"conversation": CONVERSATION, "top": True}),
        ("/coherence", {"conversation": ["one"]}),
    ):
        assert is_error(client.post(path, json=body), 422), (path, body)


def test_empty_table(tmp_path: Path, tiny_folder) -> None:
    with served(ServeSettings(model=str(tiny_folder("bert")), responses=str(tmp_path / "empty"))) as client:
        answer = client.post("/respond", json={"conversation": CONVERSATION})
        assert is_error(answer, 409, "refused")
        assert "index a store" in answer.json()["error"]["message"]
        assert client.post("/respond/answers", json={"answers": [{"text": "yes"}]}).json() == {"added": 1}
        assert client.post("/respond", json={"conversation": CONVERSATION}).json()["suggestions"][0]["text"] == "yes"


def test_coherence_checks_do_not_delay_other_requests(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    started, go = threading.Event(), threading.Event()

    def wait(*_: object) -> None:
        started.set()
        assert go.wait(HANG_SECONDS)
        raise SearchError("enough")

    monkeypatch.setattr(Reranker, "out_of_place", wait)
    with ThreadPoolExecutor(6) as pool:
        slow = [pool.submit(client.post, "/coherence", json={"conversation": ["a", "b"]}) for _ in range(6)]
        try:
            assert started.wait(HANG_SECONDS)
            assert client.post("/conversations/similar", json={"conversation": ["a"]}).status_code == 200
            assert not any(each.done() for each in slow)
        finally:
            go.set()
        assert {each.result().status_code for each in slow} == {409}
