"""`turnwise conversations`: printed and written output, and errors."""

import csv
import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.helpers.bag_of_words import BagOfWords
from tests.helpers.topic_dialogues import dialogues, topic
from turnwise.cli import app
from turnwise.core.errors import EncoderMismatchError, TurnwiseError
from turnwise.corpus.storage.writing import StoreWriter
from turnwise.models.encoder import Encoder


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(Encoder, "load", lambda *given, **named: BagOfWords())
    with StoreWriter(tmp_path / "store") as writer:
        for dialogue in dialogues(60):
            writer.write(dialogue)
        writer.commit({"reader": "sample", "licence": "Apache-2.0"})
    return tmp_path / "store"


def run(*arguments: object) -> str:
    result = CliRunner().invoke(app, ["conversations", *map(str, arguments)], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


def test_index_similar_and_clusters(store: Path, tmp_path: Path) -> None:
    table = tmp_path / "table"
    assert json.loads(run("index", store, "--out", table, "--split", "train", "--json")) == {
        "read": 30,
        "added": 30,
        "dialogues": 30,
    }
    assert "30 were already there" in run("index", store, "--out", table)
    similar = json.loads(run("similar", table, "about mast rope", "--top", 3, "--json"))["conversations"]
    assert len(similar) == 3 and {topic(each["dialogue"]) for each in similar} == {"boats"}
    assert similar[0]["turns"][2]["speaker"] == "user" and set(similar[0]["turns"][0]) == {"speaker", "text"}
    for each in json.loads(
        run("similar", table, "about mast rope", "--split", "test", "--source", "made up", "--json")
    )["conversations"]:
        assert (each["split"], each["source"]) == ("test", "made up")
    alike = json.loads(run("similar", table, "--dialogue", "clocks 2", "--json"))["conversations"]
    assert "clocks 2" not in {each["dialogue"] for each in alike} and topic(alike[0]["dialogue"]) == "clocks"
    assert "clocks" in run("similar", table, "--dialogue", "clocks 2")
    arguments = ("clusters", table, "--method", "tsne", "--min-cluster-size", 10, "--out", tmp_path / "clusters.csv")
    printed = json.loads(run(*arguments, "--json"))
    assert (
        printed["conversations"] == 60 and sum(each["size"] for each in printed["clusters"]) + printed["outside"] == 60
    )
    with (tmp_path / "clusters.csv").open(encoding="utf-8-sig", newline="") as file:
        rows = list(csv.DictReader(file))
    assert {row["dialogue"] for row in rows} == {each.id for each in dialogues(60)}
    assert sum(row["cluster"] == "-1" for row in rows) == printed["outside"]
    assert "60 conversations" in run(*arguments, "--top", 1)


def test_rebuilding_replaces_the_table(store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = tmp_path / "table"
    run("index", store, "--out", table)
    monkeypatch.setattr(Encoder, "load", lambda *given, **named: BagOfWords("other"))
    with pytest.raises(EncoderMismatchError, match=f"conversations index STORE --out {table} --rebuild"):
        run("index", store, "--out", table, "--split", "train")
    rebuilt = json.loads(run("index", store, "--out", table, "--split", "train", "--rebuild", "--json"))
    assert rebuilt == {"read": 30, "added": 30, "dialogues": 30}
    assert len(json.loads(run("similar", table, "about mast rope", "--json"))["conversations"]) == 5


def test_missing_stores_and_tables_are_reported(store: Path, tmp_path: Path) -> None:
    missing = tmp_path / "nowhere"
    with pytest.raises(TurnwiseError, match="is not a store"):
        run("index", missing, "--out", tmp_path / "table")
    for command in (("similar", missing, "hello"), ("clusters", missing)):
        with pytest.raises(TurnwiseError, match="holds no conversations"):
            run(*command)
    assert not missing.exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["similar", "table"], "give either the turns"),
        (["similar", "table", "hello", "--dialogue", "x"], "give either the turns"),
        (["clusters", "table", "--out", "clusters.txt"], "does not end in .csv"),
        (["clusters", "table", "--out", "no/such/folder/clusters.csv"], "does not exist"),
    ],
)
def test_wrong_usage_is_reported(arguments: list[str], message: str) -> None:
    result = CliRunner().invoke(app, ["conversations", *arguments])
    assert result.exit_code == 2 and message in result.output
