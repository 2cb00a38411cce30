"""The backbone: a Hugging Face encoder that runs over a stream of tokens.

Where the model's own code lets attention be replaced and takes positions (BERT, RoBERTa, DistilBERT, ELECTRA, ModernBERT, GPT-2
and their like), the whole stream is one row of tokens and nothing is padded. Where it computes with the row's length (T5's and
MPNet's relative positions), sequences run in buckets of like length under a budget of tokens. Either way token states come back
as one flat tensor in stream order.
"""

from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch
from safetensors import SafetensorError
from torch import nn
from transformers import AutoConfig, AutoModel, AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase, T5EncoderModel

from turnwise.models.backbone.attention import UNPADDED, StreamShape, shape_of
from turnwise.models.backbone.last_layer import LIKE_BERT, last_layer_at
from turnwise.models.backbone.source import BackboneError, check, locate
from turnwise.models.backbone.stream import TokenStream, to_device
from turnwise.models.backbone.tiles import HEAD_SIZES, TRITON

#: Families whose code runs over a flat stream, and where their positions start (None: behind the padding id).
UNPADDED_FAMILIES: dict[str, int | None] = {
    "bert": 0,
    "distilbert": 0,
    "electra": 0,
    "modernbert": 0,
    "gpt2": 0,
    "roberta": None,
    "xlm-roberta": None,
    "camembert": None,
}

#: Tokens of a padded bucket, for families that cannot run unpadded.
BUCKET_TOKENS = 4096

Execution = Literal["unpadded", "buckets"]

#: Whose states are asked for: the last layer's, or the average of the first transformer layer's and the last's.
Layers = Literal["last", "first-last"]

#: What configurations call the two kinds of dropout.
_HIDDEN_DROPOUT = (
    "hidden_dropout_prob",
    "dropout",
    "resid_pdrop",
    "embd_pdrop",
    "mlp_dropout",
    "embedding_dropout",
    "dropout_rate",  # T5 has but one number for both
)
_ATTENTION_DROPOUT = ("attention_probs_dropout_prob", "attention_dropout", "attn_pdrop")


class Backbone(nn.Module):
    """A Hugging Face encoder and its tokenizer.

    Attributes:
        model: the transformers model.
        tokenizer: its tokenizer.
        execution: how streams are run: 'unpadded' or in 'buckets'.
    """

    def __init__(self, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, execution: Execution | None = None):
        super().__init__()
        family = model.config.model_type
        can = family in UNPADDED_FAMILIES
        if execution == "unpadded" and not can:
            raise BackboneError(f"{family} cannot run unpadded: its code needs rows of one length; use buckets")
        self.execution: Execution = execution or ("unpadded" if can else "buckets")
        self.model = model
        self.tokenizer = tokenizer
        model.set_attn_implementation(
            UNPADDED if self.execution == "unpadded" else "sdpa" if family != "mpnet" else "eager"
        )

    @classmethod
    def load(
        cls, name: str | Path, dtype: torch.dtype = torch.float32, execution: Execution | None = None
    ) -> "Backbone":
        """Loads 'minilm', a folder, or a Hugging Face id; weights are read from safetensors only.

        transformers' offline variables (`HF_HUB_OFFLINE=1`) are honoured.

        Raises:
            BackboneError: if there is no such model, it has no safetensors, or they do not fit its configuration.
        """
        place = locate(name)
        check(place)
        try:
            config = AutoConfig.from_pretrained(place)
            kind: Any = T5EncoderModel if config.model_type in ("t5", "mt5") else AutoModel
            how = {"use_safetensors": True, "ignore_mismatched_sizes": True, "output_loading_info": True}
            model, report = kind.from_pretrained(place, config=config, dtype=dtype, **how)
            tokenizer = AutoTokenizer.from_pretrained(place)
        except (OSError, ValueError, SafetensorError) as error:
            reason = str(error).strip().splitlines()[0]
            raise BackboneError(f"cannot load the model {str(name)!r}: {reason}") from error
        # transformers would go on with random numbers
        random = [*report["missing_keys"], *(key for key, *_ in report["mismatched_keys"])]
        unfit = sorted(key for key in random if not key.startswith("pooler."))
        if unfit:
            raise BackboneError(
                f"cannot load the model {str(name)!r}: its weights do not fit its configuration ({len(unfit)} are missing or of"
                f" another size, {unfit[0]} among them)"
            )
        # the pooler is not used, and often missing; without random numbers a model is the same at every load
        for key in random:
            nn.init.zeros_(model.get_parameter(key))
        return cls(model, tokenizer, execution)

    @property
    def config(self) -> Any:
        """The transformers configuration."""
        return self.model.config

    @property
    def hidden(self) -> int:
        """The size of a token state."""
        return int(self.config.hidden_size)

    @property
    def layers(self) -> int:
        """How many transformer layers there are."""
        return len(self.layer_list())

    def layer_list(self) -> nn.ModuleList:
        """The transformer layers, bottom first."""
        for module in self.model.modules():
            if isinstance(module, nn.ModuleList) and len(module) == self.model.config.num_hidden_layers:
                return module
        raise BackboneError(f"the layers of {self.model.config.model_type} were not found")

    def keep_layers(self, count: int) -> None:
        """Leaves out all transformer layers but the lowest `count`.

        Raises:
            BackboneError: if there are not so many.
        """
        found = self.layer_list()
        if not 1 <= count <= len(found):
            raise BackboneError(
                f"layers={count}: {self.model.config.model_type} has {len(found)} here, keep 1 to {len(found)}"
            )
        del found[count:]
        self.model.config.num_hidden_layers = count
        if getattr(self.model.config, "layer_types", None):  # ModernBERT's, a name a layer
            self.model.config.layer_types = self.model.config.layer_types[:count]

    def embeddings(self) -> nn.Module:
        """The module that turns tokens and positions into the first states."""
        found = getattr(self.model, "embeddings", None)
        return found if isinstance(found, nn.Module) else self.model.get_input_embeddings()

    def set_dropout(self, hidden: float | None, attention: float | None) -> None:
        """Changes the dropout on hidden states, on attention weights, or both; None leaves it."""
        for name, module in self.model.named_modules():
            if isinstance(module, nn.Dropout):
                value = attention if self._drops_attention(name) else hidden
                if value is not None:
                    module.p = value
                continue
            # T5, ModernBERT and their like hand a number to the attention function instead
            for number in ("dropout", "attention_dropout"):
                value = (
                    attention
                    if number == "attention_dropout" or type(module).__name__.endswith("Attention")
                    else hidden
                )
                if value is not None and isinstance(getattr(module, number, None), int | float):
                    setattr(module, number, value)
        for value, names in ((hidden, _HIDDEN_DROPOUT), (attention, _ATTENTION_DROPOUT)):
            for name in names:
                if value is not None and hasattr(self.model.config, name):
                    setattr(self.model.config, name, value)

    def _drops_attention(self, name: str) -> bool:
        """Whether a dropout module is the one on attention weights, by what transformers calls it."""
        if name.endswith("attention.dropout"):
            return bool(self.model.config.model_type != "mpnet")  # there it stands behind the attention
        return name.endswith(("attention.self.dropout", "attention.attn.dropout", "attn_dropout"))

    @property
    def has_segments(self) -> bool:
        """Whether the model tells the two texts of a pair apart by segments."""
        config = self.config
        return getattr(config, "type_vocab_size", 0) >= 2 and config.model_type != "distilbert"

    @property
    def longest(self) -> int:
        """How many tokens a sequence may have."""
        config = self.config
        most = getattr(config, "max_position_embeddings", None) or getattr(config, "n_positions", None) or 512
        if UNPADDED_FAMILIES.get(config.model_type, 0) is None or config.model_type == "mpnet":
            most -= config.pad_token_id + 1
        return int(min(most, self.tokenizer.model_max_length))

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return self.model.device

    def add_tokens(self, tokens: tuple[str, ...]) -> None:
        """Adds special tokens such as [SYS]; new rows of the embedding are drawn around the mean of the others."""
        if self.tokenizer.add_special_tokens(
            {"additional_special_tokens": list(tokens)}, replace_extra_special_tokens=False
        ):
            self.model.resize_token_embeddings(len(self.tokenizer), mean_resizing=True)

    def lay_out_for_cpu(self) -> None:
        """Lays the weights of linear layers out by columns, which a CPU's matrix product reads faster; their values stay."""
        for module in self.model.modules():
            if isinstance(module, nn.Linear):
                module.weight.data = module.weight.data.t().contiguous().t()

    def compile(self, **settings: Any) -> None:
        """Has torch compile the model for training, at the first step; on a GPU, for streams that attention in tiles serves.

        In one piece, for any number of tokens. Other streams, and all outside of training, go on uncompiled.

        Args:
            settings: instead of the usual ones, for `torch.compile`.

        Raises:
            BackboneError: if the model does not run unpadded.
        """
        if self.execution != "unpadded":
            raise BackboneError(
                f"{self.config.model_type} runs in buckets, which are not compiled: leave compile=false"
            )
        # not as an attribute: a module would count what is compiled, and its parameters, among its own
        self.__dict__["_compiled"] = torch.compile(self.model, **{"dynamic": True, "fullgraph": True, **settings})

    def forward(self, stream: TokenStream, layers: Layers = "last") -> torch.Tensor:
        """Token states (tokens, hidden) in stream order."""
        stream = stream.to(self.device)
        return self._unpadded(stream, layers) if self.execution == "unpadded" else self._buckets(stream, layers)

    def states_at(self, stream: TokenStream, places: npt.NDArray[np.int64]) -> torch.Tensor:
        """Token states (places, hidden) of a few tokens, as `forward` gives them, but cheaper where layers are BERT's.

        Args:
            stream: the sequences.
            places: which tokens, counted in stream order, ascending.
        """
        config = self.model.config
        rows = torch.from_numpy(places).to(self.device)
        if self.execution == "buckets" or config.model_type not in LIKE_BERT or config.is_decoder:
            return torch.as_tensor(self(stream)[rows])
        counts = np.diff(np.searchsorted(places, stream.starts().numpy()))
        stream = stream.to(self.device)
        inputs, shape = self._flat(stream)
        states = self.embeddings()(**inputs)
        project = getattr(self.model, "embeddings_project", None)  # ELECTRA's, where embeddings are smaller than states
        if project is not None:
            states = project(states)
        *layers, last = self.layer_list()
        for layer in layers:
            states = layer(states, stream_shape=shape)
        return last_layer_at(last, states[0], rows, counts, shape)

    def padded(
        self, ids: torch.Tensor, mask: torch.Tensor, segments: torch.Tensor | None = None, layers: Layers = "last"
    ) -> torch.Tensor:
        """Token states (rows, places, hidden) of rows that are padded at their ends, by transformers' own attention.

        Args:
            ids: token ids (rows, places).
            mask: 1 where there is a token, 0 where there is padding (rows, places).
            segments: segment ids (rows, places), where sequences have two parts.
            layers: whose states.
        """
        positions = {}
        if self.config.model_type in UNPADDED_FAMILIES:
            # said outright: RoBERTa's own code would take a padding token that somebody typed for the end of a text
            places = torch.arange(ids.shape[1], device=ids.device) + self._first_position
            positions = {"position_ids": places[None].expand_as(ids)}
        return self._states(layers, input_ids=ids, attention_mask=mask, **positions, **self._segments(segments, ids))

    @property
    def _first_position(self) -> int:
        first = UNPADDED_FAMILIES[self.config.model_type]
        return int(self.config.pad_token_id) + 1 if first is None else first

    def _states(self, layers: Layers, **inputs: Any) -> torch.Tensor:
        """Token states (rows, places, hidden) of one pass of the model."""
        if layers == "last":
            return torch.as_tensor(self.model(**inputs).last_hidden_state)
        output = self.model(**inputs, output_hidden_states=True)
        # number 0 of the hidden states are the embeddings, which are no layer's
        return torch.as_tensor((output.hidden_states[1] + output.last_hidden_state) / 2)

    def _unpadded(self, stream: TokenStream, layers: Layers) -> torch.Tensor:
        inputs, shape = self._flat(stream)
        compiled = self.__dict__.get("_compiled")
        if compiled is not None and self.training and layers == "last" and shape.tiles is not None:
            # a model's own numbers (scales, shares of dropout) are constants, which torch takes for variables, as it does sizes; it
            # finds out when all is traced, and begins anew
            with torch._dynamo.config.patch(specialize_float=True):
                return torch.as_tensor(compiled(**inputs, stream_shape=shape).last_hidden_state)[0]
        return self._states(layers, **inputs, stream_shape=shape)[0]

    def _flat(self, stream: TokenStream) -> tuple[dict[str, torch.Tensor], StreamShape]:
        """The stream as one row of tokens (1, tokens), and its shape."""
        positions = to_device(stream.positions() + self._first_position, self.device)
        segments = self._segments(None if stream.segments is None else stream.segments[None], stream.ids[None])
        inputs = {"input_ids": stream.ids[None], "position_ids": positions[None], **segments}
        return inputs, shape_of(stream, self.device, varlen=self._varlen(), tiled=self._tiled())

    def _tiled(self) -> bool:
        """Whether the kernel for short sequences serves."""
        size = self.hidden // self.config.num_attention_heads
        return self.device.type == "cuda" and TRITON and size in HEAD_SIZES

    def _varlen(self) -> bool:
        """Whether the varlen kernel serves: half precision on CUDA, and no dropout on attention weights to be done."""
        if self.device.type != "cuda":
            return False
        half = torch.is_autocast_enabled("cuda") or self.model.dtype in (torch.bfloat16, torch.float16)
        return half and not (self.training and attention_dropout(self.model) > 0)

    def _buckets(self, stream: TokenStream, layers: Layers) -> torch.Tensor:
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
            pieces.append(self.padded(ids, mask.long(), segments, layers)[mask])
        return torch.cat(pieces)

    def _segments(self, segments: torch.Tensor | None, ids: torch.Tensor) -> dict[str, Any]:
        """The segment ids, where the model has them."""
        if not self.has_segments:
            return {}
        return {"token_type_ids": torch.zeros_like(ids) if segments is None else segments}


def attention_dropout(model: PreTrainedModel) -> float:
    """The dropout on attention weights that the model was configured with."""
    config = model.config
    for name in _ATTENTION_DROPOUT:
        value = getattr(config, name, None)
        if value is not None:
            return float(value)
    return 0.0
