"""Evaluation plans of experiments: equal to `evaluate`, shared protocols run once, early validation."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from turnwise import evaluate
from turnwise.core.errors import TurnwiseError
from turnwise.evaluation.evaluation_protocols import Effort
from turnwise.evaluation.results import Results
from turnwise.models.encoder import Encoder
from turnwise.models.loading import ModelUnderTest, wrap_model
from turnwise.papers.sweeps.experiment import EvaluationPlan

pytestmark = pytest.mark.usefixtures("no_curves", "few_bootstrap_samples")

EFFORT = Effort(seeds=1, steps=1)


@pytest.fixture(scope="module")
def model(tiny_folder: Callable[[str], Path]) -> ModelUnderTest:
    return wrap_model(Encoder.load(tiny_folder("bert"), device="cpu"), "tiny")


def values(results: Results) -> dict[tuple[str, str, str, str], float]:
    return {(row.task, row.dataset, row.setting, row.metric): row.value for row in results.rows}


def test_results_equal_those_of_evaluate(model: ModelUnderTest, world: Path, tmp_path: Path) -> None:
    plan = EvaluationPlan(world, ("dialoguecse", "ums"), ("nli", "sts"), effort=EFFORT)
    plan.check()
    evaluated = plan.evaluate(model, tmp_path)
    assert [(results.model, results.suite) for results in evaluated] == [
        ("tiny", each) for each in ("dialoguecse", "ums", "nli+sts")
    ]
    assert {path.name for path in tmp_path.iterdir()} == {"dialoguecse", "ums", "nli+sts", "cache"}
    alone: list[dict[str, Any]] = [{"suite": "dialoguecse"}, {"suite": "ums"}, {"tasks": ["nli", "sts"]}]
    for results, arguments in zip(evaluated, alone, strict=True):
        expected = values(evaluate(model, world, **arguments, effort=EFFORT, fine_tuning=False, plots=False))
        assert values(results) == pytest.approx(expected, abs=1e-5)  # cached outcomes have single precision
        assert (tmp_path / results.suite / "results.json").is_file()
        assert not (tmp_path / results.suite / "cache").exists()


def test_datasets_and_fine_tuning_are_passed_on(model: ModelUnderTest, world: Path, tmp_path: Path) -> None:
    def settings(fine_tuning: bool) -> set[str]:
        plan = EvaluationPlan(world, tasks=("actions",), datasets=("sample",), fine_tuning=fine_tuning, effort=EFFORT)
        return {row.setting for results in plan.evaluate(model, tmp_path) for row in results.rows}

    assert settings(True) - settings(False) == {"10-shot fine-tuned", "20-shot fine-tuned"}
    with pytest.raises(TurnwiseError, match="among elsewhere"):
        EvaluationPlan(world, tasks=("nli",), datasets=("elsewhere",)).evaluate(model, tmp_path)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, r"there is nothing to evaluate: name a suite \(--suite\) or a task \(--task\)"),
        ({"suites": ("dse", "bleu")}, "there is no suite 'bleu': choose from dse"),
        ({"suites": ("dse",), "tasks": ("intent",)}, "there is no task 'intent': choose from intents"),
    ],
)
def test_unknown_suites_and_tasks_are_rejected(arguments: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(TurnwiseError, match=message):
        EvaluationPlan(tmp_path, **arguments).check()
