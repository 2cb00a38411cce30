"""Tests the fingerprint index against a dictionary, buckets against sorting, and their memory."""

import gc
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from turnwise.corpus.storage import fingerprints as fingerprints_module
from turnwise.corpus.storage.fingerprints import FingerprintBuckets, FingerprintIndex

#: Neighbours as well as numbers from everywhere: leading bits alike, 0 and the largest.
NUMBERS = st.one_of(st.integers(0, 40), st.integers(2**64 - 40, 2**64 - 1), st.integers(0, 2**64 - 1))


@settings(deadline=None)
@given(st.lists(NUMBERS, max_size=60))
def test_index_equals_a_dictionary(numbers: list[int]) -> None:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(fingerprints_module, "_MIN_RECENT", 4)  # so that they are merged often
        seen, numbered = FingerprintIndex(), FingerprintIndex()
        numbers_of: dict[int, int] = {}
        for number in numbers:
            is_new = number not in numbers_of
            expected = numbers_of.setdefault(number, len(numbers_of))
            assert (seen.find(number) is None) == is_new
            assert seen.add(number) == is_new
            assert numbered.index(number) == expected
            assert len(seen) == len(numbered) == len(numbers_of)


def test_memory_per_fingerprint() -> None:
    numbers = np.random.default_rng(3).integers(0, 2**64 - 1, 40_000, np.uint64, endpoint=True).tolist()
    gc.collect()
    tracemalloc.start()
    index = FingerprintIndex()
    assert all(index.add(number) for number in numbers)
    taken, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    starts = 8 * (1 << 16) + 32 * (1 << 16)  # a list of numbers, whatever the size
    assert taken - starts <= 24 * len(numbers)
    assert [index.index(number) for number in numbers] == list(range(len(numbers)))


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
