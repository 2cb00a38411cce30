"""Backbones that transformers runs: others than BERT and MPNet, and tokenizers that are not in a `tokenizer.json`.

Where the model's own code lets attention be replaced and accepts positions, the whole stream is one row of tokens.
Where it computes with the row's length (the relative positions of T5), sequences run in buckets.
"""

from pathlib import Path
from typing import Any

from torch import Tensor, nn
from transformers import (
    AttentionInterface,
    AutoConfig,
    AutoModel,
    AutoTokenizer,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    T5EncoderModel,
)
from transformers.masking_utils import AttentionMaskInterface

from turnwise.core.files import reset_permissions
from turnwise.models.backbone.attention import unpadded_attention
from turnwise.models.backbone.backbone import UNPADDED_FAMILIES, Backbone, check_weights
from turnwise.models.backbone.mpnet import MpnetBackbone
from turnwise.models.backbone.stream import Layers

#: The name under which the models of transformers find the attention over streams.
UNPADDED = "turnwise_unpadded"


class TransformersBackbone(Backbone):
    """A model of transformers and its tokenizer."""

    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase

    def __init__(self, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase):
        family = model.config.model_type
        super().__init__(
            model, tokenizer, model.config, unpadded=family in UNPADDED_FAMILIES and family != MpnetBackbone.family
        )
        padded_attention = "eager" if family == MpnetBackbone.family else "sdpa"
        model.set_attn_implementation(UNPADDED if self.unpadded else padded_attention)

    @classmethod
    def load(cls, folder: Path) -> "TransformersBackbone":
        """Load a folder, with weights in single precision."""
        config = AutoConfig.from_pretrained(folder, trust_remote_code=False)  # True and None may run code
        kind: Any = T5EncoderModel if config.model_type in ("t5", "mt5") else AutoModel
        options = {"use_safetensors": True, "ignore_mismatched_sizes": True, "output_loading_info": True}
        options["trust_remote_code"] = False
        model, report = kind.from_pretrained(folder, config=config, dtype="float32", **options)
        # transformers initialises these at random and continues
        random = [*report["missing_keys"], *(key for key, *_ in report["mismatched_keys"])]
        check_weights(str(folder), random)
        # with zeros instead of random numbers a model is the same at every load
        for key in random:
            nn.init.zeros_(model.get_parameter(key))
        return cls(model, AutoTokenizer.from_pretrained(folder, trust_remote_code=False))

    def configuration(self) -> str:
        """Return the configuration as transformers writes it."""
        return str(self.config.to_json_string())

    def token_embeddings(self) -> nn.Module:
        """Return the table of token embeddings."""
        return self.model.get_input_embeddings()

    def add_tokens(self, tokens: tuple[str, ...]) -> None:
        """Add special tokens such as [SYS]; their embeddings are sampled around the mean of the others."""
        special: Any = {"additional_special_tokens": list(tokens)}
        if self.tokenizer.add_special_tokens(special, replace_extra_special_tokens=False):
            self.model.resize_token_embeddings(len(self.tokenizer), mean_resizing=True)

    def _save_model(self, folder: Path) -> None:
        self.model.save_pretrained(folder)
        for path in folder.glob("*.safetensors"):
            reset_permissions(path)

    def _run_model(self, model: Any, layers: Layers, **inputs: Any) -> Tensor:
        if layers == "last":
            last: Tensor = model(**inputs).last_hidden_state
            return last
        output = model(**inputs, output_hidden_states=True)
        # hidden state 0 is the embeddings
        average: Tensor = (output.hidden_states[1] + output.last_hidden_state) / 2
        return average


def _no_mask(*_: Any, **__: Any) -> None:
    """Build no attention mask: the stream's shape replaces it."""


AttentionInterface.register(UNPADDED, unpadded_attention)
AttentionMaskInterface.register(UNPADDED, _no_mask)
