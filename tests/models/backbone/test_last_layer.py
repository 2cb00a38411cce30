"""The states of a few tokens equal those of the full pass, for every family, with gradients."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from tests.helpers.families import FAMILIES, sequences
from turnwise.models.backbone import backbone as module
from turnwise.models.backbone.attention import StreamShape, attention_at
from turnwise.models.backbone.backbone import BERT_LIKE
from turnwise.models.backbone.load import load_backbone
from turnwise.models.backbone.stream import TokenStream

Folder = Callable[[str], Path]

#: Some equal, one of a single token; looked at are several tokens of a sequence, one, or none.
LENGTHS = (7, 20, 1, 7, 12, 7, 12)
PLACES = np.array([0, 1, 3, 8, 9, 10, 14, 23, 30, 34, 37, 60])


@pytest.mark.parametrize("family", FAMILIES)
def test_states_at_positions_equal_the_full_pass(family: str, tiny_folder: Folder) -> None:
    backbone = load_backbone(tiny_folder(family)).eval()
    parts = sequences(LENGTHS)
    stream = TokenStream.of(parts, [(part % 2).astype("int32") for part in parts])
    with torch.no_grad():
        assert_close(backbone.states_at(stream, PLACES), backbone(stream)[PLACES], atol=1e-5, rtol=1e-5)


def test_partial_last_layer_is_used_for_bert_like_families(
    tiny_folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    called: list[str] = []
    whole = module._last_layer_at
    for family in FAMILIES:
        monkeypatch.setattr(
            module, "_last_layer_at", lambda *given, family=family: called.append(family) or whole(*given)
        )
        with torch.no_grad():
            load_backbone(tiny_folder(family)).eval().states_at(TokenStream.of(sequences(LENGTHS)), PLACES)
    assert called == [family for family in FAMILIES if family in BERT_LIKE]
    assert set(called) >= {"bert", "electra", "roberta"}


@pytest.mark.parametrize("family", ["bert", "electra"])
def test_gradients_equal_the_full_pass(family: str, tiny_folder: Folder) -> None:
    short, whole = load_backbone(tiny_folder(family)).train(), load_backbone(tiny_folder(family)).train()
    stream = TokenStream.of(sequences(LENGTHS))
    short.states_at(stream, PLACES).square().sum().backward()
    whole(stream)[PLACES].square().sum().backward()
    expected = {name: value.grad for name, value in whole.named_parameters() if value.grad is not None}
    gradients = {name: value.grad for name, value in short.named_parameters() if value.grad is not None}
    scale = max(float(value.abs().max()) for value in expected.values())
    assert scale > 1e-2
    for name, value in expected.items():
        assert_close(gradients.get(name, torch.zeros_like(value)), value, atol=1e-5 * scale, rtol=0)


def test_dropout_on_attention_weights_of_the_last_layer(tiny_folder: Folder) -> None:
    backbone = load_backbone(tiny_folder("bert"))
    backbone.set_dropout(0.0, 0.0)
    backbone.layer_list()[-1].attention.self.dropout.p = 0.5
    stream = TokenStream.of(sequences(LENGTHS))
    with torch.no_grad():
        quiet = backbone.eval().states_at(stream, PLACES)
        assert torch.equal(backbone.states_at(stream, PLACES), quiet)
        first, second = backbone.train().states_at(stream, PLACES), backbone.states_at(stream, PLACES)
    assert (first - second).abs().max() > 1e-2


def test_decoder_attends_to_earlier_tokens_only(tiny_folder: Folder, tmp_path: Path) -> None:
    """Its attention is not of both sides, so that all of its last layer is run."""
    folder = tmp_path / "bert"
    shutil.copytree(tiny_folder("bert"), folder)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "is_decoder": True, "use_cache": False}))
    backbone, usual = load_backbone(folder).eval(), load_backbone(tiny_folder("bert")).eval()
    stream = TokenStream.of(sequences(LENGTHS))
    with torch.no_grad():
        states = backbone.states_at(stream, PLACES)
        assert_close(states, backbone(stream)[PLACES], atol=1e-5, rtol=1e-5)
        assert (states - usual.states_at(stream, PLACES)).abs().max() > 1e-2


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU: the varlen kernel runs on CUDA only")
def test_varlen_kernel_gives_the_same() -> None:
    """Including sequences without a query; within the precision of bf16."""
    stream, device = TokenStream.of(sequences(LENGTHS)), torch.device("cuda")
    counts = np.array([0, 2, 1, 1, 0, 5, 1])
    torch.manual_seed(0)
    query = torch.randn(int(counts.sum()), 4, 32, device=device, dtype=torch.bfloat16)
    key, value = (torch.randn(stream.tokens, 4, 32, device=device, dtype=torch.bfloat16) for _ in range(2))
    kernel, groups = (
        attention_at(query, key, value, counts, StreamShape.of(stream, device, varlen=varlen), scaling=0.2, dropout=0.0)
        for varlen in (True, False)
    )
    assert_close(kernel, groups, atol=3e-2, rtol=3e-2)
