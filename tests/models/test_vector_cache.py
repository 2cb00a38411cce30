"""Vectors are computed once, kept as they were, and never mixed up."""

import hashlib
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.helpers.drawn import Drawn
from turnwise.core.dialogue import Slot, Turn
from turnwise.models import vector_cache as embedding
from turnwise.models.vector_cache import Embedder


@settings(max_examples=30, deadline=None)
@given(st.lists(st.lists(st.text(max_size=4), min_size=1, max_size=8), min_size=1, max_size=4))
def test_vectors_come_in_the_order_of_the_inputs_and_each_text_is_encoded_once(calls: list[list[str]]) -> None:
    encoder = Drawn()
    embedder = Embedder(encoder)
    for texts in calls:
        expected = np.stack([encoder.vector(text) for text in texts])
        np.testing.assert_array_equal(embedder.encode(texts, normalise=False), expected)
    assert len(encoder.encoded) == len({text for texts in calls for text in texts})


def test_normalised_vectors_have_length_one_and_raw_ones_stay_as_they_are() -> None:
    embedder = Embedder(Drawn())
    raw, unit = embedder.encode(["a", "b"], normalise=False), embedder.encode(["a", "b"], normalise=True)
    np.testing.assert_allclose(unit, raw / np.linalg.norm(raw, axis=1, keepdims=True), rtol=1e-6)
    assert unit.dtype == np.float32


def test_what_tells_inputs_apart() -> None:
    """A text, a conversation of that text, another speaker, other borders of turns, another length: all are different inputs."""
    inputs = ["a b", ["a b"], ["a", "b"], [Turn("user", "a b")], [Turn("system", "a b")], ["a\0b"]]
    assert len({embedding._key(item, length) for item in inputs for length in (None, 32, 64)}) == 18


def test_slots_tell_turns_apart() -> None:
    """By name and place; a turn without slots has the key that it had before there were any."""
    one, other, longer, later = Slot("x", "a", 0, 1), Slot("y", "a", 0, 1), Slot("x", "a b", 0, 3), Slot("y", "b", 2, 3)
    slots = [(one,), (other,), (longer,), (one, later)]
    turns = [(Turn("user", "a b", slots=each),) for each in ((), *slots)]
    assert len({embedding._key(turn, 64) for turn in turns}) == 5
    before = hashlib.blake2b(b"64\0turn\0user\0a b\0", digest_size=16)
    assert embedding._key(turns[0], 64) == before.digest()
    assert embedding._key((Turn("user", "a b", "intent", ("act",), slots[0]),), 64) == embedding._key(turns[1], 64)


def test_a_folder_keeps_vectors_for_the_next_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedding, "PORTION", 3)
    texts = [f"text {number}" for number in range(8)]
    first = Embedder(Drawn(), tmp_path).encode(texts, normalise=False)
    later = Drawn()
    np.testing.assert_array_equal(Embedder(later, tmp_path).encode(texts, normalise=False), first)
    assert later.encoded == []


def test_an_interruption_costs_a_portion_at_most(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedding, "PORTION", 3)

    class Dying(Drawn):
        def encode(self, inputs, *, normalise=None, max_length=None):  # type: ignore[no-untyped-def]
            if len(self.encoded) >= 6:
                raise KeyboardInterrupt
            return super().encode(inputs, normalise=normalise, max_length=max_length)

    texts = [f"text {number}" for number in range(8)]
    with pytest.raises(KeyboardInterrupt):
        Embedder(Dying(), tmp_path).encode(texts)
    later = Drawn()
    Embedder(later, tmp_path).encode(texts)
    assert len(later.encoded) == 2


def test_a_half_written_portion_is_passed_over(tmp_path: Path) -> None:
    embedder = Embedder(Drawn(), tmp_path)
    embedder.encode(["a"])
    for keys in tmp_path.glob("*.keys.npy"):
        keys.unlink()
    later = Drawn()
    Embedder(later, tmp_path).encode(["a"])
    assert later.encoded == ["a"]
