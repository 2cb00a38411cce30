"""Filled tables: averages, and remarks on results that are not comparable with the paper's."""

import numpy as np
import pytest

from turnwise.evaluation.datasets.dataset import Dataset
from turnwise.evaluation.evaluation_protocols import Effort
from turnwise.evaluation.metrics import MetricRow, Outcome
from turnwise.evaluation.results import Results
from turnwise.evaluation.tables import footnotes, measured_cells
from turnwise.models.loading import Architecture, ModelUnderTest
from turnwise.papers.paper_tables import add_tables
from turnwise.papers.suites import PAPER_SUITES

BERT_BASE = ModelUnderTest("BERT", None, None, None, None, (("bert", 12, 768),))
PUBLIC_DATASETS = ("clinc150", "banking77", "snips", "hwu64")


def fill_tables(
    suite: str,
    outcomes: list[Outcome],
    datasets: dict[tuple[str, str], Dataset[object]] | None = None,
    model: ModelUnderTest | None = None,
) -> Results:
    results = Results("some model", suite)
    results.add(outcomes)
    add_tables(PAPER_SUITES[suite], results, datasets or {}, model or BERT_BASE, Effort())
    return results


def our_row(results: Results, table: str, group: str, column: str) -> MetricRow:
    filled = next(each for each in results.tables if each.title.startswith(f"{table}:"))
    filled_group = next(each for each in filled.groups if each.name == group)
    row = filled_group.measured[filled.columns.index(column)]
    assert row is not None
    return row


def prototypes(*datasets: str, runs: int = 3) -> list[Outcome]:
    random = np.random.default_rng(0)
    return [Outcome("intents", name, "1-shot prototypes", "accuracy", random.random((runs, 20))) for name in datasets]


def test_averages_over_different_datasets_are_different_results() -> None:
    """Table 2 includes Appen, Table 10 does not."""
    outcomes = prototypes(*PUBLIC_DATASETS, "appen_a", "appen_h")
    results = fill_tables("dse", outcomes)
    values = [outcome.value for outcome in outcomes]
    assert our_row(results, "DSE, Table 2", "1-shot", "Ave.").value == pytest.approx(np.mean(values))
    assert our_row(results, "DSE, Table 10", "1-shot", "Ave.").value == pytest.approx(np.mean(values[:4]))


@pytest.mark.parametrize(
    ("backbones", "remark"),
    [
        ((("bert", 12, 768),), ""),
        ((("bert", 12, 768), ("electra", 12, 768)), "another backbone (electra of 12 layers and 768 units"),
        ((None,), "another model than the paper's"),
    ],
)
def test_other_backbones_have_a_remark(backbones: tuple[Architecture | None, ...], remark: str) -> None:
    model = ModelUnderTest("ours", None, None, None, None, backbones)
    results = fill_tables("dse", prototypes("clinc150"), model=model)
    assert results.facts["remark"].startswith(remark) and bool(results.facts["remark"]) == bool(remark)
    assert (our_row(results, "DSE, Table 2", "1-shot", "Clinc150").comparable or "").startswith(remark)


def test_incomplete_averages_have_a_remark() -> None:
    results = fill_tables("dse", prototypes(*PUBLIC_DATASETS))
    assert "the mean of 4 of 6 data sets" in str(our_row(results, "DSE, Table 2", "1-shot", "Ave.").comparable)
    assert "the mean of" not in str(our_row(results, "DSE, Table 10", "1-shot", "Ave.").comparable)


def test_average_of_one_dataset_has_its_own_name() -> None:
    triplets = Outcome("nli", "snli", "entailment nearer than contradiction", "accuracy", np.ones((1, 5)))
    results = fill_tables("dse", [triplets, *prototypes("clinc150")])
    keys = [(row.task, row.dataset, row.setting, row.metric) for row in results.rows]
    assert len(keys) == len(set(keys))
    assert our_row(results, "DSE, Section 4.5", "", "Accuracy").dataset == "average"


def test_deviation_runs_and_examples_of_an_average() -> None:
    outcomes = prototypes("clinc150", "snips")
    row = our_row(fill_tables("dse", outcomes), "DSE, Table 2", "1-shot", "Ave.")
    by_run = np.mean([100 * outcome.evidence.mean(1) for outcome in outcomes], axis=0)
    assert row.std == pytest.approx(by_run.std(ddof=1))
    assert (row.runs, row.n) == (3, 40)
    both = [
        *outcomes,
        *(Outcome(*outcome.key[:2], "5-shot prototypes", "accuracy", outcome.evidence) for outcome in outcomes),
    ]
    assert our_row(fill_tables("dse", both), "DSE, Table 6", "", "IC").n == 40
    uneven = [*prototypes("clinc150", runs=2), *prototypes("snips", runs=3)]
    assert np.isnan(our_row(fill_tables("dse", uneven), "DSE, Table 2", "1-shot", "Ave.").std)


def test_cosine_results_in_reranker_tables_have_a_remark() -> None:
    cosine = [
        Outcome("reranking", "ubuntu_v1", "cosine, history", metric, np.ones((1, 5))) for metric in ("R10@1", "MRR")
    ]
    assert "by the cosine" in str(our_row(fill_tables("ums", cosine), "UMS, Table 2", "", "Ubuntu R10@1").comparable)
    scored = [Outcome("reranking", "ubuntu_v1", "re-ranker", metric, np.ones((1, 5))) for metric in ("R10@1", "MRR")]
    assert our_row(fill_tables("ums", scored), "UMS, Table 2", "", "Ubuntu R10@1").comparable is None


def test_results_on_stand_ins_have_a_remark_and_their_own_table() -> None:
    stand_in: Dataset[object] = Dataset("dstc2", "", (), lambda folder: None, "", "", differs="other acts")
    outcome = Outcome("actions", "dstc2", "10-shot fine-tuned", "Micro F1", np.ones((1, 5, 2)), "ratio")
    results = fill_tables("dse", [outcome], {("actions", "dstc2"): stand_in})
    assert [row.comparable for row in results.rows] == ["dstc2: other acts"]
    assert [table.title for table in results.tables if any(any(group.measured) for group in table.groups)] == [
        "DSE, on other data: actions"
    ]


def test_leakage_is_marked_in_cells_and_averages() -> None:
    first, *others = prototypes(*PUBLIC_DATASETS)
    results = Results("some model", "dse")
    results.add([first], "clinc150: 3 of 20 examples")
    results.add(others)
    add_tables(PAPER_SUITES["dse"], results, {}, BERT_BASE, Effort())
    table = next(each for each in results.tables if each.title.startswith("DSE, Table 10:"))
    cells = measured_cells(table, next(group for group in table.groups if group.name == "1-shot"))
    marked = {column: cell.mark for column, cell in zip(table.columns, cells, strict=True) if cell is not None}
    assert {column for column, mark in marked.items() if mark.endswith("†")} == {"Clinc150", "Ave."}
    assert ("†", "Seen in training: clinc150: 3 of 20 examples") in footnotes(table)
    assert {row.seen for row in results.rows if row.dataset in ("clinc150", "average")} == {
        "clinc150: 3 of 20 examples"
    }


def test_excluded_examples_are_a_reason_not_to_compare() -> None:
    results = Results("some model", "dse", facts={"exclude seen": True})
    results.add(prototypes("clinc150"))
    add_tables(PAPER_SUITES["dse"], results, {}, BERT_BASE, Effort())
    (row,) = (row for row in results.rows if row.dataset == "clinc150")
    assert row.comparable == "without test examples seen in training"
