"""Filters of training texts: no text is missed, few others match, and files survive a round trip."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnwise.core.dialogue import Dialogue, Turn
from turnwise.core.errors import CorpusError
from turnwise.core.files import write_tensors
from turnwise.corpus.storage.fingerprints import text_fingerprint
from turnwise.corpus.training_data import (
    BITS_PER_ITEM,
    FALSE_POSITIVE_RATE,
    TRAINING_DATA,
    BloomFilter,
    TrainingData,
    hash_pairs,
)


def dialogue(number: int, *texts: str) -> Dialogue:
    turns = tuple(Turn("user" if place % 2 == 0 else "system", text) for place, text in enumerate(texts))
    return Dialogue(str(number), turns, "test")


def has_texts(data: TrainingData, *texts: str) -> list[bool]:
    found: list[bool] = data.find([(text,) for text in texts]).texts.tolist()
    return found


def has_pairs(data: TrainingData, *pairs: tuple[str, str]) -> list[bool]:
    found: list[bool] = data.find(pairs).pairs[::2].tolist()
    return found


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


def test_small_filters_have_no_more_false_positives() -> None:
    hashes = np.random.default_rng(0).integers(1, 2**64 - 1, 200_010, np.uint64, endpoint=True)
    assert BloomFilter.of(hashes[:10]).contains(hashes[10:]).mean() < 1.5 * FALSE_POSITIVE_RATE


def test_texts_and_pairs_of_dialogues() -> None:
    data = TrainingData.of([dialogue(1, "Hello!", "Hi.", "Bye"), dialogue(2, "Thanks", "...", "Ok")], 6)
    assert has_texts(data, "hello", "HI", "bye?", "thanks", "ok", "goodbye") == [True] * 5 + [False]
    pairs = (("hello", "hi"), ("hi", "bye"), ("bye", "thanks"), ("hi", "hello"), ("thanks", "ok"))
    assert has_pairs(data, *pairs) == [True, True, False, False, False]


def test_texts_without_words_match_nothing() -> None:
    data = TrainingData.of([dialogue(1, "?!", "...")], 2)
    assert has_texts(data, "?!", "", "...") == [False] * 3
    assert has_pairs(data, ("?!", "...")) == [False]


def test_stages_are_combined_and_saved(tmp_path: Path) -> None:
    first = TrainingData.of([dialogue(1, "hello", "hi")], 2, ["hello"])
    second = TrainingData.of([dialogue(1, "good morning", "how are you")], 2, [])
    assert TrainingData.load(tmp_path) is None
    both = TrainingData.union([first, None, second])
    assert both is not None and TrainingData.union([None]) is None
    again = TrainingData.union([both, second])
    assert again is not None and again.digest() == both.digest()
    both.save(tmp_path)
    loaded = TrainingData.load(tmp_path)
    assert loaded is not None
    assert loaded.digest() == both.digest() != first.digest()
    assert has_texts(loaded, "hello", "how are you", "other") == [True, True, False]
    assert has_pairs(loaded, ("hello", "hi"), ("good morning", "how are you")) == [True, True]
    labelled, known = loaded.find_labelled(["hello", "hi", "how are you"])
    assert known and labelled.tolist() == [True, False, False]


def test_files_of_older_versions_are_read_by_their_own_keys(tmp_path: Path) -> None:
    """Version 1 compared letters and digits only."""
    hashes = np.array([text_fingerprint(text) for text in ("whatstheweather", "c", "35")], np.uint64)
    texts, pairs = BloomFilter.with_capacity(3), BloomFilter.with_capacity(3)
    texts.add(hashes)
    pairs.add(hash_pairs(hashes[:1], hashes[1:2]))
    write_tensors(
        tmp_path / TRAINING_DATA,
        {"texts.0": texts.bits, "pairs.0": pairs.bits},
        {"version": "1", "statements": '["trained on letters"]'},
    )
    old = TrainingData.load(tmp_path)
    assert old is not None and old.statements == ("trained on letters",)
    assert [stage.key_version for stage in old.stages] == [1]
    labelled, known = old.find_labelled(["What's the weather?", "other"])
    assert not known and labelled.tolist() == [True, False]  # it may have been used with a label
    assert has_texts(old, "What 's the weather?", "whats the weather", "C++", "3.5", "other") == [True] * 4 + [False]
    assert has_pairs(old, ("what's the weather", "C#"), ("C#", "what's the weather")) == [True, False]
    both = TrainingData.union([old, TrainingData.of([dialogue(1, "now here", "C++")], 2)])
    assert both is not None
    both.save(tmp_path)
    loaded = TrainingData.load(tmp_path)
    assert loaded is not None
    assert has_texts(loaded, "C#", "Now here!", "nowhere") == [True, True, False]


def test_file_of_a_newer_version_is_refused(tmp_path: Path) -> None:
    bits = BloomFilter.with_capacity(1).bits
    arrays = {"texts.0": bits, "pairs.0": bits}
    write_tensors(tmp_path / TRAINING_DATA, arrays, {"version": "3"})
    with pytest.raises(CorpusError, match="has version 3, not 2: update turnwise"):
        TrainingData.load(tmp_path)
    write_tensors(tmp_path / TRAINING_DATA, arrays, {"version": "2", "key_versions": "[9]"})
    with pytest.raises(CorpusError, match="rules of version 9: update turnwise"):
        TrainingData.load(tmp_path)


def test_damaged_file_is_reported(tmp_path: Path) -> None:
    (tmp_path / TRAINING_DATA).write_bytes(b"no safetensors")
    with pytest.raises(CorpusError, match=f"{TRAINING_DATA} is damaged"):
        TrainingData.load(tmp_path)
