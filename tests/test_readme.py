"""README tells the truth: its commands are run and print what it shows; its Python runs."""

import re
import shlex
from pathlib import Path

import pytest

from tests.helpers.command_line import run

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
CONSOLE = re.findall(r"```console\n(.*?)```", README, re.DOTALL)
PYTHON = re.findall(r"```python\n(.*?)```", README, re.DOTALL)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("readme")


def commands() -> list[tuple[str, str]]:
    """(command, output shown) in the order of the page."""
    examples = []
    for block in CONSOLE:
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, _, output = part.partition("\n")
            examples.append((command, output))
    return examples


def test_the_page_shows_commands_and_is_short() -> None:
    assert len(commands()) >= 3
    assert len(README.splitlines()) <= 150


def test_commands_print_what_the_page_shows(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    for command, shown in commands():
        program, *arguments = shlex.split(command)
        assert program == "turnwise"
        lines = [line.rstrip() for line in run(*arguments, columns=110).stdout.rstrip().splitlines()]
        assert lines == shown.rstrip().splitlines(), command


@pytest.mark.parametrize("code", PYTHON)
def test_python_runs(folder: Path, monkeypatch: pytest.MonkeyPatch, code: str) -> None:
    monkeypatch.chdir(folder)
    exec(code, {"__name__": "__main__"})


def test_make_targets_that_the_page_names_exist() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert set(re.findall(r"(?:^|`)make ([a-z-]+)", README, re.MULTILINE)) <= targets


def test_links_lead_somewhere() -> None:
    for target in re.findall(r"\]\((?!https://)([^)]+)\)", README):
        assert (ROOT / target).exists(), target
