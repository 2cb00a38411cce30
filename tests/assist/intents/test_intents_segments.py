"""Where utterances may be cut, and which cut is the best."""

from itertools import combinations, pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from turnwise.assist.intents import segments
from turnwise.assist.intents.segments import best_cut, parts_of


@pytest.mark.parametrize(
    ("text", "pieces"),
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
def test_pieces_are_cut_at_the_ends_of_clauses(text, pieces):
    parts = parts_of(text)
    count = max(last for _, last in parts)
    found = [parts[place, place + 1] for place in range(count)]
    assert found == pieces
    assert parts[0, count] == text


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 5), st.data())
def test_the_best_cut_is_the_best_of_all(count, data):
    text = " and ".join(" ".join(["word"] * data.draw(st.integers(1, 4))) for _ in range(count))
    parts = parts_of(text)
    scores = data.draw(st.lists(st.floats(-1, 1), min_size=len(parts), max_size=len(parts)))
    places = {span: place for place, span in enumerate(parts)}
    words = [len(parts[place, place + 1].split()) for place in range(count)]

    def worth(cuts):
        ends = [0, *cuts, count]
        spans = list(pairwise(ends))
        mean = sum(scores[places[span]] * sum(words[span[0] : span[1]]) for span in spans) / sum(words)
        return mean - segments._CUT * len(cuts), [places[span] for span in spans]

    every = [worth(cuts) for number in range(count) for cuts in combinations(range(1, count), number)]
    found = best_cut(parts, scores)
    worths = {tuple(chosen): value for value, chosen in every}
    assert worths[tuple(found)] == pytest.approx(max(worths.values()))


def test_a_long_list_is_cut_into_a_few_pieces():
    parts = parts_of(" and ".join(f"thing {number}" for number in range(1_000)))
    assert max(last for _, last in parts) == 8
    assert parts[7, 8].endswith("thing 999")
