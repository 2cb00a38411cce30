"""Commands that are killed before any of their writes: what was there is still usable, and repeating them completes."""

import itertools
import json
import os
import shutil
import signal
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.helpers import HANG_SECONDS
from tests.helpers.chats import write_chats
from tests.helpers.command_line import run
from tests.helpers.processes import start, start_command
from tests.helpers.small_map import reduce_by_components
from turnwise.assist.intents.storage import read_classifier, read_examples
from turnwise.core.project import Project
from turnwise.corpus.storage.store import MANIFEST, Store
from turnwise.corpus.synthetic.sample import sample_dialogues
from turnwise.models.compression import DEFAULT_TEMPLATE_WEIGHT, CompressedEncoder, Compression
from turnwise.models.encoder import Encoder

KILLED = -signal.SIGKILL


def run_until_write(number: int, place: Path, *arguments: str) -> None:
    """Run a command in a folder, and kill it before it renames a file or folder for the given time."""
    renames = itertools.count()
    for name in ("rename", "replace"):

        def kill_or(original: Callable[..., None], *paths: object, **options: object) -> None:
            if next(renames) == number:
                os.kill(os.getpid(), signal.SIGKILL)
            original(*paths, **options)

        setattr(os, name, partial(kill_or, getattr(os, name)))
    os.chdir(place)
    reduce_by_components(pytest.MonkeyPatch())
    run(*arguments)


def kills(place: Path, *arguments: object) -> Iterator[int]:
    """Kill a command before its first write, then before its second, …; yield after each kill, until it completes."""
    for number in itertools.count():
        process = start(run_until_write, number, place, *map(str, arguments))
        process.join(HANG_SECONDS)
        if process.exitcode != KILLED:
            assert process.exitcode == 0 and number > 0
            return
        yield number


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory, tiny_folder: Callable[[str], Path]) -> Path:
    """A project with a labelled map and a classifier, and beside it a log and examples."""
    place = tmp_path_factory.mktemp("kills")
    with pytest.MonkeyPatch.context() as patch:
        reduce_by_components(patch)
        write_chats(place / "chats.jsonl", list(sample_dialogues(24, 1)))
        log = write_chats(place / "first.jsonl", list(sample_dialogues(20, 1)))
        run("start", log, "--out", place / "project", "--model", tiny_folder("bert"), "--no-serve")
        patch.chdir(place / "project")
        (place / "first.csv").write_text(
            "text,intent\nwhere is it,track\nwhere is my parcel,track\nhi,greet\nhello,greet\n"
        )
        (place / "second.csv").write_text("text,intent\npay,pay\nthe bill,pay\nbye,leave\nsee you,leave\n")
        run("intents", "fit", place / "first.csv")
        run("labels", "name", 0, "first_group")
        run("labels", "name", 1, "second_group")
    return place


@pytest.fixture
def place(built: Path, tmp_path: Path) -> Path:
    shutil.copytree(built, tmp_path / "place")
    return tmp_path / "place"


@pytest.mark.full
def test_fitting(place: Path) -> None:
    project = place / "project"
    for _ in kills(project, "intents", "fit", place / "second.csv"):
        assert {"track", "greet"} == set(read_classifier(Project.load(project).part("intents")).classes_)
    assert {"pay", "leave"} == set(read_classifier(Project.load(project).part("intents")).classes_)


def test_fitting_into_the_same_folder(place: Path) -> None:
    folder = place / "intents"
    for number in kills(place / "project", "intents", "fit", place / "second.csv", "--out", folder):
        if number and (folder / "intents.json").exists():
            assert len(read_examples(folder)) == 4
            read_classifier(folder)
    assert len(read_examples(folder)) == 4


def test_finishing_labels(place: Path) -> None:
    project = place / "project"
    fitted, labelled = {"track", "greet"}, {"first_group", "second_group"}
    for _ in kills(project, "labels", "finish"):
        assert set(read_classifier(Project.load(project).part("intents")).classes_) in (fitted, labelled)
    used = Project.load(project).part("intents")
    assert set(read_classifier(used).classes_) == labelled
    assert (used / "labels.csv").is_file()


def test_starting_again_without_the_record_of_the_build_keeps_labels(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reduce_by_components(monkeypatch)
    project = place / "project"
    (project / "builds" / "1" / "built.json").unlink()
    run("start", place / "first.jsonl", "--out", project, "--no-serve")
    groups = json.loads(run("labels", "status", Project.load(project).part("map"), "--json").stdout)["groups"]
    assert {group["name"] for group in groups} >= {"first_group", "second_group"}


def test_compressing(place: Path, tiny_folder: Callable[[str], Path]) -> None:
    model = place / "model"
    encoder = Encoder.load(tiny_folder("bert"))
    CompressedEncoder(encoder, Compression.of(encoder, ["a table {SLOT}"])).save(model)
    for _ in kills(place, "compress", model, "--weight", 0.5):
        assert CompressedEncoder.load(model).compression.template_weight == DEFAULT_TEMPLATE_WEIGHT
    assert CompressedEncoder.load(model).compression.template_weight == 0.5


def test_importing(place: Path) -> None:
    store = place / "store"
    run("corpus", "import", "messages", place / "first.jsonl", "--out", store)
    before = list(Store(store))
    run("corpus", "import", "messages", place / "chats.jsonl", "--out", place / "fresh")
    after = list(Store(place / "fresh"))
    for _ in kills(place, "corpus", "import", "messages", place / "chats.jsonl", "--out", store):
        assert list(Store(store)) in (before, after)
    assert list(Store(store)) == after
    assert sorted(path.name for path in store.iterdir()) == sorted(path.name for path in (place / "fresh").iterdir())
    assert (store / MANIFEST).is_file()


def run_until_unpacked(number: int, place: Path, *arguments: str) -> None:
    """Run a command in a folder, and kill it when it has unpacked an archive for the given time."""
    unpacked, original = itertools.count(), zipfile.ZipFile.extractall

    def extract(*arguments: Any) -> None:
        original(*arguments)
        if next(unpacked) == number:
            os.kill(os.getpid(), signal.SIGKILL)

    zipfile.ZipFile.extractall = extract  # type: ignore[method-assign, assignment]
    tempfile.tempdir = str(place / "temporary")
    os.chdir(place)
    reduce_by_components(pytest.MonkeyPatch())
    run(*arguments)


@pytest.mark.parametrize("command", ["import", pytest.param("start", marks=pytest.mark.full)])
def test_unpacked_archives_lie_in_the_output_folder_and_are_removed(place: Path, command: str) -> None:
    (place / "temporary").mkdir()
    lines = [
        f"0{day}/03/24, 21:4{minute} - {who}: Text {day}{minute}"
        for day in range(1, 9)
        for minute, who in ((1, "Anna"), (2, "Ben"))
    ]
    with zipfile.ZipFile(place / "chat.zip", "w") as file:
        file.writestr("_chat.txt", "\n".join(lines))
    out = place / "store"
    words = ["corpus", "import", "auto", "chat.zip", "--out", str(out), "--yes"]
    if command == "start":
        out, words = place / "project", ["start", "chat.zip", "--out", "project", "--no-serve"]
    for number in range(3):  # to recognise it, for the preview, and to import it
        process = start(run_until_unpacked, number, place, *words)
        process.join(HANG_SECONDS)
        assert process.exitcode == KILLED
        modes = {folder.stat().st_mode & 0o777 for folder in out.rglob(".writing-temporary-*")}
        assert modes == {0o700}
        assert not list((place / "temporary").iterdir())
    if command == "start":
        words = ["start", "--out", "project", "--no-serve"]
    process = start(run_until_unpacked, 9, place, *words)
    process.join(HANG_SECONDS)
    assert process.exitcode == 0
    assert not list(out.rglob(".writing-*")) and not list(out.rglob(".importing"))


@pytest.mark.full
def test_the_second_of_two_starts_says_who_holds_the_project(place: Path) -> None:
    project = place / "project"
    command = ["start", place / "chats.jsonl", "--no-serve"]
    both = [start_command(place / f"log-{number}", *command, folder=project) for number in range(2)]
    for process in both:
        process.join(HANG_SECONDS)
    codes, logs = [process.exitcode for process in both], [(place / f"log-{n}").read_text() for n in range(2)]
    assert 0 in codes, logs
    for code, log in zip(codes, logs, strict=True):
        assert code == 0 or "is updating" in log, log
    assert len(Store(Project.load(project).part("store"))) == 24
