"""`turnwise coherence`: printed and written output, and errors."""

import csv
import json
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
import torch
from torch import nn

from turnwise.corpus.storage.corpus import read_corpus
from turnwise.models.backbone.inputs import END_OF_TURN, MARKS
from turnwise.models.backbone.load import load_backbone
from turnwise.models.coherence import check_corpus
from turnwise.models.reranker import Reranker

COLUMNS = ["dialogue", "turn", "speaker", "score", "before", "text"]


@pytest.fixture(scope="module")
def store(sample_world: Callable[[int], Path]) -> Path:
    return sample_world(60)


@pytest.fixture(scope="module")
def model(tiny_folder: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    backbone = load_backbone(str(tiny_folder("bert")))
    backbone.add_tokens((END_OF_TURN, *MARKS.values()))
    torch.manual_seed(1)
    place = tmp_path_factory.mktemp("coherence") / "reranker"
    Reranker(backbone, {task: nn.Linear(backbone.hidden, 1) for task in ("selection", "deletion")}).save(place)
    return place


@pytest.fixture
def run(run_turnwise: Callable[..., tuple[str, str]]) -> Callable[..., tuple[str, str]]:
    return partial(run_turnwise, "coherence")


def test_lists_the_most_suspicious_turns(store: Path, model: Path, run: Callable[..., tuple[str, str]]) -> None:
    expected = check_corpus(Reranker.load(model, device="cpu"), read_corpus(store), top=3)
    stdout, stderr = run(store, "--model", model, "--top", 3)
    assert stderr == ""
    for suspect in expected.suspects:
        assert f"{suspect.score:.3f}  {suspect.dialogue}, turn {suspect.turn}, {suspect.speaker}\n" in stdout
        assert suspect.text in stdout and (suspect.before or "") in stdout
    assert f"{expected.dialogues:,} dialogues, {expected.turns:,} turns scored" in stdout
    printed = json.loads(run(store, "--model", model, "--top", 3, "--json")[0])
    assert (printed["dialogues"], printed["turns"], printed["skipped"]) == (
        expected.dialogues,
        expected.turns,
        expected.skipped,
    )
    assert [list(suspect) for suspect in printed["suspects"]] == [COLUMNS] * 3
    assert [suspect["text"] for suspect in printed["suspects"]] == [suspect.text for suspect in expected.suspects]


def test_writes_csv_and_jsonl(store: Path, model: Path, tmp_path: Path, run: Callable[..., tuple[str, str]]) -> None:
    options = (store, "--model", model, "--top", 10, "--split", "test", "--json")
    printed = json.loads(run(*options, "--out", tmp_path / "suspects.csv")[0])
    run(*options, "--out", tmp_path / "suspects.jsonl")
    ids = {dialogue.id for dialogue in read_corpus(store, splits=["test"])}
    assert printed["dialogues"] == len(ids)
    assert {suspect["dialogue"] for suspect in printed["suspects"]} <= ids
    lines = (tmp_path / "suspects.jsonl").read_text(encoding="utf-8").splitlines()
    assert [json.loads(line) for line in lines] == printed["suspects"]
    with (tmp_path / "suspects.csv").open(encoding="utf-8-sig", newline="") as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0]) == COLUMNS
    assert [row["text"] for row in rows] == [suspect["text"] for suspect in printed["suspects"]]
    assert [float(row["score"]) for row in rows] == [suspect["score"] for suspect in printed["suspects"]]
    stdout, _ = run(store, "--model", model, "--out", tmp_path / "suspects.csv", "--threshold", 1)
    assert "suspects.csv: 0 turns" in stdout


def test_invalid_input_is_reported(
    store: Path, model: Path, tiny_folder: Callable[[str], Path], tmp_path: Path, run: Callable[..., tuple[str, str]]
) -> None:
    log = tmp_path / "log.csv"
    log.write_text("conversation,speaker,text\n")
    for path in (log, tmp_path / "nowhere"):
        _, error = run(path, "--model", model, code=1)
        assert f"{path} is not a store" in error and "turnwise corpus import" in error
    _, error = run(store, "--model", tiny_folder("bert"), code=1)
    assert "is not a turnwise re-ranker" in error
    _, error = run(store, "--model", model, "--out", tmp_path / "suspects.txt", code=2)
    assert "does not end in .csv or .jsonl" in error
    _, error = run(store, "--model", model, "--out", tmp_path / "no" / "suspects.csv", code=2)
    assert "does not exist" in error
    _, error = run(store, "--model", model, "--split", "no-such", code=1)
    assert "no-such" in error
