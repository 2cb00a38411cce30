"""`turnwise map` as a user runs it: what it prints and writes, and what it says when it cannot."""

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from turnwise.assist.map.map import Map
from turnwise.core.dialogue import same_text
from turnwise.corpus.store import read_corpus


@pytest.fixture
def run(run_turnwise: Callable[..., tuple[str, str]]) -> Callable[..., tuple[str, str]]:
    return partial(run_turnwise, "map")


@pytest.fixture
def store(sample_world: Callable[[int], Path]) -> Path:
    return sample_world(60)


def test_a_store_becomes_a_map_and_a_later_one_says_what_is_new(
    store: Path, tiny_folder: Callable[[str], Path], tmp_path: Path, run: Callable[..., tuple[str, str]]
) -> None:
    options = (store, "--model", tiny_folder("bert"), "--speaker", "user", "--method", "tsne", "--min-cluster-size", 8)
    answer, aside = run(*options, "--split", "train", "--out", tmp_path / "first", "--top", 2)
    assert aside == ""
    first = Map.load(tmp_path / "first")
    said = [
        turn.text
        for dialogue in read_corpus(store, splits=["train"])
        for turn in dialogue.turns
        if turn.speaker == "user"
    ]
    assert len(first) == len({same_text(text) for text in said}) and first.counts.sum() == len(said)
    assert f"{len(first):,} texts, said {len(said):,} times · {len(first.clusters)} clusters" in answer
    assert first.clusters and first.clusters[0].name in answer
    files = {path.name for path in (tmp_path / "first").iterdir()}
    assert files == {"map.json", "map.html", "map.svg", "utterances.parquet", "vectors.safetensors"}
    assert str(tmp_path / "first" / "map.html") in answer
    told = json.loads(
        run(*options, "--out", tmp_path / "second", "--since", tmp_path / "first", "--limit", 90, "--json")[0]
    )
    second = Map.load(tmp_path / "second")
    assert told["texts"] == len(second) == 90
    assert second.new is not None and told["new"] == int(second.new.sum())
    known = {same_text(text) for text in first.texts}
    assert not any(new for text, new in zip(second.texts, second.new, strict=True) if same_text(text) in known)
    assert [cluster["name"] for cluster in told["clusters"]] == [cluster.name for cluster in second.clusters]


def test_what_is_wrong_is_said_before_anything_is_made(
    store: Path, tiny_folder: Callable[[str], Path], tmp_path: Path, run: Callable[..., tuple[str, str]]
) -> None:
    assert "neither umap nor tsne" in run(store, "--out", tmp_path / "map", "--method", "pca", code=2)[1]
    assert "is not a store" in run(tmp_path, "--out", tmp_path / "map", code=1)[1]
    assert "is not a map" in run(store, "--out", tmp_path / "map", "--since", tmp_path, code=1)[1]
    assert "no dialogue is in split" in run(store, "--out", tmp_path / "map", "--split", "nowhere", code=1)[1]
    nobody = run(
        store,
        "--out",
        tmp_path / "map",
        "--speaker",
        "speaker_9",
        "--model",
        tiny_folder("bert"),
        "--method",
        "tsne",
        code=1,
    )
    assert "there is no text to map" in nobody[1]
    (tmp_path / "labelled").mkdir()
    (tmp_path / "labelled" / "labels.jsonl").touch()
    assert "is labelled" in run(store, "--out", tmp_path / "labelled", code=1)[1]
