"""ONNX export: equal to torch for every family, pooling and batch; int8 close; copying works, training does not."""

import copy
import json
import os
import pickle
import random
import shutil
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import get_args

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.helpers.command_line import run
from tests.helpers.families import FAMILIES, LONGEST, WORDS, sequences
from turnwise import evaluate
from turnwise.assist.intents.classifier import IntentClassifier
from turnwise.assist.intents.tuning import TuningSettings
from turnwise.core.dialogue import Turn
from turnwise.core.errors import IntentError, MissingPackageError, ModelError
from turnwise.corpus.storage.corpus import read_corpus
from turnwise.models import export as export_module
from turnwise.models.backbone import onnx_graph
from turnwise.models.backbone.inputs import ROLE_TOKENS, Composer
from turnwise.models.backbone.load import load_backbone
from turnwise.models.backbone.onnx_graph import ONNX_FILE
from turnwise.models.backbone.source import COMPRESSION, Pooling
from turnwise.models.compression import CompressedEncoder, Compression
from turnwise.models.encoder import Encoder, encoder_fingerprint
from turnwise.models.export import ExportResult, _PaddedEncoder, export
from turnwise.models.loading import load_model, wrap_model
from turnwise.models.trainable_encoder import TrainableEncoder
from turnwise.training.loop import train
from turnwise.training.recipe import load_recipe

pytest.importorskip("onnxruntime")
Folder = Callable[[str], Path]


def random_texts(count: int, longest: int = 30, seed: int = 0) -> list[str]:
    chosen = random.Random(seed)
    return [" ".join(chosen.choices(WORDS, k=chosen.randint(1, longest))) for _ in range(count)]


def make_encoder(folder: Path, pooling: Pooling = "mean", normalise: bool = False, **more: object) -> Encoder:
    torch.manual_seed(0)
    return TrainableEncoder(load_backbone(folder), pooling, normalise=normalise, **more).eval()  # type: ignore[arg-type]


class Pair:
    """A model and its export."""

    def __init__(self, folder: Path, encoder: Encoder, kind: str = "onnx"):
        self.folder = folder
        self.encoder = encoder
        self.result: ExportResult = export(encoder, folder, kind)  # type: ignore[arg-type]
        self.graph = Encoder.load(folder)


def one_layer(folder: Path) -> Encoder:
    """An encoder that is exported in half the time."""
    encoder = make_encoder(folder, normalise=True, max_length=40)
    encoder.backbone.keep_layers(1)
    return encoder


@pytest.fixture(scope="module")
def exported(tiny_folder: Folder, tmp_path_factory: pytest.TempPathFactory) -> Pair:
    return Pair(tmp_path_factory.mktemp("onnx") / "bert", one_layer(tiny_folder("bert")))


def same(graph: Encoder, encoder: Encoder, longest: int = LONGEST) -> None:
    lengths = [1, 2, 3, 3, 7, 7, 7, 12, 30, longest, 5]
    for normalise in (False, True, None):
        ours, theirs = (each.encode_sequences(sequences(lengths), normalise=normalise) for each in (graph, encoder))
        assert ours.dtype == np.float32
        np.testing.assert_allclose(ours, theirs, atol=1e-4, rtol=0)


# ---- the graph, before it is one: padded rows give what the unpadded stream gives


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("pooling", get_args(Pooling))
def test_padded_rows_equal_the_encoder(family: str, pooling: Pooling, tiny_folder: Folder) -> None:
    encoder = make_encoder(tiny_folder(family), pooling, normalise=True)
    rows = sequences([3, 7, 1, 12, 12, 30])
    ids = torch.full((len(rows), 33), encoder.backbone.tokenizer.pad_token_id or 0)
    mask = torch.zeros_like(ids)
    for row, tokens in enumerate(rows):
        ids[row, : len(tokens)], mask[row, : len(tokens)] = torch.from_numpy(tokens).long(), 1
    with torch.inference_mode():
        scaled, pooled = _PaddedEncoder(encoder).eval()(ids, mask)
    np.testing.assert_allclose(pooled, encoder.encode_sequences(rows, normalise=False), atol=1e-5, rtol=0)
    np.testing.assert_allclose(scaled, encoder.encode_sequences(rows, normalise=True), atol=1e-5, rtol=0)


# ---- the graph itself


@pytest.mark.full
@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_is_exported(family: str, tiny_folder: Folder, tmp_path: Path) -> None:
    pair = Pair(tmp_path / "out", make_encoder(tiny_folder(family)))
    same(pair.graph, pair.encoder)
    assert pair.result.difference < 1e-4


@pytest.mark.full
@pytest.mark.parametrize("normalise", [False, True])
@pytest.mark.parametrize("pooling", get_args(Pooling))
def test_every_pooling_is_exported(pooling: Pooling, normalise: bool, tiny_folder: Folder, tmp_path: Path) -> None:
    pair = Pair(tmp_path / "out", make_encoder(tiny_folder("bert"), pooling, normalise))
    same(pair.graph, pair.encoder)
    assert (pair.graph.pooling, pair.graph.normalise) == (pooling, normalise)


@pytest.mark.full
@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_is_exported_as_int8(family: str, tiny_folder: Folder, tmp_path: Path) -> None:
    pair = Pair(tmp_path / "out", make_encoder(tiny_folder(family)), "onnx-int8")
    operators = operators_of(pair.folder)
    assert "QuantizeLinear" in operators and "Gemm" not in operators  # in which GPT-2's layers are written
    assert pair.result.cosine > 0.95  # weights are large on purpose, which eight bits feel


def test_exported_model_gives_the_same_vectors(exported: Pair) -> None:
    graph, encoder = exported.graph, exported.encoder
    same(graph, encoder, longest=40)
    assert exported.result.difference < 1e-4 < 0.9999 < exported.result.cosine
    texts = ["", "a", "no such words", "hotel " * 200, *random_texts(8)]
    conversations = [
        ["hello", "book a table please"],
        [Turn("user", "hello"), Turn("system", "where to")],
        ["taxi " * 90, "now"],
    ]
    assert graph.hidden == encoder.hidden == 32
    assert graph.max_length == encoder.max_length == 40
    for one, other in zip(
        graph.tokenise([*texts, *conversations]), encoder.tokenise([*texts, *conversations]), strict=True
    ):
        np.testing.assert_array_equal(one, other)
    actual, expected = (each.encode([*texts, *conversations]) for each in (graph, encoder))
    np.testing.assert_allclose(actual, expected, atol=1e-4)
    assert graph.encode([]).shape == (0, 32)
    np.testing.assert_array_equal(graph.encode("a table"), graph.encode(["a table"]))


@settings(max_examples=30, deadline=None)
@given(st.lists(st.integers(1, 40), min_size=1, max_size=12), st.integers(1, 60))
def test_vector_does_not_depend_on_the_batch(exported: Pair, lengths: list[int], budget: int) -> None:
    rows = sequences(lengths, seed=len(lengths))
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(onnx_graph, "_RUN_TOKENS", 10)  # several runs
        together = exported.graph.encode_sequences(rows, batch_tokens=budget)
    alone = np.concatenate([exported.graph.encode_sequences([row]) for row in rows])
    np.testing.assert_allclose(together, alone, atol=1e-6, rtol=0)


def test_graph_accepts_padded_rows(exported: Pair) -> None:
    """The graph by itself: batch and length of any size, a mask, and vectors scaled as the model scales them."""
    import onnxruntime

    session = onnxruntime.InferenceSession(exported.folder / ONNX_FILE, providers=["CPUExecutionProvider"])
    assert [each.name for each in session.get_inputs()] == ["input_ids", "attention_mask", "token_type_ids"]
    assert [each.shape for each in session.get_inputs()] == [["batch", "length"]] * 3
    rows = sequences([3, 9, 1])
    ids = np.zeros((3, 15), np.int64)
    mask = np.zeros_like(ids)
    for row, tokens in enumerate(rows):
        ids[row, : len(tokens)], mask[row, : len(tokens)] = tokens, 1
    fed = {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}
    (actual,) = session.run(["sentence_embedding"], fed)
    np.testing.assert_allclose(actual, exported.encoder.encode_sequences(rows, normalise=True), atol=1e-4)


def operators_of(folder: Path) -> set[str]:
    import onnx

    return {node.op_type for node in onnx.load(folder / ONNX_FILE).graph.node}


@pytest.fixture
def same_graph(exported: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let exports of the same encoder copy its graph: writing it takes most of the time."""
    graph = exported.folder / ONNX_FILE
    monkeypatch.setattr(export_module, "_write_graph", lambda _, path: shutil.copyfile(graph, path))


@pytest.mark.usefixtures("same_graph")
def test_export_keeps_the_compression_on_request(exported: Pair, tmp_path: Path) -> None:
    exported.encoder.save(tmp_path / "model")
    Compression.of(exported.encoder, ["a hotel now", "book a table"]).save(tmp_path / "model" / COMPRESSION)
    run("export", tmp_path / "model", "--out", tmp_path / "out", "--compressed")
    before, after = (CompressedEncoder.load(tmp_path / name, device="cpu") for name in ("model", "out"))
    np.testing.assert_allclose(after.encode(random_texts(5)), before.encode(random_texts(5)), atol=1e-4)
    assert after.identify().fingerprint == before.identify().fingerprint
    result = run("export", tmp_path / "model", "--format", "static", "--compressed", "--out", tmp_path / "no", code=2)
    assert "onnx-int8" in result.stderr


@pytest.mark.usefixtures("same_graph")
def test_command_writes_int8_of_the_exported_graph(exported: Pair, tmp_path: Path) -> None:
    exported.encoder.save(tmp_path / "model")
    options = ("--out", tmp_path / "out", "--format", "onnx-int8", "--json")
    output = json.loads(run("export", tmp_path / "model", *options).stdout)
    assert output["format"] == "onnx-int8"
    assert output["min_cosine"] > 0.98
    assert output["greatest_difference"] > 1e-6  # else nothing was quantised
    assert "QuantizeLinear" in operators_of(tmp_path / "out")
    graph = Encoder.load(tmp_path / "out")
    rows = sequences([4, 9, 9, 2, 20])
    alone = np.concatenate([graph.encode_sequences([row]) for row in rows])
    np.testing.assert_allclose(graph.encode_sequences(rows), alone, atol=1e-5)


@pytest.mark.full
def test_turn_style_survives_export(tiny_folder: Folder, tmp_path: Path) -> None:
    backbone = load_backbone(tiny_folder("bert"))
    backbone.add_tokens(tuple(ROLE_TOKENS.values()))
    torch.manual_seed(0)
    torch.nn.init.normal_(backbone.token_embeddings().weight[-2:], std=0.3)  # equal at first
    pair = Pair(tmp_path / "out", TrainableEncoder(backbone, "cls-mlp", style="roles").eval())
    conversations = [
        [Turn("user", "hello"), Turn("system", "where to")],
        [Turn("system", "hello"), Turn("user", "where to")],
    ]
    actual = pair.graph.encode(conversations)
    np.testing.assert_allclose(actual, pair.encoder.encode(conversations), atol=1e-4)
    assert np.abs(actual[0] - actual[1]).max() > 1e-2


@pytest.mark.usefixtures("same_graph")
def test_int8_is_calibrated_on_given_texts(exported: Pair, tmp_path: Path) -> None:
    for name, texts in (("few", ["hotel"]), ("many", random_texts(40))):
        export(exported.encoder, tmp_path / name, "onnx-int8", texts=texts)
    rows = sequences([4, 9, 9, 2, 20])
    expected = exported.encoder.encode_sequences(rows, normalise=True)
    few, many = (
        (Encoder.load(tmp_path / name).encode_sequences(rows, normalise=True) * expected).sum(1).mean()
        for name in ("few", "many")
    )
    assert few < many  # the ranges of one word are too narrow


# ---- OpenVINO


@pytest.fixture(scope="module")
def openvino(exported: Pair) -> Encoder:
    return Encoder.load(exported.folder, runtime="openvino")


def test_openvino_gives_the_same_vectors(exported: Pair, openvino: Encoder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(onnx_graph, "_RUN_TOKENS", 10)  # several runs
    rows = sequences([4, 9, 9, 2, 20, 4, 4, 4, 11, 40])
    for normalise in (False, True, None):
        actual, expected = (each.encode_sequences(rows, normalise=normalise) for each in (openvino, exported.graph))
        assert actual.dtype == np.float32
        np.testing.assert_allclose(actual, expected, atol=1e-5, rtol=0)
    alone = np.concatenate([openvino.encode_sequences([row]) for row in rows])
    np.testing.assert_allclose(openvino.encode_sequences(rows), alone, atol=1e-6, rtol=0)


@pytest.mark.full
def test_openvino_runs_graphs_without_segments_and_normalisation(tiny_folder: Folder, tmp_path: Path) -> None:
    pair = Pair(tmp_path / "out", make_encoder(tiny_folder("distilbert")))
    assert not pair.encoder.backbone.has_segments
    same(Encoder.load(pair.folder, runtime="openvino"), pair.encoder)


def test_openvino_can_be_used_from_several_threads(openvino: Encoder) -> None:
    texts = [random_texts(6, seed=seed) for seed in range(24)]
    expected = [openvino.encode(each) for each in texts]
    with ThreadPoolExecutor(6) as threads:
        for actual, vectors in zip(threads.map(openvino.encode, texts), expected, strict=True):
            np.testing.assert_allclose(actual, vectors, atol=1e-6, rtol=0)


def test_openvino_starts_with_several_threads(exported: Pair) -> None:
    """The first texts of a process; threads are switched often, which made all such processes hang."""
    code = (
        "import sys; sys.setswitchinterval(1e-6); from turnwise import Encoder; "
        f"Encoder.load({str(exported.folder)!r}, runtime='openvino').encode(['a ' * n for n in range(1, 30)])"
    )
    subprocess.run([sys.executable, "-c", code], env={**os.environ, "OMP_NUM_THREADS": "6"}, check=True, timeout=60)


def test_openvino_is_the_same_encoder_with_its_own_cache(exported: Pair, openvino: Encoder, tmp_path: Path) -> None:
    assert openvino.identify() == exported.graph.identify()
    assert openvino.weights_fingerprint() == exported.graph.weights_fingerprint()
    assert encoder_fingerprint(openvino) != encoder_fingerprint(exported.graph)
    for each in (copy.deepcopy(openvino), pickle.loads(pickle.dumps(openvino))):
        assert encoder_fingerprint(each) == encoder_fingerprint(openvino)
        np.testing.assert_allclose(each.encode(["a table"]), openvino.encode(["a table"]), atol=1e-6)
    openvino.save(tmp_path / "again")  # the runtime is not stored
    assert encoder_fingerprint(Encoder.load(tmp_path / "again")) == encoder_fingerprint(exported.graph)


def test_embed_command_runs_openvino(exported: Pair, openvino: Encoder, tmp_path: Path) -> None:
    (tmp_path / "texts.txt").write_text("\n".join(random_texts(8)))
    run("embed", exported.folder, tmp_path / "texts.txt", "--out", tmp_path / "vectors.npy", "--runtime", "openvino")
    np.testing.assert_allclose(np.load(tmp_path / "vectors.npy"), openvino.encode(random_texts(8)), atol=1e-6)
    options = ("--out", tmp_path / "out.lance", "--engine", "ray", "--runtime", "openvino")
    result = run("embed", exported.folder, tmp_path / "texts.txt", *options, code=2)
    assert "Invalid value for --runtime: needs --engine local" in result.stderr


def test_runtimes_are_for_onnx_models(exported: Pair, tiny_folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ModelError, match="unknown runtime 'tensorrt': choose 'onnxruntime' or 'openvino'"):
        Encoder.load(exported.folder, runtime="tensorrt")  # type: ignore[arg-type]
    for runtime in ("onnxruntime", "openvino"):
        with pytest.raises(ModelError, match=f"is not an ONNX model, so {runtime} cannot run it: leave the runtime"):
            Encoder.load(tiny_folder("bert"), runtime=runtime)  # type: ignore[arg-type]
    with pytest.raises(ModelError, match="leave the precision and the runtime out"):
        load_model("some:function", runtime="openvino")
    monkeypatch.setitem(sys.modules, "openvino", None)
    with pytest.raises(MissingPackageError, match=r"openvino is not installed: pip install 'turnwise\[openvino\]'"):
        Encoder.load(exported.folder, runtime="openvino")


# ---- what can be done with it, and what not


def test_exported_model_can_be_saved_copied_and_pickled(exported: Pair, tmp_path: Path) -> None:
    expected = exported.graph.encode(random_texts(5))
    exported.graph.save(tmp_path / "again", card="# A card\n")
    again = Encoder.load(tmp_path / "again")
    assert (tmp_path / "again" / "README.md").read_text() == "# A card\n"
    for each in (again, copy.deepcopy(exported.graph), pickle.loads(pickle.dumps(exported.graph))):
        np.testing.assert_array_equal(each.encode(random_texts(5)), expected)
        assert encoder_fingerprint(each) == encoder_fingerprint(exported.graph)
    again.save(tmp_path / "again")  # onto itself
    np.testing.assert_array_equal(Encoder.load(tmp_path / "again").encode(random_texts(5)), expected)
    assert encoder_fingerprint(exported.graph) != encoder_fingerprint(exported.encoder)
    # an index of the model's vectors can be used with the graph
    assert again.identify().fingerprint == exported.encoder.identify().fingerprint
    assert again.identify(8).fingerprint == exported.encoder.identify(8).fingerprint != again.identify().fingerprint


def test_exported_model_cannot_be_trained(exported: Pair, tmp_path: Path) -> None:
    encoder = exported.graph
    with pytest.raises(ModelError, match="cannot be trained or changed"):
        TrainableEncoder.load(exported.folder)
    with pytest.raises(IntentError, match="ExportedEncoder cannot be tuned"):
        IntentClassifier(encoder, tuning=TuningSettings(epochs=1)).fit(["a", "b"], ["first", "second"])
    with pytest.raises(ModelError, match="holds no weights of a transformer"):
        load_backbone(exported.folder)
    assert wrap_model(encoder).trainable is None
    assert wrap_model(encoder).fingerprint
    with pytest.raises(ModelError, match="is already exported"):
        export(encoder, tmp_path / "twice")


def test_exported_model_is_evaluated_but_not_trained(
    exported: Pair, sample_world: Callable[[int], Path], tmp_path: Path
) -> None:
    results = evaluate(str(exported.folder), sample_world(40), tasks=["intents"], fine_tuning=True)
    assert {row.setting for row in results.rows} >= {"1-shot prototypes", "5-shot prototypes"}
    assert results.facts["left out"] == {"fine-tuned intents": "the model does not have what it needs"}
    recipe = load_recipe("dse", [f"backbone={exported.folder}", "steps=1"])
    with pytest.raises(ModelError, match="cannot be trained or changed"):
        train(recipe, read_corpus(sample_world(40)), tmp_path / "model")


def test_pooling_and_device_are_fixed(exported: Pair) -> None:
    assert Encoder.load(exported.folder, pooling="mean", device="cpu").pooling == "mean"
    with pytest.raises(ModelError, match="has the pooling 'mean': export the model again with 'max'"):
        Encoder.load(exported.folder, pooling="max")
    with pytest.raises(ModelError, match="runs on the CPU only"):
        Encoder.load(exported.folder, device="cuda")
    with pytest.raises(ModelError, match="its precision is fixed: leave 'float16' out"):
        Encoder.load(exported.folder, precision="float16")


def test_damaged_folder_is_reported(exported: Pair, tmp_path: Path) -> None:
    exported.graph.save(tmp_path)
    whole = (tmp_path / ONNX_FILE).read_bytes()
    (tmp_path / ONNX_FILE).write_bytes(whole[: len(whole) // 2])
    for runtime in ("onnxruntime", "openvino"):
        with pytest.raises(ModelError, match=r"model\.onnx cannot be run"):
            Encoder.load(tmp_path, runtime=runtime)  # type: ignore[arg-type]
    (tmp_path / ONNX_FILE).unlink()
    with pytest.raises(ModelError, match=r"model\.onnx is missing"):
        Encoder.load(tmp_path)


def test_folders_with_other_contents_are_not_overwritten(exported: Pair, tiny_folder: Folder, tmp_path: Path) -> None:
    encoder = exported.encoder
    (tmp_path / "mine.txt").write_text("mine")
    for taken in (tmp_path, tmp_path / "mine.txt", tiny_folder("bert")):
        with pytest.raises(ModelError, match="holds something else"):
            export(encoder, taken, overwrite=True)
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]


def test_without_onnx_the_message_names_the_extra(
    exported: Pair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "onnxscript", None)
    with pytest.raises(MissingPackageError, match=r"onnxscript is not installed: pip install 'turnwise\[onnx\]'"):
        export(exported.encoder, tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_tokens_are_those_of_transformers(exported: Pair) -> None:
    """The tokenizers library alone gives the ids that transformers gives with the same folder."""
    from transformers import AutoTokenizer

    theirs, ours = AutoTokenizer.from_pretrained(exported.folder), exported.graph.tokenizer
    for text in ["", "a", "no such words", "book a TABLE, please!", "[SEP] [MASK]"]:
        assert ours(text)["input_ids"] == theirs(text)["input_ids"]
        assert ours(text, "a hotel")["input_ids"] == theirs(text, "a hotel")["input_ids"]
    assert (ours.sep_token_id, ours.mask_token_id, ours.unk_token_id) == (
        theirs.sep_token_id,
        theirs.mask_token_id,
        theirs.unk_token_id,
    )
    assert (len(ours), ours.get_vocab(), ours.get_added_vocab()) == (
        len(theirs),
        theirs.get_vocab(),
        theirs.get_added_vocab(),
    )
    np.testing.assert_array_equal(Composer.of(ours).separator, Composer.of(theirs).separator)


def test_export_does_not_change_the_model(tiny_folder: Folder, exported: Pair) -> None:
    assert encoder_fingerprint(exported.encoder) == encoder_fingerprint(one_layer(tiny_folder("bert")))


def test_column_major_weights_give_equal_vectors(tiny_folder: Folder, tmp_path: Path) -> None:
    encoder = Encoder.load(tiny_folder("bert"), device="cpu")
    layer = next(module for module in encoder.backbone.model.modules() if isinstance(module, torch.nn.Linear))
    assert layer.weight.t().is_contiguous()
    plain = make_encoder(tiny_folder("bert"))
    np.testing.assert_allclose(encoder.encode(random_texts(9)), plain.encode(random_texts(9)), atol=1e-5)
    encoder.save(tmp_path)
    np.testing.assert_array_equal(Encoder.load(tmp_path).encode(random_texts(9)), encoder.encode(random_texts(9)))


# ---- as a user runs it


def test_bad_input(tmp_path: Path) -> None:
    for arguments, code, message in (
        (["minilm", "--format", "tflite"], 2, "not one of 'onnx', 'onnx-int8'"),
        (["./nowhere"], 1, "does not exist"),
    ):
        result = run("export", *arguments, "--out", tmp_path / "x", code=code)
        assert message in result.stderr.replace("\n", " ") and not (tmp_path / "x").exists()
