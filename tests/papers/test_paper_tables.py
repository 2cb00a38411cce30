"""Filled tables: averages, and remarks on results that are not comparable with the paper's."""

import re
from pathlib import Path

import numpy as np
import pytest
import yaml

from turnwise.evaluation.datasets.dataset import Dataset
from turnwise.evaluation.evaluation_protocols import Effort
from turnwise.evaluation.metrics import MetricRow, Outcome
from turnwise.evaluation.reporting.report import render_report, render_table
from turnwise.evaluation.results import Results
from turnwise.evaluation.tables import footnotes, format_difference, measured_cells
from turnwise.models.loading import Architecture, ModelUnderTest
from turnwise.papers import suites
from turnwise.papers.suites import PAPER_SUITES, add_tables

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


def constant(value: float, dataset: str, setting: str, metric: str = "accuracy", task: str = "intents") -> Outcome:
    return Outcome(task, dataset, setting, metric, np.full((1, 4), value / 100))


def published_values(paper: str, table: str, group: str, model: str) -> dict[str, float]:
    """Return a row of a published table by column, read from the file independently of the package's own reader."""
    tables = yaml.safe_load((Path(suites.__file__).parent / "published" / f"{paper}.yaml").read_text())["tables"]
    tree = next(each for each in tables if each["number"] == table)
    return dict(zip(tree["columns"], (tree["groups"][group] if group else tree["rows"])[model], strict=True))


def shown_differences(results: Results, title: str, column: str) -> list[str]:
    """Return the differences in a column of the printed table, from top to bottom."""
    filled = next(each for each in results.tables if each.title.startswith(f"{title}:"))
    place = 1 + filled.columns.index(column)
    lines = [line.strip("| ").split(" | ") for line in render_table(filled).splitlines()]
    return [cells[place] for cells in lines if cells[0].startswith("difference to ")]


@pytest.mark.parametrize(
    ("table", "kind", "measured", "differences"),
    [
        (
            "Table 2",
            "prototypes",
            {"1-shot": (65.04, 53.57, 67.81, 51.81), "5-shot": (81.50, 71.53, 81.14, 69.81)},
            ["+2.18", "+3.53"],
        ),
        (
            "Table 7",
            "fine-tuned",
            {"1-shot": (44.68, 35.37, 50.29, 36.06), "5-shot": (84.49, 70.45, 85.89, 74.61)},
            ["−8.99", "−1.50"],
        ),
    ],
)
def test_means_are_compared_over_the_datasets_that_both_have(
    table: str, kind: str, measured: dict[str, tuple[float, ...]], differences: list[str]
) -> None:
    outcomes = [
        constant(value, name, f"{group} {kind}")
        for group, values in measured.items()
        for name, value in zip(PUBLIC_DATASETS, values, strict=True)
    ]
    results = fill_tables("dse", outcomes)
    assert shown_differences(results, f"DSE, {table}", "Ave.") == differences
    for group in measured:
        row = our_row(results, f"DSE, {table}", group, "Ave.")
        published = published_values("dse", table, group, "DSE")
        common = [published[column] for column in ("Clinc150", "Bank77", "Snips", "Hwu64")]
        assert row.published == pytest.approx(sum(common) / 4)
        assert row.table == f"{table}, mean of 4 of 6 data sets (clinc150, banking77, snips, hwu64)"
        assert row.comparable is None
    filled = next(each for each in results.tables if each.title.startswith(f"DSE, {table}:"))
    coverage = "mean of 4 of 6 data sets (clinc150, banking77, snips, hwu64)"
    assert f"Ave.: {coverage}; the difference is to DSE's mean over the same ones" in filled.notes
    text = render_table(filled)
    assert "| DSE on our data sets |" in text and f"| {published['Ave.']:.2f} |" in text  # its own mean stays


def test_means_over_several_tables_are_compared_over_the_same_results() -> None:
    """The columns of DSE's Table 6 are means over its Tables 2 and 5."""
    intents = [
        constant(50, name, setting)
        for name in PUBLIC_DATASETS
        for setting in ("1-shot prototypes", "5-shot prototypes")
    ]
    settings = [(f"{shots}-shot fine-tuned", metric) for shots in (10, 20) for metric in ("Micro F1", "Macro F1")]
    actions = [constant(50, "gsim", *setting, task="actions") for setting in settings]
    results = fill_tables("dse", [*intents, *actions])
    shots = [published_values("dse", "Table 2", group, "DSE") for group in ("1-shot", "5-shot")]
    common = [values[column] for values in shots for column in ("Clinc150", "Bank77", "Snips", "Hwu64")]
    assert our_row(results, "DSE, Table 6", "", "IC").published == pytest.approx(sum(common) / 8)
    table_5 = published_values("dse", "Table 5", "", "DSE")
    common = [value for column, value in table_5.items() if column.startswith("GSIM")]
    assert our_row(results, "DSE, Table 5", "", "Ave.").published == pytest.approx(sum(common) / 4)
    mean = format_difference(50 - sum(common) / 4, 2)
    assert (
        shown_differences(results, "DSE, Table 5", "Ave.") == shown_differences(results, "DSE, Table 6", "DA") == [mean]
    )


def test_complete_means_are_compared_with_the_printed_ones() -> None:
    """DSE's Table 5 prints 61.03 as the mean of values whose mean is 61.00."""
    results = fill_tables("dse", [*prototypes(*PUBLIC_DATASETS, "appen_a", "appen_h")])
    row = our_row(results, "DSE, Table 2", "1-shot", "Ave.")
    assert (row.table, row.published) == ("Table 2", 52.70)
    assert not any(group.common_means for table in results.tables for group in table.groups if group.name == "1-shot")


def test_means_without_published_values_have_no_difference() -> None:
    """Section 4.5 of DSE prints one value for SNLI and MNLI together."""
    setting = "entailment nearer than contradiction"
    results = fill_tables("dse", [constant(90, "snli", setting, task="nli")])
    row = our_row(results, "DSE, Section 4.5", "", "Accuracy")
    assert row.published is None and row.table == "Section 4.5, mean of 1 of 2 data sets (snli)"
    assert shown_differences(results, "DSE, Section 4.5", "Accuracy") == []
    filled = next(each for each in results.tables if "Section 4.5" in each.title)
    assert any(
        note.endswith("no difference, as the paper does not print DSE's results on these") for note in filled.notes
    )
    both = fill_tables("dse", [constant(90, name, setting, task="nli") for name in ("snli", "mnli")])
    assert shown_differences(both, "DSE, Section 4.5", "Accuracy") == ["+13.38"]


def test_tables_of_other_backbones_have_no_published_mean() -> None:
    results = fill_tables("dse", prototypes("clinc150", "snips"))
    row = our_row(results, "DSE, Table 10", "1-shot", "Ave.")
    assert row.published is None and row.table == "Table 10, mean of 2 of 4 data sets (clinc150, snips)"


def test_remarks_of_datasets_outside_a_mean_are_left_out() -> None:
    stand_in: Dataset[object] = Dataset("dstc2", "", (), lambda folder: None, "", "", differs="other acts")
    outcomes = [constant(60, name, "frozen encoder, MLP", "Micro F1", "actions") for name in ("gsim", "dstc2")]
    results = fill_tables("diaeval", outcomes, {("actions", "dstc2"): stand_in})
    assert our_row(results, "DiaEval, Table 2", "", "AVG. Micro F1").comparable is None


def test_pages_show_means_over_the_same_datasets() -> None:
    results = fill_tables("dse", prototypes(*PUBLIC_DATASETS))
    row = re.search(r"DSE on our data sets</th>(.*?)</tr>", render_report(results))
    assert row is not None and re.findall(r">([^<]*)</td>", row[1]) == ["", "", "", "", "", "", "57.38"]


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
