"""Benchmarks: not how fast, but that both sides do the same work and that the figures fit together."""

import csv
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sentence_transformers import CrossEncoder, SentenceTransformer
from typer.testing import CliRunner

from turnwise.bench import evaluate_benchmark, rerank_benchmark
from turnwise.cli import app
from turnwise.corpus.sample_folder import write_sample
from turnwise.encoder import Encoder
from turnwise.errors import TurnwiseError
from turnwise.reranker import Reranker, pair_text


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("bench") / "sample"
    write_sample(folder, 50, 1)
    return folder


def words(item: Any) -> tuple[str, ...]:
    """The words of a text or a history, whatever joins its turns."""
    turns = [item] if isinstance(item, str) else [getattr(turn, "text", turn) for turn in item]
    return tuple(word for turn in turns for word in turn.replace("[SEP]", " ").split())


@pytest.mark.full
def test_sentence_transformers_encodes_what_the_suite_encoded(
    world: Path, tiny_folder: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    ours: list[tuple[int, tuple[str, ...]]] = []
    theirs: list[tuple[int, tuple[str, ...]]] = []
    encode, peer = Encoder.encode, SentenceTransformer.encode

    def our_encode(self: Encoder, inputs: Sequence[Any], **options: Any) -> np.ndarray:
        ours.extend((options.get("max_length") or 64, words(item)) for item in inputs)
        return encode(self, inputs, **options)

    def their_encode(self: SentenceTransformer, inputs: list[str], **options: Any) -> np.ndarray:
        theirs.extend((self.max_seq_length or 64, words(item)) for item in inputs)
        return peer(self, inputs, **options)

    monkeypatch.setattr(Encoder, "encode", our_encode)
    monkeypatch.setattr(SentenceTransformer, "encode", their_encode)
    result = evaluate_benchmark(world, str(tiny_folder("bert")))

    # the model has 64 positions, so that longer cuts are the same to it
    assert sorted((min(longest, 64), text) for longest, text in ours) == sorted(theirs)
    assert len(theirs) == result["texts"] + 2  # two texts to warm up with
    assert {longest for longest, _ in ours} == {64, 128}
    assert result["ratio"] == pytest.approx(result["sentence_transformers_seconds"] / result["evaluate_seconds"])
    assert 0 < result["encoding_seconds"] < result["evaluate_seconds"]
    assert result["model"] == str(tiny_folder("bert")) and result["device"] and result["environment"]["turnwise"]


def test_the_command_prints_both_times_and_their_ratio(world: Path, tiny_folder: Callable[[str], Path]) -> None:
    command = ["bench", "evaluate", "--data", str(world), "--model", str(tiny_folder("bert")), "--dataset", "sample"]
    text = CliRunner().invoke(app, command, catch_exceptions=False).stdout
    found = dict(re.findall(r"^(.+?) {2,}([\d.,]+)(?: s)? *$", text, re.MULTILINE))
    assert list(found) == [
        "distinct texts",
        "sentence-transformers, encoding alone",
        "turnwise evaluate --suite dse",
        "of which encoding",
        "ratio",
    ]


@pytest.mark.parametrize(
    ("folder", "datasets", "message"),
    [("sample", ["banking77"], "holds no data set for dse among banking77"), ("nowhere", [], "nowhere is no folder")],
)
def test_what_cannot_be_measured_is_said(
    folder: str, datasets: list[str], message: str, world: Path, tiny_folder: Callable[[str], Path]
) -> None:
    with pytest.raises(TurnwiseError, match=message):
        evaluate_benchmark(world.parent / folder, str(tiny_folder("bert")), datasets)


# ---- re-ranking


def test_a_cross_encoder_scores_what_the_reranker_scores(
    tiny_folder: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All at once and a context at a time, as often as there are rounds, and once before."""
    ours: list[list[tuple[str, str]]] = []
    theirs: list[list[tuple[str, str]]] = []
    score_all, predict = Reranker.score_all, CrossEncoder.predict

    def our_scores(self: Reranker, asked: Sequence[Any], **options: Any) -> list[np.ndarray]:
        ours.append([pair_text(context, candidate) for context, candidates in asked for candidate in candidates])
        return score_all(self, asked, **options)

    def their_scores(self: CrossEncoder, pairs: list[tuple[str, str]], **options: Any) -> Any:
        assert not options
        theirs.append(pairs)
        return predict(self, pairs)

    monkeypatch.setattr(Reranker, "score_all", our_scores)
    monkeypatch.setattr(CrossEncoder, "predict", their_scores)
    result = rerank_benchmark(tmp_path, 3, 2, str(tiny_folder("bert")))

    assert theirs == ours  # in turn: first all at once, then a context at a time
    assert [len(pairs) for pairs in ours] == [30, 10, 10, 10] * 3
    assert (result["dataset"], result["contexts"], result["candidates"]) == ("sample", 3, 30)
    assert 0 <= result["greatest_difference"] < 1e-5
    for kind, ratio in (("", "ratio"), ("_by_context", "ratio_by_context")):
        mine, own = (result[f"{name}{kind}_candidates_per_second"] for name in ("turnwise", "sentence_transformers"))
        assert result[ratio] == pytest.approx(mine / own)
    assert 10 < result["tokens_of_a_candidate"] <= 64
    assert result["device"] and result["environment"]["turnwise"]


def test_the_command_reranks_ubuntu_where_it_is(tiny_folder: Callable[[str], Path], tmp_path: Path) -> None:
    folder = tmp_path / "ubuntu_v2_slices" / "DeepInEvil_UDC" / "data"
    folder.mkdir(parents=True)
    for name in ("valid500.csv", "test500.csv"):
        with (folder / name).open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(["Context", "Ground Truth Utterance", *(f"Distractor_{number}" for number in range(9))])
            writer.writerow(
                ["where is it __eou__ __eot__ in the north __eou__ __eot__", *(f"answer {number}" for number in range(10))]
            )
    command = ["bench", "rerank", "--data", str(tmp_path), "--model", str(tiny_folder("bert")), "--repeats", "1"]
    text = CliRunner().invoke(app, command, catch_exceptions=False).stdout
    assert text.startswith("Re-ranking ubuntu_v2_slice")
    found = dict(re.findall(r"^(.+?) {2,}([\d.e-]+)(?: candidates/s)? *$", text, re.MULTILINE))
    assert list(found) == [
        "sentence-transformers",
        "turnwise",
        "ratio",
        "sentence-transformers, a call a context",
        "turnwise, a call a context",
        "ratio, a call a context",
        "greatest difference of a score",
    ]
