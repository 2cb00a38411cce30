"""Filters of training texts: no text is missed, few others match, and files survive a round trip."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnwise.core.dialogue import Dialogue, Turn
from turnwise.core.errors import CorpusError
from turnwise.corpus.training_data import (
    BITS_PER_ITEM,
    FALSE_POSITIVE_RATE,
    TRAINING_DATA,
    BloomFilter,
    TrainingData,
    comparison_key,
    hash_pairs,
    hash_texts,
)


def dialogue(number: int, *texts: str) -> Dialogue:
    turns = tuple(Turn("user" if place % 2 == 0 else "system", text) for place, text in enumerate(texts))
    return Dialogue(str(number), turns, "test")


def pair_hashes(*pairs: tuple[str, str]) -> np.ndarray:
    first, second = zip(*pairs, strict=True)
    return hash_pairs(hash_texts(first), hash_texts(second))


@pytest.mark.parametrize(
    "variant", ["what's the weather?", "What 's the weather ?", "WHAT'S  THE\tWEATHER", "what’s the_weather!"]
)
def test_case_punctuation_and_space_do_not_matter(variant: str) -> None:
    assert comparison_key(variant) == "whatstheweather"


def test_compatible_characters_are_equal() -> None:
    assert comparison_key("ＡＢＣ １２３") == "abc123"
    assert comparison_key("naïve") != comparison_key("naive")


@given(st.lists(st.integers(1, 2**64 - 1), max_size=300))
def test_filter_misses_nothing(values: list[int]) -> None:
    hashes = np.array(values, np.uint64)
    bloom = BloomFilter.with_capacity(len(hashes))
    bloom.add(hashes[: len(hashes) // 2])
    bloom.add(hashes[len(hashes) // 2 :])
    assert bloom.contains(hashes).all()


def test_false_positive_rate_is_as_stated() -> None:
    hashes = np.random.default_rng(0).integers(1, 2**64 - 1, 600_000, np.uint64, endpoint=True)
    bloom = BloomFilter.with_capacity(100_000)
    bloom.add(hashes[:100_000])
    assert bloom.bits.nbytes * 8 == 100_000 * BITS_PER_ITEM
    assert bloom.contains(hashes[100_000:]).mean() < 1.5 * FALSE_POSITIVE_RATE


def test_texts_and_pairs_of_dialogues() -> None:
    data = TrainingData.of([dialogue(1, "Hello!", "Hi.", "Bye"), dialogue(2, "Thanks", "...", "Ok")], 6)
    assert data.has_texts(hash_texts(["hello", "HI", "bye?", "thanks", "ok", "goodbye"])).tolist() == [True] * 5 + [
        False
    ]
    pairs = pair_hashes(("hello", "hi"), ("hi", "bye"), ("bye", "thanks"), ("hi", "hello"), ("thanks", "ok"))
    assert data.has_pairs(pairs).tolist() == [True, True, False, False, False]


def test_texts_without_words_match_nothing() -> None:
    data = TrainingData.of([dialogue(1, "?!", "...")], 2)
    assert not data.has_texts(hash_texts(["?!", "", "..."])).any()
    assert not data.has_pairs(pair_hashes(("?!", "..."))).any()


def test_stages_are_combined_and_saved(tmp_path: Path) -> None:
    first = TrainingData.of([dialogue(1, "hello", "hi")], 2)
    second = TrainingData.of([dialogue(1, "good morning", "how are you")], 2)
    assert TrainingData.load(tmp_path) is None
    both = TrainingData.union([first, None, second])
    assert both is not None and TrainingData.union([None]) is None
    again = TrainingData.union([both, second])
    assert again is not None and again.digest() == both.digest()
    both.save(tmp_path)
    loaded = TrainingData.load(tmp_path)
    assert loaded is not None
    assert loaded.has_texts(hash_texts(["hello", "how are you", "other"])).tolist() == [True, True, False]
    assert loaded.has_pairs(pair_hashes(("hello", "hi"), ("good morning", "how are you"))).all()


def test_damaged_file_is_reported(tmp_path: Path) -> None:
    (tmp_path / TRAINING_DATA).write_bytes(b"no safetensors")
    with pytest.raises(CorpusError, match=f"{TRAINING_DATA} is damaged"):
        TrainingData.load(tmp_path)
