"""The last transformer layer at a few places alone.

Who looks at a handful of token states needs no others of the last layer. Its keys and values are still those of every token, but
queries, what is made of the attention, and the feed-forward part, five sixths of the layer's work, are done for these places only.
"""

from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from turnwise.models.backbone.attention import StreamShape, attention_at

#: Families whose layers are built as BERT's are, part by part and by the same names.
LIKE_BERT = ("bert", "electra", "roberta", "xlm-roberta", "camembert")


def last_layer_at(
    layer: Any, states: torch.Tensor, places: torch.Tensor, counts: npt.NDArray[np.int64], shape: StreamShape
) -> torch.Tensor:
    """What a layer of one of these families gives at some places of a stream (places, hidden).

    Args:
        layer: the transformers module of the layer.
        states: what the layer below gave for all tokens (tokens, hidden).
        places: where to look, ascending (places,).
        counts: how many of them each sequence of the stream has (sequences,).
        shape: of the stream.
    """
    attention = layer.attention.self

    def heads(rows: torch.Tensor) -> torch.Tensor:
        return rows.view(len(rows), attention.num_attention_heads, attention.attention_head_size)

    looking = states[places]
    attended = attention_at(
        heads(attention.query(looking)),
        heads(attention.key(states)),
        heads(attention.value(states)),
        counts,
        shape,
        scaling=attention.scaling,
        dropout=attention.dropout.p if attention.training else 0.0,
    )
    found: torch.Tensor = layer.feed_forward_chunk(layer.attention.output(attended.flatten(1), looking))
    return found
