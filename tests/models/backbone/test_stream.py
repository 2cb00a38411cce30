"""Properties of the token stream: order, groups, positions, buckets and chunks."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.helpers.families import sequences
from turnwise.models.backbone.stream import TokenStream, token_batches

LENGTHS = st.lists(st.integers(1, 30), min_size=1, max_size=40)


@given(LENGTHS)
def test_order_and_restore_are_inverse(lengths: list[int]) -> None:
    stream = TokenStream.of(sequences(lengths))
    assert sorted(stream.order) == list(range(len(lengths)))
    in_stream_order = torch.from_numpy(stream.order)
    assert stream.restore(in_stream_order).tolist() == list(range(len(lengths)))
    assert stream.restore(torch.from_numpy(stream.lengths)).tolist() == lengths


@given(LENGTHS)
def test_equal_lengths_keep_their_order(lengths: list[int]) -> None:
    stream = TokenStream.of(sequences(lengths))
    assert stream.order.tolist() == sorted(range(len(lengths)), key=lambda index: (lengths[index], index))


@given(LENGTHS)
def test_every_sequence_is_found_at_its_start(lengths: list[int]) -> None:
    parts = sequences(lengths)
    marks = [np.full(len(part), index, np.int32) for index, part in enumerate(parts)]
    stream = TokenStream.of(parts, marks)
    starts = stream.starts().tolist()
    assert len(starts) == len(stream) + 1 == len(lengths) + 1
    assert starts[0] == 0
    assert starts[-1] == stream.tokens == sum(lengths)
    assert stream.segments is not None
    for place, index in enumerate(stream.order):
        span = slice(starts[place], starts[place + 1])
        assert stream.ids[span].tolist() == parts[index].tolist()
        assert stream.segments[span].tolist() == marks[index].tolist()


@given(LENGTHS)
def test_groups_tile_the_stream_by_length(lengths: list[int]) -> None:
    stream = TokenStream.of(sequences(lengths))
    end = 0
    for group in stream.groups:
        assert group.start == end
        assert group.count == lengths.count(group.length)
        end = group.end
    assert end == stream.tokens
    assert [group.length for group in stream.groups] == sorted(set(lengths))


@given(LENGTHS)
def test_positions_count_from_zero_in_every_sequence(lengths: list[int]) -> None:
    stream = TokenStream.of(sequences(lengths))
    assert stream.positions().tolist() == [place for length in sorted(lengths) for place in range(length)]


@given(LENGTHS, st.integers(1, 200))
def test_buckets_stay_within_the_budget_and_cover_everything(lengths: list[int], budget: int) -> None:
    stream = TokenStream.of(sequences(lengths))
    ranges = list(stream.buckets(budget))
    assert [index for first, last in ranges for index in range(first, last)] == list(range(len(lengths)))
    for first, last in ranges:
        assert last - first == 1 or (last - first) * stream.lengths[last - 1] <= budget


@given(LENGTHS, st.integers(1, 200))
def test_no_bucket_could_take_the_next_sequence(lengths: list[int], budget: int) -> None:
    stream = TokenStream.of(sequences(lengths))
    for first, last in list(stream.buckets(budget))[:-1]:
        assert (last + 1 - first) * stream.lengths[last] > budget


@given(st.lists(st.integers(1, 30), max_size=40), st.integers(1, 200))
def test_chunks_stay_within_the_budget_and_cover_everything(lengths: list[int], budget: int) -> None:
    ranges = list(token_batches(lengths, budget))
    assert [index for first, last in ranges for index in range(first, last)] == list(range(len(lengths)))
    for first, last in ranges:
        assert last - first == 1 or sum(lengths[first:last]) <= budget
    for first, last in ranges[:-1]:
        assert sum(lengths[first : last + 1]) > budget


def test_no_chunks_of_nothing() -> None:
    assert list(token_batches([], 10)) == []


@pytest.mark.parametrize("lengths", [[], [0], [3, 0, 2]])
def test_empty_input_is_refused(lengths: list[int]) -> None:
    with pytest.raises(ValueError, match="every sequence at least one token"):
        TokenStream.of(sequences(lengths))


def test_ids_are_what_an_embedding_takes_and_segments_are_optional() -> None:
    stream = TokenStream.of(sequences([2, 1]))
    assert stream.ids.dtype == torch.int64
    assert stream.segments is None
    assert stream.to(torch.device("cpu")).segments is None
