"""The one definition of "the same encoder": an exact fingerprint, and a tolerant comparison of vectors.

- A **fingerprint** hashes everything that determines a model's output (weights, vocabulary, settings). Caches and
  results use it.
- An **`EncoderIdentity`** holds some texts with their vectors. Tables, classifiers and maps use it: an encoder is the
  same if it gives those texts almost the same vectors, whatever its format (ONNX, int8) and the machine it runs on.
"""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from turnwise.core.errors import TurnwiseError
from turnwise.core.types import SupportsEncode, Vectors

if TYPE_CHECKING:  # a search table compares encoders before anything heavy is imported
    from turnwise.models.backbone.backbone import Backbone
    from turnwise.models.encoder import Encoder
    from turnwise.models.reranker import Reranker

#: The least cosine between the vectors that one encoder gives a text. An int8 export stays above it, another model does
#: not.
MIN_COSINE = 0.97

#: The text that an encoder is recognised by where no text is stored with its vector.
PROBE_TEXT = "The quick brown fox asks whether the 7:30 train to the lazy dog's house is late."

#: Texts that are compared where many are stored.
_PROBES = 8


class EncoderMismatchError(TurnwiseError):
    """Stored vectors were computed by another encoder."""


@dataclass(frozen=True, slots=True, eq=False)
class EncoderIdentity:
    """Texts with the vectors that identify their encoder."""

    texts: tuple[str, ...]
    vectors: Vectors  # of length 1 (texts, size)
    max_length: int | None = None  # tokens of a text; None: the encoder's own limit

    @classmethod
    def of(cls, encoder: SupportsEncode) -> "EncoderIdentity":
        """Return the identity of an encoder by its vector of `PROBE_TEXT`."""
        return cls((PROBE_TEXT,), encoder.encode([PROBE_TEXT], normalise=True))

    @classmethod
    def from_stored(cls, texts: Sequence[str], vectors: Vectors, max_length: int | None = None) -> "EncoderIdentity":
        """Return the identity of the encoder that computed stored vectors, by a few evenly spaced ones."""
        rows = np.unique(np.linspace(0, len(texts) - 1, _PROBES).astype(int))
        return cls(tuple(texts[row] for row in rows), vectors[rows], max_length)

    @classmethod
    def from_json(cls, values: list[float]) -> "EncoderIdentity":
        """Read what `to_json` returned."""
        return cls((PROBE_TEXT,), np.array([values], np.float32))

    def to_json(self) -> list[float]:
        """Return the vector of `PROBE_TEXT` as plain numbers."""
        values: list[float] = self.vectors[0].astype(float).tolist()
        return values

    def matches(self, other: "SupportsEncode | EncoderIdentity") -> bool:
        """Return whether an encoder, or one of this identity, is the one that computed the vectors."""
        if isinstance(other, EncoderIdentity):
            vectors = other.vectors
        else:
            vectors = other.encode(list(self.texts), normalise=True, max_length=self.max_length)
        if vectors.shape != self.vectors.shape:
            return False
        both_zero = ~vectors.any(1) & ~self.vectors.any(1)  # texts without tokens have vectors of zeros
        return bool((((vectors * self.vectors).sum(1) >= MIN_COSINE) | both_zero).all())

    def check(self, other: "SupportsEncode | EncoderIdentity", what: str) -> None:
        """Raise `EncoderMismatchError` unless an encoder computed the vectors of `what`, such as 'the map'."""
        if not self.matches(other):
            raise EncoderMismatchError(
                f"{what} was made with another encoder, whose vectors cannot be compared with this one's: load "
                "the encoder that it was made with, or build it again"
            )


def encoder_fingerprint(encoder: "Encoder") -> str:
    """Return a hash of all that determines an encoder's vectors: weights, vocabulary and settings."""
    settings = (encoder.pooling, encoder.max_length, encoder.normalise, encoder.style)
    compression = "" if encoder.compression is None else encoder.compression.description()
    return digest_model(encoder, repr(settings), *_describe(encoder.backbone), compression)


def reranker_fingerprint(reranker: "Reranker") -> str:
    """Return a hash of all that determines a re-ranker's scores: weights, heads, vocabulary, lengths."""
    settings = (sorted(reranker.heads), reranker.max_length, reranker.window)
    return digest_model(reranker, repr(settings), *_describe(reranker.backbone))


def _describe(backbone: "Backbone") -> tuple[str, str]:
    return backbone.config.to_json_string(), json.dumps(tokenizer_definition(backbone.tokenizer), sort_keys=True)


def tokenizer_definition(tokenizer: Any) -> dict[str, Any]:
    """Return all that determines a text's tokens, except truncation and padding, which change with every use."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:
        return {"kind": type(tokenizer).__name__, "model": tokenizer.get_vocab()}
    definition: dict[str, Any] = json.loads(backend.to_str())
    return {name: value for name, value in definition.items() if name not in ("truncation", "padding")}


def digest_model(model: Any, *texts: str) -> str:
    """Return a hash of a module's weights (None: of no weights) and of texts."""
    digest = hashlib.sha256()
    for _, tensor in sorted(model.state_dict().items()) if model is not None else ():
        digest.update(f"{tuple(tensor.shape)}{tensor.dtype}".encode())
        digest.update(tensor.detach().float().cpu().contiguous().numpy().tobytes())
    for text in texts:
        digest.update(text.encode())
    return digest.hexdigest()
