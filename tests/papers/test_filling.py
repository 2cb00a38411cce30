"""Means in the papers' tables: of what they are, how they are called, and what is said of figures that are not the papers'."""

import numpy as np
import pytest

from turnwise.evaluation.datasets.dataset import Dataset
from turnwise.evaluation.evaluation_protocols import Effort
from turnwise.evaluation.outcomes import Outcome, Row
from turnwise.evaluation.results import Results
from turnwise.papers.paper_tables import fill
from turnwise.papers.suites import PAPER_SUITES

PUBLIC = ("clinc150", "banking77", "snips", "hwu64")


def filled(
    suite: str, outcomes: list[Outcome], datasets: dict[tuple[str, str], Dataset[object]] | None = None
) -> Results:
    results = Results("some model", suite)
    results.add(outcomes)
    fill(PAPER_SUITES[suite], results, datasets or {}, "", Effort())
    return results


def ours(results: Results, table: str, group: str, column: str) -> Row:
    """Our figure of a table."""
    found = next(each for each in results.tables if each.title.startswith(f"{table}:"))
    lines = next(each for each in found.groups if each.name == group)
    row = lines.ours[found.columns.index(column)]
    assert row is not None
    return row


def prototypes(*datasets: str, runs: int = 3) -> list[Outcome]:
    random = np.random.default_rng(0)
    return [Outcome("intents", name, "1-shot prototypes", "accuracy", random.random((runs, 20))) for name in datasets]


def test_means_of_different_data_sets_are_different_figures() -> None:
    """Table 2 has Appen, Table 10 has not."""
    outcomes = prototypes(*PUBLIC, "appen_a", "appen_h")
    results = filled("dse", outcomes)
    values = [outcome.value for outcome in outcomes]
    assert ours(results, "DSE, Table 2", "1-shot", "Ave.").value == pytest.approx(np.mean(values))
    assert ours(results, "DSE, Table 10", "1-shot", "Ave.").value == pytest.approx(np.mean(values[:4]))


def test_only_a_mean_that_lacks_something_says_so() -> None:
    results = filled("dse", prototypes(*PUBLIC))
    assert "the mean of 4 of 6 data sets" in str(ours(results, "DSE, Table 2", "1-shot", "Ave.").comparable)
    assert "the mean of" not in str(ours(results, "DSE, Table 10", "1-shot", "Ave.").comparable)


def test_a_mean_of_one_is_not_taken_for_its_only_member() -> None:
    triplets = Outcome("nli", "snli", "entailment nearer than contradiction", "accuracy", np.ones((1, 5)))
    results = filled("dse", [triplets, *prototypes("clinc150")])
    keys = [(row.task, row.dataset, row.setting, row.metric) for row in results.rows]
    assert len(keys) == len(set(keys))
    assert ours(results, "DSE, Section 4.5", "", "Accuracy").dataset == "average"


def test_a_mean_varies_over_runs_and_counts_each_test_set_once() -> None:
    outcomes = prototypes("clinc150", "snips")
    row = ours(filled("dse", outcomes), "DSE, Table 2", "1-shot", "Ave.")
    by_run = np.mean([100 * outcome.evidence.mean(1) for outcome in outcomes], axis=0)
    assert row.std == pytest.approx(by_run.std(ddof=1))
    assert (row.runs, row.n) == (3, 40)
    both = [
        *outcomes,
        *(Outcome(*outcome.key[:2], "5-shot prototypes", "accuracy", outcome.evidence) for outcome in outcomes),
    ]
    assert ours(filled("dse", both), "DSE, Table 6", "", "IC").n == 40
    uneven = [*prototypes("clinc150", runs=2), *prototypes("snips", runs=3)]
    assert np.isnan(ours(filled("dse", uneven), "DSE, Table 2", "1-shot", "Ave.").std)


def test_cosines_among_re_rankers_are_said_to_be_cosines() -> None:
    cosine = [
        Outcome("reranking", "ubuntu_v1", "cosine, history", metric, np.ones((1, 5))) for metric in ("R10@1", "MRR")
    ]
    assert "by the cosine" in str(ours(filled("ums", cosine), "UMS, Table 2", "", "Ubuntu R10@1").comparable)
    scored = [Outcome("reranking", "ubuntu_v1", "re-ranker", metric, np.ones((1, 5))) for metric in ("R10@1", "MRR")]
    assert ours(filled("ums", scored), "UMS, Table 2", "", "Ubuntu R10@1").comparable is None


def test_figures_on_stand_ins_say_why_they_are_not_the_papers() -> None:
    stand_in: Dataset[object] = Dataset("dstc2", "", (), lambda folder: None, "", "", differs="other acts")
    outcome = Outcome("actions", "dstc2", "10-shot fine-tuned", "Micro F1", np.ones((1, 5, 2)), "ratio")
    results = filled("dse", [outcome], {("actions", "dstc2"): stand_in})
    assert [row.comparable for row in results.rows] == ["dstc2: other acts"]
    assert [table.title for table in results.tables if any(any(group.ours) for group in table.groups)] == [
        "DSE, on other data: actions"
    ]
