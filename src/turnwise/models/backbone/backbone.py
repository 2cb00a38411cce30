"""The backbone: a transformer that runs over a stream of tokens and returns their states in stream order."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from turnwise.core.errors import ModelError
from turnwise.core.files import write_json
from turnwise.models.backbone.attention import HEAD_SIZES, TILE_SIZES, TRITON, StreamShape, attention_at
from turnwise.models.backbone.graphs import PaddedStream, StreamGraphs
from turnwise.models.backbone.inputs import AnyTokenizer
from turnwise.models.backbone.stream import Layers, TokenStream, to_device

#: Families whose code runs over a flat stream, and their first position (None: the one after the padding id).
UNPADDED_FAMILIES: dict[str, int | None] = {
    **dict.fromkeys(("bert", "distilbert", "electra", "modernbert", "gpt2"), 0),
    **dict.fromkeys(("roberta", "xlm-roberta", "camembert", "mpnet")),
}

#: Families whose layers have BERT's structure and names.
BERT_LIKE = ("bert", "electra", "roberta", "xlm-roberta", "camembert")

#: Tokens of a padded bucket, for families that cannot run unpadded.
BUCKET_TOKENS = 4096

#: The names of the two kinds of dropout in configurations; T5's `dropout_rate` is one number for both.
_HIDDEN_DROPOUT = (
    *("hidden_dropout_prob", "dropout", "resid_pdrop", "embd_pdrop", "mlp_dropout", "embedding_dropout"),
    "dropout_rate",
)
_ATTENTION_DROPOUT = ("attention_probs_dropout_prob", "attention_dropout", "attn_pdrop")


class Backbone(nn.Module, ABC):
    """A transformer, its tokenizer, and its configuration, with the attributes of transformers' configurations.

    Unless it is `unpadded` and runs over a stream, it runs over padded buckets of similar length.
    """

    def __init__(self, model: nn.Module, tokenizer: AnyTokenizer, config: Any, *, unpadded: bool):
        super().__init__()
        self.model: Any = model
        self.tokenizer: AnyTokenizer = tokenizer
        self.config = config
        self.unpadded = unpadded

    @abstractmethod
    def configuration(self) -> str:
        """Return the configuration as JSON, for fingerprints and `config.json`."""

    @abstractmethod
    def token_embeddings(self) -> nn.Module:
        """Return the table of token embeddings."""

    @abstractmethod
    def add_tokens(self, tokens: tuple[str, ...]) -> None:
        """Add special tokens such as [SYS]; their embeddings are sampled around the mean of the others."""

    @abstractmethod
    def _save_model(self, folder: Path) -> None:
        """Write the configuration and the weights."""

    @abstractmethod
    def _run_model(self, model: Any, layers: Layers, **inputs: Any) -> Tensor:
        """Return the states (rows, tokens, hidden) that the network, or its compiled form, computes."""

    @property
    def hidden(self) -> int:
        """The size of a token state."""
        return int(self.config.hidden_size)

    @property
    def layers(self) -> int:
        """The number of transformer layers."""
        return len(self.layer_list())

    @property
    def architecture(self) -> tuple[str, int, int]:
        """The type, layers and hidden units, such as ('bert', 12, 768)."""
        return str(self.config.model_type), self.layers, self.hidden

    def layer_list(self) -> nn.ModuleList:
        """Return the transformer layers, the lowest first."""
        lists = (module for module in self.model.modules() if isinstance(module, nn.ModuleList))
        for layers in lists:
            if len(layers) == self.config.num_hidden_layers:
                return layers
        raise ModelError(f"cannot find the transformer layers of {self.config.model_type}")

    def keep_layers(self, count: int) -> None:
        """Remove all transformer layers except the lowest `count`."""
        most = self.layers
        if not 1 <= count <= most:
            raise ModelError(f"layers={count}: {self.config.model_type} has {most} here, keep 1 to {most}")
        del self.layer_list()[count:]
        self.config.num_hidden_layers = count
        if getattr(self.config, "layer_types", None):  # ModernBERT: one name per layer
            self.config.layer_types = self.config.layer_types[:count]

    def embeddings(self) -> nn.Module:
        """Return the module that turns tokens and positions into the first states."""
        embeddings = getattr(self.model, "embeddings", None)
        return embeddings if isinstance(embeddings, nn.Module) else self.token_embeddings()

    def set_dropout(self, hidden: float | None, attention: float | None) -> None:
        """Set the dropout on hidden states, on attention weights, or both; None leaves it unchanged."""
        on_attention = ["attention.self.dropout", "attention.attn.dropout", "attn_dropout"]
        if self.config.model_type != "mpnet":  # which has it after the attention
            on_attention.append("attention.dropout")
        for path, module in self.model.named_modules():
            if isinstance(module, nn.Dropout):
                value = attention if path.endswith(tuple(on_attention)) else hidden
                module.p = module.p if value is None else value
                continue
            # T5, ModernBERT and others pass a number to the attention function instead
            is_attention = type(module).__name__.endswith("Attention")
            for name, value in (("dropout", attention if is_attention else hidden), ("attention_dropout", attention)):
                if value is not None and isinstance(getattr(module, name, None), int | float):
                    setattr(module, name, value)
        for value, names in ((hidden, _HIDDEN_DROPOUT), (attention, _ATTENTION_DROPOUT)):
            for name in names:
                if value is not None and hasattr(self.config, name):
                    setattr(self.config, name, value)

    @property
    def attention_dropout(self) -> float:
        """The dropout on attention weights."""
        values = [getattr(self.config, name, None) for name in _ATTENTION_DROPOUT]
        return float(next((value for value in values if value is not None), 0.0))

    @property
    def has_segments(self) -> bool:
        """Whether the model distinguishes the two texts of a pair by segment ids."""
        config = self.config
        return getattr(config, "type_vocab_size", 0) >= 2 and config.model_type != "distilbert"

    @property
    def max_length(self) -> int:
        """The number of tokens that a sequence may have."""
        config = self.config
        most = getattr(config, "max_position_embeddings", None) or getattr(config, "n_positions", None) or 512
        if UNPADDED_FAMILIES.get(config.model_type, 0) is None:
            most -= config.pad_token_id + 1
        return int(min(most, self.tokenizer.model_max_length))

    @property
    def device(self) -> torch.device:
        """The device of the weights."""
        device: torch.device = next(self.model.parameters()).device
        return device

    def save_configuration(self, folder: Path) -> None:
        """Write `config.json`."""
        (folder / "config.json").write_text(self.configuration(), encoding="utf-8")

    def save_transformer(self, folder: Path, max_length: int) -> None:
        """Write the model, the tokenizer and the maximum length, as sentence-transformers reads them."""
        self._save_model(folder)
        self.tokenizer.save_pretrained(folder)
        write_json(folder / "sentence_bert_config.json", {"max_seq_length": max_length, "do_lower_case": False})

    def compile(self, **settings: Any) -> None:
        """Compile the model for training, as one graph for any number of tokens, with settings of `torch.compile`.

        Streams that the tile kernel does not accept, and everything outside training, run uncompiled.
        """
        if not self.unpadded:
            raise ModelError(f"{self.config.model_type} runs in buckets, which cannot be compiled: set compile=false")
        # in __dict__, so that the compiled module and its parameters do not count as submodules
        self.__dict__["_compiled"] = torch.compile(self.model, **{"dynamic": True, "fullgraph": True, **settings})

    def use_graphs(self, *, training: bool = True) -> None:
        """Pad streams to a few sizes and replay those that occur again as CUDA graphs, in training or outside it.

        Applies to streams in the host's memory. Call it after the model has moved to its device, and after `compile`.
        """
        if not self.unpadded:
            raise ModelError(f"{self.config.model_type} runs in buckets, not in CUDA graphs: set cuda_graphs=false")
        trained = [parameter for parameter in self.model.parameters() if parameter.requires_grad] if training else []
        # in __dict__, like the compiled model
        self.__dict__["_graphs"] = (StreamGraphs(self._run_padded, trained, self.device), training)

    def release_graphs(self) -> None:
        """Run every stream as usual again, and free the memory of captured graphs."""
        self.__dict__.pop("_graphs", None)

    def __getstate__(self) -> dict[str, Any]:
        """Return the attributes of a copy, which is neither compiled nor replayed."""
        return {name: value for name, value in self.__dict__.items() if name not in ("_compiled", "_graphs")}

    @property
    def supports_graphs(self) -> bool:
        """Whether `use_graphs` has something to replay: the model runs unpadded, by the tile kernel on a GPU."""
        return self.unpadded and self._use_tiles()

    def forward(self, stream: TokenStream, layers: Layers = "last") -> Tensor:
        """Return token states (tokens, hidden) in stream order."""
        if not self.unpadded:
            return self._buckets(stream.to(self.device), layers)
        graphs, in_training = self.__dict__.get("_graphs", (None, False))
        if self.training != in_training or layers != "last" or stream.ids.device.type != "cpu":
            graphs = None
        is_compiled = "_compiled" in self.__dict__ and self.training and layers == "last"
        if (graphs is None and not is_compiled and self._use_varlen()) or not self._use_tiles():
            return self._run_stream(stream, layers, graphs)
        # a sequence that is too long for the tile kernel must not keep the others from it
        short, long = stream.split(TILE_SIZES[-1])
        if short is None or long is None:
            return self._run_stream(stream, layers, None if short is None else graphs)
        return torch.cat([self._run_stream(short, layers, graphs), self._run_stream(long, layers)])

    def states_at(self, stream: TokenStream, positions: npt.NDArray[np.int64]) -> Tensor:
        """Return the states (positions, hidden) at ascending positions, cheaper than `forward` for BERT-like layers."""
        config = self.config
        rows = torch.from_numpy(positions).to(self.device)
        if not self.unpadded or config.model_type not in BERT_LIKE or config.is_decoder:
            return torch.as_tensor(self(stream)[rows])
        counts = np.diff(np.searchsorted(positions, stream.starts().numpy()))
        inputs, shape = self._flatten(stream.to(self.device))
        states = self.embeddings()(**inputs)
        project = getattr(self.model, "embeddings_project", None)  # ELECTRA with embeddings smaller than states
        if project is not None:
            states = project(states)
        *layers, last = self.layer_list()
        for layer in layers:
            states = layer(states, stream_shape=shape)
        return _last_layer_at(last, states[0], rows, counts, shape)

    def padded_states(
        self, ids: Tensor, mask: Tensor, segments: Tensor | None = None, layers: Layers = "last"
    ) -> Tensor:
        """Return token states (rows, length, hidden) of right-padded rows; all inputs are (rows, length)."""
        positions = {}
        if self.config.model_type in UNPADDED_FAMILIES:
            # explicit: RoBERTa's own code would take a padding token in a text for the end of the text
            row = torch.arange(ids.shape[1], device=ids.device) + self._first_position
            positions = {"position_ids": row[None].expand_as(ids)}
        return self._run_model(
            self.model, layers, input_ids=ids, attention_mask=mask, **positions, **self._segments(segments, ids)
        )

    @property
    def _first_position(self) -> int:
        first = UNPADDED_FAMILIES[self.config.model_type]
        return int(self.config.pad_token_id) + 1 if first is None else first

    def _run_stream(self, stream: TokenStream, layers: Layers, graphs: StreamGraphs | None = None) -> Tensor:
        """Run a stream unpadded, or padded by graphs."""
        if graphs is None:
            return self._run(*self._flatten(stream.to(self.device)), layers)
        first, padding_id = self._first_position, getattr(self.config, "pad_token_id", None) or 0
        return graphs(PaddedStream.of(stream, first_position=first, padding_id=padding_id, tiled=self._use_tiles()))

    def _run_padded(self, numbers: Tensor, padded: PaddedStream) -> Tensor:
        ids, positions, segments, shape = padded.unpack(numbers)
        return self._run({"input_ids": ids, "position_ids": positions, **self._segments(segments, ids)}, shape)

    def _run(self, inputs: dict[str, Tensor], shape: StreamShape, layers: Layers = "last") -> Tensor:
        """Return the states (tokens, hidden) of one row of tokens, by the compiled model if it applies."""
        compiled = self.__dict__.get("_compiled")
        if compiled is not None and self.training and layers == "last" and shape.tiles is not None:
            # a model's numbers (scales, dropout) are constants; torch would treat them as variables, and trace again
            with torch._dynamo.config.patch(specialize_float=True):
                return self._run_model(compiled, layers, **inputs, stream_shape=shape)[0]
        return self._run_model(self.model, layers, **inputs, stream_shape=shape)[0]

    def _flatten(self, stream: TokenStream) -> tuple[dict[str, Tensor], StreamShape]:
        """Return the stream as one row of tokens (1, tokens), and its shape."""
        positions = to_device(stream.positions() + self._first_position, self.device)
        segments = self._segments(None if stream.segments is None else stream.segments[None], stream.ids[None])
        inputs = {"input_ids": stream.ids[None], "position_ids": positions[None], **segments}
        return inputs, StreamShape.of(stream, self.device, varlen=self._use_varlen(), tiled=self._use_tiles())

    def _use_tiles(self) -> bool:
        size = self.hidden // self.config.num_attention_heads
        return self.device.type == "cuda" and TRITON and size in HEAD_SIZES

    def _use_varlen(self) -> bool:
        """Whether the varlen kernel applies: half precision on CUDA, and no dropout on attention weights."""
        if self.device.type != "cuda":
            return False
        half = self.token_embeddings().weight.dtype in (torch.bfloat16, torch.float16)
        return (half or torch.is_autocast_enabled("cuda")) and not (self.training and self.attention_dropout > 0)

    def _buckets(self, stream: TokenStream, layers: Layers) -> Tensor:
        starts = stream.starts().tolist()
        pieces = []
        for first, last in stream.buckets(BUCKET_TOKENS):
            lengths = torch.from_numpy(stream.lengths[first:last]).to(self.device)
            mask = torch.arange(int(lengths[-1]), device=self.device)[None] < lengths[:, None]
            ids = torch.full(mask.shape, self.tokenizer.pad_token_id or 0, device=self.device)
            part = slice(starts[first], starts[last])
            ids[mask] = stream.ids[part]
            segments = None
            if stream.segments is not None:
                segments = torch.zeros_like(ids)
                segments[mask] = stream.segments[part]
            pieces.append(self.padded_states(ids, mask.long(), segments, layers)[mask])
        return torch.cat(pieces)

    def _segments(self, segments: Tensor | None, ids: Tensor) -> dict[str, Any]:
        if not self.has_segments:
            return {}
        return {"token_type_ids": torch.zeros_like(ids) if segments is None else segments}


def check_weights(name: str, missing: Sequence[str]) -> None:
    """Raise a ModelError if a checkpoint lacks weights, or has them in another size; only a pooler may be missing."""
    needed = sorted(key for key in missing if not key.startswith("pooler."))
    if needed:
        raise ModelError(
            f"cannot load the model {name!r}: its weights do not fit its configuration "
            f"({len(needed)} are missing or of another size, {needed[0]} among them)"
        )


def _last_layer_at(
    layer: Any, states: Tensor, positions: Tensor, counts: npt.NDArray[np.int64], shape: StreamShape
) -> Tensor:
    """Return the output (positions, hidden) of a BERT-like last layer at `counts` positions of each sequence.

    Keys and values are computed for every token. Queries, attention output and the feed-forward part, five sixths of
    the layer's work, are computed for these positions only. `states` is the output of the layer below (tokens, hidden).
    """
    attention, selected = layer.attention.self, states[positions]
    projected = (attention.query(selected), attention.key(states), attention.value(states))
    heads = (attention.num_attention_heads, attention.attention_head_size)
    query, key, value = (rows.unflatten(1, heads) for rows in projected)
    dropout = attention.dropout.p if attention.training else 0.0
    attended = attention_at(query, key, value, counts, shape, scaling=attention.scaling, dropout=dropout)
    output: Tensor = layer.feed_forward_chunk(layer.attention.output(attended.flatten(1), selected))
    return output
