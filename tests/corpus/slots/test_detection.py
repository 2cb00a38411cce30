"""Tests slot detection in a store, and the command."""

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from typer.testing import CliRunner

from tests.helpers.annotated_turns import annotate, annotated_corpora, annotated_store, as_dialogues
from turnwise import Dialogue, Turn, read_corpus
from turnwise.cli import app
from turnwise.core.errors import CorpusError
from turnwise.corpus.importing.pipeline import import_corpus
from turnwise.corpus.slots.detection import detect_slots, detect_store, open_test_split, score_detector
from turnwise.corpus.slots.detectors import BuiltInDetector, Gazetteer, detector_from_json

DETECTOR = BuiltInDetector(
    Gazetteer({"oslo": "city", "pizza": "food"}), ("cities (made-up, generation 0), split train",)
)


@given(annotated_corpora())
def test_only_the_slots_of_the_speaker_change(turns: list[Turn]) -> None:
    answers = [Turn("system", turn.text, turn.intent, turn.acts, turn.slots) for turn in turns]
    dialogues = [Dialogue("a", (*turns, *answers), "made-up", "test"), Dialogue("b", tuple(answers), None, "train")]
    for speaker in ("user", "system", None):
        changed = list(detect_slots(dialogues, DETECTOR, speaker=speaker, replace_slots=True))
        for before, after in zip(dialogues, changed, strict=True):
            assert (after.id, after.source, after.split) == (before.id, before.source, before.split)
            for old, new in zip(before.turns, after.turns, strict=True):
                slots = DETECTOR.find(old.text) if speaker in (None, old.speaker) else old.slots
                assert new == Turn(old.speaker, old.text, old.intent, old.acts, slots)


def test_store_keeps_every_split_and_its_detector(tmp_path: Path) -> None:
    many = as_dialogues(
        [annotate(f"pizza in Oslo at {hour} pm", speaker=who) for hour in range(1, 12) for who in ("user", "system")]
        * 60
    )
    dialogues = [*many, *as_dialogues([annotate("good night")], "test")]
    plain = annotated_store(tmp_path / "plain", dialogues)
    progress_calls: list[tuple[str, int, int | None]] = []
    written = detect_store(plain, tmp_path / "out", DETECTOR, progress=lambda *what: progress_calls.append((*what,)))
    assert list(written) == list(detect_slots(dialogues, DETECTOR))
    assert [done for _, done, _ in progress_calls] == [512, 1024]
    manifest = written.manifest
    assert detector_from_json(manifest["detector"]) == DETECTOR
    assert (manifest["reader"], manifest["licence"]) == ("detect", "none of yours")
    assert manifest["options"] == {"speaker": "user", "replace": False}
    assert manifest["facts"].pop("made_of").startswith("plain (made-up, generation ")
    assert manifest["facts"] == {"utterances": 661, "with_slots": 660, "slots": 3 * 660}
    assert [file["sha256"] for file in manifest["inputs"]] == [
        file["sha256"] for file in read_corpus(plain).stores[0].manifest["files"]
    ]


def test_invalid_stores_are_rejected(tmp_path: Path) -> None:
    marked = annotated_store(
        tmp_path / "marked", as_dialogues([annotate("good night"), annotate("to Oslo", ("town", "Oslo"))])
    )
    with pytest.raises(CorpusError, match=r"train-1 already has slots .town in 'to Oslo'.*--replace"):
        detect_store(marked, tmp_path / "out", DETECTOR)
    assert not (tmp_path / "out").exists()
    written = detect_store(marked, tmp_path / "out", DETECTOR, replace_slots=True)
    assert [slot.name for dialogue in written for turn in dialogue.turns for slot in turn.slots] == ["city"]
    with pytest.raises(CorpusError, match="is the store to read"):
        detect_store(marked, marked, DETECTOR, replace_slots=True)
    with pytest.raises(CorpusError, match="no turn of the speaker system: name another --speaker"):
        detect_store(marked, tmp_path / "none", DETECTOR, speaker="system")
    with pytest.raises(CorpusError, match="is not a store"):
        detect_store(tmp_path / "missing", tmp_path / "none", DETECTOR)


class TestCommand:
    @pytest.fixture
    def cities(self, tmp_path: Path) -> Path:
        turns = [annotate(f"fly to {city}", ("city", city)) for city in ("Oslo", "Bergen", "Rome")]
        return annotated_store(
            tmp_path / "cities",
            [
                *as_dialogues(turns * 2),
                *as_dialogues([*turns[:2], annotate("fly to Turin", ("city", "Turin"))], "test"),
            ],
        )

    @staticmethod
    def run(*arguments: object, code: int = 0) -> str:
        result = CliRunner().invoke(app, ["corpus", "detect", *map(str, arguments)], env={"COLUMNS": "120"})
        if code == 1:  # the message is printed by the entry point, which is not run here
            return str(result.exception)
        assert result.exit_code == code, result.output
        return result.output if code else result.stdout

    def test_unknown_speakers_are_reported(self, cities: Path, tmp_path: Path) -> None:
        expected = "no turn is of the speaker 'users': choose from user. Did you mean user?"
        assert self.run(cities, "--out", tmp_path / "out", "--replace", "--speaker", "users", code=1) == expected
        assert self.run("--against", cities, "--gazetteer", cities, "--speaker", "users", code=1) == expected
        for command in (("templates",), ("augment", "--out", str(tmp_path / "out"), "--top", "1")):
            result = CliRunner().invoke(app, ["corpus", *command, str(cities), "--speaker", "users"])
            assert str(result.exception) == expected

    def test_detects_evaluates_and_prints(self, cities: Path, tmp_path: Path) -> None:
        plain = annotated_store(
            tmp_path / "plain", as_dialogues([annotate("to rome at 5 pm"), annotate("thanks"), annotate("to Rome")])
        )
        out = tmp_path / "out"
        arguments = [plain, "--out", out, "--gazetteer", cities, "--against", cities]
        output = json.loads(self.run(*arguments, "--json", "--top", 1))
        assert (output["utterances"], output["with_slots"], output["slots"], output["values"]) == (3, 2, 3, 2)
        assert output["by_name"] == [
            {"name": "city", "count": 2, "top": {"Rome": 2}},
            {"name": "time", "count": 1, "top": {"5 pm": 1}},
        ]
        assert output["against"][str(cities)]["exact"] == pytest.approx({"precision": 1.0, "recall": 2 / 3, "f1": 0.8})
        assert [[slot.value for slot in dialogue.turns[0].slots] for dialogue in read_corpus(out)] == [
            ["rome", "5 pm"],
            [],
            ["Rome"],
        ]
        output = self.run(*arguments)
        for piece in (
            "3, 2 of them with a slot",
            "3 with 2 names and 2 distinct values",
            "2: Rome 2",
            "precision 100.0%, recall 66.7%",
        ):
            assert piece in output

    def test_evaluates_without_a_store(self, cities: Path) -> None:
        output = json.loads(self.run("--against", cities, "--json"))
        assert list(output) == ["against"]
        assert output["against"][str(cities)]["found"] == 0
        assert "test: 3 utterances" in self.run("--against", cities)

    def test_contradictory_options_are_rejected(self, cities: Path, tmp_path: Path) -> None:
        assert "name a store to read" in self.run(code=2)
        assert "name both" in self.run(cities, code=2)
        assert "name both" in self.run("--out", tmp_path / "out", code=2)
        assert "use one or the other" in self.run("--against", cities, "--spacy", "m", "--gazetteer", cities, code=2)
        assert "--replace" in self.run(cities, "--out", tmp_path / "out", code=1)
        assert "--replace" not in self.run(cities, "--out", tmp_path / "out", "--replace")
        assert "is not a store" in self.run("--against", tmp_path, code=1)


DATA = os.environ.get("TURNWISE_DATA")
LAYOUTS = {"massive": "massive_1.1", "hwu64_kfold": "hwu64", "snips": "snips_slotgated", "atis": "atis_slotgated"}


@pytest.fixture
def real(tmp_path: Path) -> Callable[[str, str], Path]:
    def imported(reader: str, place: str) -> Path:
        if DATA is None or not (Path(DATA) / place).is_dir():
            pytest.skip(f"TURNWISE_DATA names no folder with {place}: real data needed")
        return import_corpus(reader, Path(DATA) / place, tmp_path / reader).folder

    return imported


@pytest.mark.parametrize(
    ("reader", "own", "patterns"),
    [
        ("atis", (0.951, 0.832), (0.836, 0.162)),
        pytest.param("snips", (0.946, 0.577), (0.812, 0.133), marks=pytest.mark.full),
    ],
)
def test_documented_scores(
    reader: str, own: tuple[float, float], patterns: tuple[float, float], real: Callable[[str, str], Path]
) -> None:
    """Precision and recall of equal places as in docs/results/slot-detection.md, to two points."""
    folder = real(reader, LAYOUTS[reader])
    view = open_test_split(folder)
    for detector, expected in ((BuiltInDetector.learn([folder]), own), (BuiltInDetector(), patterns)):
        exact = score_detector(view, detector)["exact"]
        assert (exact["precision"], exact["recall"]) == pytest.approx(expected, abs=0.02)


@pytest.mark.full
def test_documented_slots_of_clinc150(real: Callable[[str, str], Path], tmp_path: Path) -> None:
    """The counts of docs/results/slot-detection.md, to five in a hundred."""
    detector = BuiltInDetector.learn([real(reader, place) for reader, place in LAYOUTS.items()])
    written = detect_store(real("clinc150", "clinc150_oos"), tmp_path / "slots", detector)
    facts = written.manifest["facts"]
    assert facts["utterances"] == 23_700
    assert (facts["with_slots"], facts["slots"]) == pytest.approx((6_950, 9_478), rel=0.05)
