"""BERT over a stream of tokens: for training and encoding, without transformers. `mpnet` derives from it.

Importing transformers takes several times as long as loading a small model. Names of parameters, `config.json` and
saved files are those of transformers.
"""

import json
from functools import partial
from importlib.metadata import version
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import torch
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.distributions import MultivariateNormal, constraints
from torch.nn.functional import gelu

from turnwise.core.files import read_json, write_tensors
from turnwise.models.backbone.attention import StreamShape, unpadded_attention
from turnwise.models.backbone.backbone import Backbone, check_weights
from turnwise.models.backbone.stream import Layers
from turnwise.models.backbone.tokenizer import BERT_TOKENS, TOKENIZER_FILE, FastTokenizer

#: The settings of a configuration, with the values that transformers gives to those that are missing.
_DEFAULTS: dict[str, Any] = {
    "hidden_size": 768,
    "intermediate_size": 3072,
    "num_attention_heads": 12,
    "num_hidden_layers": 12,
    "vocab_size": 30522,
    "type_vocab_size": 2,
    "max_position_embeddings": 512,
    "pad_token_id": 0,
    "hidden_act": "gelu",
    "hidden_dropout_prob": 0.1,
    "attention_probs_dropout_prob": 0.1,
    "layer_norm_eps": 1e-12,
    "initializer_range": 0.02,
    "tie_word_embeddings": True,
    "use_cache": True,
    "is_decoder": False,
    "add_cross_attention": False,
    **dict.fromkeys(("bos_token_id", "eos_token_id", "classifier_dropout")),
}

#: Settings that are supported with one value only; `transformers_backbone` runs the others.
_SUPPORTED = {
    "is_decoder": False,
    "add_cross_attention": False,
    "position_embedding_type": "absolute",
    "hidden_act": "gelu",
    "quantization_config": None,
}

_CONFIG_FILE, _WEIGHTS_FILE = "config.json", "model.safetensors"


class BertBackbone(Backbone):
    """A BERT and its tokenizer."""

    family: ClassVar[str] = "bert"
    model_name: ClassVar[str] = "BertModel"
    defaults: ClassVar[dict[str, Any]] = _DEFAULTS
    supported: ClassVar[dict[str, Any]] = _SUPPORTED
    special_tokens: ClassVar[dict[str, str]] = BERT_TOKENS
    tokenizer: FastTokenizer

    def __init__(self, config: dict[str, Any], weights: dict[str, Tensor], tokenizer: FastTokenizer, name: str = ""):
        """Build the network of a configuration, with the weights of a checkpoint; `name` is for messages."""
        values = {**self.defaults, **config, "dtype": "float32", "transformers_version": version("transformers")}
        for key in ("_name_or_path", "torch_dtype"):  # which transformers does not write again
            values.pop(key, None)
        settings = SimpleNamespace(**values)
        with torch.device("meta"):
            network = self.build_network(settings)
        expected = network.state_dict()
        # models with a head have a prefix, and older checkpoints other names of norms
        current = (key.removeprefix(f"{self.family}.").replace("Norm.gamma", "Norm.weight") for key in weights)
        names = (key.replace("Norm.beta", "Norm.bias") for key in current)
        weights = dict(zip(names, weights.values(), strict=True))
        missing = [key for key, value in expected.items() if key not in weights or weights[key].shape != value.shape]
        check_weights(name, missing)
        # copies: the file may be replaced while the model is in use
        loaded = {key: weights[key].to(torch.float32, copy=True) for key in expected if key not in missing}
        loaded |= {key: torch.zeros(expected[key].shape) for key in missing}
        network.load_state_dict(loaded, assign=True)
        super().__init__(network, tokenizer, settings, unpadded=True)

    @staticmethod
    def build_network(config: Any) -> "BertNetwork":
        """Return the network of a configuration, without weights."""
        return BertNetwork(config)

    @classmethod
    def supports(cls, folder: Path) -> bool:
        """Return whether a folder holds such a model with a tokenizer that can be loaded without transformers."""
        needed = (folder / _WEIGHTS_FILE).is_file() and (folder / TOKENIZER_FILE).is_file()
        if not needed or (folder / "adapter_config.json").is_file():
            return False
        config = read_json(folder / _CONFIG_FILE)
        fits = isinstance(config, dict) and config.get("model_type") == cls.family
        return fits and all(config.get(name, value) == value for name, value in cls.supported.items())

    @classmethod
    def load(cls, folder: Path) -> "BertBackbone":
        """Load a folder that `supports` accepts."""
        tokenizer = FastTokenizer.load(folder, cls.special_tokens)
        return cls(read_json(folder / _CONFIG_FILE), load_file(folder / _WEIGHTS_FILE), tokenizer, str(folder))

    def configuration(self) -> str:
        """Return the configuration as transformers writes it."""
        return json.dumps(vars(self.config), indent=2, sort_keys=True) + "\n"

    def token_embeddings(self) -> nn.Module:
        """Return the table of token embeddings."""
        embeddings: nn.Module = self.model.embeddings.word_embeddings
        return embeddings

    def add_tokens(self, tokens: tuple[str, ...]) -> None:
        """Add special tokens such as [SYS]; their embeddings are sampled around the mean of the others."""
        if not self.tokenizer.add_special_tokens(tokens):
            return
        table: Any = self.token_embeddings()
        weight, size = table.weight.data, len(self.tokenizer)
        resized = nn.Embedding(size, self.hidden, device=weight.device, dtype=weight.dtype).weight.data
        resized[: len(weight)] = weight[:size]
        if (added := size - len(weight)) > 0:
            resized[-added:] = _sample_like(weight.float(), added)
        table.weight.data = resized
        table.num_embeddings = self.config.vocab_size = size

    def _save_model(self, folder: Path) -> None:
        self.config.architectures = [self.model_name]
        self.save_configuration(folder)
        weights = {name: value.contiguous() for name, value in self.model.state_dict().items()}
        write_tensors(folder / _WEIGHTS_FILE, weights, {"format": "pt"})

    def _run_model(self, model: Any, layers: Layers, **inputs: Any) -> Tensor:
        states: Tensor = model(**inputs, layers=layers)
        return states


def _sample_like(rows: Tensor, count: int) -> Tensor:
    """Return a sample of new rows around the mean of others, with a billionth of their variance."""
    mean = rows.mean(0)
    covariance = (rows - mean).T @ (rows - mean) / len(rows) * 1e-9
    if not constraints.positive_definite.check(covariance).all():
        return mean.expand(count, -1)
    return MultivariateNormal(mean, covariance_matrix=covariance).sample((count,))


class _Uninitialised:
    """Weights that will be loaded: to initialise them on the device 'meta', torch imports its compiler."""

    def reset_parameters(self) -> None:
        pass


class Linear(_Uninitialised, nn.Linear):
    """A linear layer whose weights are loaded."""


class Embedding(_Uninitialised, nn.Embedding):
    """A table whose rows are loaded."""


class BertNetwork(nn.Module):
    """The modules of `BertModel`, with its names; the pooler is not used, but belongs to the weights."""

    def __init__(self, config: Any):
        super().__init__()
        self.embeddings: nn.Module = BertEmbeddings(config)
        layers = [BertLayer(config, BertAttention(config)) for _ in range(config.num_hidden_layers)]
        self.encoder: Any = nn.ModuleDict({"layer": nn.ModuleList(layers)})
        self.pooler = nn.ModuleDict({"dense": Linear(config.hidden_size, config.hidden_size)})

    def forward(
        self,
        input_ids: Tensor,
        position_ids: Tensor,
        token_type_ids: Tensor | None = None,
        stream_shape: StreamShape | None = None,
        attention_mask: Tensor | None = None,
        layers: Layers = "last",
    ) -> Tensor:
        """(rows, tokens) → (rows, tokens, hidden); rows are one stream of a shape, or padded, with a mask."""
        states = self.embeddings(input_ids, position_ids, token_type_ids)
        bias = self.position_bias(stream_shape, input_ids)
        lowest, *others = self.encoder["layer"]
        states = first = lowest(states, stream_shape, attention_mask, bias)
        for layer in others:
            states = layer(states, stream_shape, attention_mask, bias)
        output: Tensor = states if layers == "last" else (first + states) / 2
        return output

    def position_bias(self, shape: StreamShape | None, input_ids: Tensor) -> Tensor | None:
        """Return what is added to the attention scores (heads, length, length), if anything."""
        return None


class BertEmbeddings(nn.Module):
    """The sum of the embeddings of token, position and segment."""

    def __init__(self, config: Any):
        super().__init__()
        self.word_embeddings = Embedding(config.vocab_size, config.hidden_size, padding_idx=config.pad_token_id)
        self.position_embeddings = Embedding(config.max_position_embeddings, config.hidden_size)
        self.token_type_embeddings = Embedding(config.type_vocab_size, config.hidden_size)
        self.LayerNorm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        self.dropout = nn.Dropout(config.hidden_dropout_prob)

    def forward(self, input_ids: Tensor, position_ids: Tensor, token_type_ids: Tensor | None = None) -> Tensor:
        """(rows, tokens) → (rows, tokens, hidden)."""
        segments = torch.zeros_like(input_ids) if token_type_ids is None else token_type_ids
        states: Tensor = self.word_embeddings(input_ids) + self.token_type_embeddings(segments)
        states = self.LayerNorm(states + self.position_embeddings(position_ids))
        dropped: Tensor = self.dropout(states)
        return dropped


class BertLayer(nn.Module):
    """A layer: attention, and the feed-forward part."""

    def __init__(self, config: Any, attention: nn.Module):
        super().__init__()
        inner = config.intermediate_size
        self.attention = attention
        self.intermediate = nn.ModuleDict({"dense": Linear(config.hidden_size, inner)})
        self.output = _Output(config, inner)

    def forward(
        self,
        states: Tensor,
        stream_shape: StreamShape | None = None,
        attention_mask: Tensor | None = None,
        bias: Tensor | None = None,
    ) -> Tensor:
        """(rows, tokens, hidden) → the same shape."""
        return self.feed_forward_chunk(self.attention(states, stream_shape, attention_mask, bias))

    def feed_forward_chunk(self, states: Tensor) -> Tensor:
        """Return the output of the layer, given that of its attention."""
        output: Tensor = self.output(gelu(self.intermediate["dense"](states)), states)
        return output


class BertAttention(nn.Module):
    """Self-attention, and the layer after it."""

    def __init__(self, config: Any):
        super().__init__()
        self.self = _SelfAttention(config)
        self.output = _Output(config, config.hidden_size)

    def forward(
        self, states: Tensor, shape: StreamShape | None, mask: Tensor | None, bias: Tensor | None = None
    ) -> Tensor:
        """(rows, tokens, hidden) → the same shape."""
        output: Tensor = self.output(self.self(states, shape, mask, bias), states)
        return output


class _SelfAttention(nn.Module):
    def __init__(self, config: Any):
        super().__init__()
        self.num_attention_heads = config.num_attention_heads
        self.attention_head_size = config.hidden_size // config.num_attention_heads
        self.scaling = self.attention_head_size**-0.5
        linear = partial(Linear, config.hidden_size, config.hidden_size)
        self.query, self.key, self.value = linear(), linear(), linear()
        self.dropout = nn.Dropout(config.attention_probs_dropout_prob)

    def forward(self, states: Tensor, shape: StreamShape | None, mask: Tensor | None, bias: Tensor | None) -> Tensor:
        return attend(self, (self.query, self.key, self.value), states, shape, mask, bias)


def attend(
    module: Any,
    projections: tuple[nn.Module, nn.Module, nn.Module],
    states: Tensor,
    shape: StreamShape | None,
    mask: Tensor | None,
    bias: Tensor | None,
) -> Tensor:
    """Return what the heads of a module attend to (rows, tokens, hidden); rows are a stream of a shape, or padded."""
    heads = (*states.shape[:2], module.num_attention_heads, module.attention_head_size)
    query, key, value = (project(states).view(heads).transpose(1, 2) for project in projections)
    if shape is None:
        assert mask is not None and not module.training
        # by operations that every ONNX runtime supports
        scores = query @ key.transpose(2, 3) * module.scaling
        if bias is not None:
            scores = scores + bias
        scores = scores.masked_fill(mask[:, None, None] == 0, torch.finfo(scores.dtype).min)
        attended: Tensor = (scores.softmax(-1) @ value).transpose(1, 2)
        return attended.flatten(2)
    settings = {"dropout": module.dropout.p if module.training else 0.0, "scaling": module.scaling, "bias": bias}
    attended, _ = unpadded_attention(module, query, key, value, None, stream_shape=shape, **settings)
    return attended.flatten(2)


class _Output(nn.Module):
    def __init__(self, config: Any, inner: int):
        super().__init__()
        self.dense = Linear(inner, config.hidden_size)
        self.LayerNorm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        self.dropout = nn.Dropout(config.hidden_dropout_prob)

    def forward(self, states: Tensor, residual: Tensor) -> Tensor:
        output: Tensor = self.LayerNorm(self.dropout(self.dense(states)) + residual)
        return output
