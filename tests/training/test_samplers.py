"""Orders: every example once a pass, the same from wherever they are entered, and mixed as well as the buffer allows."""

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.helpers.past_memory import Mixing, mixing
from turnwise.training.batches import (
    BLOCKS,
    SMALLEST_BUFFER,
    BufferedSampler,
    ShuffledSampler,
    block_size,
)


def random(*place: int) -> np.random.Generator:
    return np.random.default_rng([7, *place])


def buffered(
    labels: np.ndarray, label: int | None, buffer: int, told: Callable[[list[tuple[int, int]]], None]
) -> BufferedSampler:
    return BufferedSampler(labels, label, buffer, random, told)


def plain(examples: int, buffer: int) -> BufferedSampler:
    return buffered(np.zeros(examples, np.int8), None, buffer, lambda ranges: None)


@settings(deadline=None, max_examples=60)
@given(
    st.integers(2, 3_000),
    st.integers(SMALLEST_BUFFER, 1_500),
    st.integers(0, 3),
    st.sampled_from([None, 1, 2]),
    st.data(),
)
def test_a_pass_holds_every_example_once_and_is_entered_anywhere(
    examples: int, buffer: int, passed: int, label: int | None, data: st.DataObject
) -> None:
    labels = np.random.default_rng(examples).integers(1, 3, examples).astype(np.int8)
    labels[:2] = (1, 2)
    order = buffered(labels, label, buffer, lambda ranges: None)
    expected = np.arange(examples) if label is None else np.flatnonzero(labels == label)
    whole = order.rows(passed, 0, len(order))
    assert len(order) == len(whole) == len(expected)
    assert sorted(whole.tolist()) == expected.tolist()
    first = data.draw(st.integers(0, len(order) - 1))
    last = data.draw(st.integers(first + 1, len(order) + 50))
    # a fresh object, which never saw what lies before
    fresh = buffered(labels, label, buffer, lambda ranges: None)
    assert fresh.rows(passed, first, last).tolist() == whole[first:last].tolist()
    if len(order) > 20:
        assert order.rows(passed + 1, 0, len(order)).tolist() != whole.tolist()


@settings(deadline=None, max_examples=30)
@given(st.integers(1, 20_000), st.integers(SMALLEST_BUFFER, 5_000))
def test_a_buffer_is_filled_with_whole_blocks_and_no_more_than_it_holds(examples: int, buffer: int) -> None:
    read: list[list[tuple[int, int]]] = []
    order = buffered(np.zeros(examples, np.int8), None, buffer, read.append)
    order.rows(0, 0, examples)
    size = block_size(buffer)
    sizes = [sum(last - first for first, last in ranges) for ranges in read]
    assert sum(sizes) == examples
    assert max(sizes) <= buffer + size
    assert len(sizes) == -(-examples // buffer)
    for ranges in read:
        assert ranges == sorted(ranges)  # as they lie on disk
        assert all(first % size == 0 and (last - first == size or last == examples) for first, last in ranges)
    assert sorted(span for ranges in read for span in ranges) == [
        (s, min(examples, s + size)) for s in range(0, examples, size)
    ]


@given(st.integers(1, 500), st.integers(0, 5))
def test_the_whole_order_is_numpys_permutation(examples: int, passed: int) -> None:
    """In four bytes a number as in eight: published figures depend on it."""
    expected = random(passed).permutation(examples).tolist()
    assert ShuffledSampler(examples, random).rows(passed, 0, examples).tolist() == expected
    some = np.arange(0, 3 * examples, 3)
    expected = random(passed).permutation(some).tolist()
    assert ShuffledSampler(some.astype(np.int32), random).rows(passed, 0, examples).tolist() == expected


def plainly_mixed(order: ShuffledSampler | BufferedSampler, batch_size: int, groups: list[int]) -> Mixing:
    """The same, pair by pair."""
    rows = order.rows(0, 0, len(order)).tolist()
    batches = [rows[start : start + batch_size] for start in range(0, len(rows), batch_size)]
    pairs = [groups[a] == groups[b] for batch in batches for n, a in enumerate(batch) for b in batch[n + 1 :]]
    every = [groups[a] == groups[b] for n, a in enumerate(rows) for b in rows[n + 1 :]]
    return Mixing(sum(pairs) / len(pairs), sum(every) / len(every), float(np.corrcoef(rows, range(len(rows)))[0, 1]))


@settings(deadline=None, max_examples=20)
@given(st.integers(10, 120), st.integers(2, 9), st.integers(1, 6))
def test_mixing_equals_a_count_of_pairs(examples: int, batch_size: int, size: int) -> None:
    groups = np.arange(examples) // size
    found, expected = (
        measure(plain(examples, SMALLEST_BUFFER), batch_size, groups) for measure in (mixing, plainly_mixed)
    )
    assert (found.together, found.chance, found.correlation) == pytest.approx(
        (expected.together, expected.chance, expected.correlation)
    )


def test_a_larger_buffer_mixes_better_and_all_do_far_better_than_none() -> None:
    """Four stores of dialogues of ten examples; two of one dialogue meet as much oftener as the buffer is smaller than all."""
    examples, batch = 200_000, 256
    dialogues, stores = np.arange(examples) // 10, np.arange(examples) // (examples // 4)
    whole = mixing(ShuffledSampler(examples, random), batch, dialogues)
    assert whole.together == pytest.approx(whole.chance, rel=0.3)
    for buffer in (5_000, 20_000, 80_000):
        order = plain(examples, buffer)
        met = mixing(order, batch, dialogues)
        assert met.together == pytest.approx(whole.chance * examples / buffer, rel=0.35)
        assert abs(met.correlation) < 0.15
        blocks = min(BLOCKS, buffer // block_size(buffer))
        assert mixing(order, batch, stores).together == pytest.approx(0.25, abs=0.75 / blocks + 0.01)
    unshuffled = np.arange(examples)
    assert mixing(_Fixed(unshuffled), batch, dialogues).together > 500 * whole.together


class _Fixed:
    def __init__(self, rows: np.ndarray):
        self._rows = rows

    def __len__(self) -> int:
        return len(self._rows)

    def rows(self, passed: int, first: int, last: int) -> np.ndarray:
        return self._rows[first:last]
