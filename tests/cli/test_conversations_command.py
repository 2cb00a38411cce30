"""`turnwise conversations` as a user runs it."""

import csv
import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.helpers.made_up_dialogues import Words, dialogues, topic
from turnwise.cli import app
from turnwise.core.errors import TurnwiseError
from turnwise.corpus.store import StoreWriter
from turnwise.models.encoder import Encoder


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(Encoder, "load", lambda *given, **named: Words())
    with StoreWriter(tmp_path / "store") as writer:
        for dialogue in dialogues(60):
            writer.write(dialogue)
        writer.commit({"reader": "sample", "licence": "Apache-2.0"})
    return tmp_path / "store"


def run(*arguments: object) -> str:
    result = CliRunner().invoke(app, ["conversations", *map(str, arguments)], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


def test_from_a_store_to_conversations_alike(store: Path, tmp_path: Path) -> None:
    table = tmp_path / "table"
    assert json.loads(run("index", store, "--out", table, "--split", "train", "--json")) == {
        "read": 30,
        "added": 30,
        "dialogues": 30,
    }
    assert "30 were there before" in run("index", store, "--out", table)
    found = json.loads(run("similar", table, "about mast rope", "--top", 3, "--json"))["conversations"]
    assert len(found) == 3 and {topic(each["dialogue"]) for each in found} == {"boats"}
    assert found[0]["turns"][2]["speaker"] == "user" and set(found[0]["turns"][0]) == {"speaker", "text"}
    for each in json.loads(
        run("similar", table, "about mast rope", "--split", "test", "--source", "made up", "--json")
    )["conversations"]:
        assert (each["split"], each["source"]) == ("test", "made up")
    alike = json.loads(run("similar", table, "--dialogue", "clocks 2", "--json"))["conversations"]
    assert "clocks 2" not in {each["dialogue"] for each in alike} and topic(alike[0]["dialogue"]) == "clocks"
    assert "clocks" in run("similar", table, "--dialogue", "clocks 2")
    arguments = ("clusters", table, "--method", "tsne", "--min-cluster-size", 10, "--out", tmp_path / "clusters.csv")
    told = json.loads(run(*arguments, "--json"))
    assert told["conversations"] == 60 and sum(each["size"] for each in told["clusters"]) + told["outside"] == 60
    with (tmp_path / "clusters.csv").open(encoding="utf-8-sig", newline="") as file:
        rows = list(csv.DictReader(file))
    assert {row["dialogue"] for row in rows} == {each.id for each in dialogues(60)}
    assert sum(row["cluster"] == "-1" for row in rows) == told["outside"]
    assert "60 conversations" in run(*arguments, "--top", 1)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["index", "NOWHERE", "--out", "TABLE"], "is not a store"),
        (["similar", "NOWHERE", "hello"], "holds no conversations"),
        (["clusters", "NOWHERE"], "holds no conversations"),
    ],
)
def test_what_is_not_there(store: Path, tmp_path: Path, arguments: list[str], says: str) -> None:
    with pytest.raises(TurnwiseError, match=says):
        CliRunner().invoke(
            app,
            ["conversations", *(str(tmp_path / each) if each.isupper() else each for each in arguments)],
            catch_exceptions=False,
        )
    assert not (tmp_path / "NOWHERE").exists()


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["similar", "table"], "not both"),
        (["similar", "table", "hello", "--dialogue", "x"], "not both"),
        (["clusters", "table", "--method", "pca"], "neither umap nor tsne"),
        (["clusters", "table", "--out", "clusters.txt"], "not a .csv file"),
        (["clusters", "table", "--out", "no/such/folder/clusters.csv"], "there is no folder"),
    ],
)
def test_a_wrong_command_line(arguments: list[str], says: str) -> None:
    result = CliRunner().invoke(app, ["conversations", *arguments])
    assert result.exit_code == 2 and says in " ".join(result.output.replace("│", " ").split())
