"""Projects: `turnwise.yaml` written and read, found from a folder inside, and errors."""

from pathlib import Path

import pytest

from turnwise.core.errors import ProjectError
from turnwise.core.project import Project


def test_what_is_saved_is_found_from_any_folder_inside(tmp_path: Path) -> None:
    project = Project(tmp_path / "p", "minilm", None, "table", ("text=body", "time=sent at"), ("log", "mask"), ("DE",))
    project.save()
    inside = tmp_path / "p" / "map" / "deeper"
    inside.mkdir(parents=True)
    assert Project.find(inside) == Project.load(tmp_path / "p") == project
    assert Project.find(tmp_path) is None
    assert project.part("store") == tmp_path / "p" / "builds" / "0" / "store"


def test_a_project_of_one_line_has_the_defaults(tmp_path: Path) -> None:
    (tmp_path / "turnwise.yaml").write_text("model: my-model\n")
    assert Project.load(tmp_path) == Project(tmp_path, model="my-model")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("modle: minilm", r"turnwise.yaml: modle is unknown\. Did you mean model\? The keys are model, reranker"),
        ("0: minilm", "0 is unknown"),
        ("null: minilm", "None is unknown"),
        ("model: [a]", "model must be a text"),
        ("- a", "key: value"),
        ("model: {", "cannot be read"),
    ],
)
def test_a_damaged_description_is_reported(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "turnwise.yaml").write_text(text)
    with pytest.raises(ProjectError, match=message):
        Project.load(tmp_path)


def test_a_folder_without_description_is_no_project(tmp_path: Path) -> None:
    with pytest.raises(ProjectError, match="is not a project"):
        Project.load(tmp_path)
