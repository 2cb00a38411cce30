"""Splitting texts into clauses, and choosing the best segmentation."""

import time
from itertools import combinations, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnwise.assist.intents.decision import SPLIT_PENALTY, best_segmentation, split_text


@pytest.mark.parametrize(
    ("text", "clauses"),
    [
        ("cancel my order", ["cancel my order"]),
        ("cancel my order and refund me", ["cancel my order", "refund me"]),
        ("Cancel it. And then, tell me why!", ["Cancel it", "tell me why!"]),
        ("cancel it, and also refund me; thanks", ["cancel it", "refund me", "thanks"]),
        ("a sandwich", ["a sandwich"]),
        ("at 3.50 or 4,000", ["at 3.50 or 4,000"]),
        ("", [""]),
        (" , ", [" , "]),
        ("and", ["and"]),
    ],
)
def test_texts_are_split_at_clause_boundaries(text, clauses):
    segments = split_text(text)
    count = max(last for _, last in segments)
    result = [segments[place, place + 1] for place in range(count)]
    assert result == clauses
    assert segments[0, count] == text


@given(st.integers(1, 5), st.data())
def test_best_segmentation_is_the_best_of_all(count, data):
    text = " and ".join(" ".join(["word"] * data.draw(st.integers(1, 4))) for _ in range(count))
    segments = split_text(text)
    scores = data.draw(st.lists(st.floats(-1, 1), min_size=len(segments), max_size=len(segments)))
    index_of = {span: index for index, span in enumerate(segments)}
    words = [len(segments[place, place + 1].split()) for place in range(count)]

    def value_of(cuts):
        ends = [0, *cuts, count]
        spans = list(pairwise(ends))
        mean = sum(scores[index_of[span]] * sum(words[span[0] : span[1]]) for span in spans) / sum(words)
        return mean - SPLIT_PENALTY * len(cuts), [index_of[span] for span in spans]

    every = [value_of(cuts) for number in range(count) for cuts in combinations(range(1, count), number)]
    result = best_segmentation(segments, scores)
    values = {tuple(chosen): value for value, chosen in every}
    assert values[tuple(result)] == pytest.approx(max(values.values()))


def test_long_lists_are_split_into_few_clauses():
    segments = split_text(" and ".join(f"thing {number}" for number in range(1_000)))
    assert max(last for _, last in segments) == 8
    assert segments[7, 8].endswith("thing 999")


@pytest.mark.parametrize("text", ["a" + " " * 20_000 + "b", "." * 20_000, "\n" * 20_000 + "b", ".\n" * 10_000 + "b"])
def test_splitting_takes_linear_time(text):
    start = time.perf_counter()
    assert len(split_text(text)) <= 3
    assert time.perf_counter() - start < 5  # quadratic: more than a minute
