"""`turnwise intents report`: on a table, on a classifier folder, and errors."""

import csv
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner, Result

from turnwise.cli import app
from turnwise.core.errors import TurnwiseError

WORDS = {"hotel": "hotel", "taxi": "taxi", "please": "please"}


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three intents of six texts each, and two texts out of scope."""
    random = np.random.default_rng(0)
    path = tmp_path_factory.mktemp("tables") / "examples.csv"
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["said", "wants"])
        for name in WORDS:
            for number in range(6):
                writer.writerow([f"{' '.join(random.choice(['i', 'want', 'a', 'now'], 3))} {name} {number}", name])
        writer.writerows([["now now", "out_of_scope"], ["want i", "out_of_scope"]])
    return path


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["intents", "report", *map(str, arguments)])


def columns(table: Path) -> list[object]:
    return [table, "--text", "said", "--intent", "wants"]


def test_reports_on_a_table(table: Path, tiny_folder: Callable[[str], Path], tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    result = run(*columns(table), "--model", tiny_folder("bert"), "--folds", 3, "--false-rejection", 0.2, "--out", page)
    assert result.exit_code == 0, result.output
    assert "18 of 3 intents, 18 classified in 3 folds" in result.output
    assert "of 2 rejected" in result.output and "20.0% requested" in result.output
    text = page.read_text(encoding="utf-8")
    assert "3 intents, 18 examples" in text and text.startswith("<!doctype html>")


def test_prints_json(table: Path, tiny_folder: Callable[[str], Path]) -> None:
    result = run(
        *columns(table), "--model", tiny_folder("bert"), "--head", "prototypes", "--false-rejection", 0, "--json"
    )
    assert result.exit_code == 0, result.output
    content = json.loads(result.stdout)
    assert content["settings"]["head"] == "prototypes" and content["settings"]["false_rejection"] is None
    assert content["examples"] == 18 and content["false_rejection"] == 0
    assert [row["intent"] for row in content["intents"]] == sorted(WORDS)


def test_reports_on_a_classifier_folder_with_its_own_settings(
    table: Path, tiny_folder: Callable[[str], Path], tmp_path: Path
) -> None:
    from turnwise.assist.intents.classifier import IntentClassifier

    with table.open(encoding="utf-8") as file:
        pairs = [(row["said"], row["wants"]) for row in csv.DictReader(file)]
    classifier = IntentClassifier(str(tiny_folder("bert")), head="prototypes", false_rejection=0.3)
    classifier.fit([text for text, _ in pairs], [intent for _, intent in pairs]).save(tmp_path / "intents")
    result = run(tmp_path / "intents", "--json")
    assert result.exit_code == 0, result.output
    content = json.loads(result.stdout)
    assert (content["settings"]["head"], content["settings"]["false_rejection"]) == ("prototypes", 0.3)
    assert (content["examples"], content["out_of_scope"]) == (18, 2)
    rejected = run(tmp_path / "intents", "--head", "logistic")
    assert rejected.exit_code == 2 and "omit --head" in rejected.output


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["{table}", "--out", "{place}/report.pdf"], 2, "does not end in .html"),
        (["{table}", "--out", "{place}/none/report.html"], 2, "does not exist"),
        (["{table}"], 1, "has no column 'text'"),
        (["{place}/missing.csv"], 1, "cannot be read"),
        (["{place}"], 1, "is a directory but not a store"),
        (["{table}", "--folds", "1"], 2, "--folds"),
        (["{table}", "--text", "said", "--intent", "wants", "--head", "forest"], 2, "is not one of 'auto'"),
    ],
)
def test_invalid_input_is_reported(arguments: list[str], code: int, message: str, table: Path, tmp_path: Path) -> None:
    result = run(*(argument.format(table=table, place=tmp_path) for argument in arguments))
    assert result.exit_code == code
    assert message in (str(result.exception) if isinstance(result.exception, TurnwiseError) else result.output)
