"""One definition of "the same encoder": exact for models, tolerant of formats and rounding."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.helpers.bag_of_words import BagOfWords
from tests.helpers.families import nudged
from turnwise.core.errors import EncoderMismatchError
from turnwise.core.types import SupportsEncode
from turnwise.models.encoder import Encoder
from turnwise.models.identity import MIN_COSINE, EncoderId, EncoderIdentity

TEXTS = [
    f"text {word}"
    for word in ["one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve"]
]


class RotatedEncoder:
    """Gives the vectors of an encoder, turned by an angle of a certain cosine, and counts what it encodes."""

    def __init__(self, encoder: SupportsEncode, cosine: float):
        self._encoder, self._cosine = encoder, cosine
        self.texts: list[str] = []

    def encode(self, inputs, *, normalise=None, max_length=None):  # type: ignore[no-untyped-def]
        self.texts += inputs
        vectors = self._encoder.encode(inputs, normalise=True, max_length=max_length)
        other = np.roll(vectors, 1, axis=1)
        other -= (other * vectors).sum(1, keepdims=True) * vectors
        other /= np.linalg.norm(other, axis=1, keepdims=True)
        return (self._cosine * vectors + np.sqrt(1 - self._cosine**2) * other).astype(np.float32)


def test_small_differences_are_tolerated_and_large_ones_are_not() -> None:
    encoder = BagOfWords()
    for identity in (
        EncoderIdentity.of(encoder),
        EncoderIdentity.from_stored(TEXTS, encoder.encode(TEXTS, normalise=True), 64),
    ):
        assert identity.matches(encoder)
        assert identity.matches(RotatedEncoder(encoder, MIN_COSINE + 1e-3))
        assert not identity.matches(RotatedEncoder(encoder, MIN_COSINE - 1e-3))
        identity.check(encoder, "the map")
        with pytest.raises(EncoderMismatchError, match=r"the map was made with another encoder.* build it again"):
            identity.check(BagOfWords("other"), "the map")


def test_a_few_evenly_spaced_stored_texts_are_compared() -> None:
    encoder = BagOfWords()
    probe = RotatedEncoder(encoder, 1.0)
    assert EncoderIdentity.from_stored(TEXTS, encoder.encode(TEXTS, normalise=True)).matches(probe)
    assert len(probe.texts) == 8 and probe.texts[0] == TEXTS[0] and probe.texts[-1] == TEXTS[-1]
    # one text of another encoder is enough
    vectors = encoder.encode(TEXTS, normalise=True)
    vectors[-1] = vectors[0]
    assert not EncoderIdentity.from_stored(TEXTS, vectors).matches(encoder)


def test_zero_vectors_match_zero_vectors() -> None:
    zeros = np.zeros((2, 4), np.float32)
    identity = EncoderIdentity(("a", "b"), zeros)
    assert identity.matches(EncoderIdentity(("a", "b"), zeros.copy()))
    assert not identity.matches(EncoderIdentity(("a", "b"), np.eye(2, 4, dtype=np.float32)))


def test_model_is_the_same_from_another_folder_and_after_saving(
    tiny_folder: Callable[[str], Path], tmp_path: Path
) -> None:
    folder = tiny_folder("bert")
    encoder = Encoder.load(folder, device="cpu")
    shutil.copytree(folder, tmp_path / "copy")
    encoder.save(tmp_path / "saved")
    stored = EncoderIdentity.from_json(json.loads(json.dumps(EncoderIdentity.of(encoder).to_json())))
    for place in (folder, tmp_path / "copy", tmp_path / "saved"):
        again = Encoder.load(place, device="cpu")
        assert again.identify().name == str(place)
        stored.check(again, "the table")
    assert encoder.identify(1_000) == encoder.identify(encoder.max_length) == encoder.identify()


def test_small_changes_of_a_model_are_noticed(tiny_folder: Callable[[str], Path]) -> None:
    folder = tiny_folder("bert")
    encoder = Encoder.load(folder, device="cpu")
    stored = EncoderIdentity.of(encoder)
    shorter = Encoder.load(folder, device="cpu")
    shorter.max_length = encoder.max_length - 1
    pooled = Encoder.load(folder, device="cpu", pooling="cls")
    for other in (nudged(folder), shorter, pooled):
        assert other.identify().fingerprint != encoder.identify().fingerprint
        assert not stored.matches(other)
    # the vectors alone would not tell
    vector = nudged(folder).encode(list(stored.texts), normalise=True)
    assert (vector * stored.vectors).sum() > MIN_COSINE
    assert encoder.identify(8).fingerprint != encoder.identify(9).fingerprint


def test_message_names_both_encoders_and_the_command(tiny_folder: Callable[[str], Path]) -> None:
    folder = tiny_folder("bert")
    encoder, other = Encoder.load(folder, device="cpu"), nudged(folder)
    other.name = "my-model"
    with pytest.raises(EncoderMismatchError) as error:
        EncoderIdentity.of(encoder).check(other, "the table", "turnwise index STORE")
    for part in (
        f"the table was made with another encoder: {encoder.identify()}, not {other.identify()}.",
        f"(--model {folder})",
        "`turnwise index STORE --model my-model`",
    ):
        assert part in str(error.value)


def test_vectors_of_unknown_origin_are_not_compared_with_a_model(tiny_folder: Callable[[str], Path]) -> None:
    encoder = Encoder.load(tiny_folder("bert"), device="cpu")
    own = EncoderIdentity.of(encoder)
    with pytest.raises(EncoderMismatchError, match=r"another encoder: an unknown one, not .* build it again: `again"):
        EncoderIdentity(own.texts, own.vectors).check(encoder, "the table", "again")
    # an encoder without an id is compared by its vectors
    assert EncoderId.of(BagOfWords()) is None
    EncoderIdentity.from_json(EncoderIdentity.of(BagOfWords()).to_json()).check(BagOfWords(), "the table")
