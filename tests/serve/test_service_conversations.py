"""Answers, conversations alike and the turn that does not belong, over HTTP."""

from pathlib import Path

import pytest
from starlette.testclient import TestClient
from torch import manual_seed, nn

from tests.helpers.served import is_error, served
from turnwise import Encoder
from turnwise.assist.conversations.conversations import Conversations
from turnwise.assist.responses.responder import Responder
from turnwise.core.dialogue import Turn
from turnwise.corpus.synthetic.sample import sample_dialogues
from turnwise.models.backbone.backbone import Backbone
from turnwise.models.backbone.inputs import DELETE, END_OF_TURN, INSERT, SEARCH
from turnwise.models.reranker import Reranker
from turnwise.serve.settings import ServeSettings

TALK = [
    {"speaker": "system", "text": "hello what is it you need"},
    {"speaker": "user", "text": "i want a cheap hotel room tonight"},
]
TURNS = tuple(Turn(turn["speaker"], turn["text"]) for turn in TALK)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory, tiny_folder) -> Path:
    place = tmp_path_factory.mktemp("tables")
    encoder = Encoder.load(tiny_folder("bert"))
    dialogues = list(sample_dialogues(30, 1))
    Responder.open(str(place / "responses"), encoder).index(dialogues)
    Conversations.open(str(place / "conversations"), encoder).index(dialogues)
    manual_seed(0)
    backbone = Backbone.load(tiny_folder("bert"))
    backbone.add_tokens((END_OF_TURN, INSERT, DELETE, SEARCH))
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


def test_suggestions_are_the_responders_own(client: TestClient, place: Path, tiny_folder) -> None:
    responder = Responder.open(
        str(place / "responses"), Encoder.load(tiny_folder("bert")), Reranker.load(place / "reranker")
    )
    told = client.post("/respond", json={"conversation": TALK, "top": 4}).json()["suggestions"]
    right = responder.suggest(TURNS, top=4)
    assert [each["text"] for each in told] == [each.text for each in right]
    assert [each["score"] for each in told] == pytest.approx([each.score for each in right], abs=1e-5)
    assert set(told[0]) == set(right[0].__slots__)
    assert all(each["rerank"] is not None and each["dialogue"] for each in told)


def test_filters_hold_values_and_never_sql(client: TestClient) -> None:
    source = client.post("/respond", json={"conversation": TALK}).json()["suggestions"][0]["source"]
    there = client.post(
        "/respond", json={"conversation": TALK, "where": {"source": source, "speaker": "system"}}
    ).json()
    assert {each["source"] for each in there["suggestions"]} == {source}
    for value in ("x' OR '1'='1", "'; DROP TABLE responses; --", "nothing", "é\u2028'"):
        assert client.post("/respond", json={"conversation": TALK, "where": {"source": value}}).json() == {
            "suggestions": []
        }
    assert is_error(client.post("/respond", json={"conversation": TALK, "where": "source = 'x'"}), 422)
    assert is_error(client.post("/respond", json={"conversation": TALK, "where": {"text": "x"}}), 422)


def test_canned_answers_are_added_once(client: TestClient, place: Path, tiny_folder) -> None:
    answers = [
        {"text": "yes thanks", "source": "canned", "after": ["is it good"]},
        {"text": "no thanks", "source": "canned"},
    ]
    assert client.post("/respond/answers", json={"answers": answers}).json() == {"added": 2}
    assert client.post("/respond/answers", json={"answers": answers}).json() == {"added": 0}
    # another process sees them, too
    other = Responder.open(str(place / "responses"), Encoder.load(tiny_folder("bert")))
    assert {each.text for each in other.suggest(["is it good"], where={"source": "canned"})} == {
        "yes thanks",
        "no thanks",
    }
    found = client.post("/respond", json={"conversation": ["is it good"], "where": {"source": "canned"}}).json()[
        "suggestions"
    ]
    assert {each["text"] for each in found} == {"yes thanks", "no thanks"}


def test_conversations_alike_are_those_that_are_found_in_python(client: TestClient, place: Path, tiny_folder) -> None:
    kept = Conversations.open(str(place / "conversations"), Encoder.load(tiny_folder("bert")))
    told = client.post("/conversations/similar", json={"conversation": TALK, "top": 3}).json()["conversations"]
    right = kept.similar(TURNS, top=3)
    assert [each["dialogue"] for each in told] == [each.dialogue for each in right]
    assert [each["similarity"] for each in told] == pytest.approx([each.similarity for each in right], abs=1e-5)
    assert [turn["text"] for turn in told[0]["turns"]] == [turn.text for turn in right[0].turns]
    assert {frozenset(turn) for each in told for turn in each["turns"]} == {frozenset(("speaker", "text"))}


def test_a_conversation_by_its_id(client: TestClient, place: Path, tiny_folder) -> None:
    kept = Conversations.open(str(place / "conversations"), Encoder.load(tiny_folder("bert")))
    found = kept.similar(TURNS, top=1)[0]
    told = client.get("/conversations/dialogue", params={"id": found.dialogue}).json()
    assert (told["dialogue"], told["source"], told["split"]) == (found.dialogue, found.source, found.split)
    assert told["turns"] == [{"speaker": turn.speaker, "text": turn.text} for turn in found.turns]
    assert is_error(client.get("/conversations/dialogue", params={"id": "nothing"}), 404, "unknown_dialogue")
    assert is_error(client.get("/conversations/dialogue", params={"id": found.dialogue, "source": "nowhere"}), 404)
    for asked in ({}, {"id": ""}, {"id": "a\0"}, {"id": "x" * 201}):
        assert is_error(client.get("/conversations/dialogue", params=asked), 422)


def test_clusters_of_conversations(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    from turnwise.assist.conversations.conversations import ConversationCluster

    found = [ConversationCluster(0, "hotel, room", ("hotel", "room"), 7, ("a", "b"))]
    monkeypatch.setattr(Conversations, "clusters", lambda self: found)
    told = client.get("/conversations/clusters").json()
    assert told == {
        "clusters": [
            {"number": 0, "name": "hotel, room", "words": ["hotel", "room"], "size": 7, "examples": ["a", "b"]}
        ]
    }


def test_the_turn_that_does_not_belong(client: TestClient, place: Path) -> None:
    right = Reranker.load(place / "reranker").out_of_place([*TURNS, Turn("system", "yes")])
    told = client.post("/coherence", json={"conversation": [*TALK, {"speaker": "system", "text": "yes"}]}).json()
    assert told["index"] == right.index
    assert told["scores"] == pytest.approx(right.scores, abs=1e-6)


def test_what_is_not_as_documented_is_refused(client: TestClient) -> None:
    for path, body in (
        ("/respond", {"conversation": []}),
        ("/respond", {"conversation": "hello"}),
        ("/respond", {"conversation": TALK, "top": 0}),
        ("/respond", {"conversation": TALK, "top": 51}),
        ("/respond", {"conversation": TALK, "k": 5}),
        ("/respond/answers", {"answers": []}),
        ("/respond/answers", {"answers": ["text"]}),
        ("/respond/answers", {"answers": [{"text": ""}]}),
        ("/respond/answers", {"answers": [{"text": "a", "after": [""]}]}),
        ("/conversations/similar", {"conversation": [1]}),
        ("/conversations/similar", {"conversation": TALK, "top": True}),
        ("/coherence", {"conversation": ["one"]}),
        ("/coherence", {}),
    ):
        assert is_error(client.post(path, json=body), 422), (path, body)


def test_a_table_without_answers_says_what_to_do(tmp_path: Path, tiny_folder) -> None:
    with served(ServeSettings(model=str(tiny_folder("bert")), responses=str(tmp_path / "empty"))) as client:
        answer = client.post("/respond", json={"conversation": TALK})
        assert is_error(answer, 409, "refused")
        assert "index a store" in answer.json()["error"]["message"]
        assert client.post("/respond/answers", json={"answers": [{"text": "yes"}]}).json() == {"added": 1}
        assert client.post("/respond", json={"conversation": TALK}).json()["suggestions"][0]["text"] == "yes"
