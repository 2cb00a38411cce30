"""Encoders as a step of a scikit-learn pipeline."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any, Self

from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin

from turnwise.core.model_names import DEFAULT_ENCODER
from turnwise.core.types import SupportsEncode, Vectors


class EncoderTransformer(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Transforms texts and conversations into vectors; follows scikit-learn's conventions.

    There is nothing to fit: the encoder is loaded when it is first needed. A copy, also a pickled one, of a transformer
    with the name of a model holds the name, not the weights; an encoder that is given as an object is never copied by
    `sklearn.base.clone`.

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
        """Load the encoder and check the parameters and the kind of the inputs; nothing is learnt from them."""
        _as_list(texts)
        self._check_parameters()
        self._load()
        return self

    def transform(self, texts: Iterable[Any]) -> Vectors:
        """Return vectors (inputs, dimensions), float32, in input order.

        An input is a text, or a conversation: a list of turns, newest last.
        """
        items = _as_list(texts)
        self._check_parameters()
        return self._load().encode(items, normalise=self.normalise, max_length=self.max_length)

    @property
    def _n_features_out(self) -> int:  # read by `get_feature_names_out`
        return int(self._load().encode(["text"]).shape[1])

    def _check_parameters(self) -> None:
        if self.normalise not in (None, True, False):
            raise ValueError(f"normalise must be True, False or None, got {self.normalise!r}")
        length = self.max_length
        if length is not None and (not isinstance(length, int) or isinstance(length, bool) or length < 1):
            raise ValueError(f"max_length must be a positive integer or None, got {length!r}")

    def _load(self) -> SupportsEncode:
        if not isinstance(self.encoder, str | Path):
            return self.encoder
        name, encoder = getattr(self, "_loaded", (None, None))
        if encoder is None or name != self.encoder:
            from turnwise.models.encoder import Encoder

            encoder = Encoder.load(self.encoder)
            self._loaded = (self.encoder, encoder)
        return encoder

    # ---- scikit-learn's protocols

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

    def __getstate__(self) -> dict[str, Any]:
        state: dict[str, Any] = super().__getstate__()
        return {name: value for name, value in state.items() if name != "_loaded"}


def _as_list(texts: Iterable[Any]) -> list[Any]:
    """Return the inputs as a list; raise ValueError for what is not one-dimensional."""
    if isinstance(texts, str):
        raise ValueError("expected a list of texts, got a single text: give [text]")
    dimensions = getattr(texts, "ndim", 1)
    if dimensions != 1:
        raise ValueError(
            f"expected one text per input, got {dimensions} dimensions: select one column, for example table['text']"
        )
    return list(texts)
