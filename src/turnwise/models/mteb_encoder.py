"""Encoders for MTEB: the interface that `mteb.evaluate` (mteb 2.x) expects of a model.

mteb is not a dependency of turnwise; it is imported when its metadata is requested.
"""

from collections.abc import Iterable
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch.nn.functional import normalize

from turnwise.core.model_names import DEFAULT_ENCODER
from turnwise.core.types import Vectors
from turnwise.models.encoder import Encoder, encoder_fingerprint
from turnwise.models.model_card import short_name


class MtebEncoder:
    """An encoder that `mteb.evaluate` accepts; similarities are cosines.

    Args:
        encoder: the name or folder of a model, or an `Encoder`.
        name: what mteb calls the model in its results, as `ORGANISATION/MODEL`; None: the encoder's own name, with
            `turnwise/` before it unless it is a Hugging Face id.
    """

    def __init__(self, encoder: str | Path | Encoder = DEFAULT_ENCODER, *, name: str | None = None):
        self.encoder = encoder if isinstance(encoder, Encoder) else Encoder.load(encoder)
        self.name = name or _mteb_name(self.encoder.name)
        if self.name.count("/") != 1:
            raise ValueError(f"name must be ORGANISATION/MODEL, got {self.name!r}")

    def encode(
        self,
        inputs: Iterable[dict[str, Any]],
        *,
        task_metadata: Any = None,
        hf_split: str = "",
        hf_subset: str = "",
        prompt_type: Any = None,
        precision: str = "float32",
        **_: Any,
    ) -> Vectors:
        """Return the vectors (inputs, dimensions) of all texts in mteb's batches.

        Prompts are not used: the encoders of turnwise have none. mteb's batch size and progress bar have no effect.
        """
        if precision != "float32":
            raise ValueError(f"the precision of turnwise's vectors is float32, not {precision}")
        texts = [text for batch in inputs for text in batch["text"]]
        return self.encoder.encode(texts)

    def similarity(self, embeddings1: Any, embeddings2: Any) -> torch.Tensor:
        """Return the cosine of every vector of the first with every vector of the second."""
        return _unit(embeddings1) @ _unit(embeddings2).T

    def similarity_pairwise(self, embeddings1: Any, embeddings2: Any) -> torch.Tensor:
        """Return the cosine of each vector of the first with the one of the second in the same row."""
        return (_unit(embeddings1) * _unit(embeddings2)).sum(1)

    @cached_property
    def mteb_model_meta(self) -> Any:
        """The metadata that mteb stores with results; the revision is a hash of weights and settings."""
        from mteb.models.model_meta import ModelMeta, ScoringFunction

        return ModelMeta.create_empty(
            {
                "name": self.name,
                "revision": encoder_fingerprint(self.encoder)[:40],
                "max_tokens": self.encoder.max_length,
                "embed_dim": self.encoder.hidden,
                "similarity_fn_name": ScoringFunction.COSINE,
                "use_instructions": False,
            }
        )


def _mteb_name(name: str) -> str:
    is_hub_id = name.count("/") == 1 and not name.startswith((".", "/")) and not Path(name).exists()
    return name if is_hub_id else f"turnwise/{short_name(name)}"


def _unit(vectors: Any) -> torch.Tensor:
    return normalize(torch.atleast_2d(torch.as_tensor(vectors)).float(), dim=1)
