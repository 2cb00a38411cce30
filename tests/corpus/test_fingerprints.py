"""Tests fingerprint sets against Python's sets and dictionaries, buckets against sorting, and their memory."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from turnwise.corpus.storage import fingerprints as fingerprints_module
from turnwise.corpus.storage.fingerprints import FingerprintBuckets, FingerprintIndex, FingerprintSet, text_fingerprint

#: Few places and short slices, so that tables grow and runs of taken places cross slices.
SMALL = {"_INITIAL_BITS": 4, "_MOVE_SIZE": 64}

#: Neighbours as well as numbers from everywhere: leading bits alike, 0 and the largest.
NUMBERS = st.one_of(st.integers(0, 40), st.integers(2**64 - 40, 2**64 - 1), st.integers(0, 2**64 - 1))


@settings(deadline=None)
@given(st.lists(NUMBERS, max_size=60))
def test_set_and_index_equal_a_dictionary(numbers: list[int]) -> None:
    with pytest.MonkeyPatch.context() as patched:
        for name, value in SMALL.items():
            patched.setattr(fingerprints_module, name, value)
        seen, numbered = FingerprintSet(), FingerprintIndex()
        numbers_of: dict[int, int] = {}
        for number in numbers:
            new = (number or 1) not in numbers_of  # 0 marks a free place, so 0 and 1 are one
            expected = numbers_of.setdefault(number or 1, len(numbers_of))
            assert seen.add(number) == new
            assert numbered.index(number) == expected
            assert len(seen) == len(numbered) == len(numbers_of)


def test_memory_per_fingerprint(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fingerprints_module, "_MOVE_SIZE", 1 << 14)
    numbers = np.random.default_rng(3).integers(1, 2**64 - 1, 150_000, np.uint64, endpoint=True).tolist()
    seen, numbered = FingerprintSet(), FingerprintIndex()
    assert all(seen.add(number) for number in numbers)
    assert not any(seen.add(number) for number in numbers[::-1])
    assert [numbered.index(number) for number in numbers] == list(range(len(numbers)))
    assert [numbered.index(number) for number in numbers] == list(range(len(numbers)))
    tail = fingerprints_module._OVERFLOW
    for table, most in ((seen, 22), (numbered, 32)):
        assert sum(column.nbytes - tail * column.itemsize for column in table._columns) <= most * len(table)


def test_different_texts_have_different_fingerprints() -> None:
    texts = [f"text {number}" for number in range(2_000)]
    assert len({text_fingerprint(text) for text in texts}) == len(texts)
    assert all(0 <= text_fingerprint(text) < 2**64 for text in texts)


@settings(deadline=None)
@given(st.lists(st.lists(st.one_of(st.integers(-(2**63), 2**63 - 1), st.integers(-3, 3)), max_size=30), max_size=4))
def test_buckets_contain_everything_once_and_group_equal_fingerprints(parts: list[list[int]]) -> None:
    everything = [number for part in parts for number in part]
    with FingerprintBuckets() as buckets:
        for part in parts:
            buckets.add(np.array(part, np.int64))
        assert len(buckets) == len(everything)
        for _ in range(2):  # they can be read again
            pairs: list[tuple[int, int]] = []
            seen: set[int] = set()
            for numbers, positions in buckets:
                assert seen.isdisjoint(numbers.tolist())
                seen |= set(numbers.tolist())
                assert positions.tolist() == sorted(positions.tolist())
                pairs += zip(positions.tolist(), numbers.tolist(), strict=True)
            assert sorted(pairs) == list(enumerate(everything))


def test_buckets_remove_their_files(tmp_path: Path) -> None:
    with FingerprintBuckets(tmp_path) as buckets:
        buckets.add(np.arange(-500, 500))
        assert not any(tmp_path.iterdir())  # nobody sees them, so nobody has to remove them
    assert not any(tmp_path.iterdir())
