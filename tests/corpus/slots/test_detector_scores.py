"""Tests the scores of a detector against a simple implementation, and which split they are computed on."""

from pathlib import Path

import pytest
from hypothesis import given

from tests.helpers.annotated_turns import annotate, annotated_corpora, annotated_store, as_dialogues
from turnwise import Turn
from turnwise.core.errors import CorpusError
from turnwise.corpus.slots.detection import open_test_split, score_detector
from turnwise.corpus.slots.detectors import BuiltInDetector, Gazetteer
from turnwise.corpus.slots.templates import non_overlapping_slots

DETECTOR = BuiltInDetector(Gazetteer({"oslo": "city", "new york": "city", "pizza": "food", "york": "place"}))


def ratio(part: int, whole: int) -> float:
    return part / whole if whole else 0.0


def rates(right: int, detected: int, recalled: int, annotated: int) -> dict[str, float]:
    precision, recall = ratio(right, detected), ratio(recalled, annotated)
    f1 = 2 / (1 / precision + 1 / recall) if precision and recall else 0.0
    return {"precision": pytest.approx(precision), "recall": pytest.approx(recall), "f1": pytest.approx(f1)}


@given(annotated_corpora())
def test_scores_equal_a_simple_implementation(turns: list[Turn]) -> None:
    annotated_slots = {
        (n, slot.start, slot.end, slot.name) for n, turn in enumerate(turns) for slot in non_overlapping_slots(turn)
    }
    if not annotated_slots:
        with pytest.raises(CorpusError, match="no turn of user has a slot"):
            score_detector(as_dialogues(turns), DETECTOR)
        return
    detected = {
        (n, slot.start, slot.end, slot.name) for n, turn in enumerate(turns) for slot in DETECTOR.find(turn.text)
    }

    def characters(slots: set[tuple[int, int, int, str]]) -> set[tuple[int, int]]:
        return {(n, place) for n, start, end, _ in slots for place in range(start, end)}

    def count_overlapping(slots: set[tuple[int, int, int, str]], others: set[tuple[int, int, int, str]]) -> int:
        return sum(bool(characters({slot}) & characters(others)) for slot in slots)

    same_place = {slot[:3] for slot in detected} & {slot[:3] for slot in annotated_slots}
    score = score_detector(as_dialogues(turns), DETECTOR)
    by_name = score.pop("by_name")
    assert score == {
        "utterances": len(turns),
        "found": len(detected),
        "annotated": len(annotated_slots),
        "exact": rates(len(same_place), len(detected), len(same_place), len(annotated_slots)),
        "overlapping": rates(
            count_overlapping(detected, annotated_slots),
            len(detected),
            count_overlapping(annotated_slots, detected),
            len(annotated_slots),
        ),
        "named": rates(
            len(detected & annotated_slots), len(detected), len(detected & annotated_slots), len(annotated_slots)
        ),
    }
    names = [name for *_, name in annotated_slots]
    assert list(by_name) == sorted(set(names), key=lambda name: (-names.count(name), name))
    for name, part in by_name.items():
        of_name = {slot for slot in annotated_slots if slot[3] == name}
        named = {slot for slot in detected if slot[3] == name}
        right = len(of_name & named)
        assert part == {
            "annotated": len(of_name),
            "exact_recall": pytest.approx(len({slot[:3] for slot in of_name} & same_place) / len(of_name)),
            "overlapping_recall": pytest.approx(count_overlapping(of_name, detected) / len(of_name)),
            "named": rates(right, len(named), right, len(of_name)),
        }


def test_only_the_speaker_counts() -> None:
    dialogues = as_dialogues([annotate("to Oslo", ("city", "Oslo")), annotate("to Oslo", speaker="system")])
    assert score_detector(dialogues, DETECTOR, "user")["exact"]["f1"] == 1
    assert score_detector(dialogues, DETECTOR, None)["exact"]["precision"] == 0.5
    with pytest.raises(CorpusError, match="no turn of system has a slot"):
        score_detector(dialogues, DETECTOR, "system")


def test_test_split_is_opened(tmp_path: Path) -> None:
    def split_store(*splits: str | None) -> Path:
        dialogues = [
            dialogue for split in splits for dialogue in as_dialogues([annotate("to Oslo", ("city", "Oslo"))], split)
        ]
        return annotated_store(tmp_path / "-".join(map(str, splits)), dialogues)

    assert open_test_split(split_store("train", "valid", "test")).splits == ("test",)
    assert open_test_split(split_store("train", "valid")).splits == ("valid",)
    with pytest.raises(CorpusError, match=r"no test or valid split.*only train"):
        open_test_split(split_store("train"))
    unsplit, other = split_store(None), split_store("valid", "test")
    assert open_test_split(unsplit, [other]).splits is None
    with pytest.raises(CorpusError, match="has no splits: a detector that has learnt from it"):
        open_test_split(unsplit, [other, unsplit])
