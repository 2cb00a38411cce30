"""MPNet over a stream of tokens: BERT without segments, with a bias of the attention scores by relative position."""

import math
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from turnwise.models.backbone.attention import StreamShape
from turnwise.models.backbone.bert import BertBackbone, BertLayer, BertNetwork, Embedding, Linear, attend

#: Relative positions: half of the buckets for each direction, of which half are of one position each; the others widen
#: up to the farthest position. MPNet's code ignores other numbers in a configuration.
_BUCKETS, _FARTHEST = 32, 128


class MpnetBackbone(BertBackbone):
    """An MPNet and its tokenizer."""

    family: ClassVar[str] = "mpnet"
    model_name: ClassVar[str] = "MPNetModel"
    defaults: ClassVar[dict[str, Any]] = {
        "hidden_size": 768,
        "intermediate_size": 3072,
        "num_attention_heads": 12,
        "num_hidden_layers": 12,
        "vocab_size": 30527,
        "max_position_embeddings": 512,
        "relative_attention_num_buckets": _BUCKETS,
        "pad_token_id": 1,
        "bos_token_id": 0,
        "eos_token_id": 2,
        "hidden_act": "gelu",
        "hidden_dropout_prob": 0.1,
        "attention_probs_dropout_prob": 0.1,
        "layer_norm_eps": 1e-12,
        "initializer_range": 0.02,
        "tie_word_embeddings": True,
    }
    supported: ClassVar[dict[str, Any]] = {"hidden_act": "gelu", "quantization_config": None}
    special_tokens: ClassVar[dict[str, str]] = {
        "cls_token": "<s>",
        "pad_token": "<pad>",
        "sep_token": "</s>",
        "unk_token": "[UNK]",
        "mask_token": "<mask>",
    }

    @staticmethod
    def build_network(config: Any) -> "BertNetwork":
        """Return the network of a configuration, without weights."""
        return _MpnetNetwork(config)

    def _use_varlen(self) -> bool:
        """Return False: PyTorch's kernel for sequences of different lengths has no bias."""
        return False


class _MpnetNetwork(BertNetwork):
    """The modules of `MPNetModel`, with its names."""

    def __init__(self, config: Any):
        nn.Module.__init__(self)
        self.embeddings = _MpnetEmbeddings(config)
        layers = [BertLayer(config, _MpnetAttention(config)) for _ in range(config.num_hidden_layers)]
        table = Embedding(_BUCKETS, config.num_attention_heads)
        self.encoder = nn.ModuleDict({"layer": nn.ModuleList(layers), "relative_attention_bias": table})
        self.pooler = nn.ModuleDict({"dense": Linear(config.hidden_size, config.hidden_size)})

    def position_bias(self, shape: StreamShape | None, input_ids: Tensor) -> Tensor:
        """Return the bias (heads, length, length) of pairs of positions."""
        length = input_ids.shape[1] if shape is None else shape.tile_size or shape.longest
        positions = torch.arange(length, device=input_ids.device)
        bias: Tensor = self.encoder["relative_attention_bias"](_bucket(positions[None, :] - positions[:, None]))
        return bias.permute(2, 0, 1)


def _bucket(distance: Tensor) -> Tensor:
    """Return the buckets of distances from query to key."""
    half = _BUCKETS // 2
    exact = half // 2
    steps = distance.abs()
    logarithm = torch.log(steps.clamp(min=exact).float() / exact) / math.log(_FARTHEST / exact)
    wide = (exact + (logarithm * (half - exact)).long()).clamp(max=half - 1)
    return torch.where(steps < exact, steps, wide) + (distance > 0).long() * half


class _MpnetEmbeddings(nn.Module):
    def __init__(self, config: Any):
        super().__init__()
        size = config.hidden_size
        self.word_embeddings = Embedding(config.vocab_size, size, padding_idx=config.pad_token_id)
        self.position_embeddings = Embedding(config.max_position_embeddings, size, padding_idx=config.pad_token_id)
        self.LayerNorm = nn.LayerNorm(size, eps=config.layer_norm_eps)
        self.dropout = nn.Dropout(config.hidden_dropout_prob)

    def forward(self, input_ids: Tensor, position_ids: Tensor, token_type_ids: Tensor | None = None) -> Tensor:
        states = self.word_embeddings(input_ids) + self.position_embeddings(position_ids)
        dropped: Tensor = self.dropout(self.LayerNorm(states))
        return dropped


class _MpnetAttention(nn.Module):
    def __init__(self, config: Any):
        super().__init__()
        self.attn = _MpnetSelfAttention(config)
        self.LayerNorm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        self.dropout = nn.Dropout(config.hidden_dropout_prob)

    def forward(self, states: Tensor, shape: StreamShape | None, mask: Tensor | None, bias: Tensor | None) -> Tensor:
        output: Tensor = self.LayerNorm(self.dropout(self.attn(states, shape, mask, bias)) + states)
        return output


class _MpnetSelfAttention(nn.Module):
    def __init__(self, config: Any):
        super().__init__()
        self.num_attention_heads = config.num_attention_heads
        self.attention_head_size = config.hidden_size // config.num_attention_heads
        self.scaling = self.attention_head_size**-0.5
        self.q, self.k, self.v, self.o = (Linear(config.hidden_size, config.hidden_size) for _ in range(4))
        self.dropout = nn.Dropout(config.attention_probs_dropout_prob)

    def forward(self, states: Tensor, shape: StreamShape | None, mask: Tensor | None, bias: Tensor | None) -> Tensor:
        output: Tensor = self.o(attend(self, (self.q, self.k, self.v), states, shape, mask, bias))
        return output
