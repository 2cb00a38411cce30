"""Encoders for other libraries: a step of a scikit-learn pipeline, and a model of MTEB (`mteb.evaluate`, mteb 2.x).

mteb is not a dependency of turnwise; it is imported when its metadata is requested.
"""

from collections.abc import Iterable
from functools import cached_property
from pathlib import Path
from typing import Any, Self

from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin

from turnwise.core.model_names import DEFAULT_ENCODER
from turnwise.core.types import SupportsEncode, Vectors
from turnwise.models.backbone.source import short_name
from turnwise.models.encoder import Encoder, encoder_fingerprint


class EncoderTransformer(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Transforms texts and conversations into vectors; follows scikit-learn's conventions.

    The encoder is loaded when it is first needed. A transformer with the name of a model, also a pickled one, holds the
    name, not the weights; an encoder given as an object is not copied by `sklearn.base.clone`.

    Args:
        encoder: the name or folder of a model, or any object that encodes.
        normalise: scale vectors to length 1; None: the model's own setting.
        max_length: tokens per input, at most the model's own; None: the model's own.
    """

    def __init__(
        self,
        encoder: "str | Path | SupportsEncode" = DEFAULT_ENCODER,
        *,
        normalise: bool | None = None,
        max_length: int | None = None,
    ):
        self.encoder = encoder
        self.normalise = normalise
        self.max_length = max_length

    def fit(self, texts: Iterable[Any], y: Any = None) -> Self:
        """Load the encoder and check the kind of the inputs; nothing is learnt from them."""
        _as_list(texts)
        self._load()
        return self

    def transform(self, texts: Iterable[Any]) -> Vectors:
        """Return vectors (inputs, dimensions) of texts, or conversations (lists of turns, newest last)."""
        return self._load().encode(_as_list(texts), normalise=self.normalise, max_length=self.max_length)

    @property
    def _n_features_out(self) -> int:  # read by `get_feature_names_out`
        return int(self._load().encode(["text"]).shape[1])

    def _load(self) -> SupportsEncode:
        if self.normalise not in (None, True, False):
            raise ValueError(f"normalise must be True, False or None, got {self.normalise!r}")
        if self.max_length is not None and (type(self.max_length) is not int or self.max_length < 1):
            raise ValueError(f"max_length must be a positive integer or None, got {self.max_length!r}")
        if not isinstance(self.encoder, str | Path):
            return self.encoder
        name, encoder = getattr(self, "_loaded", (None, None))
        if encoder is None or name != self.encoder:
            encoder = Encoder.load(self.encoder)
            self._loaded = (self.encoder, encoder)
        return encoder

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in super().__getstate__().items() if name != "_loaded"}

    def __sklearn_clone__(self) -> "EncoderTransformer":
        return type(self)(**self.get_params(deep=False))  # the same encoder: it is never changed

    def __sklearn_is_fitted__(self) -> bool:
        return True

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.requires_fit = False
        tags.input_tags.string, tags.input_tags.two_d_array = True, False
        tags.transformer_tags.preserves_dtype = []
        return tags


def _as_list(texts: Iterable[Any]) -> list[Any]:
    """Return the inputs as a list; raise ValueError for what is not one-dimensional."""
    if isinstance(texts, str):
        raise ValueError("expected a list of texts, got a single text: give [text]")
    dimensions = getattr(texts, "ndim", 1)
    if dimensions != 1:
        raise ValueError(f"expected one text per input, got {dimensions} dimensions: select one column")
    return list(texts)


class MtebEncoder:
    """An encoder that `mteb.evaluate` accepts; similarities are cosines.

    Args:
        encoder: the name or folder of a model, or an `Encoder`.
        name: what mteb calls the model in its results, as `ORGANISATION/MODEL`; None: the encoder's own name, with
            `turnwise/` before it unless it is a Hugging Face id.
    """

    def __init__(self, encoder: str | Path | Encoder = DEFAULT_ENCODER, *, name: str | None = None):
        self.encoder = encoder if isinstance(encoder, Encoder) else Encoder.load(encoder)
        own = self.encoder.name
        is_hub_id = own.count("/") == 1 and not own.startswith((".", "/")) and not Path(own).exists()
        self.name = name or (own if is_hub_id else f"turnwise/{short_name(own)}")
        if self.name.count("/") != 1:
            raise ValueError(f"name must be ORGANISATION/MODEL, got {self.name!r}")

    def encode(self, inputs: Iterable[dict[str, Any]], *, precision: str = "float32", **_: Any) -> Vectors:
        """Return the vectors (inputs, dimensions) of all texts in mteb's batches; its other options have no effect."""
        if precision != "float32":
            raise ValueError(f"the precision of turnwise's vectors is float32, not {precision}")
        texts = [text for batch in inputs for text in batch["text"]]
        return self.encoder.encode(texts)

    def similarity(self, embeddings1: Any, embeddings2: Any) -> Any:
        """Return the cosine of every vector of the first with every vector of the second."""
        return _unit(embeddings1) @ _unit(embeddings2).T

    def similarity_pairwise(self, embeddings1: Any, embeddings2: Any) -> Any:
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


def _unit(vectors: Any) -> Any:
    import torch  # here, because exported encoders do without it

    return torch.nn.functional.normalize(torch.atleast_2d(torch.as_tensor(vectors)).float(), dim=1)
