"""Help texts: every command in a section, nothing cut off, and nothing wider than the terminal."""

from collections.abc import Iterator
from typing import Any

import pytest
from typer.main import get_command

from tests.helpers.command_line import run
from turnwise.cli import app
from turnwise.cli.help import SECTIONS


def walk(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Every command and group with the words that call it."""
    yield path, command
    for name, each in getattr(command, "commands", {}).items():
        yield from walk(each, (*path, name))


COMMANDS = dict(walk(get_command(app)))
GROUPS = [path for path, command in COMMANDS.items() if hasattr(command, "commands")]


@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
def test_help_fits_80_columns_and_is_not_cut_off(path: tuple[str, ...]) -> None:
    usage, _, text = run(*path, "--help", columns=80).stdout.partition("\n\n")
    assert usage.startswith("Usage: ")
    assert text
    for line in text.splitlines():
        assert len(line) <= 80
        assert not line.rstrip().endswith(("...", "…", "-")), line


@pytest.mark.parametrize("path", GROUPS, ids=" ".join)
def test_every_command_has_one_line_in_the_list(path: tuple[str, ...]) -> None:
    listed = [line.strip().split("  ", 1) for line in run(*path, "--help", columns=80).stdout.splitlines()]
    rows = {words[0]: words[1].strip() for words in listed if len(words) == 2}
    for name, command in COMMANDS[path].commands.items():
        assert rows[name].endswith("."), f"{name}: {rows[name]}"
        assert rows[name] == command.get_short_help_str(10_000), "the first sentence, whole"


def test_every_command_belongs_to_one_section() -> None:
    listed = [name for names in SECTIONS.values() for name in names]
    assert sorted(listed) == sorted(COMMANDS[()].commands)
    text = run("--help", columns=80).stdout
    assert [line for line in text.splitlines() if line.rstrip(":") in SECTIONS] == [f"{title}:" for title in SECTIONS]
    assert "Other:" not in text


def test_help_uses_a_wider_terminal() -> None:
    lines = run("corpus", "import", "--help", columns=150).stdout.splitlines()
    assert 80 < max(map(len, lines)) <= 110


def test_names_with_hyphens_are_not_broken_and_can_be_copied() -> None:
    text = run("serve", "--help", columns=80).stdout
    assert "serve-key`" in text
    assert "\N{NON-BREAKING HYPHEN}" not in text


@pytest.mark.parametrize("path", GROUPS, ids=" ".join)
def test_a_group_without_a_command_prints_its_help(path: tuple[str, ...]) -> None:
    """As for other wrong usage, on standard error and with exit status 2."""
    assert run(*path, code=2, columns=80).stderr.strip() == run(*path, "--help", columns=80).stdout.strip()
