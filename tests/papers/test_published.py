"""Published tables: completeness, averages, agreement between tables, and agreement with the papers' texts."""

import os
import re
from pathlib import Path

import numpy as np
import pytest

from turnwise.evaluation.tables import PublishedRow
from turnwise.papers.suites import PAPER_SUITES, PublishedTable

PAPERS = os.environ.get("TURNWISE_PAPERS")
TABLES = {(suite.name, table.number): table for suite in PAPER_SUITES.values() for table in suite.tables.values()}

# The number of rows in each group, counted in the papers.
ROWS = {
    ("dse", "Table 2"): {"1-shot": 9, "5-shot": 9},
    ("dse", "Table 3"): {"mean-std": 9, "mean": 9},
    ("dse", "Table 4"): {"": 9},
    ("dse", "Table 5"): {"": 11},
    ("dse", "Table 6"): {"": 5},
    ("dse", "Table 7"): {"1-shot": 8, "5-shot": 8},
    ("dse", "Table 8"): {"mean-std": 9, "mean": 9},
    ("dse", "Table 9"): {"": 7},
    ("dse", "Table 10"): {"1-shot": 8, "5-shot": 8},
    ("dse", "Table 11"): {"": 8},
    ("dse", "Section 4.5"): {"": 4},
    ("dialoguecse", "Table 2"): {"Self-supervised": 9, "Dialogue-based self-supervised": 4},
    ("dialoguecse", "Table 3"): {"": 4},
    ("dialoguecse", "Table 4"): {"": 4},
    ("tadse", "Table 3"): {"": 9},
    ("tadse", "Table 4"): {"SNIPS": 2, "ATIS": 2, "MASS.": 2, "CLINC": 2},
    ("tadse", "Table 5"): {"": 5},
    ("tadse", "Table 6"): {"": 6},
    ("diaeval", "Table 2"): {"": 11},
    ("diaeval", "Table 3"): {"": 11},
    ("diaeval", "Table 4"): {"": 11},
    ("ums", "Table 2"): {"": 23},
    ("ums", "Table 3"): {"Web": 2, "Clean": 2},
    ("ums", "Table 4"): {"Baselines": 5, "UMS": 5},
    ("ums", "Table 5"): {"": 8},
}

# The average columns of tables, and the columns that they average.
AVERAGES = [
    ("dse", "Table 2", "Ave.", ("Clinc150", "Bank77", "Snips", "Hwu64", "Appen-A", "Appen-H")),
    ("dse", "Table 3", "Ave.", ("Accuracy", "In-Accuracy", "OOS-Accuracy", "OOS-Recall")),
    (
        "dse",
        "Table 5",
        "Ave.",
        tuple(
            f"{data} {shots}-shot {metric} F1"
            for data in ("DSTC2", "GSIM")
            for shots in (10, 20)
            for metric in ("Micro", "Macro")
        ),
    ),
    ("dse", "Table 7", "Ave.", ("Clinc150", "Bank77", "Snips", "Hwu64", "Appen-A", "Appen-H")),
    ("dse", "Table 8", "Ave.", ("Accuracy", "In-Accuracy", "OOS-Accuracy", "OOS-Recall")),
    ("dse", "Table 10", "Ave.", ("Clinc150", "Bank77", "Snips", "Hwu64")),
    ("tadse", "Table 3", "Average", ("SNIPS", "ATIS", "MASS.", "HWU64", "Clinc150")),
    ("diaeval", "Table 2", "AVG. Micro F1", ("DSTC2 Micro F1", "GSIM Micro F1")),
    ("diaeval", "Table 2", "AVG. Macro F1", ("DSTC2 Macro F1", "GSIM Macro F1")),
    ("diaeval", "Table 3", "AVG.", ("IC-TOD", "DECODE")),
]

# (paper, number, average, group, model) of averages that the papers print wrongly.
WRONG_AVERAGES = {
    ("dse", "Table 5", "Ave.", "", "DSE-dropout"),
    ("dse", "Table 5", "Ave.", "", "DSE"),
    ("diaeval", "Table 2", "AVG. Macro F1", "", "SimCSE-BERT-sup"),
}

# (paper, number, group) whose values follow each other by column in the text.
BY_COLUMN = {("dialoguecse", "Table 3", ""), ("dialoguecse", "Table 4", ""), ("tadse", "Table 4", "MASS.")}

each_table = pytest.mark.parametrize(("paper", "number"), TABLES)


def rows_of(table: PublishedTable) -> list[tuple[str, PublishedRow]]:
    return [(group, row) for group, rows in table.groups.items() for row in rows]


def published(paper: str, number: str, group: str, model: str, column: str) -> float | None:
    return TABLES[paper, number].value(group, model, column)


def proposed(paper: str, number: str, group: str, column: str) -> float | None:
    return TABLES[paper, number].value(group, TABLES[paper, number].proposed, column)


def test_all_tables_and_rows_are_present_in_order() -> None:
    assert list(TABLES) == list(ROWS)
    for key, table in TABLES.items():
        assert [(group, len(rows)) for group, rows in table.groups.items()] == list(ROWS[key].items())
    assert (
        sum(value is not None for table in TABLES.values() for _, row in rows_of(table) for value in row.values) == 1536
    )


@each_table
def test_tables_are_well_formed(paper: str, number: str) -> None:
    table = TABLES[paper, number]
    assert table.proposed in {row.model for _, row in rows_of(table)}
    assert len(table.groups) == 1 or all(table.groups)
    assert table.digits == {"diaeval": 1, "ums": 3}.get(paper, 2)
    lowest, highest = (0.1, 1.0) if paper == "ums" else (4.0, 100.0)
    for _, row in rows_of(table):
        assert len(row.values) == len(table.columns), row
        for value in row.values:
            assert value is None or (lowest < value < highest and round(value, table.digits) == value), row


def test_rows_with_missing_values() -> None:
    incomplete = {
        (*key, group, row.model) for key, table in TABLES.items() for group, row in rows_of(table) if None in row.values
    }
    assert incomplete == {
        ("dse", "Table 3", "mean", "SimCSE-sup"),
        ("tadse", "Table 4", "ATIS", "L^u"),
        ("tadse", "Table 4", "ATIS", "L^pair"),
    }


def test_every_average_column_is_checked() -> None:
    columns = {
        (*key, column)
        for key, table in TABLES.items()
        for column in table.columns
        if column.lower().startswith(("ave", "avg"))
    }
    assert columns == {(paper, number, average) for paper, number, average, _ in AVERAGES}


@pytest.mark.parametrize(("paper", "number", "average", "parts"), AVERAGES)
def test_averages_match_their_columns(paper: str, number: str, average: str, parts: tuple[str, ...]) -> None:
    """To one unit of the last digit: half a unit for rounding the average, half for rounding its parts."""
    table = TABLES[paper, number]
    for group, row in rows_of(table):
        claimed = table.value(group, row.model, average)
        if claimed is None:
            continue
        mean = np.mean(np.array([table.value(group, row.model, part) for part in parts], float))
        close = bool(abs(mean - claimed) <= 1.001 * 10**-table.digits)
        wrong = (paper, number, average, group, row.model) in WRONG_AVERAGES
        assert close != wrong, (group, row.model, mean, claimed)


def test_average_rows_match_the_rows_above() -> None:
    for rows in TABLES["ums", "Table 4"].groups.values():
        assert rows[-1].model == "Avg"
        values = np.array([row.values for row in rows], float)
        np.testing.assert_allclose(values[:-1].mean(axis=0), values[-1], rtol=0, atol=1.001e-3)


@pytest.mark.parametrize("model", ["TOD-BERT", "DSE"])
def test_table_6_of_dse_averages_the_other_tables(model: str) -> None:
    def mean(number: str, groups: tuple[str, ...], columns: tuple[str, ...]) -> float:
        return float(
            np.mean([published("dse", number, group, model, column) for group in groups for column in columns])
        )

    top = ("Top-1 Acc.", "Top-3 Acc.", "Top-10 Acc.")
    expected = [
        mean("Table 2", ("1-shot", "5-shot"), ("Ave.",)),
        mean("Table 3", ("mean-std", "mean"), ("Ave.",)),
        mean("Table 4", ("",), tuple(f"AmazonQA {metric}" for metric in top)),
        mean("Table 4", ("",), tuple(f"DSTC7-Ubuntu {metric}" for metric in top)),
        mean("Table 5", ("",), ("Ave.",)),
    ]
    values = [published("dse", "Table 6", "", model, column) for column in ("IC", "OOS", "u-RS", "d-RS", "DA")]
    np.testing.assert_allclose(np.array(values, float), expected, rtol=0, atol=0.0101)


def test_tables_agree_with_each_other() -> None:
    """The same model on the same data has the same value in two tables of a paper."""
    cse = "dialoguecse"
    for column in TABLES[cse, "Table 3"].columns:
        main = proposed(cse, "Table 2", "Dialogue-based self-supervised", column)
        assert main == proposed(cse, "Table 3", "", column) == proposed(cse, "Table 4", "", column)
    ums = TABLES["ums", "Table 2"]
    for rows in TABLES["ums", "Table 4"].groups.values():
        for row in rows[:-1]:
            assert row.values[0] == ums.value("", row.model, "Ubuntu R10@1")
    for auxiliary, model in (("None", "ELECTRA"), ("INS + DEL + SRCH", "UMS ELECTRA")):
        for column in ("R10@1", "R10@2", "R10@5"):
            assert published("ums", "Table 5", "", auxiliary, column) == ums.value("", model, f"Ubuntu {column}")
    for data, order in (("SNIPS", "top-5"), ("ATIS", "top-3"), ("MASS.", "top-3")):
        augmented, losses = TABLES["tadse", "Table 4"], TABLES["tadse", "Table 5"]
        assert augmented.value(data, "L^u", "Orig") == losses.value("", "L^u (w/o aug)", data)
        assert augmented.value(data, "L^u", order) == losses.value("", "L^u", data)
        assert augmented.value(data, "L^pair", order) == losses.value("", "L^u + L^t + L^pair", data)


@pytest.mark.skipif(PAPERS is None, reason="TURNWISE_PAPERS is not set to the folder of the papers' texts")
@each_table
def test_rows_occur_in_the_text_of_the_paper(paper: str, number: str) -> None:
    """The values of every row (or column) follow each other in the paper's text, digit by digit."""
    assert PAPERS is not None
    table = TABLES[paper, number]
    text = (Path(PAPERS) / f"{'wmdc-diaeval' if paper == 'diaeval' else paper}.txt").read_text(encoding="utf-8")
    numbers = " ".join(["", *re.findall(r"\d+\.\d+", text), ""])
    for group, rows in table.groups.items():
        sequences = [row.values for row in rows]
        if (paper, number, group) in BY_COLUMN:
            sequences = list(zip(*sequences, strict=True))
        for values in sequences:
            sequence = " ".join(f"{value:.{table.digits}f}" for value in values if value is not None)
            assert f" {sequence} " in numbers, (group, sequence)
