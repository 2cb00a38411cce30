"""The documentation lists everything that exists, and nothing that does not."""

import ast
import dataclasses
import inspect
import json
import pkgutil
import re
from collections.abc import Callable, Iterable

import click
import yaml
from typer.main import get_command

import turnwise
from tests.helpers import ROOT
from turnwise.cli import app
from turnwise.core.registry import known_names
from turnwise.evaluation.evaluation_protocols import all_protocols
from turnwise.objectives.registry import OBJECTIVES
from turnwise.papers.sweeps.plan import packaged_sweeps
from turnwise.training.recipe import Recipe, load_recipe
from turnwise.training.recipe_files import packaged_recipes

DOCS = ROOT / "docs"
PAGES = {
    path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8")
    for path in (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(DOCS.rglob("*.md")))
}
#: The log quotes commands and names as they were.
CURRENT_PAGES = {name: text for name, text in PAGES.items() if name != "docs/log.md"}
COMMANDS = get_command(app)


def read(page: str) -> str:
    return PAGES[f"docs/{page}"]


def test_every_data_set_is_listed() -> None:
    listed = read("evaluation-data.md")
    for protocol in all_protocols().values():
        for name, dataset in protocol.datasets(None).items():
            assert f"| `{name}` | `{dataset.folder}` | {dataset.licence} |" in listed, name
            assert dataset.differs in listed, name


def test_every_suite_and_task_is_described() -> None:
    page = read("evaluation.md")
    assert [suite for suite in known_names("suite") if f"`{suite}`" not in page] == []
    assert [task for task in known_names("task") if task not in page] == []
    assert [suite for suite in known_names("suite") if not (DOCS / "results" / f"{suite}.md").is_file()] == []


def test_every_objective_recipe_key_sweep_and_command_is_described() -> None:
    objectives, recipes, sweeps, commands = map(read, ("objectives.md", "recipes.md", "sweeps.md", "command-line.md"))
    assert [name for name in OBJECTIVES if f"| `{name}` |" not in objectives] == []
    keys = {field.name for field in dataclasses.fields(Recipe)} - {"objectives", "describes"}
    assert sorted(key for key in keys if f"`{key}`" not in recipes and f"\n{key}:" not in recipes) == []
    assert [name for name in packaged_sweeps() if f"| `{name}` |" not in sweeps] == []
    assert [name for name in COMMANDS.commands if f"turnwise {name} " not in commands] == []  # type: ignore[attr-defined]


def test_every_public_name_is_in_the_reference() -> None:
    reference = set(re.findall(r"^::: turnwise\.(?:\S+\.)?(\w+)$", read("reference/python.md"), re.MULTILINE))
    assert set(turnwise.__all__) - {"__version__"} - reference == set()


def test_the_table_of_the_reference_repeats_the_docstrings() -> None:
    page = read("reference/python.md")
    table = dict(re.findall(r"^\| `(turnwise\.\S+)` \| (.+) \|$", page, re.MULTILINE))
    summaries = {}
    for path in re.findall(r"^::: (\S+)$", page, re.MULTILINE):
        name = path.rpartition(".")[2]
        summary = (inspect.getdoc(pkgutil.resolve_name(path)) or "").splitlines()[0].rstrip(".")
        summaries[f"turnwise.{name}" if name in turnwise.__all__ else path] = summary
    assert table == summaries


def test_every_page_is_in_the_navigation() -> None:
    entries = set(re.findall(r"\S+\.md$", (ROOT / "mkdocs.yml").read_text(encoding="utf-8"), re.MULTILINE))
    pages = {page.relative_to(DOCS).as_posix() for page in DOCS.rglob("*.md")}
    assert entries - {"reference/cli.md"} == pages  # the page of all commands is generated


def shown_commands(text: str) -> list[str]:
    """Return the turnwise commands in code blocks (continued lines joined) and in inline code."""
    fenced = re.findall(r"^ *```[^`\n]*\n(.*?)^ *```$", text, re.MULTILINE | re.DOTALL)
    blocks = [block.replace("\\\n", " ") for block in fenced]
    lines = [line.partition(" #")[0] for block in blocks for line in block.splitlines()]
    inline = re.findall(r"`(turnwise [^`\n]*)`", text)
    return [match[0] for line in [*lines, *inline] if (match := re.search(r"(?<!from )\bturnwise [a-z-]+ .*", line))]


def find_command(line: str) -> tuple[click.Command, list[str]]:
    """Return the command of a line and the words after its name."""
    command: click.Command = COMMANDS
    words = line.split()[1:]
    while hasattr(command, "commands") and words and words[0] in command.commands:
        command = command.commands[words.pop(0)]
    return command, words


def check_command(line: str) -> None:
    command, words = find_command(line)
    if hasattr(command, "commands"):
        # only an option, an ellipsis or a placeholder may take the place of a command
        assert not words or not re.fullmatch(r"[a-z][a-z-]*", words[0]), f"there is no {words[0]}"
        return
    options = {name for parameter in command.params for name in (*parameter.opts, *parameter.secondary_opts)} | {
        "--help"
    }
    assert set(re.findall(r"(?<![\w-])--[a-z][a-z-]*", " ".join(words))) <= options


def check_recipe(line: str) -> None:
    words = line.split()[1:]
    if words[0] == "train" and words[1] in packaged_recipes():
        changes = re.findall(r"--set ([\w.-]+=[^\s`]+)", line)
        load_recipe(words[1], [change for change in changes if not change.endswith("…")])


def failures(check: Callable[[str], object], parts: Callable[[str], Iterable[str]], pages: dict[str, str]) -> list[str]:
    """Return the parts of all pages that a check refuses, with the reason."""
    refused = []
    for page, text in pages.items():
        for part in parts(text):
            try:
                check(part)
            except Exception as error:
                refused.append(f"{page}: {part}: {error!r}")
    return refused


def test_shown_commands_with_their_options_and_recipes_exist() -> None:
    assert failures(check_command, shown_commands, CURRENT_PAGES) == []
    assert failures(check_recipe, shown_commands, CURRENT_PAGES) == []


def test_code_blocks_can_be_parsed() -> None:
    def blocks(language: str) -> Callable[[str], list[str]]:
        return re.compile(rf"^```{language}[^\n]*\n(.*?)^```", re.MULTILINE | re.DOTALL).findall

    assert failures(ast.parse, blocks("python"), PAGES) == []
    assert failures(yaml.safe_load, blocks("yaml"), PAGES) == []
    assert failures(lambda block: [json.loads(line) for line in block.splitlines()], blocks("json"), PAGES) == []


def named_objects(text: str) -> list[str]:
    """Return the dotted names of turnwise in a text, and the names that its code imports from it."""
    names = set(re.findall(r"\bturnwise(?:\.[A-Za-z_]\w*)+", text)) - {"turnwise.json", "turnwise.yaml"}
    for module, imported in re.findall(r"from (turnwise[\w.]*) import ([\w, ]+)", text):
        names |= {f"{module}.{name.strip()}" for name in imported.split(",")}
    return sorted(names)


def test_modules_and_names_exist() -> None:
    assert failures(pkgutil.resolve_name, named_objects, CURRENT_PAGES) == []
