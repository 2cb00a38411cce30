"""The five suites, end to end on the sample world: every protocol runs, tables are filled, nothing is measured twice."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from turnwise import evaluate
from turnwise.evaluation.evaluation_protocols import PROTOCOLS, Effort, task_names
from turnwise.evaluation.outcomes import Outcome, Row
from turnwise.evaluation.reporting.report import write_report
from turnwise.evaluation.results import Results
from turnwise.evaluation.runner import EvaluationError
from turnwise.models.encoder import Encoder
from turnwise.papers.suites import PAPER_SUITES, Average, Either

#: The protocols cut to what a test can wait for.
HASTE = Effort(seeds=2, steps=2, shots=30)


@pytest.fixture(scope="module")
def world(sample_world: Callable[[int], Path]) -> Path:
    return sample_world(500)


@pytest.fixture(scope="module")
def encoder(tiny_folder: Callable[[str], Path]) -> Encoder:
    return Encoder.load(tiny_folder("bert"), device="cpu")


@pytest.fixture(scope="module")
def found(world: Path, encoder: Encoder, tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Results, Path]]:
    """The results of every suite, and where they were written."""
    place = tmp_path_factory.mktemp("results")
    done = {}
    for suite in PAPER_SUITES:
        results = evaluate(encoder, world, suite=suite, out=place / suite, effort=HASTE, name="tiny")
        write_report(results, place / suite)
        done[suite] = results, place / suite
    return done


@pytest.mark.parametrize("suite", PAPER_SUITES)
def test_a_suite_runs_whole_on_the_sample_world(suite: str, found: dict[str, tuple[Results, Path]]) -> None:
    results, folder = found[suite]
    tasks = {PROTOCOLS[work.protocol].task for work in PAPER_SUITES[suite].steps}
    assert {row.task for row in results.rows} == tasks
    assert {row.dataset for row in results.rows} == {"sample"}
    assert results.facts["left out"] == {}
    for row in results.rows:
        assert np.isfinite([row.value, row.low, row.high]).all(), row
        assert row.low - 1e-6 <= row.value <= row.high + 1e-6 or row.metric in ("uniformity", "alignment"), row
    assert {"results.json", "tables.md", "tables.tex", "report.html", "outcomes.parquet"} <= {
        path.name for path in folder.iterdir()
    }
    content = json.loads((folder / "results.json").read_text())
    assert content["suite"] == suite and content["missing"] and content["environment"]["torch"]
    assert content["facts"]["effort"] == {"seeds": 2, "steps": 2, "shots": 30}
    assert [table for table in results.tables if "on other data" in table.title]
    assert all(
        "cut short: seeds 2, steps 2, shots 30" in table.notes
        for table in results.tables[: len(PAPER_SUITES[suite].tables)]
    )


def test_every_task_of_the_contract_is_run_by_some_suite(found: dict[str, tuple[Results, Path]]) -> None:
    """All but the one that takes two models, and the one of our own thresholds: no paper has them."""
    run = {row.task for results, _ in found.values() for row in results.rows}
    assert run == {
        *("intents", "out-of-scope", "responses", "reranking", "coherence", "actions", "inference", "retrieval"),
        *("sts", "nli", "geometry"),
    }
    assert set(task_names()) == {*run, "selection", "abstention"}


def test_the_pictures_of_the_papers_are_drawn(found: dict[str, tuple[Results, Path]]) -> None:
    assert set(found["dse"][0].figures) == {"intents_sample.svg", "answers_sample.svg"}
    assert set(found["tadse"][0].figures) == {"neighbours.svg"}
    assert "needs more" in found["tadse"][0].facts["pictures left out"]["two_intents_sample.svg"]


def test_a_model_without_templates_is_not_asked_for_them(found: dict[str, tuple[Results, Path]]) -> None:
    """Compression is an extra: in an ordinary model's results nothing is missing for the lack of it, as nothing is left out."""
    results, _ = found["tadse"]
    assert {entry["wanted_by"] for entry in results.missing} == {"nearest", "geometry"}
    assert not any("compressed" in row.setting or "λ" in row.setting for row in results.rows)


def test_a_second_run_measures_nothing_again(
    world: Path, encoder: Encoder, found: dict[str, tuple[Results, Path]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not a single forward pass, and the same figures to the last digit."""
    results, folder = found["diaeval"]
    monkeypatch.setattr(Encoder, "forward", lambda *_: pytest.fail("something was encoded again"))
    again = evaluate(encoder, world, suite="diaeval", out=folder, effort=HASTE, name="tiny")
    assert again.rows == results.rows


def test_an_interrupted_suite_goes_on_where_it_stopped(
    world: Path, encoder: Encoder, found: dict[str, tuple[Results, Path]], tmp_path: Path
) -> None:
    def stop(what: str, count: int, total: int | None = None) -> None:
        if what.startswith("diaeval: probed inference"):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        evaluate(encoder, world, suite="diaeval", out=tmp_path, effort=HASTE, name="tiny", progress=stop)
    kept = list((tmp_path / "cache" / "outcomes").rglob("*.parquet"))
    assert len(kept) == 1
    before = kept[0].stat().st_mtime_ns
    results = evaluate(encoder, world, suite="diaeval", out=tmp_path, effort=HASTE, name="tiny")
    assert kept[0].stat().st_mtime_ns == before
    assert results.rows == found["diaeval"][0].rows


def test_other_weights_are_measured_anew(world: Path, tiny_folder: Callable[[str], Path], tmp_path: Path) -> None:
    """The cache is by what the model is, not by what it is called."""
    first = Encoder.load(tiny_folder("bert"), device="cpu")
    before = evaluate(first, world, tasks=["nli"], out=tmp_path, name="model")
    for parameter in first.parameters():
        parameter.data = parameter.data.flip(-1)
    after = evaluate(first, world, tasks=["nli"], out=tmp_path, name="model")
    assert before.rows[0] != after.rows[0]


def test_a_function_is_judged_without_being_kept_or_trained(world: Path, tmp_path: Path) -> None:
    """Bags of letters: whatever they are worth, they can be measured."""

    def letters(texts: list[str]) -> np.ndarray:
        return np.array(
            [[text.lower().count(letter) + 0.1 for letter in "abcdefghijklmnopqrstuvwxyz"] for text in texts]
        )

    results = evaluate(letters, world, suite="dse", out=tmp_path, effort=HASTE, name="letters")
    assert {"intents", "responses", "nli", "out-of-scope"} <= {row.task for row in results.rows}
    assert not any("fine-tuned" in row.setting for row in results.rows)
    assert results.facts["left out"]["fine-tuned intents"] == "the model does not have what it takes"
    assert not (tmp_path / "cache").exists()


def test_a_reranker_is_judged_by_its_scores(world: Path) -> None:
    class Longest:
        def score(self, context: list[str], candidates: list[str]) -> np.ndarray:
            return np.array([float(len(candidate)) for candidate in candidates])

    results = evaluate(Longest(), world, suite="ums", name="longest")
    assert {row.setting for row in results.rows} == {"re-ranker", "re-ranker, adversarial"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"suite": "glue"}, "there is no suite 'glue': choose from dse"),
        ({"tasks": ["sorting"]}, "there is no task 'sorting': choose from"),
        ({}, "either which suite or which tasks"),
        ({"suite": "dse", "tasks": ["nli"]}, "either which suite or which tasks"),
        ({"tasks": ["nli"], "datasets": ["snli"]}, "holds no data set for nli among snli"),
    ],
)
def test_what_cannot_be_run_is_said(world: Path, encoder: Encoder, arguments: dict[str, object], message: str) -> None:
    with pytest.raises(EvaluationError, match=message):
        evaluate(encoder, world, **arguments)  # type: ignore[arg-type]


def test_a_data_set_that_is_too_small_for_a_protocol_is_left_out_and_said_so(
    tmp_path: Path, encoder: Encoder, world: Path
) -> None:
    (tmp_path / "intents").symlink_to(world / "intents")
    (tmp_path / "amazonqa_few").mkdir()
    lines = [repr({"question": f"question {number}?", "answer": f"answer {number}."}) for number in range(5)]
    (tmp_path / "amazonqa_few" / "qa_Few.json").write_text("\n".join(lines))
    results = evaluate(encoder, tmp_path, suite="dse", effort=HASTE)
    assert {row.task for row in results.rows} == {"intents", "out-of-scope"}
    assert "too few answers" in results.facts["left out"]["answers, amazonqa"]
    (tmp_path / "amazonqa_few" / "qa_Few.json").write_text("{'question'")
    with pytest.raises(EvaluationError, match=r"qa_Few\.json"):
        evaluate(encoder, tmp_path, suite="dse", effort=HASTE)


def test_a_folder_without_data_is_said_to_be_empty(encoder: Encoder, tmp_path: Path) -> None:
    with pytest.raises(EvaluationError, match="holds no data set"):
        evaluate(encoder, tmp_path, suite="dse")
    with pytest.raises(EvaluationError, match="is no folder"):
        evaluate(encoder, tmp_path / "nothing", suite="dse")


# ---- every table of every suite, against the protocols that are to fill it


@pytest.mark.parametrize("suite", PAPER_SUITES)
def test_every_cell_names_a_figure_that_some_work_of_the_suite_gives(suite: str) -> None:
    given = {(PROTOCOLS[work.protocol].task, name) for work in PAPER_SUITES[suite].steps for name in work.datasets}
    for table in PAPER_SUITES[suite].tables:
        for group in table.printed.groups:
            for column in table.printed.columns:
                cell = table.cells(group.name, column)
                keys = cell.keys if isinstance(cell, Average | Either) else (cell,)
                assert {(task, name) for task, name, _, _ in keys} <= given, (table.printed.number, group.name, column)


@pytest.mark.parametrize(
    ("suite", "work", "dataset"),
    [("dse", "prototypes", "clinc150"), ("tadse", "nearest", "snips"), ("dse", "out-of-scope", "clinc150")],
)
def test_figures_land_where_the_paper_prints_them(
    suite: str, work: str, dataset: str, found: dict[str, tuple[Results, Path]]
) -> None:
    """The sample world's figures, passed off as those of a data set of the paper's: its column is filled."""
    from turnwise.papers.paper_tables import fill

    results, _ = found[suite]
    task = PROTOCOLS[work].task
    outcomes = [
        Outcome(each.task, dataset, each.setting, each.metric, each.evidence, each.statistic, each.scale)
        for each in results.outcomes
        if each.task == task
    ]
    passed_off = Results("tiny", suite)
    passed_off.add(outcomes)
    fill(PAPER_SUITES[suite], passed_off, {}, "another model", Effort())
    by_place: dict[tuple[str, str, str], Row] = {
        (table.title.split(":")[0].split(", ")[1], group.name, column): row
        for table in passed_off.tables
        for group in table.groups
        for column, row in zip(table.columns, group.ours, strict=False)
        if row is not None
    }
    values = {outcome.key: outcome.row().value for outcome in outcomes}
    if (suite, work) == ("dse", "prototypes"):
        row = by_place["Table 2", "5-shot", "Clinc150"]
        assert row.value == values["intents", "clinc150", "5-shot prototypes", "accuracy"]
        assert (row.table, row.published) == ("Table 2", 78.73)
        average = by_place["Table 2", "5-shot", "Ave."]
        assert average.value == pytest.approx(row.value) and average.published == 67.48
        assert average.comparable is not None and "the mean of 1 of 6 data sets" in average.comparable
    elif suite == "tadse":
        row = by_place["Table 3", "", "SNIPS"]
        assert row.value == values["intents", "snips", "1-NN", "accuracy"] and row.published == 97.00
    else:
        row = by_place["Table 3", "mean", "OOS-Recall"]
        assert row.value == values["out-of-scope", "clinc150", "1-shot, threshold mean", "OOS-Recall"]
        assert row.published == 92.11 and row.comparable == "another model"
        assert by_place["Table 8", "mean-std", "Ave."].published == 74.38
        overall = by_place["Table 6", "", "OOS"]
        parts = [by_place["Table 3", group, "Ave."].value for group in ("mean", "mean-std")]
        assert overall.value == pytest.approx(sum(parts) / 2)
