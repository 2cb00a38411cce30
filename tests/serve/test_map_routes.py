"""The map over HTTP: changes are on disk before they are acknowledged, and labels become a classifier that is used."""

from pathlib import Path

import numpy as np
import pytest
from starlette.testclient import TestClient

from tests.helpers.served import is_error, served
from tests.helpers.trial import MAPPED as TEXTS
from tests.helpers.trial import build_map
from turnwise import Encoder
from turnwise.assist.labelling.labelling import Labelling
from turnwise.assist.map.utterance_map import UtteranceMap
from turnwise.serve.settings import ServeSettings


@pytest.fixture
def folder(tmp_path: Path, tiny_folder) -> Path:
    build_map(tmp_path / "map", Encoder.load(tiny_folder("bert")), str(tiny_folder("bert")))
    return tmp_path / "map"


@pytest.fixture
def client(folder: Path, tiny_folder) -> TestClient:
    with served(ServeSettings(model=str(tiny_folder("bert")), map=folder)) as client:
        yield client


def test_map(client: TestClient, folder: Path) -> None:
    utterance_map = UtteranceMap.load(folder)
    for headers in ({"accept-encoding": "gzip"}, {"accept-encoding": "identity"}):
        answer = client.get("/map", headers=headers)
        assert ("content-encoding" in answer.headers) == (headers["accept-encoding"] == "gzip")
        state_body = answer.json()
        assert state_body["texts"] == TEXTS
        np.testing.assert_allclose(state_body["points"], utterance_map.points, atol=1e-4)
        assert state_body["counts"] == utterance_map.counts.tolist()
        assert state_body["groups"] == utterance_map.labels.tolist()
        assert state_body["labels"] == [None] * len(TEXTS)
        assert state_body["new"] is None
        assert (state_body["changes"], state_body["can_undo"], state_body["can_redo"]) == (0, False, False)
        assert sorted(each["number"] for each in state_body["clusters"]) == [0, 1]
        assert all(each["name"] is None and each["suggested"] and each["words"] for each in state_body["clusters"])


def test_changes_are_on_disk_before_they_are_acknowledged(client: TestClient, folder: Path, tmp_path: Path) -> None:
    def state(path: str, body: object) -> dict:
        answer = client.post(f"/map/{path}", json=body)
        assert answer.status_code == 200, answer.text
        state_body = answer.json()
        # what a process that is killed now would leave
        copy = tmp_path / f"copy-{state_body['changes']}-{path}"
        copy.mkdir()
        for each in folder.iterdir():
            (copy / each.name).write_bytes(each.read_bytes())
        with Labelling.open(copy) as labelling:
            assert labelling.labels() == state_body["labels"]
            assert labelling.row_groups.tolist() == state_body["groups"]
        return state_body

    assert state("name", {"group": 0, "name": "track"})["labels"] == ["track"] * 6 + [None] * 12
    assert state("label", {"rows": [12, 13], "name": "pay"})["labels"][12:14] == ["pay", "pay"]
    split = state("split", {"group": 1, "parts": 2})
    assert len(split["clusters"]) == 4
    merged = state(
        "merge", {"groups": [each["number"] for each in split["clusters"] if each["name"] is None], "name": "return"}
    )
    assert merged["labels"][6:12] == ["return"] * 6
    assert state("undo", {})["can_redo"] is True
    assert state("redo", {})["labels"] == merged["labels"]
    assert state("label", {"rows": [0], "name": None})["labels"][0] is None
    text = client.get("/map/labels.csv")
    assert text.headers["content-type"].startswith("text/csv")
    assert TEXTS[0] in text.text


def test_conflicts_are_409(client: TestClient) -> None:
    for path, body in (
        ("name", {"group": 77, "name": "x"}),
        ("name", {"group": 0, "name": "two\nlines"}),
        ("merge", {"groups": [0, 0]}),
        ("merge", {"groups": [0, 77]}),
        ("split", {"group": 0, "parts": 50}),
        ("label", {"rows": [99], "name": "x"}),
        ("undo", {}),
        ("redo", {}),
        ("fit", {}),
    ):
        assert is_error(client.post(f"/map/{path}", json=body), 409, "refused"), path


def test_invalid_requests(client: TestClient) -> None:
    for path, body in (
        ("name", {"group": -1, "name": "x"}),
        ("name", {"group": 0, "name": " "}),
        ("merge", {"groups": [0]}),
        ("split", {"group": 0, "parts": 1}),
        ("label", {"rows": [], "name": "x"}),
        ("fit", []),
    ):
        assert is_error(client.post(f"/map/{path}", json=body), 422), (path, body)
    assert is_error(client.get("/map/next?count=0"), 422)
    assert is_error(client.get("/map/next?count=many"), 422)


def test_questions(client: TestClient) -> None:
    client.post("/map/name", json={"group": 0, "name": "track"})
    questions = client.get("/map/next?count=3").json()["questions"]
    assert len({each["row"] for each in questions}) == 3
    assert all(each["text"] == TEXTS[each["row"]] and each["reason"] for each in questions)
    rows = [row for each in questions for row in each["rows"]]
    assert len(rows) == len(set(rows)) and all(each["rows"][0] == each["row"] for each in questions)
    # one action labels the whole group, and none of it is asked about again
    client.post("/map/label", json={"rows": questions[0]["rows"], "name": "pay"})
    labels = client.get("/map").json()["labels"]
    assert [labels[row] for row in questions[0]["rows"]] == ["pay"] * len(questions[0]["rows"])
    later = {row for each in client.get("/map/next?count=100").json()["questions"] for row in each["rows"]}
    assert later == set(range(len(TEXTS))) - set(questions[0]["rows"])


def test_fitted_intents_are_used_and_kept(client: TestClient, folder: Path, tiny_folder) -> None:
    assert client.get("/about").json()["intents"] is False
    for group, name in ((0, "track"), (1, "return")):
        client.post("/map/name", json={"group": group, "name": name})
    fitted = client.post("/map/fit", json={}).json()
    assert fitted.pop("reason").startswith("not compared, because")
    used = {"names": 2, "log_texts": 6}
    assert fitted == {"intents": 2, "examples": 12, "folder": str(folder / "intents" / "1"), **used}
    assert client.get("/about").json()["intents"] is True
    assert client.post("/intents/predict", json={"texts": [TEXTS[0]]}).json()["predictions"][0]["intent"] == "track"
    assert not (folder / "intents" / "1" / "encoder").exists()
    example = {"examples": [{"text": "good morning", "intent": "greet"}]}
    assert client.post("/intents/examples", json=example).json()["intents"] == 3
    # fitted again: the first one stays, and the second takes over the example and is used, also after a reload
    assert client.post("/map/fit", json={}).json()["folder"] == str(folder / "intents" / "2")
    assert client.post("/reload", json={}).status_code == 200
    assert [each["intent"] for each in client.get("/intents").json()["intents"]] == ["greet", "return", "track"]
    with served(ServeSettings(model=str(tiny_folder("bert")), intents=folder / "intents" / "1")) as other:
        assert "greet" in [each["intent"] for each in other.get("/intents").json()["intents"]]
