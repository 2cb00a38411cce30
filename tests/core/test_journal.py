"""A journal keeps what it acknowledged, whatever happens to the process that writes it."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnwise.core.errors import ProjectError
from turnwise.core.journal import Journal

ENTRIES = st.lists(st.dictionaries(st.text(), st.one_of(st.text(), st.integers(), st.none())), max_size=8)


@given(entries=ENTRIES, cut=st.integers(0, 200))
def test_whole_lines_survive_a_cut_at_any_byte(
    entries: list[dict[str, object]], cut: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("journal") / "changes.jsonl"
    with Journal(path) as journal:
        ends = [0]
        for entry in entries:
            journal.append(entry)
            ends.append(path.stat().st_size)
    content = path.read_bytes()
    path.write_bytes(content[: max(0, len(content) - cut)])
    complete = sum(end <= path.stat().st_size for end in ends) - 1
    with Journal(path) as journal:
        assert journal.entries == entries[:complete]
        journal.append({"after": 1})
    with Journal(path) as journal:
        assert journal.entries == [*entries[:complete], {"after": 1}]


def test_killed_at_any_moment_every_acknowledged_entry_is_there(tmp_path: Path) -> None:
    path = tmp_path / "changes.jsonl"
    script = (
        "import sys, pathlib\nfrom turnwise.core.journal import Journal\n"
        "journal = Journal(pathlib.Path(sys.argv[1]))\nnumber = len(journal.entries)\n"
        "while True:\n    journal.append({'number': number})\n    print(number, flush=True)\n    number += 1\n"
    )
    acknowledged = -1
    for seconds in (0.02, 0.05, 0.11):
        with subprocess.Popen([sys.executable, "-c", script, str(path)], stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            process.stdout.readline()
            time.sleep(seconds)
            process.send_signal(signal.SIGKILL)
            acknowledged = max([acknowledged, *(int(line) for line in process.stdout if line.endswith("\n"))])
        with Journal(path) as journal:
            numbers = [entry["number"] for entry in journal.entries]
        assert numbers == list(range(len(numbers)))
        assert len(numbers) > acknowledged


def test_several_entries_share_one_sync(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Journal(tmp_path / "changes.jsonl") as journal:
        synced: list[int] = []
        monkeypatch.setattr(os, "fsync", synced.append)
        journal.append({"a": 1}, {"b": 2}, {"c": 3})
        assert len(synced) == 1
    with Journal(tmp_path / "changes.jsonl") as journal:
        assert journal.entries == [{"a": 1}, {"b": 2}, {"c": 3}]


def test_one_process_at_a_time(tmp_path: Path) -> None:
    with Journal(tmp_path / "changes.jsonl"), pytest.raises(ProjectError, match="open in another process"):
        Journal(tmp_path / "changes.jsonl")
    Journal(tmp_path / "changes.jsonl").close()


def test_a_line_that_is_not_json_is_named(tmp_path: Path) -> None:
    (tmp_path / "changes.jsonl").write_text('{"a": 1}\nnonsense\n{"b": 2}\n')
    with pytest.raises(ProjectError, match="line 2 is not a JSON object"):
        Journal(tmp_path / "changes.jsonl")


def test_cleared_it_is_empty(tmp_path: Path) -> None:
    with Journal(tmp_path / "changes.jsonl") as journal:
        journal.append({"a": 1})
        journal.clear()
        journal.append({"b": 2})
    with Journal(tmp_path / "changes.jsonl") as journal:
        assert journal.entries == [{"b": 2}]
