"""Soups on disk and their evaluation."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import typer
from safetensors.torch import load_file
from typer.testing import CliRunner

from tests.helpers.families import make_reranker, perturbed
from turnwise import evaluate
from turnwise.cli.train import soup_command
from turnwise.core.errors import ModelError, TurnwiseError
from turnwise.evaluation.datasets.dataset import Dataset
from turnwise.evaluation.evaluation_protocols import Effort
from turnwise.models.encoder import Encoder, encoder_fingerprint
from turnwise.models.reranker import Reranker
from turnwise.models.soup import average_weights
from turnwise.papers.sweeps.experiment import EvaluationPlan, SweepPoint
from turnwise.papers.sweeps.series import evaluate_soups, write_soup, write_soups

pytestmark = pytest.mark.usefixtures("no_curves", "few_bootstrap_samples")

TEXTS = ["i want to book a table", "where is the hotel", ["hello", "cancel the taxi please"]]
EFFORT = Effort(seeds=1, steps=1)

#: How soups are evaluated; 'sts' is also part of the suite.
EVALUATION: dict[str, Any] = {"suites": ["dialoguecse"], "tasks": ["nli", "sts"], "effort": EFFORT}


@pytest.fixture(scope="module")
def first(tiny_folder: Callable[[str], Path]) -> Encoder:
    return Encoder.load(tiny_folder("bert"), device="cpu")


@pytest.fixture(scope="module")
def second(first: Encoder) -> Encoder:
    return perturbed(first)


@pytest.fixture(scope="module")
def folders(first: Encoder, second: Encoder, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The two models on disk."""
    folder = tmp_path_factory.mktemp("parents")
    first.save(folder / "before")
    second.save(folder / "after")
    return folder / "before", folder / "after"


def written(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_saved_soup_has_the_same_vectors_and_names_its_models(
    folders: tuple[Path, Path], first: Encoder, second: Encoder, tmp_path: Path
) -> None:
    (tmp_path / "half").mkdir()  # an empty folder is accepted
    write_soup(*folders, 0.3, tmp_path / "half")
    loaded = Encoder.load(tmp_path / "half", device="cpu")
    np.testing.assert_array_equal(loaded.encode(TEXTS), average_weights(first, second, 0.3).encode(TEXTS))
    card = (tmp_path / "half" / "README.md").read_text(encoding="utf-8")
    assert f"0.7 · `{folders[0]}` + 0.3 · `{folders[1]}`" in card
    description = json.loads((tmp_path / "half" / "soup.json").read_text(encoding="utf-8"))
    assert (description["ratio"], description["first"]["model"], description["second"]["model"]) == (
        0.3,
        *map(str, folders),
    )
    assert [description[which]["fingerprint"] for which in ("first", "second")] == [
        encoder_fingerprint(first),
        encoder_fingerprint(second),
    ]
    assert [path.name for path in tmp_path.iterdir()] == ["half"]
    with pytest.raises(ModelError, match="half is not empty"):
        write_soup(*folders, 0.3, tmp_path / "half")


def test_existing_soups_are_kept(folders: tuple[Path, Path], tmp_path: Path) -> None:
    made = write_soups(*folders, [1, 0.5, 0.5], tmp_path)
    assert made == {0.5: tmp_path / "models" / "0.5", 1.0: tmp_path / "models" / "1"}
    times = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*") if path.is_file()}
    assert list(write_soups(*folders, [0, 0.5, 1], tmp_path)) == [0, 0.5, 1]
    assert {path: path.stat().st_mtime_ns for path in times} == times
    assert sorted(path.name for path in (tmp_path / "models").iterdir()) == ["0", "0.5", "1"]


def test_other_models_in_the_same_folder_are_rejected(
    folders: tuple[Path, Path], first: Encoder, second: Encoder, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    write_soups(*folders, [0.5], out)
    for named, pair in {"first": folders[::-1], "second": (folders[0], folders[0])}.items():
        with pytest.raises(
            ModelError, match=f"contains soups of .*before and .*after, and the {named} model is a different one"
        ):
            write_soups(*pair, [0.5, 1], out)
    # models are compared by their weights, not by their paths
    first.save(tmp_path / "moved")
    write_soups(tmp_path / "moved", folders[1], [0.5, 1], out)


def test_folders_with_other_files_are_rejected(folders: tuple[Path, Path], tmp_path: Path) -> None:
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "notes.txt").write_text("mine")
    with pytest.raises(ModelError, match="taken is not empty"):
        write_soups(*folders, [0.5], tmp_path / "taken")
    (tmp_path / "models" / "0.5").mkdir(parents=True)
    (tmp_path / "models" / "0.5" / "notes.txt").write_text("mine")
    with pytest.raises(ModelError, match=r"models/0\.5 is not empty"):
        write_soups(*folders, [0.5], tmp_path)
    assert not any(path.suffix == ".safetensors" for path in tmp_path.rglob("*"))


@pytest.fixture(scope="module")
def curve(
    folders: tuple[Path, Path], world: Path, tmp_path_factory: pytest.TempPathFactory
) -> tuple[list[SweepPoint], Path]:
    out = tmp_path_factory.mktemp("curve") / "out"
    return evaluate_soups(*folders, [1, 0, 0.5], EvaluationPlan(world, **EVALUATION), out), out


def test_every_ratio_is_evaluated_and_reported(
    curve: tuple[list[SweepPoint], Path], folders: tuple[Path, Path]
) -> None:
    points, out = curve
    assert [(point.name, point.parameters) for point in points] == [
        (f"ratio {each:g}", {"ratio": each}) for each in (0, 0.5, 1)
    ]
    for point in points:
        assert point.folder is not None
        assert {path.name for path in (point.folder / "evaluation").iterdir()} == {"dialoguecse", "nli+sts", "cache"}
        content = json.loads((point.folder / "evaluation" / "dialoguecse" / "results.json").read_text(encoding="utf-8"))
        rows = {(row["task"], row["metric"]): row["value"] for row in content["rows"]}
        assert point.summaries["dialoguecse", "similarity"].value == pytest.approx(rows["sts", "Spearman"])
        assert not (point.folder / "evaluation" / "dialoguecse" / "plots").exists()
        # similarity, retrieval and nli: the protocol that the suite and the tasks share ran once
        assert len(list((point.folder / "evaluation" / "cache" / "outcomes").rglob("*.parquet"))) == 3
    report = json.loads((out / "results.json").read_text(encoding="utf-8"))
    assert report["axes"] == ["ratio"]
    assert [each["folder"] for each in report["points"]] == ["models/0", "models/0.5", "models/1"]
    assert report["points"][0]["figures"][0]["difference"] is None
    assert all(summary["difference"] is not None for summary in report["points"][2]["figures"])
    assert all(str(folder) in report["remarks"][0] for folder in folders)
    assert "dialoguecse was shortened: seeds 1, steps 1" in report["remarks"]
    names = {path.name for path in (out / "curves").iterdir()}
    assert {"dialoguecse-similarity.svg", "dialoguecse-retrieval.svg", "nli+sts-sts-cosine-Pearson.svg"} < names


def test_ratios_0_and_1_have_the_results_of_the_two_models(
    curve: tuple[list[SweepPoint], Path], folders: tuple[Path, Path], world: Path
) -> None:
    for point, folder in zip((curve[0][0], curve[0][2]), folders, strict=True):
        alone = evaluate(str(folder), world, tasks=["nli", "sts"], effort=EFFORT)
        assert [row.value for row in point.results[1].rows] == pytest.approx(
            [row.value for row in alone.rows], abs=1e-4
        )


def test_repeated_evaluation_reuses_results_and_writes_the_same_files(
    curve: tuple[list[SweepPoint], Path], folders: tuple[Path, Path], world: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, out = curve
    before = written(out)

    def fail(*arguments: object) -> None:
        raise AssertionError("evaluated again")

    monkeypatch.setattr(Dataset, "load", fail)
    monkeypatch.setattr(Encoder, "save", fail)
    again = evaluate_soups(*folders, [0, 0.5, 1], EvaluationPlan(world, **EVALUATION), out)
    assert written(out) == before
    assert [point.parameters for point in again] == [point.parameters for point in curve[0]]


def test_invalid_evaluations_are_rejected_before_soups_are_written(
    folders: tuple[Path, Path], world: Path, tmp_path: Path
) -> None:
    with pytest.raises(TurnwiseError, match="there is no suite 'dsa': choose from dse"):
        evaluate_soups(*folders, [0.5], EvaluationPlan(world, suites=["dsa"]), tmp_path / "out")
    assert not (tmp_path / "out").exists()


def run(*arguments: object, code: int = 0) -> str:
    app = typer.Typer(pretty_exceptions_enable=False)
    app.command()(soup_command)
    result = CliRunner().invoke(
        app, [str(argument) for argument in arguments], env={"COLUMNS": "200", "TURNWISE_DATA": ""}
    )
    assert result.exit_code == code, result.output
    if code == 0:
        assert result.exception is None
    return result.stdout if code == 0 else result.output


def test_command_writes_one_model(folders: tuple[Path, Path], tmp_path: Path) -> None:
    assert run(*folders, "--ratio", 0.5, "--out", tmp_path / "half").strip() == str(tmp_path / "half")
    ours, theirs = (load_file(folder / "model.safetensors") for folder in folders)
    for name, value in load_file(tmp_path / "half" / "model.safetensors").items():
        torch.testing.assert_close(value, (ours[name] + theirs[name]) / 2)


def test_command_averages_rerankers(tiny_folder: Callable[[str], Path], tmp_path: Path) -> None:
    first, second = (make_reranker(tiny_folder("bert"), seed=seed) for seed in (0, 1))
    first.save(tmp_path / "first")
    second.save(tmp_path / "second")
    run(tmp_path / "first", tmp_path / "second", "--ratio", 0.3, "--out", tmp_path / "soup")
    context, candidates = ["where is it"], ["yes please", "no thanks", "the hotel"]
    average_weights(first, second, 0.3).save(tmp_path / "average")
    soup, average = (Reranker.load(tmp_path / name, device="cpu") for name in ("soup", "average"))
    np.testing.assert_array_equal(soup.score(context, candidates), average.score(context, candidates))
    assert 'Reranker.load("soup").score(' in (tmp_path / "soup" / "README.md").read_text(encoding="utf-8")


def test_command_prints_results_by_ratio(folders: tuple[Path, Path], world: Path, tmp_path: Path) -> None:
    command = (*folders, "--ratio", "0,1", "--task", "nli", "--data", world, "--out", tmp_path, "--dataset", "sample")
    lines = run(*command).splitlines()
    content = json.loads(run(*command, "--json"))
    assert content == json.loads((tmp_path / "results.json").read_text(encoding="utf-8"))
    for point in content["points"]:
        printed = [line for line in lines if line.startswith(f"  {point['name']}  ")]
        for line, summary in zip(printed, point["figures"], strict=True):
            assert f"  {summary['value']:.2f} (" in line


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--ratio", "half"), "numbers from 0 to 1"),
        (("--ratio", "0.5", "--task", "nli"), "name the folder of data sets"),
        (("--ratio", "0.5", "--seeds", "1"), "name what to evaluate"),
    ],
)
def test_invalid_options_are_rejected(options: tuple[str, ...], message: str, tmp_path: Path) -> None:
    assert message in run("a", "b", "--out", tmp_path, *options, code=2)
