"""What the documentation lists is what there is."""

import dataclasses
from pathlib import Path

from typer.main import get_command

from turnwise import register_extensions
from turnwise.cli import app
from turnwise.evaluation.evaluation_protocols import PROTOCOLS, task_names
from turnwise.evaluation.suites import SUITES
from turnwise.objectives.registry import OBJECTIVES
from turnwise.papers.sweeps.plan import packaged_sweeps
from turnwise.training.recipe import Recipe

register_extensions()

DOCS = Path(__file__).parents[1] / "docs"


def test_every_data_set_is_listed() -> None:
    listed = (DOCS / "evaluation-data.md").read_text(encoding="utf-8")
    for protocol in PROTOCOLS.values():
        for name, dataset in protocol.datasets(None).items():
            row = f"| `{name}` | `{dataset.folder}` | {dataset.licence} |"
            assert row in listed, name
            assert dataset.differs in listed, name


def test_every_suite_and_task_is_told() -> None:
    told = (DOCS / "evaluation.md").read_text(encoding="utf-8")
    assert [suite for suite in SUITES if f"`{suite}`" not in told] == []
    assert [task for task in task_names() if task not in told] == []
    assert [suite for suite in SUITES if not (DOCS / "results" / f"{suite}.md").is_file()] == []


def test_every_objective_recipe_key_sweep_and_command_is_told() -> None:
    pages = {
        name: (DOCS / f"{name}.md").read_text(encoding="utf-8")
        for name in ("objectives", "recipes", "sweeps", "command-line")
    }
    assert [name for name in OBJECTIVES if f"| `{name}` |" not in pages["objectives"]] == []
    keys = {field.name for field in dataclasses.fields(Recipe)} - {"objectives", "describes"}
    assert (
        sorted(key for key in keys if f"`{key}`" not in pages["recipes"] and f"\n{key}:" not in pages["recipes"]) == []
    )
    assert [name for name in packaged_sweeps() if f"| `{name}` |" not in pages["sweeps"]] == []
    commands = get_command(app).commands  # type: ignore[attr-defined]
    assert [name for name in commands if f"turnwise {name} " not in pages["command-line"]] == []
