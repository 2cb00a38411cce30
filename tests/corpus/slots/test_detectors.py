"""The built-in detector: what its gazetteer learns, against a plain restatement, and what its finds must always be."""

import json
import re
from collections import Counter
from functools import cache
from itertools import combinations, pairwise
from pathlib import Path
from statistics import fmean

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.helpers.annotated_turns import ANYTHING, PHRASES, annotate, annotated_corpora, annotated_store, as_dialogues
from turnwise import Slot, Turn
from turnwise.core.errors import CorpusError
from turnwise.corpus.slots.detectors import BuiltInDetector, Gazetteer, detector_from_json, word_forms
from turnwise.corpus.slots.templates import non_overlapping_slots


def find(detector: BuiltInDetector, text: str) -> list[tuple[str, str]]:
    return [(slot.name, slot.value) for slot in detector.find(text)]


def with_values(**names: str) -> BuiltInDetector:
    return BuiltInDetector(Gazetteer({value.replace("_", " "): name for value, name in names.items()}))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("to NEW York City", [("city", "NEW York City")]),
        ("to new york, please", [("state", "new york")]),
        ("new yorkers", []),
        ("york new york", [("state", "new york")]),
        ("new york's weather", [("state", "new york")]),
        ("new york’s weather", [("state", "new york")]),
        ("the take-out pizza's", [("food", "pizza")]),
        ("pizza-oven, pizzas, xpizza", []),
        ("u.s.d. or U. S. D.", [("currency", "u.s.d."), ("currency", "U. S. D.")]),
        ("", []),
        ("  ", []),
    ],
)
def test_values_are_whole_words_and_the_longest_counts(text: str, expected: list[tuple[str, str]]) -> None:
    detector = BuiltInDetector(
        Gazetteer(
            {"new york": "state", "new york city": "city", "pizza": "food", "out": "way", "u . s . d .": "currency"}
        )
    )
    assert find(detector, text) == expected


def test_pattern_names_a_slot_unless_a_value_is_longer() -> None:
    detector = with_values(five="rating", five_guys="restaurant", tomorrow="album")
    assert find(detector, "five at five guys tomorrow") == [
        ("number", "five"),
        ("restaurant", "five guys"),
        ("date", "tomorrow"),
    ]


def check(text: str, slots: tuple[Slot, ...]) -> None:
    """Slots lie at their values, from left to right, do not overlap, and are whole words."""
    Turn("user", text or "x", None, (), slots)  # refuses a slot that does not lie at its value
    for first, second in pairwise(slots):
        assert first.end <= second.start
    for slot in slots:
        assert slot.value.strip() == slot.value
        assert not re.match(r"\w", text[slot.end :]) or not re.match(r"\w", slot.value[-1])
        assert not re.search(r"\w$", text[: slot.start]) or not re.match(r"\w", slot.value)


@given(annotated_corpora(), st.lists(PHRASES | ANYTHING, max_size=5))
def test_slots_are_valid_and_survive_serialisation(turns: list[Turn], texts: list[str]) -> None:
    detector = BuiltInDetector(Gazetteer.learn([as_dialogues(turns)], 0.0, 1), ("made-up",), 0.0, 1)
    again = detector_from_json(json.loads(json.dumps(detector.to_json())))
    assert again == detector
    texts += [turn.text for turn in turns]
    for text, slots in zip(texts, detector.find_all(texts), strict=True):
        check(text, slots)
        assert again.find(text) == slots


@settings(deadline=None, max_examples=25)
@given(st.lists(annotated_corpora(), min_size=1, max_size=3), st.sampled_from([0.0, 0.3, 0.5, 1.0]), st.integers(1, 3))
def test_gazetteer_equals_a_simple_count(corpora: list[list[Turn]], fraction: float, count: int) -> None:
    names: dict[str, Counter[str]] = {}
    for turn in (turn for turns in corpora for turn in turns):
        for slot in non_overlapping_slots(turn):
            names.setdefault(" ".join(word_forms(slot.value)), Counter())[slot.name] += 1
    learnt = Gazetteer.learn([as_dialogues(turns) for turns in corpora], fraction, count).names
    for value, counts in names.items():
        whole, shares = 0, []
        for turns in corpora:
            exact, places = uses(value, turns)
            whole += exact
            shares += [exact / places] if places else []
        long_enough = sum(character.isalnum() for character in value) > 2
        function_words = set(value.split()) <= {"the", "of", "out", "five"}  # those among WORDS
        is_learnt = long_enough and not function_words and whole >= count and fmean(shares) >= fraction
        assert (value in learnt) == is_learnt, value
        if is_learnt:
            assert learnt[value] == sorted(counts, key=lambda name: (-counts[name], name))[0]
    assert set(learnt) <= set(names)


def uses(value: str, turns: list[Turn]) -> tuple[int, int]:
    """How often a value is a slot, and how often its words stand in the texts."""
    exact = places = 0
    for turn in turns:
        marked = {(slot.start, slot.end) for slot in non_overlapping_slots(turn)}
        for piece, start, end in pieces(turn.text):
            places += piece == value
            exact += piece == value and (start, end) in marked
    return exact, places


@cache
def pieces(text: str) -> list[tuple[str, int, int]]:
    """Every piece of a text that cuts no word, by trying all."""
    occurrences = []
    for start, end in combinations(range(len(text) + 1), 2):
        before, piece, after = text[:start], text[start:end], text[end:]
        if piece.strip() == piece and word_forms(before) + word_forms(piece) + word_forms(after) == word_forms(text):
            occurrences.append((" ".join(word_forms(piece)), start, end))
    return occurrences


def test_fraction_is_averaged_over_the_corpora() -> None:
    """A word that one large corpus always marks and two others never do is not learnt."""
    songs = as_dialogues([annotate("the current song", ("which", "current"))] * 9)
    bills = as_dialogues([annotate("my current bill")])
    assert Gazetteer.learn([songs], 0.5, 2).names == {"current": "which"}
    assert Gazetteer.learn([songs, bills], 0.5, 2).names == {"current": "which"}
    assert Gazetteer.learn([songs, bills, bills], 0.5, 2).names == {}
    assert Gazetteer.learn([songs, bills, bills], 0.3, 10).names == {}


def test_unspecific_values_are_not_learnt() -> None:
    turns = [annotate("play the of up id 12 !!! ok", ("a", "the of"), ("b", "id"), ("c", "12"), ("d", "!!!"))] * 3
    assert Gazetteer.learn([as_dialogues(turns)], 0.0, 1).names == {}


def test_held_out_splits_are_not_learnt(tmp_path: Path) -> None:
    seen = as_dialogues([annotate("to Oslo", ("city", "Oslo")), annotate("to oslo", ("city", "oslo"))])
    hidden = [
        dialogue
        for split in ("valid", "test")
        for dialogue in as_dialogues(
            [annotate("to Bergen", ("city", "Bergen")), annotate("to bergen", ("city", "bergen"))] * 3, split
        )
    ]
    # the test split alone would make of Oslo no value, were it counted
    outvoted = as_dialogues([annotate("is Oslo nice")] * 9, "test")
    folder = annotated_store(
        tmp_path / "cities",
        [*seen, *hidden, *[type(one)(one.id + "x", one.turns, one.source, one.split) for one in outvoted]],
    )
    detector = BuiltInDetector.learn([folder])
    assert detector.gazetteer.names == {"oslo": "city"}
    assert len(detector.learnt_from) == 1
    assert re.fullmatch(r"cities \(made-up, generation \w+\), split train", detector.learnt_from[0])


def test_stores_that_nothing_can_be_learnt_from(tmp_path: Path) -> None:
    plain = annotated_store(tmp_path / "plain", as_dialogues([annotate("good night")]))
    with pytest.raises(CorpusError, match=r"no turn of plain .*split train has a slot.*annotated slots"):
        BuiltInDetector.learn([plain])
    test_only = annotated_store(tmp_path / "test-only", as_dialogues([annotate("to Oslo", ("city", "Oslo"))], "test"))
    with pytest.raises(CorpusError, match="no train"):
        BuiltInDetector.learn([test_only])


def test_detector_that_cannot_be_restored() -> None:
    with pytest.raises(CorpusError, match="unknown kind of detector 'oracle', known are built-in, spacy"):
        detector_from_json({"kind": "oracle"})
    with pytest.raises(CorpusError, match="'built-in' needs 'values'"):
        detector_from_json({"kind": "built-in"})
