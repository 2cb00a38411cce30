"""Benchmarks: not how fast, but that both sides do the same work and that the figures fit together."""

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sentence_transformers import SentenceTransformer
from typer.testing import CliRunner

from turnwise.bench import evaluate_benchmark
from turnwise.cli import app
from turnwise.corpus.sample_folder import write_sample
from turnwise.encoder import Encoder
from turnwise.errors import TurnwiseError


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("bench") / "sample"
    write_sample(folder, 50, 1)
    return folder


def words(item: Any) -> tuple[str, ...]:
    """The words of a text or a history, whatever joins its turns."""
    turns = [item] if isinstance(item, str) else [getattr(turn, "text", turn) for turn in item]
    return tuple(word for turn in turns for word in turn.replace("[SEP]", " ").split())


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
