"""Damaged files and a full disk: the error names the file and says what to do, and nothing damaged is used."""

import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.helpers import ROOT
from tests.helpers.chats import write_chats
from tests.helpers.command_line import run
from tests.helpers.isolated import NAMESPACES
from tests.helpers.small_map import reduce_by_components
from turnwise.assist.intents.storage import IntentFolder
from turnwise.corpus.synthetic.sample import sample_dialogues

#: A file of a project by a pattern, and a command that reads it.
READ_BY = {
    "builds/1/store/dialogues-*.parquet": ["corpus", "stats", "builds/1/store"],
    "builds/1/store/manifest.json": ["corpus", "stats", "builds/1/store"],
    "builds/1/map/utterances.parquet": ["labels", "status"],
    "builds/1/map/vectors.safetensors": ["labels", "status"],
    "builds/1/map/map.json": ["labels", "status"],
    "builds/1/map/labels.jsonl": ["labels", "status"],
    "builds/1/built.json": ["start", "--no-serve"],
    "builds/1/responses/responses.lance/data/*.lance": ["responses", "suggest", "where is my parcel"],
    "builds/1/conversations/conversations.lance/data/*.lance": ["conversations", "similar", "where is my parcel"],
    "intents/1/intents.json": ["intents", "predict", "where is my parcel"],
    "intents/1/vectors-*.safetensors": ["intents", "predict", "where is my parcel"],
    "intents/1/changes.jsonl": ["intents", "predict", "where is my parcel"],
    "answers.jsonl": ["start", "--no-serve"],
    "turnwise.yaml": ["labels", "status"],
}


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory, tiny_folder: Callable[[str], Path]) -> Iterator[Path]:
    """A project with a labelled map, a classifier with an added example, and a canned answer."""
    place = tmp_path_factory.mktemp("damage")
    project = place / "project"
    with pytest.MonkeyPatch.context() as patch:
        reduce_by_components(patch)
        log = write_chats(place / "chats.jsonl", list(sample_dialogues(20, 1)))
        run("start", log, "--out", project, "--model", tiny_folder("bert"), "--no-serve")
        patch.chdir(project)
        examples = place / "examples.csv"
        examples.write_text("text,intent\nwhere is it,track\nwhere is my parcel,track\nhello,greet\ngood day,greet\n")
        (place / "canned.txt").write_text("We are sorry to hear that.\n")
        run("intents", "fit", examples)
        with IntentFolder.open(project / "intents" / "1") as opened:
            opened.add([("has it arrived", "track")])
        run("labels", "name", 0, "first_group")
        run("responses", "index", place / "canned.txt")
        yield project


def flip(content: bytes) -> bytes:
    middle = len(content) // 2
    return content[:middle] + bytes([content[middle] ^ 0x41]) + content[middle + 1 :]


def truncate(content: bytes) -> bytes:
    return content[: len(content) // 2]


BINARY = (".parquet", ".safetensors", ".lance")
DAMAGES = {
    **{(pattern, "flipped"): flip for pattern in READ_BY if pattern.endswith(BINARY)},
    **{(pattern, "truncated"): truncate for pattern in READ_BY if pattern.endswith((*BINARY, ".json"))},
    **{
        (pattern, line): lambda content, line=line: content + line.encode() + b"\n"
        for pattern in READ_BY
        if pattern.endswith((".jsonl", ".yaml"))
        for line in ("5", '{"add": [1]}', '{"text": 3')
    },
}


@pytest.mark.parametrize(("pattern", "damage"), DAMAGES)
def test_a_damaged_file_is_named(
    pattern: str, damage: str, built: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = tmp_path / "project"
    shutil.copytree(built, project)
    monkeypatch.chdir(project)
    path = max(project.glob(pattern), key=lambda each: each.stat().st_size)
    path.write_bytes(DAMAGES[pattern, damage](path.read_bytes()))
    error = run(*READ_BY[pattern], code=1).stderr.partition("error: ")[2]
    assert path.name in error or str(path.parent.relative_to(project).parent) in error, error
    assert re.search(r"[:,] .*(again|remove|repair|restore|must)", error), error


def test_swapped_vectors_of_a_classifier_are_refused(built: Path, tmp_path: Path) -> None:
    shutil.copytree(built / "intents" / "1", tmp_path / "intents")
    [path] = (tmp_path / "intents").glob("vectors-*")
    content = bytearray(path.read_bytes())
    content[-128:], content[-256:-128] = content[-256:-128], content[-128:]  # of two examples
    path.write_bytes(content)
    error = run("intents", "predict", tmp_path / "intents", "where is my parcel", code=1).stderr
    assert re.search(r"contents of vectors-\S+ are not those that were written", error), error


@pytest.mark.parametrize("what", ["import", "fit", "start"])
def test_a_full_disk_is_reported_and_leaves_no_incomplete_file(
    what: str, built: Path, tmp_path: Path, tiny_folder: Callable[[str], Path]
) -> None:
    if subprocess.run([*NAMESPACES, "true"], capture_output=True).returncode:
        pytest.skip("this system does not let users mount a small file system")
    log = write_chats(tmp_path / "chats.jsonl", list(sample_dialogues(2_000, 1)))
    examples = tmp_path / "examples.csv"
    lines = [f"text number {number},intent_{number % 30}" for number in range(4_000)]
    examples.write_text("\n".join(["text,intent", *lines]))
    disk = tmp_path / "disk"
    disk.mkdir()
    command = {
        "import": ["corpus", "import", "messages", log, "--out", disk / "store"],
        "fit": ["intents", "fit", examples, "--out", disk / "intents", "--model", tiny_folder("bert")],
        "start": ["start", log, "--out", disk / "project", "--model", tiny_folder("bert"), "--no-serve"],
    }[what]
    script = 'mount -t tmpfs -o size=200k tmpfs "$1" && shift 1 && "$@"; code=$?; find "$0" -type f >&2; exit $code'
    words = [*NAMESPACES, "sh", "-c", script, disk, disk, sys.executable, "-m", "turnwise", *command]
    done = subprocess.run(list(map(str, words)), cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 1, done.stderr
    assert "Traceback" not in done.stderr
    assert re.search(r"error: .*(disk is full|No space left|free space)", done.stderr), done.stderr
    left = {Path(line).name for line in done.stderr.splitlines() if line.startswith(str(disk))}
    assert not {name for name in left if re.match(r"vectors-|manifest\.json|intents\.json|map\.json|\.writing", name)}
