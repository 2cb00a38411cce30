"""Ragged tokens and the token stream: order, groups, positions, buckets and batches."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.helpers.families import sequences
from turnwise.models.backbone.ragged import RaggedTokens, span_indices, token_batches
from turnwise.models.backbone.stream import TokenStream

LENGTHS = st.lists(st.integers(1, 30), min_size=1, max_size=40)
LISTS = st.lists(st.lists(st.integers(0, 99), max_size=5), max_size=6)


@given(LENGTHS)
def test_order_and_restore_are_inverse(lengths: list[int]) -> None:
    stream = TokenStream.of(sequences(lengths))
    assert sorted(stream.order) == list(range(len(lengths)))
    in_stream_order = torch.from_numpy(stream.order)
    assert stream.restore(in_stream_order).tolist() == list(range(len(lengths)))
    assert stream.restore(torch.from_numpy(stream.lengths)).tolist() == lengths


@given(LENGTHS)
def test_sequences_begin_at_their_starts(lengths: list[int]) -> None:
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


@given(st.lists(st.integers(1, 30), max_size=40), st.integers(1, 200))
def test_token_batches_stay_within_the_budget_and_cover_everything(lengths: list[int], budget: int) -> None:
    ranges = list(token_batches(lengths, budget))
    assert [index for first, last in ranges for index in range(first, last)] == list(range(len(lengths)))
    for first, last in ranges:
        assert last - first == 1 or sum(lengths[first:last]) <= budget
    for first, last in ranges[:-1]:
        assert sum(lengths[first : last + 1]) > budget


@pytest.mark.parametrize("lengths", [[], [0], [3, 0, 2]])
def test_empty_sequences_are_rejected(lengths: list[int]) -> None:
    with pytest.raises(ValueError, match="every sequence at least one token"):
        TokenStream.of(sequences(lengths))


# ---- ragged tokens


def ragged(lists: list[list[int]]) -> RaggedTokens:
    return RaggedTokens.of([np.array(each, np.int32) for each in lists])


def plain(joined: RaggedTokens) -> list[list[int]]:
    return [each.tolist() for each in joined]


@given(LISTS, LISTS)
def test_ragged_tokens_are_a_sequence(lists: list[list[int]], others: list[list[int]]) -> None:
    joined = ragged(lists)
    assert len(joined) == len(lists)
    assert plain(joined) == lists
    assert [joined[index].tolist() for index in range(-len(lists), len(lists))] == lists * 2
    assert joined.tokens.tolist() == [token for each in lists for token in each]
    assert joined.lengths.tolist() == [len(each) for each in lists]
    assert plain(RaggedTokens.concatenate([joined, ragged(others)])) == lists + others
    assert RaggedTokens.of(joined) is joined
    with pytest.raises(IndexError):
        joined[len(lists)]


@given(LISTS, st.data())
def test_take(lists: list[list[int]], data: st.DataObject) -> None:
    members = data.draw(st.lists(st.integers(0, len(lists) - 1), max_size=8) if lists else st.just([]))
    assert plain(ragged(lists).take(np.array(members, np.int64))) == [lists[member] for member in members]


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 5))))
def test_span_indices_are_concatenated_ranges(pairs: list[tuple[int, int]]) -> None:
    starts, lengths = (np.array([pair[side] for pair in pairs], np.int64) for side in (0, 1))
    assert span_indices(starts, lengths).tolist() == [
        start + place for start, length in pairs for place in range(length)
    ]


def test_sequences_without_a_token() -> None:
    tokens = RaggedTokens(np.array([7, 3, 7, 7, 5], np.int32), np.array([2, 2, 0, 1]))
    assert [each.tolist() for each in tokens.without(7)] == [[3], [], [], [5]]
    assert [each.tolist() for each in tokens.without(None)] == [[7, 3], [7, 7], [], [5]]
