"""What every way to embed texts shares: the vectors of some, what is told of all, and the error."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from turnwise.core.errors import TurnwiseError
from turnwise.core.types import SupportsEncode
from turnwise.corpus.text_sources import Item
from turnwise.models.loading import ModelUnderTest

Vectors = npt.NDArray[np.float32]


class EmbeddingError(TurnwiseError):
    """Texts cannot be embedded as asked; the message says why and what to do."""


@dataclass(frozen=True, slots=True)
class Embedded:
    """What was written.

    Attributes:
        texts: how many.
        size: of a vector.
        resumed: how many of them an earlier run had encoded.
    """

    texts: int
    size: int
    resumed: int


def encoder_of(model: ModelUnderTest) -> SupportsEncode:
    """What gives a model's vectors.

    Raises:
        EmbeddingError: if it gives none.
    """
    if model.encoder is None:
        raise EmbeddingError(f"{model.name} is a re-ranker, which gives no vectors: name an encoder")
    return model.encoder


def encoded(encoder: SupportsEncode, items: Sequence[Item], normalise: bool | None, max_length: int | None) -> Vectors:
    """Vectors of items; what repeats is encoded once."""
    places = {item: place for place, item in enumerate(dict.fromkeys(items))}
    vectors = encoder.encode(list(places), normalise=normalise, max_length=max_length)
    return np.asarray(vectors, np.float32)[[places[item] for item in items]]
