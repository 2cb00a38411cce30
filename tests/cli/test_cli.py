"""The command line as a user runs it: help, JSON, exit codes, and no torch where none is needed."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.main import get_command

from tests.helpers import command_line
from turnwise import __version__
from turnwise.cli import app
from turnwise.cli.options import model_or_default
from turnwise.core.model_names import DEFAULT_ENCODER
from turnwise.training.recipe_files import packaged_recipes

run = partial(command_line.run, columns=120)


@pytest.fixture(scope="module")
def sample(tmp_path_factory: pytest.TempPathFactory) -> Path:
    store = tmp_path_factory.mktemp("cli") / "sample"
    run("corpus", "sample", "--out", store, "--dialogues", 50, "--seed", 3)
    return store


def test_version() -> None:
    assert run("--version").stdout == f"turnwise {__version__}\n"


def option_defaults(command: Any, name: str, path: tuple[str, ...] = ()) -> Iterator[tuple[str, Any]]:
    """The default of an option in every command that has it and does not require it."""
    for each, subcommand in getattr(command, "commands", {}).items():
        yield from option_defaults(subcommand, name, (*path, each))
    for parameter in command.params:
        if name in parameter.opts and not parameter.required:
            yield " ".join(path), parameter.default


def test_turnwise_small_is_the_default_except_in_benchmarks() -> None:
    """Benchmarks name `minilm`, as their published results do; None leaves the choice to a project or a folder."""
    defaults = dict(option_defaults(get_command(app), "--model"))
    assert set(defaults) >= {"serve", "map", "intents fit", "responses suggest", "annotate export", "bench encode"}
    benchmarks = {name for name in defaults if name.startswith("bench ")}
    assert {defaults[name] for name in benchmarks} == {"minilm"}
    assert {defaults[name] for name in defaults.keys() - benchmarks} == {DEFAULT_ENCODER, None}
    assert model_or_default(None) == DEFAULT_ENCODER


@pytest.mark.parametrize("code", ["import turnwise, turnwise.cli", "from turnwise import Dialogue, read_corpus"])
def test_nothing_heavy_is_imported_before_it_is_needed(code: str) -> None:
    """`--help` must come at once: not even numpy and pyarrow are loaded for it."""
    heavy = {"torch", "transformers", "sklearn", "pandas", "scipy"} | ({"numpy", "pyarrow"} if "cli" in code else set())
    check = f"{code}; import sys; print(sorted({heavy} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", check], capture_output=True, text=True).stdout == "[]\n"


def test_list_tells_licences_and_options() -> None:
    text = run("corpus", "list").stdout
    assert "schema_guided_dialogue" in text
    assert "CC BY-SA 4.0" in text
    readers = json.loads(run("corpus", "list", "--json").stdout)
    assert {"table", "messages", "convokit", "text", "jsonl", "multiwoz", "kvret"} <= {
        reader["name"] for reader in readers
    }
    assert all(reader["licence"] and reader["home"] for reader in readers if reader["fetch"])
    assert "time_format" in run("corpus", "list", "table").stdout


def test_import_stats_show_export(tmp_path: Path) -> None:
    log = tmp_path / "chats.csv"
    log.write_text(
        "thread,who,body,at\n"
        "b,agent,Of course I can help you with that.,2024-01-01T10:01:00Z\n"
        "a,customer,where is my parcel now?,2024-01-01T10:00:00Z\n"
        "b,customer,please cancel my order today,2024-01-01T10:00:00Z\n"
        "a,agent,,2024-01-01T10:02:00Z\n"
        "a,agent,It is on its way to you.,2024-01-01T10:01:00Z\n"
    )
    columns = ["conversation=thread", "speaker=who", "text=body", "time=at"]
    sets = [word for column in columns for word in ("--set", column)]
    imported = json.loads(run("corpus", "import", "table", log, "--out", tmp_path / "store", *sets, "--json").stdout)
    assert imported["read"] == {"dialogues": 2, "utterances": 5}
    assert (imported["dialogues"], imported["utterances"], imported["rejected"]) == (2, 4, 1)
    text = run("corpus", "import", "table", log, "--out", tmp_path / "store", *sets).stdout
    assert "2 dialogues, 5 utterances" in text
    assert "rejected.jsonl" in text

    counted = json.loads(run("corpus", "stats", tmp_path / "store", "--json", "--curve", tmp_path / "curve.svg").stdout)
    assert counted["dialogues"] == 2
    assert counted["utterances"] == 4
    assert counted["words"] == 25
    assert counted["speakers"] == {"user": 2, "system": 2}
    assert counted["dse_pairs"] == 2
    assert counted["top_1_percent_share"] == 0.25
    assert (tmp_path / "curve.svg").read_text().startswith("<svg")
    assert "DSE pairs" in run("corpus", "stats", tmp_path / "store").stdout

    shown = run("corpus", "show", tmp_path / "store", "--dialogues", 2).stdout
    assert shown.index("where is my parcel") < shown.index("It is on its way")

    run("corpus", "export", tmp_path / "store", "--out", tmp_path / "out.jsonl")
    run("corpus", "import", "jsonl", tmp_path / "out.jsonl", "--out", tmp_path / "again")
    again = json.loads(run("corpus", "stats", tmp_path / "again", "--json").stdout)
    assert again == counted


def test_stats_of_a_response_file(sample: Path) -> None:
    counted = json.loads(run("corpus", "stats", sample / "responses" / "test.txt", "--json").stdout)
    assert counted["candidates_per_context"] == 10
    assert counted["positives_per_context"] == 1
    assert "candidates per context" in run("corpus", "stats", sample / "responses" / "test.txt").stdout


def test_the_sample_is_the_same_bytes_for_the_same_seed(sample: Path, tmp_path: Path) -> None:
    run("corpus", "sample", "--out", tmp_path / "again", "--dialogues", 50, "--seed", 3)

    def content(folder: Path) -> dict[str, bytes]:
        return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}

    assert content(sample) == content(tmp_path / "again")
    run("corpus", "sample", "--out", tmp_path / "other", "--dialogues", 50, "--seed", 4)
    assert content(sample) != content(tmp_path / "other")


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["corpus", "import", "nonsense", ".", "--out", "x"], 1, "there is no reader 'nonsense'"),
        (["corpus", "import", "tabel", ".", "--out", "x"], 1, "Did you mean table?"),
        (["corpus", "sample", "--out", f"{__file__}/x"], 1, "test_cli.py/x: Not a directory"),
        (["recipes", "dze"], 1, "Did you mean dse?"),
        (["corpus", "import", "jsonl", "missing.jsonl", "--out", "x"], 1, "missing.jsonl does not exist"),
        (["corpus", "import", "jsonl", ".", "--out", "x", "--set", "a"], 2, "expected key=value"),
        (["corpus", "import", "jsonl", ".", "--out", "x", "--step", "polish"], 1, "there is no step 'polish'"),
        (["corpus", "import", "jsonl"], 2, "Missing argument"),
        (["corpus", "stats", "."], 1, "is not a store"),
        (["corpus", "fetch", "table"], 2, "nothing to fetch"),
        (["corpus", "fetch", "frames", "--accept-licence"], 1, "cannot be downloaded automatically"),
        (["corpus", "fetch", "multiwoz"], 1, "--accept-licence"),
        (["bench", "encode", "--data", "nowhere"], 1, "does not exist"),
    ],
)
def test_errors_are_one_line_that_says_what_to_do(
    arguments: list[str], code: int, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = run(*arguments, code=code)
    assert message in result.stderr.replace("\n", " ")
    assert "Traceback" not in result.stderr
    assert result.stdout == ""
    assert not (tmp_path / "x").exists()


def test_fetching_shows_the_licence_before_anything_else() -> None:
    result = run("corpus", "fetch", "dailydialog", code=1)
    assert "non-commercial" in result.stderr


def test_completion_is_offered() -> None:
    program = Path(sys.executable).parent / "turnwise"
    script = subprocess.run(
        [program], capture_output=True, text=True, env={**os.environ, "_TURNWISE_COMPLETE": "source_bash"}
    )
    assert "complete" in script.stdout


def test_recipes_are_listed_with_when_to_use_them() -> None:
    text = run("recipes", columns=80).stdout
    listed = json.loads(run("recipes", "--json").stdout)
    assert 5 <= len(listed) <= 8
    assert {"adapt", "dse", "ums"} <= {recipe["name"] for recipe in listed}
    assert not any(recipe["name"].endswith("-paper") for recipe in listed)
    for recipe in listed:
        assert recipe["recommended"]
        for key in ("use", "data", "time"):
            assert f"{key:4}  {recipe[key]}" in text, "on one line"


def test_all_recipes_are_listed_by_method() -> None:
    text = run("recipes", "--all", columns=240).stdout
    listed = json.loads(run("recipes", "--all", "--json").stdout)
    assert [recipe["name"] for recipe in listed] == packaged_recipes()
    for recipe in listed:
        assert recipe["describes"].endswith(".") and recipe["describes"] in text
        assert f"\n{recipe['method']} " in f"\n{text}"
        assert recipe["recommended"] == bool(recipe["use"] and recipe["data"] and recipe["time"])


def test_one_recipe_is_printed_in_full() -> None:
    assert yaml.safe_load(run("recipes", "dse").stdout) == json.loads(run("recipes", "dse", "--json").stdout)
    assert "about" not in run("recipes", "dse").stdout


def test_exports_replace_a_file_only_if_forced(sample: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    out.write_text("precious")
    assert "use --force" in run("corpus", "export", sample, "--out", out, code=1).stderr
    assert out.read_text() == "precious"
    run("corpus", "export", sample, "--out", out, "--force")
    assert len(out.read_text().splitlines()) == 50


def interrupt() -> None:
    raise KeyboardInterrupt


def interrupt_a_class() -> None:
    """Interrupt the creation of a class, as Ctrl-C may during an import; until Python 3.12 it is a RuntimeError."""

    class Field:
        def __set_name__(self, owner: type, name: str) -> None:
            raise KeyboardInterrupt

    type("Owner", (), {"field": Field()})


@pytest.mark.parametrize("interrupted", [interrupt, interrupt_a_class])
def test_interrupted_commands_say_so(interrupted: Callable[[], None], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("turnwise.training.recipe_files.summarise_recipes", interrupted)
    result = run("recipes", code=130)
    assert (result.stdout, result.stderr) == ("", "interrupted\n")
