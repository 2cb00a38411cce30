"""Samplers: every example once per epoch, deterministic from any place, and mixed as well as the buffer allows."""

from collections.abc import Callable

import numpy as np
import pytest
from benchmarks.corpus_scale import Mixing, mixing
from hypothesis import given, settings
from hypothesis import strategies as st

from turnwise.training.samplers import (
    BLOCKS,
    SMALLEST_BUFFER,
    BufferedSampler,
    ShuffledSampler,
    block_size,
)


def random(*place: int) -> np.random.Generator:
    return np.random.default_rng([7, *place])


def buffered(
    labels: np.ndarray, label: int | None, buffer: int, read_next: Callable[[list[tuple[int, int]]], None]
) -> BufferedSampler:
    return BufferedSampler(labels, label, buffer, random, read_next)


def plain(examples: int, buffer: int) -> BufferedSampler:
    return buffered(np.zeros(examples, np.int8), None, buffer, lambda ranges: None)


@given(
    st.integers(2, 3_000),
    st.integers(SMALLEST_BUFFER, 1_500),
    st.integers(0, 3),
    st.sampled_from([None, 1, 2]),
    st.data(),
)
def test_an_epoch_has_every_example_once_and_can_be_entered_anywhere(
    examples: int, buffer: int, epoch: int, label: int | None, data: st.DataObject
) -> None:
    labels = np.random.default_rng(examples).integers(1, 3, examples).astype(np.int8)
    labels[:2] = (1, 2)
    order = buffered(labels, label, buffer, lambda ranges: None)
    expected = np.arange(examples) if label is None else np.flatnonzero(labels == label)
    whole = order.rows(epoch, 0, len(order))
    assert len(order) == len(whole) == len(expected)
    assert sorted(whole.tolist()) == expected.tolist()
    first = data.draw(st.integers(0, len(order) - 1))
    last = data.draw(st.integers(first + 1, len(order) + 50))
    # a fresh object, which never saw what lies before
    fresh = buffered(labels, label, buffer, lambda ranges: None)
    assert fresh.rows(epoch, first, last).tolist() == whole[first:last].tolist()
    if len(order) > 20:
        assert order.rows(epoch + 1, 0, len(order)).tolist() != whole.tolist()


@given(st.integers(1, 20_000), st.integers(SMALLEST_BUFFER, 5_000))
def test_a_buffer_is_filled_with_whole_blocks(examples: int, buffer: int) -> None:
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
def test_shuffled_order_is_numpys_permutation(examples: int, epoch: int) -> None:
    """With 32-bit and 64-bit numbers; published results depend on it."""
    expected = random(epoch).permutation(examples).tolist()
    assert ShuffledSampler(examples, random).rows(epoch, 0, examples).tolist() == expected
    some = np.arange(0, 3 * examples, 3)
    expected = random(epoch).permutation(some).tolist()
    assert ShuffledSampler(some.astype(np.int32), random).rows(epoch, 0, examples).tolist() == expected


def direct_mixing(order: ShuffledSampler | BufferedSampler, batch_size: int, groups: list[int]) -> Mixing:
    """Count pairs one by one."""
    rows = order.rows(0, 0, len(order)).tolist()
    batches = [rows[start : start + batch_size] for start in range(0, len(rows), batch_size)]
    pairs = [groups[a] == groups[b] for batch in batches for n, a in enumerate(batch) for b in batch[n + 1 :]]
    every = [groups[a] == groups[b] for n, a in enumerate(rows) for b in rows[n + 1 :]]
    return Mixing(sum(pairs) / len(pairs), sum(every) / len(every), float(np.corrcoef(rows, range(len(rows)))[0, 1]))


@settings(deadline=None, max_examples=20)
@given(st.integers(10, 120), st.integers(2, 9), st.integers(1, 6))
def test_mixing_equals_a_direct_count_of_pairs(examples: int, batch_size: int, size: int) -> None:
    groups = np.arange(examples) // size
    actual, expected = (
        measure(plain(examples, SMALLEST_BUFFER), batch_size, groups) for measure in (mixing, direct_mixing)
    )
    assert (actual.together, actual.chance, actual.correlation) == pytest.approx(
        (expected.together, expected.chance, expected.correlation)
    )


def test_larger_buffers_mix_better() -> None:
    """Examples of one dialogue share a batch more often by the factor that the buffer is smaller than the corpus."""
    examples, batch = 200_000, 256
    dialogues, stores = np.arange(examples) // 10, np.arange(examples) // (examples // 4)
    whole = mixing(ShuffledSampler(examples, random), batch, dialogues)
    assert whole.together == pytest.approx(whole.chance, rel=0.3)
    for buffer in (5_000, 20_000, 80_000):
        order = plain(examples, buffer)
        mixed = mixing(order, batch, dialogues)
        assert mixed.together == pytest.approx(whole.chance * examples / buffer, rel=0.35)
        assert abs(mixed.correlation) < 0.15
        blocks = min(BLOCKS, buffer // block_size(buffer))
        assert mixing(order, batch, stores).together == pytest.approx(0.25, abs=0.75 / blocks + 0.01)
    unshuffled = np.arange(examples)
    assert mixing(_Fixed(unshuffled), batch, dialogues).together > 500 * whole.together


class _Fixed:
    def __init__(self, rows: np.ndarray):
        self._rows = rows

    def __len__(self) -> int:
        return len(self._rows)

    def rows(self, epoch: int, first: int, last: int) -> np.ndarray:
        return self._rows[first:last]
