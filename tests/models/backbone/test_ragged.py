"""Sequences in one array are what a list of them is."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnwise.models.backbone.stream import RaggedTokens, span_indices

LISTS = st.lists(st.lists(st.integers(0, 99), max_size=5), max_size=6)


def ragged(lists: list[list[int]]) -> RaggedTokens:
    return RaggedTokens.of([np.array(each, np.int32) for each in lists])


def plain(found: RaggedTokens) -> list[list[int]]:
    return [each.tolist() for each in found]


@given(LISTS, LISTS)
def test_it_is_a_sequence_of_sequences(lists: list[list[int]], others: list[list[int]]) -> None:
    found = ragged(lists)
    assert len(found) == len(lists)
    assert plain(found) == lists
    assert [found[index].tolist() for index in range(-len(lists), len(lists))] == lists * 2
    assert found.tokens.tolist() == [token for each in lists for token in each]
    assert found.lengths.tolist() == [len(each) for each in lists]
    assert plain(RaggedTokens.concatenate([found, ragged(others)])) == lists + others
    assert RaggedTokens.of(found) is found
    with pytest.raises(IndexError):
        found[len(lists)]


@given(LISTS, st.data())
def test_some_of_them_can_be_taken(lists: list[list[int]], data: st.DataObject) -> None:
    members = data.draw(st.lists(st.integers(0, len(lists) - 1), max_size=8) if lists else st.just([]))
    assert plain(ragged(lists).take(np.array(members, np.int64))) == [lists[member] for member in members]
    part = data.draw(st.slices(len(lists)))
    assert plain(ragged(lists)[part]) == lists[part]


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 5))))
def test_spans_are_ranges_behind_each_other(pairs: list[tuple[int, int]]) -> None:
    starts, lengths = (np.array([pair[side] for pair in pairs], np.int64) for side in (0, 1))
    assert span_indices(starts, lengths).tolist() == [
        start + place for start, length in pairs for place in range(length)
    ]
