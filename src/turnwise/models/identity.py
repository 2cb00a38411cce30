"""The one definition of "the same encoder".

Caches and results use a fingerprint of everything that determines a model's output. Tables, classifiers and maps store
an `EncoderId`, which does not depend on folders, devices or versions of libraries, with some texts and their vectors
(`EncoderIdentity`). The ids must be equal, and the vectors almost. Encoders without an id are compared by vectors.
"""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from turnwise.core.dialogue import EncoderInput
from turnwise.core.errors import EncoderMismatchError
from turnwise.core.types import SupportsEncode, Vectors

#: The least cosine between the vectors that one encoder gives a text. An int8 export stays above it.
MIN_COSINE = 0.97

#: The text that an encoder is recognised by where no text is stored with its vector.
PROBE_TEXT = "The quick brown fox asks whether the 7:30 train to the lazy dog's house is late."


@dataclass(frozen=True, slots=True)
class EncoderId:
    """What identifies an encoder exactly; two are the same if their fingerprints are equal, whatever their names."""

    name: str  # where it was loaded from, for messages
    fingerprint: str  # of its weights, vocabulary, pooling, maximum length and way of joining turns

    @classmethod
    def of(cls, encoder: SupportsEncode, max_length: int | None = None) -> "EncoderId | None":
        """Return the id of an encoder that reads `max_length` tokens (None: its limit); None if it has none."""
        return encoder.identify(max_length) if hasattr(encoder, "identify") else None

    @classmethod
    def from_json(cls, values: dict[str, str] | None) -> "EncoderId | None":
        """Read what `dataclasses.asdict` returned; None stays None."""
        return None if values is None else cls(**values)

    def __str__(self) -> str:
        return f"{self.name or 'an encoder without a name'} (fingerprint {self.fingerprint[:12]})"


@dataclass(frozen=True, slots=True, eq=False)
class EncoderIdentity:
    """The id of an encoder, and texts with the vectors that it gives them."""

    texts: tuple[EncoderInput, ...]
    vectors: Vectors  # of length 1 (texts, size)
    max_length: int | None = None  # tokens of a text; None: the encoder's own limit
    id: EncoderId | None = None  # None: the encoder has none, or it was not recorded

    @classmethod
    def of(cls, encoder: SupportsEncode) -> "EncoderIdentity":
        """Return the identity of an encoder by its id and its vector of `PROBE_TEXT`."""
        return cls((PROBE_TEXT,), encoder.encode([PROBE_TEXT], normalise=True), id=EncoderId.of(encoder))

    @classmethod
    def from_stored(
        cls, texts: Sequence[EncoderInput], vectors: Vectors, max_length: int | None = None, id: EncoderId | None = None
    ) -> "EncoderIdentity":
        """Return the identity of the encoder that computed stored vectors, by its id and a few evenly spaced ones."""
        rows = np.unique(np.linspace(0, len(texts) - 1, num=8).astype(int))
        return cls(tuple(texts[row] for row in rows), vectors[rows], max_length, id)

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> "EncoderIdentity":
        """Read what `to_json` returned."""
        vectors = np.array([values["vector"]], np.float32)
        return cls((PROBE_TEXT,), vectors, id=EncoderId.from_json(values["id"]))

    def to_json(self) -> dict[str, Any]:
        """Return the id and the vector of `PROBE_TEXT` as plain values."""
        return {"vector": self.vectors[0].tolist(), "id": None if self.id is None else asdict(self.id)}

    def matches(self, other: "SupportsEncode | EncoderIdentity") -> bool:
        """Return whether an encoder, or one of this identity, is the one that computed the vectors."""
        other_id = self._id_of(other)
        if (self.id and self.id.fingerprint) != (other_id and other_id.fingerprint):
            return False
        if isinstance(other, EncoderIdentity):
            vectors = other.vectors
        else:
            vectors = other.encode(list(self.texts), normalise=True, max_length=self.max_length)
        if vectors.shape != self.vectors.shape:
            return False
        both_zero = ~vectors.any(1) & ~self.vectors.any(1)  # texts without tokens have vectors of zeros
        return bool((((vectors * self.vectors).sum(1) >= MIN_COSINE) | both_zero).all())

    def check(self, other: "SupportsEncode | EncoderIdentity", what: str, rebuild: str = "") -> None:
        """Raise `EncoderMismatchError` unless an encoder computed the vectors of `what`, such as 'the map'.

        `rebuild` is the command that builds it again, without its option --model.
        """
        if self.matches(other):
            return
        other_id = self._id_of(other)
        own_option, option = (f" --model {each.name}" if each and each.name else "" for each in (self.id, other_id))
        again = f"build it again: `{rebuild}{option}`" if rebuild else "build it again"
        names = f": {self.id or 'an unknown one'}, not {other_id or 'this one'}" if self.id or other_id else ""
        raise EncoderMismatchError(
            f"{what} was made with another encoder{names}. Vectors of different encoders cannot be compared: use the "
            f"encoder that it was made with{own_option and f' ({own_option.strip()})'}, or {again}"
        )

    def _id_of(self, other: "SupportsEncode | EncoderIdentity") -> EncoderId | None:
        return other.id if isinstance(other, EncoderIdentity) else EncoderId.of(other, self.max_length)


def vocabulary_text(tokenizer: Any) -> str:
    """Return the vocabulary of a tokenizer, for fingerprints."""
    vocabulary = tokenizer.get_vocab()
    return json.dumps([(token, vocabulary[token]) for token in sorted(vocabulary)])  # faster than sorting pairs


def tokenizer_text(tokenizer: Any) -> str:
    """Return all that determines the tokens of a tokenizer, for fingerprints."""
    return json.dumps(tokenizer_definition(tokenizer), sort_keys=True)


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
