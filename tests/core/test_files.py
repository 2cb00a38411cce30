"""Atomic replacement of files and folders."""

import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from turnwise.core.files import replacing, write_atomic


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize("durable", [False, True])
def test_a_file_has_its_old_contents_until_the_block_ends(tmp_path: Path, durable: bool) -> None:
    path = tmp_path / "file"
    path.write_text("old")
    killed = subprocess.Popen(["true"])
    killed.wait()
    (tmp_path / f".writing-file-{killed.pid}-1").write_text("left by a killed process")
    with replacing(path, durable=durable) as part:
        part.write_text("new")
        assert path.read_text() == "old"
    assert path.read_text() == "new"
    assert names(tmp_path) == ["file"]


def test_a_folder_takes_the_place_of_an_empty_one_only(tmp_path: Path) -> None:
    """A folder with contents could only be replaced in two steps, and a kill between them would lose it."""
    path = tmp_path / "folder"
    path.mkdir()
    with replacing(path, durable=True) as part:
        part.mkdir()
        (part / "first").touch()
    with pytest.raises(OSError, match="not empty"), replacing(path) as part:
        part.mkdir()
        (part / "second").touch()
    assert names(path) == ["first"]
    assert names(tmp_path) == ["folder"]


def test_after_an_error_the_old_contents_stay(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("old")
    with pytest.raises(ZeroDivisionError), replacing(path) as part:
        part.write_text("half")
        raise ZeroDivisionError
    assert path.read_text() == "old"
    assert names(tmp_path) == ["file"]


def test_a_file_never_replaces_a_folder(tmp_path: Path) -> None:
    (tmp_path / "folder" / "own").mkdir(parents=True)
    with pytest.raises(IsADirectoryError):
        write_atomic(tmp_path / "folder", "text")
    assert names(tmp_path) == ["folder"] and names(tmp_path / "folder") == ["own"]


def test_several_writers_of_a_file_do_not_disturb_each_other(tmp_path: Path) -> None:
    path = tmp_path / "file"
    with replacing(path) as first:
        first.write_text("first")
        with ThreadPoolExecutor(1) as other:
            other.submit(write_atomic, path, "second").result()
        assert path.read_text() == "second"
    assert path.read_text() == "first"
    assert names(tmp_path) == ["file"]
