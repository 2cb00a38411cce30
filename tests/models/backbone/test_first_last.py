"""First-last pooling against the hidden states of transformers on a padded batch, for every family."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch.testing import assert_close
from transformers import PreTrainedModel

from tests.helpers.families import FAMILIES, mean_states, padded_output, plain_model, sequences
from turnwise.models.backbone import backbone as backbone_module
from turnwise.models.backbone.ragged import Tokens
from turnwise.models.backbone.stream import TokenStream
from turnwise.models.encoder import Encoder

Folder = Callable[[str], Path]

LENGTHS = (7, 40, 1, 12, 7, 3, 25, 1)


def padded(model: PreTrainedModel, parts: list[Tokens]) -> torch.Tensor:
    """The mean over tokens of the average of the first layer's states and the last's (sequences, hidden)."""
    states = padded_output(model, parts).hidden_states
    return mean_states((states[1] + states[-1]) / 2, parts)


@pytest.mark.parametrize("family", FAMILIES)
def test_vectors_equal_the_padded_forward(family: str, tiny_folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backbone_module, "BUCKET_TOKENS", 40)  # so that several buckets are put together again
    encoder = Encoder.load(tiny_folder(family), device="cpu", pooling="first-last")
    parts = sequences(LENGTHS)
    with torch.no_grad():
        actual, expected = encoder(TokenStream.of(parts)), padded(plain_model(tiny_folder(family)), parts)
    assert_close(actual, expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("family", ["bert", "mpnet"])
def test_gradients_equal_the_padded_forward(family: str, tiny_folder: Folder) -> None:
    encoder = Encoder.load(tiny_folder(family), device="cpu", pooling="first-last").train()
    own = plain_model(tiny_folder(family)).train()
    parts = sequences(LENGTHS, seed=1)
    encoder(TokenStream.of(parts)).square().sum().backward()
    padded(own, parts).square().sum().backward()
    expected = {name: parameter.grad for name, parameter in own.named_parameters()}
    reached = 0
    for name, parameter in encoder.backbone.model.named_parameters():
        if expected[name] is None:
            assert parameter.grad is None or not parameter.grad.any(), name
            continue
        assert_close(parameter.grad, expected[name], atol=1e-4, rtol=1e-4)
        reached += bool(parameter.grad.any())
    assert reached > 20
