"""The five suites end to end on a sample folder: protocols, tables, caching, and definitions."""

import functools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.helpers.encoders import Longest
from tests.helpers.encoders import count_letters as letters
from turnwise import evaluate
from turnwise.core.errors import TurnwiseError
from turnwise.core.registry import known_names
from turnwise.evaluation.evaluation_protocols import Effort, all_protocols
from turnwise.evaluation.metrics import MetricRow, Outcome
from turnwise.evaluation.reporting.report import write_report
from turnwise.evaluation.results import Results
from turnwise.models.encoder import Encoder
from turnwise.models.loading import ModelUnderTest
from turnwise.models.trainable_encoder import TrainableEncoder
from turnwise.papers.suites import PAPER_SUITES, add_tables

pytestmark = pytest.mark.usefixtures("few_bootstrap_samples")

EFFORT = Effort(seeds=2, steps=2, shots=30)  # shortens the protocols

#: The suites; that of DSE takes as long as all others together.
SUITES = [pytest.param(name, marks=pytest.mark.full if name == "dse" else ()) for name in PAPER_SUITES]

#: Evaluates a suite once, and returns its results and their folder.
EvaluatedSuites = Callable[[str], tuple[Results, Path]]


@pytest.fixture(scope="module")
def world(sample_world: Callable[[int], Path]) -> Path:
    return sample_world(300)


@pytest.fixture(scope="module")
def encoder(tiny_folder: Callable[[str], Path]) -> Encoder:
    return Encoder.load(tiny_folder("bert"), device="cpu")


@pytest.fixture(scope="module")
def evaluated_suites(
    sample_world: Callable[[int], Path], world: Path, encoder: Encoder, tmp_path_factory: pytest.TempPathFactory
) -> EvaluatedSuites:
    root = tmp_path_factory.mktemp("results")

    @functools.cache
    def evaluated(suite: str) -> tuple[Results, Path]:
        data = sample_world(500) if suite == "dse" else world  # fine-tuning on responses needs more of them
        results = evaluate(encoder, data, suite=suite, out=root / suite, effort=EFFORT, name="tiny")
        write_report(results, root / suite)
        return results, root / suite

    return evaluated


@pytest.fixture(scope="module")
def function_results(world: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Results, Path]:
    """The results of a function in the suite of DSE, and their folder."""
    out = tmp_path_factory.mktemp("function")

    return evaluate(letters, world, suite="dse", out=out, effort=EFFORT, name="letters", plots=False), out


@pytest.mark.parametrize("suite", SUITES)
def test_suite_runs_on_the_sample_folder(suite: str, evaluated_suites: EvaluatedSuites) -> None:
    results, folder = evaluated_suites(suite)
    tasks = {all_protocols()[step.protocol].task for step in PAPER_SUITES[suite].steps}
    assert {row.task for row in results.rows} == tasks
    assert {row.dataset for row in results.rows} == {"sample"}
    assert results.facts["left out"] == {}
    for row in results.rows:
        assert np.isfinite([row.value, row.low, row.high]).all(), row
        assert row.low - 1e-6 <= row.value <= row.high + 1e-6 or row.metric in ("uniformity", "alignment"), row
    assert {"results.json", "tables.md", "report.html", "outcomes.parquet"} <= {path.name for path in folder.iterdir()}
    content = json.loads((folder / "results.json").read_text())
    assert content["suite"] == suite and content["missing"] and content["environment"]["torch"]
    assert content["facts"]["effort"] == {"seeds": 2, "steps": 2, "shots": 30}
    assert [table for table in results.tables if "on other data" in table.title]
    assert all(
        "cut short: seeds 2, steps 2, shots 30" in table.notes
        for table in results.tables
        if "on other data" not in table.title
    )


def test_suites_run_all_tasks_of_the_papers() -> None:
    """Two-stage selection and abstention are not evaluated in any of the papers."""
    run = {all_protocols()[step.protocol].task for suite in PAPER_SUITES.values() for step in suite.steps}
    assert run == {
        *("intents", "out-of-scope", "responses", "reranking", "coherence", "actions", "inference", "retrieval"),
        *("sts", "nli", "geometry"),
    }
    assert set(known_names("task")) == {*run, "selection", "abstention"}


@pytest.mark.full
def test_plots_of_dse_are_included(evaluated_suites: EvaluatedSuites) -> None:
    assert set(evaluated_suites("dse")[0].plots) == {"intents_sample.svg", "answers_sample.svg"}


def test_second_run_uses_the_cache(
    world: Path, encoder: Encoder, evaluated_suites: EvaluatedSuites, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It needs no forward pass and gives the same results to the last digit."""
    results, folder = evaluated_suites("diaeval")
    monkeypatch.setattr(TrainableEncoder, "forward", lambda *_: pytest.fail("a text was encoded again"))
    again = evaluate(encoder, world, suite="diaeval", out=folder, effort=EFFORT, name="tiny")
    assert again.rows == results.rows


def test_interrupted_suite_continues(
    world: Path, encoder: Encoder, evaluated_suites: EvaluatedSuites, tmp_path: Path
) -> None:
    def interrupt(step: str, count: int, total: int | None = None) -> None:
        if step.startswith("dialoguecse: retrieval"):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        evaluate(encoder, world, suite="dialoguecse", out=tmp_path, effort=EFFORT, name="tiny", progress=interrupt)
    cached = list((tmp_path / "cache" / "outcomes").rglob("*.parquet"))
    assert len(cached) == 1
    before = cached[0].stat().st_mtime_ns
    results = evaluate(encoder, world, suite="dialoguecse", out=tmp_path, effort=EFFORT, name="tiny")
    assert cached[0].stat().st_mtime_ns == before
    assert results.rows == evaluated_suites("dialoguecse")[0].rows


def test_other_weights_are_evaluated_again(world: Path, tiny_folder: Callable[[str], Path], tmp_path: Path) -> None:
    """The cache key is the model's fingerprint, not its name."""
    first = Encoder.load(tiny_folder("bert"), device="cpu")
    before = evaluate(first, world, tasks=["nli"], out=tmp_path, name="model")
    for parameter in first.parameters():
        parameter.data = parameter.data.flip(-1)
    after = evaluate(first, world, tasks=["nli"], out=tmp_path, name="model")
    assert before.rows[0] != after.rows[0]


def test_functions_are_evaluated_without_cache_and_training(function_results: tuple[Results, Path]) -> None:
    results, out = function_results
    assert {"intents", "responses", "nli", "out-of-scope"} <= {row.task for row in results.rows}
    assert not any("fine-tuned" in row.setting for row in results.rows)
    assert results.facts["left out"]["fine-tuned intents"] == "the model does not have what it needs"
    assert not (out / "cache").exists()


def test_rerankers_are_evaluated_by_their_scores(world: Path) -> None:
    results = evaluate(Longest(), world, suite="ums", name="longest")
    assert {row.setting for row in results.rows} == {"re-ranker", "re-ranker, adversarial"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"suite": "glue"}, "there is no suite 'glue': choose from dse"),
        ({"tasks": ["sorting"]}, "there is no task 'sorting': choose from"),
        ({}, "either a suite or one or more tasks"),
        ({"suite": "dse", "tasks": ["nli"]}, "either a suite or one or more tasks"),
        ({"tasks": ["nli"], "datasets": ["snli"]}, "holds no data set for nli among snli"),
    ],
)
def test_invalid_arguments_are_rejected(
    world: Path, encoder: Encoder, arguments: dict[str, object], message: str
) -> None:
    with pytest.raises(TurnwiseError, match=message):
        evaluate(encoder, world, **arguments)  # type: ignore[arg-type]


def test_protocols_with_too_little_data_are_left_out(tmp_path: Path, encoder: Encoder, world: Path) -> None:
    (tmp_path / "data" / "amazonqa_few").mkdir(parents=True)
    (tmp_path / "data" / "intents").symlink_to(world / "intents")
    lines = [repr({"question": f"question {number}?", "answer": f"answer {number}."}) for number in range(5)]
    (tmp_path / "data" / "amazonqa_few" / "qa_Few.json").write_text("\n".join(lines))
    options: dict[str, Any] = {"suite": "dse", "out": tmp_path / "out", "fine_tuning": False, "plots": False}
    results = evaluate(encoder, tmp_path / "data", effort=EFFORT, **options)
    assert {row.task for row in results.rows} == {"intents", "out-of-scope"}
    assert "too few answers" in results.facts["left out"]["answers, amazonqa"]
    (tmp_path / "data" / "amazonqa_few" / "qa_Few.json").write_text("{'question'")
    with pytest.raises(TurnwiseError, match=r"qa_Few\.json"):
        evaluate(encoder, tmp_path / "data", effort=EFFORT, **options)


def test_folder_without_data_is_rejected(encoder: Encoder, tmp_path: Path) -> None:
    with pytest.raises(TurnwiseError, match="holds no data set"):
        evaluate(encoder, tmp_path, suite="dse")
    with pytest.raises(TurnwiseError, match="is not a folder"):
        evaluate(encoder, tmp_path / "nothing", suite="dse")


@pytest.mark.parametrize("suite", PAPER_SUITES)
def test_cells_refer_to_results_of_the_suite(suite: str) -> None:
    protocols = all_protocols()
    evaluated = {(protocols[step.protocol].task, name) for step in PAPER_SUITES[suite].steps for name in step.datasets}
    tables = [table for table in PAPER_SUITES[suite].tables.values() if table.cells]
    for table in tables:
        assert list(table.cells) == [(group, column) for group in table.groups for column in table.columns]
        for place, cell in table.cells.items():
            assert {(task, name) for task, name, _, _ in cell.keys} <= evaluated, (table.number, place)
    assert len(tables) == {"dse": 11, "dialoguecse": 3, "tadse": 3, "diaeval": 3, "ums": 4}[suite]


@pytest.mark.parametrize(
    ("suite", "protocol", "dataset"),
    [("dse", "prototypes", "clinc150"), ("tadse", "nearest", "snips"), ("dse", "out-of-scope", "clinc150")],
)
def test_results_are_placed_in_the_right_cells(
    suite: str, protocol: str, dataset: str, evaluated_suites: EvaluatedSuites, function_results: tuple[Results, Path]
) -> None:
    """The results on the sample data, relabelled as those of one of the paper's data sets, fill its column."""
    results, _ = function_results if suite == "dse" else evaluated_suites(suite)
    task = all_protocols()[protocol].task
    outcomes = [
        Outcome(each.task, dataset, each.setting, each.metric, each.evidence, each.statistic, each.scale)
        for each in results.outcomes
        if each.task == task
    ]
    relabelled = Results("tiny", suite)
    relabelled.add(outcomes)
    add_tables(PAPER_SUITES[suite], relabelled, {}, ModelUnderTest("ours", None, None, None, None), Effort())
    by_cell: dict[tuple[str, str, str], MetricRow] = {
        (table.title.split(":")[0].split(", ")[1], group.name, column): row
        for table in relabelled.tables
        for group in table.groups
        for column, row in zip(table.columns, group.measured, strict=False)
        if row is not None
    }
    values = {outcome.key: outcome.row().value for outcome in outcomes}
    if (suite, protocol) == ("dse", "prototypes"):
        row = by_cell["Table 2", "5-shot", "Clinc150"]
        assert row.value == values["intents", "clinc150", "5-shot prototypes", "accuracy"]
        assert (row.table, row.published) == ("Table 2", 78.73)
        average = by_cell["Table 2", "5-shot", "Ave."]
        assert average.value == pytest.approx(row.value) and average.published == 78.73
        assert average.table == "Table 2, mean of 1 of 6 data sets (clinc150)"
    elif suite == "tadse":
        row = by_cell["Table 3", "", "SNIPS"]
        assert row.value == values["intents", "snips", "1-NN", "accuracy"] and row.published == 97.00
    else:
        row = by_cell["Table 3", "mean", "OOS-Recall"]
        assert row.value == values["out-of-scope", "clinc150", "1-shot, threshold mean", "OOS-Recall"]
        assert row.published == 92.11 and row.comparable == "another model than the paper's"
        assert by_cell["Table 8", "mean-std", "Ave."].published == 74.38
        overall = by_cell["Table 6", "", "OOS"]
        parts = [by_cell["Table 3", group, "Ave."].value for group in ("mean", "mean-std")]
        assert overall.value == pytest.approx(sum(parts) / 2)
