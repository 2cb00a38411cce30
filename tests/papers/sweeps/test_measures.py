"""Every model of an experiment is measured alike, what suites share once, and what cannot be is told before."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from turnwise import evaluate
from turnwise.evaluation.evaluation_protocols import Effort
from turnwise.evaluation.results import Results
from turnwise.evaluation.runner import EvaluationError
from turnwise.models.encoder import Encoder
from turnwise.models.loading import ModelUnderTest, wrap_model
from turnwise.papers.sweeps.measures import Measures

HASTE = Effort(seeds=1, steps=1)


@pytest.fixture(scope="module")
def world(sample_world: Callable[[int], Path]) -> Path:
    return sample_world(40)


@pytest.fixture(scope="module")
def model(tiny_folder: Callable[[str], Path]) -> ModelUnderTest:
    return wrap_model(Encoder.load(tiny_folder("bert"), device="cpu"), "tiny")


def figures(results: Results) -> dict[tuple[str, str, str, str], float]:
    return {(row.task, row.dataset, row.setting, row.metric): row.value for row in results.rows}


def test_results_are_those_of_evaluate_a_suite_at_a_time_then_all_tasks(
    model: ModelUnderTest, world: Path, tmp_path: Path
) -> None:
    measures = Measures(world, ("dialoguecse", "ums"), ("nli", "sts"), effort=HASTE)
    measures.check()
    found = measures.results(model, tmp_path)
    assert [(results.model, results.suite) for results in found] == [
        ("tiny", each) for each in ("dialoguecse", "ums", "nli+sts")
    ]
    assert {path.name for path in tmp_path.iterdir()} == {"dialoguecse", "ums", "nli+sts", "cache"}
    alone: list[dict[str, Any]] = [{"suite": "dialoguecse"}, {"suite": "ums"}, {"tasks": ["nli", "sts"]}]
    for results, asked in zip(found, alone, strict=True):
        expected = figures(evaluate(model, world, **asked, effort=HASTE, fine_tuning=False, pictures=False))
        assert figures(results) == pytest.approx(expected, abs=1e-5)  # what is kept is kept in single precision
        assert (tmp_path / results.suite / "results.json").is_file()
        assert not (tmp_path / results.suite / "cache").exists()


def test_what_two_suites_have_in_common_is_measured_once(model: ModelUnderTest, world: Path, tmp_path: Path) -> None:
    def outcomes(*suites: str) -> set[str]:
        folder = tmp_path / "+".join(suites)
        Measures(world, suites, effort=HASTE).results(model, folder)
        return {path.name for path in (folder / "cache" / "outcomes").rglob("*.parquet")}

    dse, diaeval = outcomes("dse"), outcomes("diaeval")
    assert dse & diaeval  # responses to a history
    assert outcomes("dse", "diaeval") == dse | diaeval


def test_data_sets_and_fine_tuning_are_passed_on(model: ModelUnderTest, world: Path, tmp_path: Path) -> None:
    def settings(fine_tuning: bool) -> set[str]:
        measures = Measures(world, tasks=("actions",), datasets=("sample",), fine_tuning=fine_tuning, effort=HASTE)
        return {row.setting for results in measures.results(model, tmp_path) for row in results.rows}

    assert settings(True) - settings(False) == {"10-shot fine-tuned", "20-shot fine-tuned"}
    with pytest.raises(EvaluationError, match="among elsewhere"):
        Measures(world, tasks=("nli",), datasets=("elsewhere",)).results(model, tmp_path)


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({}, r"nothing is measured: name a suite \(--suite\) or a task \(--task\)"),
        ({"suites": ("dse", "bleu")}, "there is no suite 'bleu': choose from dse"),
        ({"suites": ("dse",), "tasks": ("intent",)}, "there is no task 'intent': choose from intents"),
    ],
)
def test_what_nothing_can_be_measured_by_is_told_before(asked: dict[str, Any], said: str, tmp_path: Path) -> None:
    with pytest.raises(EvaluationError, match=said):
        Measures(tmp_path, **asked).check()


def test_data_that_are_nowhere_are_told_before(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for name in ("nowhere", "file"):
        with pytest.raises(EvaluationError, match=f"{name} is no folder: give one that holds data sets"):
            Measures(tmp_path / name, tasks=("nli",)).check()
