"""The prediction head of a checkpoint gives the logits of transformers' own masked language model."""

from pathlib import Path

import pytest
import torch
from torch import nn
from transformers import AutoConfig, AutoModelForMaskedLM

from tests.helpers import families
from turnwise.models.backbone.language_head import LanguageHead, read_language_head

FAMILIES = ("bert", "roberta", "distilbert", "modernbert")


def masked_language_model(family: str, folder: Path) -> nn.Module:
    """Save and return a random masked language model with a bias for every token."""
    torch.manual_seed(0)
    model = AutoModelForMaskedLM.from_config(families.config(family)).eval()
    for name, parameter in model.named_parameters():
        if name.endswith("bias"):
            nn.init.normal_(parameter)
    model.save_pretrained(folder)
    return model


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("added", [0, 3])
def test_head_equals_that_of_transformers(family: str, added: int, tmp_path: Path) -> None:
    model = masked_language_model(family, tmp_path)
    ids = torch.arange(5, 25).reshape(2, 10)
    with torch.no_grad():
        expected = model(input_ids=ids).logits
        states = model.base_model(input_ids=ids).last_hidden_state
        embeddings = model.get_input_embeddings()
        wider = nn.Embedding(embeddings.num_embeddings + added, embeddings.embedding_dim)
        wider.weight[: embeddings.num_embeddings] = embeddings.weight
        head = LanguageHead(states.shape[-1], states.shape[-1])
        config = AutoConfig.from_pretrained(tmp_path)
        epsilon = getattr(config, "layer_norm_eps", None) or getattr(config, "norm_eps", 1e-12)
        head.start(wider.num_embeddings, read_language_head(tmp_path), epsilon)
        logits = head(states, wider)
    assert torch.allclose(logits[..., : expected.shape[-1]], expected, atol=1e-5)
    assert head.bias is not None and (head.bias[expected.shape[-1] :] == 0).all()


def test_encoder_has_no_prediction_head(tmp_path: Path) -> None:
    families.save("bert", tmp_path)
    assert read_language_head(tmp_path) == {}
