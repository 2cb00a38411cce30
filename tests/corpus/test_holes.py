"""Tests what becomes of the turns around one that is missing."""

from turnwise.core.dialogue import Dialogue, Turn
from turnwise.corpus.hygiene.edits import apply_hole_policy


def dialogue(count: int) -> Dialogue:
    return Dialogue("d", tuple(Turn("user", str(number)) for number in range(count)), "log", "train")


def texts(parts: list[Dialogue]) -> list[list[str]]:
    return [[turn.text for turn in part.turns] for part in parts]


def test_split_ends_a_dialogue_at_a_hole():
    parts = apply_hole_policy(dialogue(5), {2, 4}, "split")
    assert texts(parts) == [["0", "1"], ["2", "3"], ["4"]]
    assert [part.id for part in parts] == ["d", "d#2", "d#3"]
    assert {(part.source, part.split) for part in parts} == {("log", "train")}


def test_holes_at_the_ends_do_not_split():
    assert texts(apply_hole_policy(dialogue(2), {0, 2}, "split")) == [["0", "1"]]


def test_other_policies():
    assert apply_hole_policy(dialogue(3), {1}, "drop-dialogue") == []
    assert apply_hole_policy(dialogue(3), {1}, "keep") == [dialogue(3)]
    assert apply_hole_policy(dialogue(3), {3}, "drop-dialogue") == []
    assert apply_hole_policy(dialogue(3), set(), "drop-dialogue") == [dialogue(3)]
