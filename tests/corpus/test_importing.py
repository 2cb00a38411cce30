"""Tests the import itself: holes, losses, splits and limits."""

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.helpers.layouts import csv_bytes, json_bytes, jsonl_bytes, lay_out, lines_bytes
from turnwise.core.dialogue import Dialogue, Turn
from turnwise.core.errors import CorpusError
from turnwise.corpus.hygiene.edits import apply_hole_policy
from turnwise.corpus.importing.pipeline import SplitPlan, import_corpus, read_sample
from turnwise.corpus.storage.store import Store

COLUMNS = ("conversation", "speaker", "text", "time")


def log(folder: Path, *rows: tuple[str, str, str, str]) -> Path:
    return lay_out(folder, {"log.csv": csv_bytes(COLUMNS, *rows)})


def texts(store: Store) -> dict[str, list[str]]:
    return {dialogue.id: [turn.text for turn in dialogue.turns] for dialogue in store}


MIXED_TIMES = (
    ("a", "user", "one", "2024-05-01T10:00"),
    ("a", "bot", "two", "1/5/24 10:01"),
    ("a", "user", "three", "2024-05-01T10:02"),
    ("a", "bot", "four", "2024-05-01T10:03"),
    ("b", "user", "whole", "2024-05-01T10:00"),
)


@pytest.mark.parametrize(
    ("holes", "expected"),
    [
        (None, {"a": ["one"], "a#2": ["three", "four"], "b": ["whole"]}),
        ("split", {"a": ["one"], "a#2": ["three", "four"], "b": ["whole"]}),
        ("keep", {"a": ["one", "three", "four"], "b": ["whole"]}),
        ("drop-dialogue", {"b": ["whole"]}),
    ],
)
def test_row_that_cannot_be_read_does_not_join_its_neighbours(holes, expected: dict, tmp_path: Path):
    store = import_corpus("table", log(tmp_path / "in", *MIXED_TIMES), tmp_path / "out", time="time", holes=holes)
    assert texts(store) == expected
    assert store.manifest["holes"] == (holes or "split")


def test_holes_at_the_ends_do_not_split():
    dialogue = Dialogue("d", (Turn("user", "0"), Turn("user", "1")), "log", "train")
    assert apply_hole_policy(dialogue, {0, 2}, "split") == [dialogue]
    assert apply_hole_policy(dialogue, {2}, "drop-dialogue") == []


def test_several_time_formats_lose_nothing(tmp_path: Path):
    rows = (*MIXED_TIMES, ("b", "bot", "later", "1714557720"))
    formats = ["%d.%m.%y", "%d/%m/%y %H:%M"]
    store = import_corpus("table", log(tmp_path / "in", *rows), tmp_path / "out", time="time", time_format=formats)
    assert texts(store) == {"a": ["one", "two", "three", "four"], "b": ["whole", "later"]}
    assert store.manifest["lost"] == {"rows": 0, "of": 6}


def test_unreadable_row_without_a_conversation_separates_the_rows_around_it(tmp_path: Path):
    content = (
        b"conversation,speaker,text\na,user,one\nb,user,other\na,user,two\na,bot,x,y,z\na,user,three\nb,bot,more\n"
    )
    store = import_corpus("table", lay_out(tmp_path / "in", {"log.csv": content}), tmp_path / "out")
    assert texts(store) == {"a": ["one", "two"], "a#2": ["three"], "b": ["other", "more"]}
    assert store.manifest["lost"] == {"rows": 1, "of": 6}


def test_reasons_are_grouped_whatever_the_value(tmp_path: Path):
    rows = [("a", "user", "x", f"day {number}") for number in range(30)]
    rows += [("a", "user", "", "2024-05-01T10:00"), ("a", "user", "fine", "2024-05-01T10:00")]
    store = import_corpus("table", log(tmp_path / "in", *rows), tmp_path / "out", time="time")
    (time_reason, count), (other, other_count) = store.manifest["reasons"].items()
    assert (count, other_count) == (30, 1)
    assert "cannot parse the time 'day 0'" in time_reason
    assert "--set time_format" in time_reason
    assert other == "turn: the text is empty"
    assert store.manifest["lost"] == {"rows": 31, "of": 32}


def test_limit_and_split(tmp_path: Path):
    rows = [(f"c{number:03}", "user", "hello", str(number)) for number in range(300)]
    folder = log(tmp_path / "in", *rows)
    limited = import_corpus("table", folder, tmp_path / "limited", limit=7)
    assert list(texts(limited)) == [f"c{number:03}" for number in range(7)]
    plan = SplitPlan.parse("50/25/25")
    store = import_corpus("table", folder, tmp_path / "split", split_plan=plan)
    assert {dialogue.id: dialogue.split for dialogue in store} == {
        f"c{n:03}": plan.split_of_id(f"c{n:03}") for n in range(300)
    }
    assert store.splits() == {"train", "valid", "test"}


def test_a_sample_is_the_beginning_of_a_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("turnwise.corpus.importing.pipeline.SAMPLE_MESSAGES", 200)
    lines = [
        f"{day:02}/05/2023, 1{minute // 60}:{minute % 60:02} - Anna: text"
        for day in range(1, 29)
        for minute in range(90)
    ]
    days = {f"general/2023-05-{day:02}.json": _slack_day(day) for day in range(1, 29)}
    for reader, files in (
        ("whatsapp", {"chat.txt": lines_bytes(*lines)}),
        ("slack", {**days, "users.json": json_bytes([{"id": "U1", "name": "anna"}])}),
        ("table", {"log.csv": csv_bytes(COLUMNS, *((f"c{n:04}", "user", "text", str(n)) for n in range(2_000)))}),
    ):
        folder = lay_out(tmp_path / reader, files)
        whole = list(import_corpus(reader, folder, tmp_path / f"{reader}-whole"))
        sample = [replace(each, split=None) for each in whole[:2]]
        assert [replace(each, split=None) for each in read_sample(reader, folder, 2)] == sample
        utterances = sum(len(dialogue.turns) for dialogue in read_sample(reader, folder, 10_000))
        assert 200 <= utterances <= 300 < sum(len(dialogue.turns) for dialogue in whole)


def _slack_day(day: int) -> bytes:
    times = (datetime(2023, 5, day, 10 + number // 60, number % 60, tzinfo=UTC).timestamp() for number in range(90))
    return json_bytes([{"type": "message", "user": "U1", "text": "text", "ts": f"{time:.6f}"} for time in times])


def test_split_by_time(tmp_path: Path):
    rows = [(f"c{(number * 37) % 100:03}", "user", "hello", str((number * 37) % 100)) for number in range(100)]
    plan = SplitPlan.parse("80/10/10", by="time")
    store = import_corpus("table", log(tmp_path / "in", *rows), tmp_path / "out", split_plan=plan, time="time")
    by_split = {name: sorted(it.id for it in store if it.split == name) for name in ("train", "valid", "test")}
    assert [len(by_split[name]) for name in ("train", "valid", "test")] == [80, 10, 10]
    assert max(by_split["train"]) < min(by_split["valid"]) < max(by_split["valid"]) < min(by_split["test"])


def test_split_by_time_needs_times(tmp_path: Path):
    folder = log(tmp_path / "in", ("a", "user", "hello", "1"))
    with pytest.raises(CorpusError, match="split by time needs the time"):
        import_corpus("table", folder, tmp_path / "out", split_plan=SplitPlan.parse("80/10/10", by="time"))
    assert not (tmp_path / "out").exists()


def test_parts_of_a_conversation_stay_in_one_split(tmp_path: Path):
    rows = [
        row
        for n in range(50)
        for row in ((f"c{n}", "user", "a", ""), (f"c{n}", "user", "", ""), (f"c{n}", "bot", "b", ""))
    ]
    store = import_corpus(
        "table", log(tmp_path / "in", *rows), tmp_path / "out", split_plan=SplitPlan.parse("40/30/30")
    )
    splits: dict[str, set] = {}
    for dialogue in store:
        splits.setdefault(dialogue.id.partition("#")[0], set()).add(dialogue.split)
    assert len(splits) == 50
    assert len(store) == 100
    assert all(len(found) == 1 for found in splits.values())


def test_chains_of_replies_of_one_conversation_stay_in_one_split(tmp_path: Path):
    records = []
    for number in range(40):
        records.append({"id": f"{number}", "conversation_id": f"{number}", "speaker": "a", "text": "root"})
        for reply in ("x", "y"):
            fields = {"id": f"{number}{reply}", "conversation_id": f"{number}", "reply_to": f"{number}"}
            records.append({**fields, "speaker": "b", "text": reply})
    folder = lay_out(tmp_path / "in", {"utterances.jsonl": jsonl_bytes(*records)})
    plan = SplitPlan.parse("40/30/30")
    store = import_corpus("convokit", folder, tmp_path / "out", split_plan=plan, order="paths")
    assert len(store) == 80
    splits: dict[str, set] = {}
    for dialogue in store:
        splits.setdefault(dialogue.id.partition("/")[0], set()).add(dialogue.split)
    assert all(len(found) == 1 for found in splits.values())
    assert len(set().union(*splits.values())) == 3
