"""The head that predicts masked tokens, and its weights in checkpoints of masked language models."""

from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors import safe_open
from torch import Tensor, nn

from turnwise.core.errors import TurnwiseError

#: Names of the transform's layer, its norm and the bias of the vocabulary in checkpoints of BERT, RoBERTa, DistilBERT,
#: ModernBERT and ELECTRA's generator.
_CHECKPOINT_NAMES = (
    ("cls.predictions.transform.dense", "cls.predictions.transform.LayerNorm", "cls.predictions.bias"),
    ("lm_head.dense", "lm_head.layer_norm", "lm_head.bias"),
    ("vocab_transform", "vocab_layer_norm", "vocab_projector.bias"),
    ("head.dense", "head.norm", "decoder.bias"),
    ("generator_predictions.dense", "generator_predictions.LayerNorm", "generator_lm_head.bias"),
)


class LanguageHead(nn.Module):
    """BERT's prediction head: a transform of the states, the input embeddings as output layer, and a bias per token.

    `width` is the size of the states, `hidden` that of the embeddings.
    """

    def __init__(self, width: int, hidden: int):
        super().__init__()
        self.dense = nn.Linear(width, hidden)
        self.norm = nn.LayerNorm(hidden)
        #: (vocabulary,); None until `start` is called.
        self.bias: nn.Parameter | None = None

    def start(self, vocabulary: int, weights: Mapping[str, Tensor], epsilon: float) -> None:
        """Add the bias of a vocabulary, and take over weights of `read_language_head` that fit; added tokens have 0."""
        bias = torch.zeros(vocabulary)
        if weights and weights["dense.weight"].shape == self.dense.weight.shape:
            self.norm.eps = epsilon
            own = self.state_dict()
            for name in own:  # some models have no bias in the transform
                own[name] = weights.get(name, torch.zeros_like(own[name]))
            self.load_state_dict(own)
            if (pretrained := weights.get("bias")) is not None:
                bias[: min(len(pretrained), vocabulary)] = pretrained[:vocabulary]
        self.bias = nn.Parameter(bias)

    def forward(self, states: Tensor, embeddings: nn.Module) -> Tensor:
        """(states, width) → logits (states, vocabulary)."""
        transformed = self.norm(nn.functional.gelu(self.dense(states)))
        logits: Tensor = transformed @ word_embeddings(embeddings, transformed.shape[-1]).T
        return logits if self.bias is None else logits + self.bias


def word_embeddings(embeddings: nn.Module, hidden: int) -> Tensor:
    """Return the backbone's input embeddings (vocabulary, hidden), which are also the output layer."""
    weight = embeddings.weight
    assert isinstance(weight, Tensor)
    if weight.shape[1] != hidden:
        raise TurnwiseError(
            f"this backbone's embeddings have {weight.shape[1]} dimensions and its states {hidden}: masked language"
            " modelling needs a backbone where both have the same number"
        )
    return weight


def read_language_head(folder: Path) -> dict[str, Tensor]:
    """Return the weights of the prediction head in a checkpoint by their names in `LanguageHead`; empty if none."""
    stored: dict[str, Tensor] = {}
    prefixes = tuple(prefix for names in _CHECKPOINT_NAMES for prefix in names)
    for path in sorted(folder.glob("*.safetensors")):
        with safe_open(path, "pt") as file:
            # older checkpoints call the weight and bias of a norm gamma and beta
            stored |= {
                name.replace("gamma", "weight").replace("beta", "bias"): file.get_tensor(name)
                for name in file.keys()  # noqa: SIM118 (not a dictionary)
                if name.startswith(prefixes)
            }
    for dense, norm, bias in _CHECKPOINT_NAMES:
        if f"{dense}.weight" in stored and bias in stored:
            own = {f"{dense}.weight": "dense.weight", f"{dense}.bias": "dense.bias", bias: "bias"}
            own |= {f"{norm}.weight": "norm.weight", f"{norm}.bias": "norm.bias"}
            return {own[name]: value for name, value in stored.items() if name in own}
    return {}
