"""The vector cache encodes every input once, returns exactly the encoder's vectors, and survives interruptions."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.helpers.encoders import ConstantEncoder, RandomEncoder
from turnwise.core.dialogue import Slot, Turn
from turnwise.models import vector_cache
from turnwise.models.encoder import Encoder
from turnwise.models.vector_cache import VectorCache, encode_distinct, encode_unique

TEXTS = [f"text {number}" for number in range(8)]


@pytest.fixture
def small_portions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vector_cache, "PORTION", 3)


class GpuEncoder(RandomEncoder):
    """Says that it runs on a GPU, and records the sizes of calls."""

    device = "cuda:0"
    normalise = False
    reads_texts_only = True

    def __init__(self) -> None:
        super().__init__()
        self.sizes: list[int] = []

    def encode(self, inputs, *, normalise=None, max_length=None):  # type: ignore[no-untyped-def]
        self.sizes.append(len(inputs))
        return super().encode(inputs, normalise=normalise, max_length=max_length)


@pytest.mark.usefixtures("small_portions")
def test_calls_are_larger_on_a_gpu() -> None:
    encoder = GpuEncoder()
    VectorCache(encoder).encode([f"text {number}" for number in range(100)], normalise=False)
    assert encoder.sizes == [48, 48, 4]


class InterruptedEncoder(RandomEncoder):
    """Is interrupted after a number of inputs."""

    def encode(self, inputs, *, normalise=None, max_length=None):  # type: ignore[no-untyped-def]
        if len(self.encoded) >= 6:
            raise KeyboardInterrupt
        return super().encode(inputs, normalise=normalise, max_length=max_length)


@settings(max_examples=30, deadline=None)
@given(st.lists(st.lists(st.text(max_size=4), min_size=1, max_size=8), min_size=1, max_size=4))
def test_vectors_are_in_input_order_and_each_text_is_encoded_once(calls: list[list[str]]) -> None:
    encoder = RandomEncoder()
    cache = VectorCache(encoder)
    for texts in calls:
        expected = np.stack([encoder.vector(text) for text in texts])
        np.testing.assert_array_equal(cache.encode(texts, normalise=False), expected)
        np.testing.assert_array_equal(encode_distinct(RandomEncoder(), texts, normalise=False), expected)
    assert len(encoder.encoded) == len({text for texts in calls for text in texts})


def test_cached_vectors_equal_the_encoders_bit_by_bit(tiny_folder: Callable[[str], Path]) -> None:
    encoder = Encoder.load(tiny_folder("bert"), device="cpu")
    cache = VectorCache(encoder)
    for normalise in (False, True, None):
        expected = encoder.encode(TEXTS, normalise=normalise)
        np.testing.assert_array_equal(cache.encode(TEXTS, normalise=normalise), expected)
    assert cache.encode([], normalise=True).shape == (0, encoder.hidden)


class StyledEncoder(RandomEncoder):
    """Counts inputs of any form, and joins turns in a style."""

    def __init__(self, style: str):
        super().__init__()
        self.normalise, self.device, self.reads_texts_only = False, "cpu", style == "separator"
        self.count = 0

    def encode(self, inputs, *, normalise=None, max_length=None):  # type: ignore[no-untyped-def]
        self.count += len(inputs)
        return np.ones((len(inputs), 2), np.float32)


@pytest.mark.parametrize(("style", "count"), [("separator", 1), ("roles", 4)])
def test_speakers_matter_only_to_an_encoder_that_reads_them(style: str, count: int) -> None:
    encoder = StyledEncoder(style)
    VectorCache(encoder).encode(["a b", ["a b"], [Turn("user", "a b")], [Turn("system", "a b")]])
    assert encoder.count == count


def test_keys_distinguish_inputs() -> None:
    """A text, a conversation of it, another speaker, other turn borders, slots, lengths: all are different inputs."""
    inputs = ["a b", ["a b"], ["a", "b"], [Turn("user", "a b")], [Turn("system", "a b")], ["a\0b"]]
    slots = (Slot("x", "a", 0, 1), Slot("y", "a", 0, 1), Slot("x", "a b", 0, 3))
    inputs += [[Turn("user", "a b", slots=(slot,))] for slot in slots]
    assert len({vector_cache._key(item, length) for item in inputs for length in (None, 32, 64)}) == 27
    labelled = [Turn("user", "a b", "intent", ("act",), slots[:1])]
    assert vector_cache._key(labelled, 64) == vector_cache._key(inputs[6], 64)


def test_turns_that_differ_in_their_labels_only_are_encoded_once() -> None:
    slot = Slot("x", "a", 0, 1)
    plain, labelled = (Turn("user", "a b"),), (Turn("user", "a b", "intent", ("act",)),)
    others = [(Turn("system", "a b"),), (Turn("user", "a b", slots=(slot,)),), ("a b",), "a b", ["a", "b"]]
    vectors, rows = encode_unique(ConstantEncoder(), [plain, labelled, *others, "a b"])
    assert rows.tolist() == [0, 0, 1, 2, 3, 4, 5, 4]
    assert len(vectors) == 6


@pytest.mark.usefixtures("small_portions")
def test_a_folder_keeps_vectors_for_the_next_run(tmp_path: Path) -> None:
    first = VectorCache(RandomEncoder(), tmp_path).encode(TEXTS, normalise=False)
    later = RandomEncoder()
    cache = VectorCache(later, tmp_path)
    np.testing.assert_array_equal(cache.encode(TEXTS, normalise=False), first)
    assert later.encoded == []
    cache.clear()
    assert not tmp_path.exists()
    np.testing.assert_array_equal(cache.encode(TEXTS, normalise=False), first)
    assert sorted(later.encoded) == TEXTS


@pytest.mark.usefixtures("small_portions")
def test_an_interruption_costs_one_portion(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        VectorCache(InterruptedEncoder(), tmp_path).encode(TEXTS)
    later = RandomEncoder()
    VectorCache(later, tmp_path).encode(TEXTS)
    assert len(later.encoded) == 2


def test_a_half_written_portion_is_ignored(tmp_path: Path) -> None:
    VectorCache(RandomEncoder(), tmp_path).encode(["a"])
    for keys in tmp_path.glob("*.keys.npy"):
        keys.unlink()
    later = RandomEncoder()
    VectorCache(later, tmp_path).encode(["a"])
    assert later.encoded == ["a"]


def test_chunks_are_encoded_once_and_memory_mapped(tmp_path: Path) -> None:
    chunk = [*TEXTS, *TEXTS[:3]]
    first, later = RandomEncoder(), RandomEncoder()
    written = VectorCache(first, tmp_path).encode_chunk(chunk, normalise=True)
    assert first.encoded == TEXTS and written.dtype == np.float32
    np.testing.assert_array_equal(written, RandomEncoder().encode(chunk, normalise=True))
    cache = VectorCache(later, tmp_path)
    assert cache.holds_chunk(chunk, normalise=True) and later.encoded == []
    read = cache.encode_chunk(chunk, normalise=True)
    assert later.encoded == [] and isinstance(read, np.memmap)
    np.testing.assert_array_equal(read, written)
    others: list[tuple[list[str], dict[str, Any]]] = [
        (chunk[:-1], {"normalise": True}),
        (chunk[::-1], {"normalise": True}),
        (chunk, {"normalise": False}),
        (chunk, {"normalise": True, "max_length": 8}),
    ]
    for inputs, options in others:
        assert not cache.holds_chunk(inputs, **options)
        np.testing.assert_array_equal(cache.encode_chunk(inputs, **options), RandomEncoder().encode(inputs, **options))
    assert len(later.encoded) == len(TEXTS) * len(others)
