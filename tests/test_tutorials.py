"""Every tutorial runs from its first command to its last.

`make test` runs them on a small sample with a tiny random encoder and expects success; `make test-full` runs them as
they are written and compares what they print.
"""

import contextlib
import doctest
import importlib
import io
import re
import shlex
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import click
import pytest
from typer.main import get_command

from tests.helpers import ROOT
from tests.helpers.command_line import run
from turnwise.cli import app
from turnwise.cli.benchmarks.serving import running_server
from turnwise.core.model_names import DEFAULT_ENCODER, MINILM

TUTORIALS = ROOT / "docs" / "tutorials"
COMMANDS = get_command(app)

#: The services that a tutorial starts.
SERVED = contextlib.ExitStack()

BLOCK = re.compile(r"^```(console|python|text)(?: title=\"([^\"]+)\")?\n(.*?)^```", re.MULTILINE | re.DOTALL)

#: What `make test` replaces in the commands of a tutorial, so that it takes seconds.
SHORTER = {
    "support-log": {
        "--dialogues 500": "--dialogues 40",
        "--out map --top 12": "--out map --method tsne --min-cluster-size 3",
        "map 14 pay": "map 0 pay",
        "map 24 connection": "map 1 connection",
        "map 48 block": "map 2 block",
        "map 32 52": "map 0 1",
        "map 32 track": "map 0 track",
    },
    "train": {
        "--dialogues 1000": "--dialogues 200",
        "--set steps=20 --set batch_size=16": "--set steps=1 --set batch_size=4",
        "--task intents": "--task intents --seeds 1",
    },
    "names-and-log": {
        "--dialogues 1000": "--dialogues 200",
        "intents test": "intents test --unknown-out-of-scope",
        "--port 8000": "--port 8765",
        ".1:8000": ".1:8765",
    },
    "reproduce": {
        "--dialogues 200": "--dialogues 40",
        "--seeds 2": "--seeds 1",
        "--set steps=20 --set batch_size=32": "--set steps=1 --set batch_size=4",
    },
}


@dataclass(frozen=True)
class Example:
    """A command line or a Python block, and what the page says that it prints (empty: nothing is said).

    A Python block with a title is a file of that name.
    """

    kind: str
    source: str
    shown: str = ""
    file: str = ""


def read_examples(page: Path) -> list[Example]:
    """Return the commands and Python blocks of a page in order; a `text` block is the output of the one before it."""
    examples: list[Example] = []
    for kind, title, content in BLOCK.findall(page.read_text(encoding="utf-8")):
        if kind == "text":
            examples[-1] = replace(examples[-1], shown=content)
        elif kind == "python":
            examples.append(Example(kind, content, file=title))
        else:
            for part in re.split(r"^\$ ", content.replace("\\\n", " "), flags=re.MULTILINE)[1:]:
                command, _, shown = part.partition("\n")
                examples.append(Example(kind, command, shown))
    return examples


def run_example(example: Example, names: dict[str, object]) -> str:
    """Run an example, with the names of the Python blocks before it, and return what it prints."""
    if example.file:
        Path(example.file).write_text(example.source, encoding="utf-8")
        importlib.invalidate_caches()
        return ""
    return run_command(example.source) if example.kind == "console" else run_python(example.source, names)


def run_command(command: str) -> str:
    program, *words = shlex.split(command)
    assert program == "turnwise"
    if words[0] == "serve":
        SERVED.enter_context(running_server([sys.executable, "-m", *shlex.split(command)], Path("serve.log")))
        return ""
    return run(*words, columns=110).stdout


def run_python(code: str, names: dict[str, object]) -> str:
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(code, names)
    return printed.getvalue()


def assert_prints(shown: str, printed: str, source: str) -> None:
    """Compare the output with the page: '...' stands for anything, and numbers may differ from machine to machine."""

    def comparable(text: str) -> str:
        return re.sub(r"-?\d+(?:[.,]\d+)*", "0", "\n".join(line.rstrip() for line in text.rstrip().splitlines())) + "\n"

    flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    assert doctest.OutputChecker().check_output(comparable(shown), comparable(printed), flags), (
        f"{source}\nprints\n{printed}\nand not\n{shown}"
    )


def with_tiny_encoder(command: str, tiny: Path) -> str:
    """Return a command that uses a tiny encoder wherever it would use a packaged one."""
    words = shlex.split(command)
    called: click.Command = COMMANDS
    for word in words[1:]:
        if word in getattr(called, "commands", {}):
            called = called.commands[word]  # type: ignore[attr-defined]
    for option in called.params:
        name = option.opts[0]
        if (name == "--backbone" or (name == "--model" and option.default == DEFAULT_ENCODER)) and name not in words:
            words += [name, str(tiny)]
    return shlex.join(str(tiny) if word in {DEFAULT_ENCODER, MINILM} else word for word in words)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty working directory with the authored texts of the repository, from which Python imports."""
    (tmp_path / "authored").symlink_to(ROOT / "authored")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    with SERVED:
        yield tmp_path


def test_every_tutorial_is_run() -> None:
    assert sorted([*SHORTER, "few-shot-intents"]) == sorted(page.stem for page in TUTORIALS.glob("*.md"))


#: Take the longest, and what they run has tests of its own.
SLOW = ("support-log", "reproduce", "train")


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.full) if name in SLOW else name for name in SHORTER]
)
def test_tutorial_runs_on_a_small_sample(name: str, folder: Path, tiny_folder: Callable[[str], Path]) -> None:
    tiny = tiny_folder("bert")
    text = (TUTORIALS / f"{name}.md").read_text(encoding="utf-8")
    missing = [words for words in SHORTER[name] if words not in text]
    assert not missing, f"not in the tutorial any more: {missing}"
    names: dict[str, object] = {}
    for example in read_examples(TUTORIALS / f"{name}.md"):
        source = example.source
        for words, shorter in SHORTER[name].items():
            source = source.replace(words, shorter)
        if example.kind == "console" and name != "names-and-log":  # a log is refused if its labels are random
            source = with_tiny_encoder(source, tiny)
        run_example(replace(example, source=source), names)


def check_tutorial(name: str) -> None:
    names: dict[str, object] = {}
    for example in read_examples(TUTORIALS / f"{name}.md"):
        printed = run_example(example, names)
        if example.shown:
            assert_prints(example.shown, printed, example.source)


@pytest.mark.usefixtures("folder")
def test_few_shot_tutorial_prints_what_the_page_shows() -> None:
    check_tutorial("few-shot-intents")


@pytest.mark.full
@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("name", SHORTER)
def test_tutorial_prints_what_the_page_shows(name: str) -> None:
    check_tutorial(name)
