"""Labels for a map: changes of groups, their durability, undo and redo."""

import csv
import io
import json
import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests.helpers.small_map import save_map, small_map
from turnwise.assist.labelling.changes import GroupAssignment, split_group
from turnwise.assist.labelling.labelling import Labelling
from turnwise.core.errors import MapError, ProjectError

NAMES = st.sampled_from(["boats", "gardens", "clocks", " bread ", 'Öl, "Ä"', "out_of_scope"])
ROWS = 24


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return save_map(tmp_path / "map")


class Machine(RuleBasedStateMachine):
    """Random actions in random order, compared with a model that copies its whole state."""

    def __init__(self) -> None:
        super().__init__()
        self.place = tempfile.TemporaryDirectory()
        self.folder = save_map(Path(self.place.name) / "map", ROWS)
        self.labelling = Labelling.open(self.folder)

    @initialize()
    def start(self) -> None:
        self.groups = small_map(ROWS).labels.tolist()
        self.names: dict[int, str] = {}
        self.confirmed: set[int] = set()
        self.past: list[tuple] = []
        self.future: list[tuple] = []

    def teardown(self) -> None:
        self.labelling.close()
        self.place.cleanup()

    def _state(self) -> tuple:
        return list(self.groups), dict(self.names), set(self.confirmed)

    def _remember(self, before: tuple) -> None:
        if self._state() != before:
            self.past.append(before)
            self.future.clear()

    def _some_group(self, data: st.DataObject) -> int:
        return data.draw(st.sampled_from(sorted(set(self.groups) - {-1})))

    def has_groups(self) -> bool:
        return bool(set(self.groups) - {-1})

    @rule(data=st.data(), name=NAMES)
    @precondition(has_groups)
    def name(self, data: st.DataObject, name: str) -> None:
        before, group = self._state(), self._some_group(data)
        self.labelling.name(group, name)
        self.names[group] = name.strip()
        self._remember(before)

    @rule(data=st.data(), name=st.none() | NAMES)
    @precondition(lambda self: len(set(self.groups) - {-1}) > 1)
    def merge(self, data: st.DataObject, name: str | None) -> None:
        before = self._state()
        chosen = data.draw(
            st.lists(st.sampled_from(sorted(set(self.groups) - {-1})), min_size=2, max_size=3, unique=True)
        )
        assert self.labelling.merge(chosen, name) == chosen[0]
        given = [self.names[group] for group in chosen if group in self.names]
        self.groups = [chosen[0] if group in chosen else group for group in self.groups]
        for group in chosen:
            self.names.pop(group, None)
        if name is not None or given:
            self.names[chosen[0]] = given[0] if name is None else name.strip()
        self._remember(before)

    @rule(data=st.data(), parts=st.integers(2, 3))
    @precondition(has_groups)
    def split(self, data: st.DataObject, parts: int) -> None:
        before, group = self._state(), self._some_group(data)
        rows = [row for row, each in enumerate(self.groups) if each == group]
        if len(rows) < parts:
            with pytest.raises(MapError, match="cannot be split"):
                self.labelling.split(group, parts)
            return
        numbers = self.labelling.split(group, parts)
        groups = self.labelling.row_groups.tolist()
        assert numbers[0] == group and len(set(numbers)) == parts
        assert not set(numbers[1:]) & set(self.groups)
        assert {groups[row] for row in rows} == set(numbers)
        sizes = [groups.count(number) for number in numbers]
        assert sizes == sorted(sizes, reverse=True) and sum(sizes) == len(rows)
        for row in rows:
            self.groups[row] = groups[row]
        self._remember(before)

    @rule(rows=st.lists(st.integers(0, ROWS - 1), min_size=1, max_size=5), name=st.none() | NAMES)
    def label(self, rows: list[int], name: str | None) -> None:
        before = self._state()
        number = self.labelling.label(rows, name)
        if name is None:
            assert number is None
            for row in rows:
                self.groups[row] = -1
        else:
            existing = [group for group, given in self.names.items() if given == name.strip()]
            sizes = {group: before[0].count(group) for group in existing}
            target = min((group for group in existing if sizes[group] == max(sizes.values())), default=None)
            moved = [row for row in rows if before[0][row] not in existing]
            if target is None:
                target = int(self.labelling.row_groups[rows[0]])
                assert target not in before[0]
            for row in moved:
                self.groups[row] = target
            self.names[target] = name.strip()
            assert number == self.groups[rows[0]]
        self.confirmed.update(rows)
        self._remember(before)

    @rule()
    def undo(self) -> None:
        if not self.past:
            with pytest.raises(MapError, match="no change"):
                self.labelling.undo()
            return
        self.labelling.undo()
        self.future.append(self._state())
        self.groups, self.names, self.confirmed = self.past.pop()

    @rule()
    def redo(self) -> None:
        if not self.future:
            with pytest.raises(MapError, match="no change"):
                self.labelling.redo()
            return
        self.labelling.redo()
        self.past.append(self._state())
        self.groups, self.names, self.confirmed = self.future.pop()

    @rule()
    def reopen(self) -> None:
        before = self.labelling.groups
        self.labelling.close()
        self.labelling = Labelling.open(self.folder)
        assert self.labelling.groups == before

    @invariant()
    def holds(self) -> None:
        if not hasattr(self, "groups"):
            return
        assert self.labelling.row_groups.tolist() == self.groups
        assert self.labelling.labels() == [self.names.get(group) for group in self.groups]
        assert set(np.flatnonzero(self.labelling.confirmed)) == self.confirmed
        assert self.labelling.history["changes"] == len(self.past)
        assert tuple(self.labelling.history.values())[1:] == (bool(self.past), bool(self.future))

    @rule()
    def describe_clusters(self) -> None:
        """Descriptions of groups match their members."""
        groups = {group.number: group for group in self.labelling.groups}
        counts = small_map(ROWS).counts
        assert set(groups) == set(self.groups) - {-1}
        for number, group in groups.items():
            rows = [row for row, each in enumerate(self.groups) if each == number]
            assert (group.size, group.utterances) == (len(rows), counts[rows].sum())
            assert group.representatives and set(group.representatives) <= set(rows)
            assert group.name == self.names.get(number) and group.suggested


Machine.TestCase.settings = settings(max_examples=15, stateful_step_count=25, deadline=None)
TestMachine = Machine.TestCase


def test_changes_are_durable_before_they_are_acknowledged(folder: Path) -> None:
    labelling = Labelling.open(folder)
    labelling.name(0, "boats")
    lines = [json.loads(line) for line in (folder / "labels.jsonl").read_text().splitlines()]
    assert [line.get("do") for line in lines] == [None, "name"] and lines[1]["names"] == [[0, "boats"]]
    labelling.undo()
    assert json.loads((folder / "labels.jsonl").read_text().splitlines()[-1]) == {"do": "undo"}


def test_opening_leaves_no_file(folder: Path) -> None:
    with Labelling.open(folder) as labelling:
        assert labelling.history["changes"] == 0
        labelling.close()  # closing twice is harmless
    assert not (folder / "labels.jsonl").exists()
    small_map().save(folder)  # the map can be replaced


def test_only_one_process_can_open_it(folder: Path) -> None:
    with Labelling.open(folder), pytest.raises(ProjectError, match="another process"):
        Labelling.open(folder)


def test_labels_of_another_map_are_rejected(folder: Path, tmp_path: Path) -> None:
    with Labelling.open(folder) as labelling:
        labelling.name(0, "boats")
    other = save_map(tmp_path / "other", 30)
    (other / "labels.jsonl").write_bytes((folder / "labels.jsonl").read_bytes())
    with pytest.raises(MapError, match=r"labels.jsonl, line 1: the labels belong to another map"):
        Labelling.open(other)


@pytest.mark.parametrize(
    "line",
    [
        {"do": "undo"},
        {"do": "redo"},
        {"do": "fly", "moved": [], "names": [], "confirmed": []},
        {"do": "name"},
        {"do": "label", "moved": [[0, [99]]], "names": [], "confirmed": []},
        {"do": "label", "moved": [[-2, [1]]], "names": [], "confirmed": []},
        {"do": "name", "moved": [], "names": [[0, 7]], "confirmed": []},
        {"do": "label", "moved": [], "names": [], "confirmed": ["x"]},
        ["a list"],
    ],
)
def test_invalid_journals_are_rejected(folder: Path, line: object) -> None:
    with Labelling.open(folder) as labelling:
        labelling.name(0, "boats")
        labelling.undo()
        labelling.redo()
        labelling.undo()
    with (folder / "labels.jsonl").open("a") as file:
        file.write(json.dumps({"do": "redo"}) + "\n" + json.dumps({"do": "undo"}) + "\n" + json.dumps(line) + "\n")
    if line == {"do": "redo"}:  # there is a change to redo
        Labelling.open(folder).close()
        return
    with pytest.raises((MapError, ProjectError), match="line 8"):
        Labelling.open(folder)


@pytest.mark.parametrize(
    ("action", "message"),
    [
        (lambda it: it.name(9, "x"), "no group 9"),
        (lambda it: it.name(-1, "x"), "no group -1"),
        (lambda it: it.name(0, "  "), "1 to 200 characters"),
        (lambda it: it.name(0, "x" * 201), "200 characters"),
        (lambda it: it.name(0, "a\nb"), "not printable"),
        (lambda it: it.name(0, "a\ud800"), "not printable"),
        (lambda it: it.merge([]), "two different groups"),
        (lambda it: it.merge([1, 1]), "two different groups"),
        (lambda it: it.merge([1, 7]), "no group 7"),
        (lambda it: it.split(0, 1), "2 to 50"),
        (lambda it: it.split(0, 51), "2 to 50"),
        (lambda it: it.split(0, 7), "cannot be split into 7"),
        (lambda it: it.label([], "x"), "no row was given"),
        (lambda it: it.label([24], "x"), "numbered from 0 to 23"),
        (lambda it: it.label([-1], "x"), "numbered from 0"),
        (lambda it: it.label([0.7], "x"), "numbered from 0"),
        (lambda it: it.label([True], "x"), "numbered from 0"),
        (lambda it: it.select_questions(0), "at least 1"),
        (lambda it: it.undo(), "no change"),
        (lambda it: it.redo(), "no change"),
        (lambda it: it.fit(), "name a group first"),
        (lambda it: it.export("/no/such/folder/labels.csv"), "cannot be written"),
    ],
)
def test_invalid_actions_change_nothing(folder: Path, action, message: str) -> None:
    with Labelling.open(folder) as labelling:
        before = labelling.groups
        with pytest.raises(MapError, match=message):
            action(labelling)
        assert labelling.groups == before and labelling.history["changes"] == 0
    assert not (folder / "labels.jsonl").exists()


def test_repeated_actions_are_no_change(folder: Path) -> None:
    with Labelling.open(folder) as labelling:
        labelling.name(0, "boats")
        labelling.label([1], "boats")
        labelling.name(0, " boats")
        labelling.label([1], "boats")
        assert labelling.history["changes"] == 2


def test_group_of_identical_vectors_cannot_be_split() -> None:
    with pytest.raises(MapError, match="1 distinct"):
        split_group(GroupAssignment(np.zeros(5, np.int32)), 0, 2, np.ones((5, 3), np.float32))


def test_groups_are_described_by_their_words(folder: Path) -> None:
    with Labelling.open(folder) as labelling:
        first = {group.number: group for group in labelling.groups}
        assert "boat" in first[0].words and "boat" in first[0].suggested
        labelling.merge([0, 1], "outdoors")
        merged = next(group for group in labelling.groups if group.number == 0)
        assert {"boat", "garden"} <= {word for term in merged.words for word in term.split()}
        labelling.undo()
        assert {group.number: group for group in labelling.groups} == first


def test_csv_export(folder: Path, tmp_path: Path) -> None:
    with Labelling.open(folder) as labelling:
        labelling.name(0, 'boats, "big" ones')
        labelling.label([1, 5], None)
        labelling.label([2], "clocks")
        assert labelling.export(tmp_path / "labels.csv") == sum(label is not None for label in labelling.labels())
        rows = list(csv.DictReader(io.StringIO((tmp_path / "labels.csv").read_text(encoding="utf-8-sig"))))
        assert [row["text"] for row in rows] == labelling.map.texts
        assert [row["intent"] or None for row in rows] == labelling.labels()
        assert rows[0]["intent"] == 'boats, "big" ones' and rows[1]["group"] == "" and rows[2]["confirmed"] == "yes"
        assert rows[3] == {
            "text": labelling.map.texts[3],
            "intent": "",
            "group": "3",
            "confirmed": "no",
            "count": "1",
            "dialogue": "dialogue 3",
            "turn": "3",
            "speaker": "user",
        }


def test_labels_are_copied_to_a_later_map(folder: Path, tmp_path: Path) -> None:
    later = save_map(tmp_path / "later", 32, seed=3)
    with Labelling.open(folder) as old, Labelling.open(later) as new:
        with pytest.raises(MapError, match="nothing to copy"):
            new.copy_labels(old)
        old.name(0, "boats")
        old.label([1], "gardens")
        new.name(2, "boats")
        before = new.labels()
        assert new.copy_labels(old) == sum(label is not None for label in old.labels())
        for row, label in enumerate(old.labels()):
            assert new.labels()[row] == (before[row] if label is None else label)
        assert np.flatnonzero(new.confirmed).tolist() == [1]
        assert new.row_groups[0] == new.row_groups[2]  # the existing group with the name
        new.undo()
        assert new.labels() == before


def test_threads_are_synchronised(folder: Path) -> None:
    from concurrent.futures import ThreadPoolExecutor

    with Labelling.open(folder) as labelling:
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(lambda row: labelling.label([row], f"name {row % 5}"), range(24)))
        labels = labelling.labels()
        assert labels == [f"name {row % 5}" for row in range(24)]
        groups = labelling.row_groups.tolist()
        numbers = {name: {groups[row] for row in range(24) if labels[row] == name} for name in set(labels)}
        assert all(len(members) == 1 for members in numbers.values())
    with Labelling.open(folder) as labelling:
        assert labelling.labels() == labels


def test_the_group_of_small_talk_is_the_last(tmp_path: Path) -> None:
    made = small_map(ROWS)
    largest = max(made.clusters, key=lambda cluster: cluster.utterances)
    clusters = [replace(each, small_talk=each is largest) for each in made.clusters]
    replace(made, clusters=clusters).save(tmp_path / "map")
    with Labelling.open(tmp_path / "map") as labelling:
        assert labelling.groups[-1].number == largest.number
        sizes = [group.utterances for group in labelling.groups[:-1]]
        assert sizes == sorted(sizes, reverse=True)
