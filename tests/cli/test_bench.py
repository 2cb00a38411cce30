"""Benchmarks: both sides do the same work, and the reported values are consistent; speed itself is not tested."""

import importlib.util
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from benchmarks.evaluating import evaluate_benchmark
from benchmarks.reranking import rerank_benchmark
from sentence_transformers import CrossEncoder, SentenceTransformer
from typer.testing import CliRunner

from turnwise.cli import app
from turnwise.cli.benchmarks import encoding, training
from turnwise.cli.benchmarks.encoding import encode_benchmark
from turnwise.core.errors import TurnwiseError
from turnwise.models.backbone.onnx_graph import OnnxGraph
from turnwise.models.encoder import Encoder
from turnwise.models.export import export
from turnwise.models.exported_encoder import ExportedEncoder
from turnwise.models.reranker import Reranker, pair_text


@pytest.fixture(scope="module")
def world(sample_world: Callable[[int], Path]) -> Path:
    return sample_world(60)


def words(item: Any) -> tuple[str, ...]:
    """Return the words of a text or a history, ignoring separators."""
    turns = [item] if isinstance(item, str) else [getattr(turn, "text", turn) for turn in item]
    return tuple(word for turn in turns for word in turn.replace("[SEP]", " ").split())


@pytest.mark.full
def test_the_peer_encodes_the_inputs_of_the_suite(
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

    # the model has 64 positions, so larger maximum lengths are equivalent
    assert sorted((min(longest, 64), text) for longest, text in ours) == sorted(theirs)
    assert len(theirs) == result["texts"] + 2  # plus two warm-up texts
    assert {longest for longest, _ in ours} == {64, 128}
    assert result["ratio"] == pytest.approx(result["sentence_transformers_seconds"] / result["evaluate_seconds"])
    assert 0 < result["encoding_seconds"] < result["evaluate_seconds"]
    assert result["model"] == str(tiny_folder("bert")) and result["device"] and result["environment"]["turnwise"]


# ---- re-ranking


def test_the_peer_scores_the_same_pairs(
    tiny_folder: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Warm-up and each round score all contexts at once, then one context per call."""
    ours: list[list[tuple[str, str]]] = []
    theirs: list[list[tuple[str, str]]] = []
    score_all, predict = Reranker.score_all, CrossEncoder.predict

    def our_scores(self: Reranker, requests: Sequence[Any], **options: Any) -> list[np.ndarray]:
        ours.append([pair_text(context, candidate) for context, candidates in requests for candidate in candidates])
        return score_all(self, requests, **options)

    def their_scores(self: CrossEncoder, pairs: list[tuple[str, str]], **options: Any) -> Any:
        assert not options
        theirs.append(pairs)
        return predict(self, pairs)

    monkeypatch.setattr(Reranker, "score_all", our_scores)
    monkeypatch.setattr(CrossEncoder, "predict", their_scores)
    result = rerank_benchmark(tmp_path, 3, 2, str(tiny_folder("bert")))

    assert theirs == ours  # alternating: all at once, then one context per call
    assert [len(pairs) for pairs in ours] == [30, 10, 10, 10] * 3
    assert (result["dataset"], result["contexts"], result["candidates"]) == ("sample", 3, 30)
    assert 0 <= result["max_difference"] < 1e-5
    for kind, ratio in (("", "ratio"), ("_by_context", "ratio_by_context")):
        mine, own = (result[f"{name}{kind}_candidates_per_second"] for name in ("turnwise", "sentence_transformers"))
        assert result[ratio] == pytest.approx(mine / own)
    assert 10 < result["tokens_per_candidate"] <= 64
    assert result["device"] and result["environment"]["turnwise"]


def test_rerank_uses_ubuntu_if_available(tiny_folder: Callable[[str], Path], tmp_path: Path) -> None:
    folder = tmp_path / "ubuntu_v2_slices" / "DeepInEvil_UDC" / "data"
    folder.mkdir(parents=True)
    header = ["Context", "Ground Truth Utterance", *(f"Distractor_{number}" for number in range(9))]
    row = ["where is it __eou__ __eot__ in the north __eou__ __eot__", *(f"answer {number}" for number in range(10))]
    for name in ("valid500.csv", "test500.csv"):
        (folder / name).write_text(f"{','.join(header)}\n{','.join(row)}\n")
    result = rerank_benchmark(tmp_path, 1, 1, str(tiny_folder("bert")))
    assert (result["dataset"], result["contexts"], result["candidates"]) == ("ubuntu_v2_slice", 1, 10)


@pytest.mark.full
def test_every_tier_encodes_the_same_texts(
    tiny_folder: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Each tier encodes once as a warm-up and once per round; the reported values are recomputed independently."""
    ours: dict[str, list[list[str]]] = {}
    theirs: list[list[str]] = []
    vectors: dict[str, np.ndarray] = {}
    encode, peer = Encoder.encode, SentenceTransformer.encode
    fitted = str(tmp_path / "fitted")
    export(Encoder.load(tiny_folder("bert")), fitted, "static", texts=["hello", "a taxi"])

    def our_encode(self: Encoder, inputs: Sequence[Any], **options: Any) -> np.ndarray:
        assert not options
        name = "torch"
        if isinstance(self, ExportedEncoder):
            openvino = isinstance(self.model, OnnxGraph) and self.model.runtime == "openvino"
            name = Path(self.name).name + "-openvino" * openvino
        ours.setdefault(name, []).append(list(inputs))
        vectors[name] = encode(self, inputs)
        return vectors[name]

    def their_encode(self: SentenceTransformer, inputs: list[str], **options: Any) -> np.ndarray:
        assert options == {"show_progress_bar": False}
        theirs.append(list(inputs))
        vectors["theirs"] = peer(self, inputs, **options)
        return vectors["theirs"]

    monkeypatch.setattr(Encoder, "encode", our_encode)
    monkeypatch.setattr(SentenceTransformer, "encode", their_encode)
    monkeypatch.setattr(encoding, "_STATIC_TEXTS", 60)
    result = encode_benchmark(None, 30, 2, str(tiny_folder("bert")), [fitted])

    tiers = {tier["tier"]: tier for tier in result["tiers"]}
    exported = ["onnx", "onnx-int8", "onnx-int8-openvino", "static"]
    assert list(tiers) == ["sentence_transformers", "turnwise", *exported, f"also {fitted}"]
    (encoded,) = {tuple(texts) for texts in theirs}
    assert len(encoded) == result["texts"] == 30
    calls = {"torch": 3, "onnx": 3, "onnx-int8": 3, "onnx-int8-openvino": 3, "static": 6, "fitted": 6}
    assert {name: len(each) for name, each in ours.items()} == calls
    assert all(tuple(texts) == encoded for calls in ours.values() for texts in calls)
    assert result["ratio"] == tiers["turnwise"]["ratio"] > 0
    for tier in tiers.values():
        assert tier["ratio"] == pytest.approx(
            tier["texts_per_second"] / tiers["sentence_transformers"]["texts_per_second"]
        )

    first, second = (
        each / np.linalg.norm(each, axis=1, keepdims=True) for each in (vectors["onnx-int8"], vectors["theirs"])
    )
    cosines = (first * second).sum(1)
    assert tiers["onnx-int8"]["cosine_mean"] == pytest.approx(cosines.mean(), abs=1e-6)
    assert tiers["onnx-int8"]["cosine_lowest"] == pytest.approx(cosines.min(), abs=1e-6)
    assert tiers["onnx-int8"]["max_difference"] == pytest.approx(np.abs(first - second).max(), abs=1e-6)
    assert max(tiers[name]["max_difference"] for name in ("turnwise", "onnx")) < 1e-5
    assert tiers["static"]["cosine_mean"] is tiers[f"also {fitted}"]["cosine_mean"] is None
    assert -1 <= tiers["static"]["rank_correlation"] < tiers["onnx"]["rank_correlation"] <= 1
    assert result["skipped"] == {} and result["dataset"] == "sample" and result["environment"]["model2vec"]


def test_skipped_tiers_are_reported(
    tiny_folder: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert {tier: "CPU only" in reason for tier, reason in encoding.skipped_tiers("cuda").items()} == {
        "onnx": True,
        "onnx-int8": True,
        "static": True,
        "onnx-int8-openvino": True,
    }
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: name if name == "sentence_transformers" else None)
    monkeypatch.delenv("TURNWISE_DATA", raising=False)
    command = ["bench", "encode", "--texts", "5", "--repeats", "1", "--model", str(tiny_folder("bert"))]
    text = CliRunner().invoke(app, command, catch_exceptions=False).stdout
    assert text.startswith("Encoding 5 texts of sample on cpu")
    assert re.findall(r"^skipped: (\S+) +(\S+) is not installed", text, re.MULTILINE) == [
        ("onnx", "onnx"),
        ("onnx-int8", "onnx"),
        ("static", "model2vec"),
        ("onnx-int8-openvino", "onnx"),
    ]
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "openvino" else name)
    assert encoding.skipped_tiers("cpu") == {
        "onnx-int8-openvino": "openvino is not installed: pip install 'turnwise[openvino]'"
    }
    with pytest.raises(TurnwiseError, match="schema_guided_dialogue does not exist"):
        encode_benchmark(tmp_path, 5)


@pytest.fixture
def peer(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    """Record the arguments of the peer, which pretends to take ten seconds in total and two per step."""
    calls: list[tuple[Any, ...]] = []
    monkeypatch.setattr(training, "train_peer", lambda *arguments: calls.append(arguments) or (10.0, 2.0))
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: name)
    return calls


@pytest.mark.full
def test_the_peer_trains_on_the_same_pairs(
    world: Path, tiny_folder: Callable[[str], Path], peer: list[tuple[Any, ...]]
) -> None:
    sizes = {"steps": 7, "batch_size": 4, "max_length": 32}
    result = training.train_benchmark(None, **sizes, model=str(tiny_folder("bert")), shape="tiny", corpus=world)
    ((pairs, backbone, batch_size, max_length, _),) = peer
    assert (len(pairs), batch_size, max_length) == (28, 4, 32) and backbone.endswith("backbone")
    assert all(len(text.split()) > 3 for pair in pairs for text in pair)
    assert result["ratio"] == pytest.approx(10 * result["turnwise_pairs_per_second"] / 28)
    assert result["steady_ratio"] == pytest.approx(2 * result["turnwise_steady_pairs_per_second"] / 4)
    assert 3 < result["tokens_per_text"] <= 32 and 0 < result["padding_avoided"] < 1


def test_train_reports_invalid_input(
    world: Path, tiny_folder: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch, peer: list[tuple[Any, ...]]
) -> None:
    options: dict[str, Any] = {"batch_size": 4, "max_length": 32, "model": str(tiny_folder("bert")), "corpus": world}
    with pytest.raises(TurnwiseError, match=r"the corpus has \d+ pairs, but 400000 are needed: use fewer steps"):
        training.train_benchmark(None, 100_000, **options)
    with pytest.raises(TurnwiseError, match="choose from bert-base, minilm"):
        training.train_benchmark(None, 1, **options, shape="huge")
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(TurnwiseError, match=r"turnwise\[compare\]"):
        training.train_benchmark(None, 1, **options)
    assert not peer
