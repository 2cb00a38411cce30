"""Evaluation of the saved epochs of a run."""

import json
import shutil
from pathlib import Path

import pytest

from tests.helpers.command_line import run as run_command
from tests.helpers.tiny import backbone, corpus, recipe
from turnwise import evaluate
from turnwise.core.errors import TrainingError
from turnwise.evaluation.evaluation_protocols import Effort
from turnwise.papers.sweeps.experiment import EvaluationPlan, SweepPoint
from turnwise.papers.sweeps.series import evaluate_epochs
from turnwise.training.loop import train

pytestmark = pytest.mark.usefixtures("few_bootstrap_samples")

EPOCHS = ["steps=null", "epochs=2", "batch_size=100", "checkpoint_epochs=true"]


@pytest.fixture(scope="module")
def plan(world: Path) -> EvaluationPlan:
    return EvaluationPlan(world, (), ("nli", "sts"), effort=Effort(seeds=1))


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of two epochs."""
    folder = tmp_path_factory.mktemp("epochs") / "run"
    train(recipe("dse", *EPOCHS), corpus(), folder)
    return folder


@pytest.fixture(scope="module")
def evaluated(
    run: Path, plan: EvaluationPlan, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, list[SweepPoint]]:
    out = tmp_path_factory.mktemp("epochs") / "out"
    return out, evaluate_epochs(run, plan, out)


def test_every_epoch_has_the_results_of_its_model(
    run: Path, world: Path, evaluated: tuple[Path, list[SweepPoint]]
) -> None:
    _, points = evaluated
    assert [(point.name, point.parameters) for point in points] == [
        (f"epoch {epoch}", {"epoch": epoch}) for epoch in range(3)
    ]
    assert [point.folder for point in points] == [None, run / "epochs" / "001", run / "epochs" / "002"]
    models = [backbone(), str(run / "epochs" / "001"), str(run)]  # the last epoch is the finished model
    for point, model in zip(points, models, strict=True):
        expected = evaluate(model, world, tasks=("nli", "sts"), effort=Effort(seeds=1))
        (results,) = point.results
        assert {row.key: row.value for row in results.rows} == pytest.approx(
            {row.key: row.value for row in expected.rows}
        )


def test_epochs_are_reported_together_and_one_by_one(evaluated: tuple[Path, list[SweepPoint]]) -> None:
    out, points = evaluated
    for epoch in range(3):
        folder = out / "epochs" / f"{epoch:03d}" / "nli+sts"
        assert {"results.json", "outcomes.parquet", "tables.md", "report.html"} <= {
            path.name for path in folder.iterdir()
        }
    content = json.loads((out / "results.json").read_text(encoding="utf-8"))
    assert [entry["place"] for entry in content["points"]] == [{"epoch": epoch} for epoch in range(3)]
    values = [entry["figures"][0]["value"] for entry in content["points"]]
    assert values == pytest.approx([next(iter(point.summaries.values())).value for point in points])
    table = (out / "table.md").read_text(encoding="utf-8")
    assert "## Differences to epoch 0" in table and "| epoch 2 |" in table
    curves = [path.read_text(encoding="utf-8") for path in (out / "curves").glob("*.svg")]
    assert len(curves) == len(points[0].summaries) and all("epoch" in curve for curve in curves)


@pytest.mark.full
def test_the_same_call_continues(
    run: Path, plan: EvaluationPlan, evaluated: tuple[Path, list[SweepPoint]], tmp_path: Path
) -> None:
    """An epoch is missing at first, as if training still ran; the outcomes of the others are read from the cache."""
    shutil.copytree(run, tmp_path / "run")
    (tmp_path / "run" / "epochs" / "002").rename(tmp_path / "later")
    out = tmp_path / "out"
    assert len(evaluate_epochs(tmp_path / "run", plan, out)) == 2
    (tmp_path / "later").rename(tmp_path / "run" / "epochs" / "002")
    cached = {path: path.stat().st_mtime_ns for path in out.glob("epochs/*/cache/outcomes/*/*.parquet")}
    assert cached
    points = evaluate_epochs(tmp_path / "run", plan, out)
    assert {path: path.stat().st_mtime_ns for path in cached} == cached
    values = [[row.value for row in point.results[0].rows] for point in points]
    assert values == [[row.value for row in point.results[0].rows] for point in evaluated[1]]


def test_a_missing_start_is_reported(run: Path, plan: EvaluationPlan, tmp_path: Path) -> None:
    shutil.copytree(run, tmp_path / "run")
    path = tmp_path / "run" / "recipe.yaml"
    path.write_text(path.read_text().replace(backbone(), str(tmp_path / "removed")))
    points = evaluate_epochs(tmp_path / "run", plan, tmp_path / "out")
    assert [point.name for point in points] == ["epoch 1", "epoch 2"]
    assert "Epoch 0 is missing: " in (tmp_path / "out" / "table.md").read_text(encoding="utf-8")


@pytest.mark.full
def test_a_run_starts_from_its_first_stage(plan: EvaluationPlan, tmp_path: Path) -> None:
    first = "first={objectives: {masked-language: {}}, steps: 2, batch_size: 8}"
    train(recipe("dse", *EPOCHS, "epochs=1", first), corpus(), tmp_path / "run")
    start, _ = evaluate_epochs(tmp_path / "run", plan, tmp_path / "out")
    expected = evaluate(str(tmp_path / "run" / "first"), plan.data, tasks=plan.tasks, effort=plan.effort)
    assert [row.value for row in start.results[0].rows] == pytest.approx([row.value for row in expected.rows])


def test_runs_without_saved_epochs_are_rejected(plan: EvaluationPlan, tmp_path: Path) -> None:
    with pytest.raises(TrainingError, match="is not the folder of a run"):
        evaluate_epochs(tmp_path, plan, tmp_path / "out")
    for changes, message in (
        ((), "train with --set checkpoint_epochs=true"),
        (["checkpoint_epochs=true"], "not finished"),
    ):
        (tmp_path / "recipe.yaml").write_text(recipe("dse", *changes).to_yaml())
        with pytest.raises(TrainingError, match=message):
            evaluate_epochs(tmp_path, plan, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_the_command_prints_every_epoch(run: Path, world: Path, tmp_path: Path) -> None:
    options = ["--every-epoch", "--task", "nli", "--data", world, "--out", tmp_path / "out"]
    answer = run_command("evaluate", run, *options)
    lines = [line.split()[:2] for line in answer.stdout.splitlines() if line.startswith("  epoch")]
    assert lines == [["epoch", "0"], ["epoch", "1"], ["epoch", "2"]]
    assert answer.stderr == f"tables and curves: {tmp_path / 'out' / 'report.html'}\n"
    content = json.loads(run_command("evaluate", run, *options, "--json").stdout)
    assert [point["name"] for point in content["points"]] == ["epoch 0", "epoch 1", "epoch 2"]


def test_the_command_reports_invalid_input(run: Path, world: Path, tmp_path: Path) -> None:
    options = ["--every-epoch", "--task", "nli", "--data", world, "--out", tmp_path / "out"]
    for option in ("--compressed", "--exclude-seen"):
        answer = run_command("evaluate", run, *options, option, code=2)
        assert "cannot be used with --postprocess, --reranker, --compressed or --exclude-seen" in answer.stderr
    answer = run_command("evaluate", run / "epochs" / "001", *options, code=1)
    assert answer.stderr.startswith("error: ") and "is not the folder of a run" in answer.stderr
