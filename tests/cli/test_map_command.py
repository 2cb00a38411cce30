"""`turnwise map`: printed and written output, and errors."""

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from tests.helpers.stores import write_store
from turnwise.assist.map.utterance_map import UtteranceMap
from turnwise.core.text import normalise_text
from turnwise.corpus.storage.corpus import read_corpus
from turnwise.corpus.synthetic.sample import sample_dialogues


@pytest.fixture
def run(run_turnwise: Callable[..., tuple[str, str]]) -> Callable[..., tuple[str, str]]:
    return partial(run_turnwise, "map")


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_store(tmp_path_factory.mktemp("map") / "store", sample_dialogues(20, 1), reader="sample")


def test_maps_a_store_and_marks_new_texts_in_a_later_map(
    store: Path, tiny_folder: Callable[[str], Path], tmp_path: Path, run: Callable[..., tuple[str, str]]
) -> None:
    options = (store, "--model", tiny_folder("bert"), "--speaker", "user", "--method", "tsne", "--min-cluster-size", 5)
    stdout, stderr = run(*options, "--split", "train", "--out", tmp_path / "first", "--top", 2)
    assert stderr == ""
    first = UtteranceMap.load(tmp_path / "first")
    texts = [
        turn.text
        for dialogue in read_corpus(store, splits=["train"])
        for turn in dialogue.turns
        if turn.speaker == "user"
    ]
    assert len(first) == len({normalise_text(text) for text in texts}) and first.counts.sum() == len(texts)
    assert f"{len(first):,} texts, {len(texts):,} occurrences · {len(first.clusters)} clusters" in stdout
    assert first.clusters and first.clusters[0].name in stdout
    files = {path.name for path in (tmp_path / "first").iterdir()}
    assert files == {"map.json", "map.html", "map.svg", "utterances.parquet", "vectors.safetensors"}
    assert str(tmp_path / "first" / "map.html") in stdout
    printed = json.loads(
        run(*options, "--out", tmp_path / "second", "--since", tmp_path / "first", "--limit", 60, "--json")[0]
    )
    second = UtteranceMap.load(tmp_path / "second")
    assert printed["texts"] == len(second) == 60
    assert second.new is not None and printed["new"] == int(second.new.sum())
    earlier = {normalise_text(text) for text in first.texts}
    assert not any(new for text, new in zip(second.texts, second.new, strict=True) if normalise_text(text) in earlier)
    assert [cluster["name"] for cluster in printed["clusters"]] == [cluster.name for cluster in second.clusters]


def test_invalid_input_is_reported(store: Path, tmp_path: Path, run: Callable[..., tuple[str, str]]) -> None:
    assert "is not one of 'umap', 'tsne'" in run(store, "--out", tmp_path / "map", "--method", "pca", code=2)[1]
    assert "is not a store" in run(tmp_path, "--out", tmp_path / "map", code=1)[1]
    assert "is not a map" in run(store, "--out", tmp_path / "map", "--since", tmp_path, code=1)[1]
    assert "no dialogue is in split" in run(store, "--out", tmp_path / "map", "--split", "nowhere", code=1)[1]
    unknown_speaker = run(store, "--out", tmp_path / "map", "--speaker", "usr", code=1)[1]
    assert "no turn is of the speaker 'usr': choose from system, user. Did you mean user?" in unknown_speaker
    (tmp_path / "labelled").mkdir()
    (tmp_path / "labelled" / "labels.jsonl").touch()
    assert "is labelled" in run(store, "--out", tmp_path / "labelled", code=1)[1]
