"""BERT without transformers, to encode on a CPU.

Importing transformers takes several times as long as reading the weights of a small model. `BertBackbone` needs torch
and the tokenizers library only, and gives the token states of `Backbone`. Its parameters have the names of
transformers, so that a `Backbone` can take them over when something else is needed: training, saving, a GPU.
"""

import json
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors
from torch import Tensor, nn
from torch.nn.functional import gelu

from turnwise.core.files import read_json
from turnwise.core.imports import without_garbage_collection
from turnwise.models.backbone.attention import StreamShape, unpadded_attention
from turnwise.models.backbone.exported import ExportedTokenizer
from turnwise.models.backbone.modules import Layers
from turnwise.models.backbone.stream import TokenStream

if TYPE_CHECKING:
    from turnwise.models.backbone.backbone import Backbone

#: The sizes that a configuration has to name.
_SIZES = (
    *("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size"),
    *("max_position_embeddings", "type_vocab_size"),
)

#: The settings of a configuration that are supported; those that are missing have these values.
_SUPPORTED = {
    "is_decoder": False,
    "add_cross_attention": False,
    "position_embedding_type": "absolute",
    "hidden_act": "gelu",
    "quantization_config": None,
}

_CONFIG_FILE, _WEIGHTS_FILE = "config.json", "model.safetensors"
_TOKENIZER_FILE, _TOKENIZER_SETTINGS = "tokenizer.json", "tokenizer_config.json"

#: Files that change the model or the tokenizer when transformers loads a folder.
_UNSUPPORTED_FILES = ("adapter_config.json", "added_tokens.json")

#: Classes of tokenizers that are supported; transformers creates the first ones by their settings.
_BERT_TOKENIZERS = ("BertTokenizer", "BertTokenizerFast")
_TOKENIZER_CLASSES = (*_BERT_TOKENIZERS, "PreTrainedTokenizerFast", "TokenizersBackend")


class _Linear(nn.Linear):
    """A linear layer whose weights are loaded: to initialise them on the device 'meta', torch imports its compiler."""

    def reset_parameters(self) -> None:
        """Leave the weights as they are."""


class _Embedding(nn.Embedding):
    """A table whose weights are loaded."""

    def reset_parameters(self) -> None:
        """Leave the weights as they are."""


class _Layer(nn.Module):
    """A transformer layer."""

    def __init__(self, config: dict[str, Any]):
        super().__init__()
        hidden, inner = config["hidden_size"], config["intermediate_size"]
        norm = partial(nn.LayerNorm, hidden, eps=config["layer_norm_eps"])
        projections = nn.ModuleDict({name: _Linear(hidden, hidden) for name in ("query", "key", "value")})
        output = nn.ModuleDict({"dense": _Linear(hidden, hidden), "LayerNorm": norm()})
        self.attention: Any = nn.ModuleDict({"self": projections, "output": output})
        self.intermediate: Any = nn.ModuleDict({"dense": _Linear(hidden, inner)})
        self.output: Any = nn.ModuleDict({"dense": _Linear(inner, hidden), "LayerNorm": norm()})
        self._heads = config["num_attention_heads"]

    def forward(self, states: Tensor, shape: StreamShape) -> Tensor:
        """(tokens, hidden) → the same shape."""
        projected = [project(states).unflatten(1, (self._heads, -1)) for project in self.attention["self"].values()]
        query, key, value = (each.transpose(0, 1)[None] for each in projected)  # (1, heads, tokens, size)
        scale = query.shape[-1] ** -0.5
        attended, _ = unpadded_attention(self, query, key, value, None, stream_shape=shape, scaling=scale)
        states = _add_and_normalise(self.attention["output"], attended[0].flatten(1), states)
        return _add_and_normalise(self.output, gelu(self.intermediate["dense"](states)), states)


def _add_and_normalise(output: Any, states: Tensor, residual: Tensor) -> Tensor:
    normalised: Tensor = output["LayerNorm"](output["dense"](states) + residual)
    return normalised


class _Bert(nn.Module):
    """The network; the pooler is not used, but belongs to the weights."""

    def __init__(self, config: dict[str, Any]):
        super().__init__()
        hidden = config["hidden_size"]
        rows = {"word": "vocab_size", "position": "max_position_embeddings", "token_type": "type_vocab_size"}
        tables = {f"{name}_embeddings": _Embedding(config[size], hidden) for name, size in rows.items()}
        norm = nn.LayerNorm(hidden, eps=config["layer_norm_eps"])
        self.embeddings: Any = nn.ModuleDict({**tables, "LayerNorm": norm})
        layers = [_Layer(config) for _ in range(config["num_hidden_layers"])]
        self.encoder: Any = nn.ModuleDict({"layer": nn.ModuleList(layers)})
        self.pooler = nn.ModuleDict({"dense": _Linear(hidden, hidden)})

    def forward(self, stream: TokenStream, layers: Layers) -> Tensor:
        """Return token states (tokens, hidden) in stream order."""
        embeddings = self.embeddings
        segments = torch.zeros_like(stream.ids) if stream.segments is None else stream.segments
        states: Tensor = embeddings["word_embeddings"](stream.ids) + embeddings["token_type_embeddings"](segments)
        states = embeddings["LayerNorm"](states + embeddings["position_embeddings"](stream.positions()))
        shape = StreamShape.of(stream, states.device)
        lowest, *others = self.encoder["layer"]
        states = first = lowest(states, shape)
        for layer in others:
            states = layer(states, shape)
        return states if layers == "last" else (first + states) / 2


class BertBackbone(nn.Module):
    """A BERT with its tokenizer, for inference on a CPU; see `Backbone`.

    Attributes:
        model: the network.
        tokenizer: the tokenizer.
        max_length: the number of tokens that a sequence may have.
    """

    def __init__(self, folder: Path, config: dict[str, Any], model: nn.Module, tokenizer: ExportedTokenizer):
        super().__init__()
        self.model = model
        self.tokenizer = tokenizer
        self.max_length = int(min(config["max_position_embeddings"], tokenizer.model_max_length))
        self._folder = folder
        self._config = config

    @classmethod
    def load(cls, folder: Path) -> "BertBackbone | None":
        """Load a folder; None if only transformers can load it, or can say what is wrong with it."""
        config = _read_object(folder / _CONFIG_FILE)
        if any((folder / name).exists() for name in _UNSUPPORTED_FILES) or not _is_supported(config):
            return None
        tokenizer = _load_tokenizer(folder)
        model = None if tokenizer is None else _load_model(folder / _WEIGHTS_FILE, config)
        return None if tokenizer is None or model is None else cls(folder, config, model, tokenizer)

    def to_transformers(self) -> "Backbone":
        """Return the backbone of transformers with the same parameters (the same objects, not copies)."""
        with without_garbage_collection():
            from turnwise.models.backbone.backbone import Backbone

        with torch.random.fork_rng(devices=[]):  # loading initialises weights that are missing
            backbone = Backbone.load(self._folder).to(self.device)
        backbone.model.load_state_dict(self.model.state_dict(keep_vars=True), assign=True)
        return backbone.train(self.training)

    @property
    def hidden(self) -> int:
        """The size of a token state."""
        return int(self._config["hidden_size"])

    @property
    def device(self) -> torch.device:
        """The device of the weights."""
        return next(self.model.parameters()).device

    @property
    def architecture(self) -> tuple[str, int, int]:
        """The type, layers and hidden units, such as ('bert', 12, 768)."""
        return "bert", int(self._config["num_hidden_layers"]), self.hidden

    def configuration(self) -> str:
        """Return the text that `Backbone.configuration` returns."""
        config = {**self._config, "dtype": "float32"}  # to which weights are converted
        if config.get("transformers_version") == version("transformers"):
            # what this version of transformers has written, it would write again
            return json.dumps(config, indent=2, sort_keys=True) + "\n"
        from transformers import BertConfig

        return str(BertConfig.from_dict(config).to_json_string())

    def forward(self, stream: TokenStream, layers: Layers = "last") -> Tensor:
        """Return token states (tokens, hidden) in stream order."""
        states: Tensor = self.model(stream, layers)
        return states


def _read_object(path: Path) -> dict[str, Any]:
    """Read a JSON file; return an empty dictionary if there is none, or it holds something else."""
    try:
        value = read_json(path)
    except (OSError, ValueError):
        return {}
    return value if isinstance(value, dict) else {}


def _is_supported(config: dict[str, Any]) -> bool:
    return (
        config.get("model_type") == "bert"
        and all(isinstance(config.get(name), int) and config[name] > 0 for name in _SIZES)
        and isinstance(config.get("layer_norm_eps"), float)
        and config["hidden_size"] % config["num_attention_heads"] == 0
        and all(config.get(name, value) == value for name, value in _SUPPORTED.items())
    )


def _load_model(path: Path, config: dict[str, Any]) -> _Bert | None:
    """Return the network with the weights of a file, in float32; None if they do not fit."""
    with torch.device("meta"):
        model = _Bert(config)
    try:
        stored = load_file(path)
    except (OSError, SafetensorError):
        return None
    stored = {name.removeprefix("bert."): value for name, value in stored.items()}
    weights = {}
    for name, expected in model.state_dict().items():
        if name in stored and stored[name].shape == expected.shape:
            weights[name] = stored[name].to(torch.float32, copy=True)  # a copy: the file may be replaced
        elif name.startswith("pooler."):
            weights[name] = torch.zeros(expected.shape)
        else:
            return None
    model.load_state_dict(weights, assign=True)
    return model


# ---- tokenizer


def _load_tokenizer(folder: Path) -> ExportedTokenizer | None:
    """Return the tokenizer of a folder if transformers would create the same one; else None."""
    settings = _read_object(folder / _TOKENIZER_SETTINGS)
    kind, tokens = settings.get("tokenizer_class"), _special_tokens(folder, settings)
    if kind not in _TOKENIZER_CLASSES or tokens is None or not (folder / _TOKENIZER_FILE).is_file():
        return None
    tokenizer = ExportedTokenizer.load(folder)
    definition = json.loads(tokenizer.backend_tokenizer.to_str())
    added = {str(token.pop("id")): token for token in definition.pop("added_tokens")}
    special = {token["content"] for token in added.values() if token["special"]}
    if settings.get("added_tokens_decoder", added) != added or not special.issuperset(tokens):
        return None
    if kind not in _BERT_TOKENIZERS:  # which is the one in the file, unless that puts no special tokens around a text
        return None if definition["post_processor"] is None else tokenizer
    created = json.loads(_create_bert_tokenizer(tokenizer, settings).to_str())
    del definition["model"]["vocab"], created["model"]["vocab"], created["added_tokens"]
    return tokenizer if definition == created else None


def _special_tokens(folder: Path, settings: dict[str, Any]) -> list[str] | None:
    """Return the special tokens that settings name; None if some of BERT's are missing, or settings are unusual."""
    replaced = {} if "added_tokens_decoder" in settings else _read_object(folder / "special_tokens_map.json")
    if any(settings.get(name) != token for name, token in replaced.items()):
        return None
    if settings.get("split_special_tokens") or settings.get("add_prefix_space"):
        return None
    tokens: list[Any] = [settings.get(f"{name}_token") for name in ("unk", "sep", "pad", "cls", "mask")]
    tokens += [settings[name] for name in ("bos_token", "eos_token") if settings.get(name) is not None]
    for name in ("additional_special_tokens", "extra_special_tokens"):
        value = settings.get(name) or []
        tokens += value if isinstance(value, list) else [None]
    return tokens if all(isinstance(token, str) for token in tokens) else None


def _create_bert_tokenizer(tokenizer: ExportedTokenizer, settings: dict[str, Any]) -> Tokenizer:
    """Return the `BertTokenizer` that transformers creates by settings, without vocabulary and added tokens."""
    created = Tokenizer(models.WordPiece({}, unk_token=settings["unk_token"]))
    created.normalizer = normalizers.BertNormalizer(
        clean_text=True,
        handle_chinese_chars=settings.get("tokenize_chinese_chars", True),
        strip_accents=settings.get("strip_accents"),
        lowercase=settings.get("do_lower_case", True),
    )
    created.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    created.decoder = decoders.WordPiece(prefix="##")
    start, end = settings["cls_token"], settings["sep_token"]
    created.post_processor = processors.TemplateProcessing(
        single=f"{start}:0 $A:0 {end}:0",
        pair=f"{start}:0 $A:0 {end}:0 $B:1 {end}:1",
        special_tokens=[(token, tokenizer.convert_tokens_to_ids(token)) for token in (start, end)],
    )
    return created
