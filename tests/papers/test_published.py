"""The papers' figures: typed a second time, against their own averages, across tables, and against the papers' texts."""

import os
import re
from pathlib import Path

import numpy as np
import pytest

from turnwise.evaluation.tables import PrintedTable
from turnwise.papers.published import TABLES, printed, proposed

PAPERS = os.environ.get("TURNWISE_PAPERS")

# The lines of each group, counted in the papers.
LINES = {
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

# (paper, number, group, model, column, figure), read from the papers a second time: first lines, last lines, those easy to misread.
TYPED_AGAIN = [
    ("dse", "Table 2", "1-shot", "SimCSE-sup", "Clinc150", 52.30),
    ("dse", "Table 2", "1-shot", "DSE", "Clinc150", 62.53),
    ("dse", "Table 2", "1-shot", "DSE", "Ave.", 52.70),
    ("dse", "Table 2", "5-shot", "PairSupCon", "Appen-A", 52.71),
    ("dse", "Table 2", "5-shot", "DSE", "Snips", 88.62),
    ("dse", "Table 2", "5-shot", "DSE", "Appen-H", 62.68),
    ("dse", "Table 3", "mean-std", "SimCSE-sup", "Accuracy", 44.63),
    ("dse", "Table 3", "mean-std", "DSE", "OOS-Recall", 50.72),
    ("dse", "Table 3", "mean", "SimCSE-sup", "Accuracy", 36.90),
    ("dse", "Table 3", "mean", "SimCSE-sup", "OOS-Recall", 72.12),
    ("dse", "Table 3", "mean", "SimCSE-sup", "Ave.", None),
    ("dse", "Table 3", "mean", "PairSupCon", "Accuracy", 47.29),
    ("dse", "Table 3", "mean", "DSE", "Ave.", 61.34),
    ("dse", "Table 4", "", "SimCSE-sup", "AmazonQA Top-1 Acc.", 47.03),
    ("dse", "Table 4", "", "BERT", "DSTC7-Ubuntu Top-1 Acc.", 6.75),
    ("dse", "Table 4", "", "DSE", "AmazonQA Top-10 Acc.", 81.90),
    ("dse", "Table 4", "", "DSE", "DSTC7-Ubuntu Top-3 Acc.", 23.10),
    ("dse", "Table 5", "", "SimCSE-sup", "DSTC2 10-shot Micro F1", 84.12),
    ("dse", "Table 5", "", "TOD-BERT", "GSIM 10-shot Macro F1", 38.53),
    ("dse", "Table 5", "", "DSE", "DSTC2 20-shot Micro F1", 88.01),
    ("dse", "Table 5", "", "DSE 123-1", "GSIM 20-shot Macro F1", 42.22),
    ("dse", "Table 6", "", "TOD-BERT", "IC", 41.83),
    ("dse", "Table 6", "", "DSE", "u-RS", 69.69),
    ("dse", "Table 6", "", "DSE 123-1", "DA", 65.19),
    ("dse", "Table 7", "1-shot", "SimCSE-sup", "Bank77", 35.29),
    ("dse", "Table 7", "1-shot", "DSE", "Snips", 70.67),
    ("dse", "Table 7", "5-shot", "DSE", "Appen-A", 63.71),
    ("dse", "Table 8", "mean-std", "SimCSE-sup", "OOS-Recall", 17.40),
    ("dse", "Table 8", "mean-std", "DSE", "Accuracy", 72.62),
    ("dse", "Table 8", "mean-std", "DSE", "Ave.", 74.38),
    ("dse", "Table 8", "mean", "PairSupCon", "OOS-Recall", 95.17),
    ("dse", "Table 8", "mean", "DSE", "In-Accuracy", 51.35),
    ("dse", "Table 8", "mean", "DSE", "Ave.", 67.47),
    ("dse", "Table 9", "", "SimCSE-sup", "AmazonQA 500-shot Top-1 Acc.", 59.02),
    ("dse", "Table 9", "", "TOD-BERT", "AmazonQA 1000-shot Top-3 Acc.", 62.16),
    ("dse", "Table 9", "", "DSE", "AmazonQA 1000-shot Top-10 Acc.", 87.55),
    ("dse", "Table 10", "1-shot", "BERT-large", "Clinc150", 31.71),
    ("dse", "Table 10", "1-shot", "RoBERTa-large-DSE", "Clinc150", 69.23),
    ("dse", "Table 10", "5-shot", "DistilBERT-base-DSE", "Ave.", 71.21),
    ("dse", "Table 11", "", "BERT-large", "DSTC7-Ubuntu Top-1 Acc.", 6.10),
    ("dse", "Table 11", "", "RoBERTa-base", "DSTC7-Ubuntu Top-3 Acc.", 9.80),
    ("dse", "Table 11", "", "DistilBERT-base-DSE", "DSTC7-Ubuntu Top-10 Acc.", 35.63),
    ("dse", "Section 4.5", "", "BERT", "Accuracy", 69.40),
    ("dse", "Section 4.5", "", "TOD-BERT", "Accuracy", 70.51),
    ("dse", "Section 4.5", "", "DSE", "Accuracy", 76.62),
    ("dse", "Section 4.5", "", "SimCSE-unsup", "Accuracy", 80.31),
    ("dialoguecse", "Table 2", "Self-supervised", "Avg. GloVe embeddings", "MDC Corr.", 36.64),
    ("dialoguecse", "Table 2", "Self-supervised", "BERT(adapt)-whitening", "ECD MRR", 76.84),
    ("dialoguecse", "Table 2", "Dialogue-based self-supervised", "SiameseBERT-S", "JDDC MAP", 61.92),
    ("dialoguecse", "Table 2", "Dialogue-based self-supervised", "SiameseBERT-M", "JDDC Corr.", 76.85),
    ("dialoguecse", "Table 2", "Dialogue-based self-supervised", "DialogueCSE-I2", "MDC MAP", 91.40),
    ("dialoguecse", "Table 3", "", "0.05", "JDDC Corr.", 80.05),
    ("dialoguecse", "Table 3", "", "0.2", "ECD Corr.", 84.24),
    ("dialoguecse", "Table 3", "", "0.5", "ECD MAP", 69.11),
    ("dialoguecse", "Table 4", "", "1", "JDDC MAP", 67.48),
    ("dialoguecse", "Table 4", "", "4", "ECD Corr.", 83.14),
    ("dialoguecse", "Table 4", "", "19", "ECD MAP", 69.56),
    ("tadse", "Table 3", "", "BERT", "SNIPS", 80.00),
    ("tadse", "Table 3", "", "DSE-aug", "MASS.", 73.50),
    ("tadse", "Table 3", "", "TaDSE", "HWU64", 82.77),
    ("tadse", "Table 3", "", "TaDSE w/ MLP", "Average", 83.87),
    ("tadse", "Table 4", "SNIPS", "L^pair", "top-5", 96.14),
    ("tadse", "Table 4", "ATIS", "L^pair", "top-3", 89.59),
    ("tadse", "Table 4", "ATIS", "L^u", "top-5", None),
    ("tadse", "Table 4", "MASS.", "L^u", "top-3", 77.37),
    ("tadse", "Table 4", "MASS.", "L^pair", "Orig", 77.30),
    ("tadse", "Table 4", "CLINC", "L^pair", "top-5", 72.98),
    ("tadse", "Table 5", "", "L^u (w/o aug)", "SNIPS", 91.71),
    ("tadse", "Table 5", "", "L^u + L^t' + L^pair", "MASS.", 79.83),
    ("tadse", "Table 6", "", "L^u + L^t, compressed", "SNIPS", 95.86),
    ("tadse", "Table 6", "", "L^u + L^t + L^pair, compressed", "ATIS", 90.03),
    ("tadse", "Table 6", "", "L^u + L^t' + L^pair, aligned & compressed", "SNIPS", 97.29),
    ("diaeval", "Table 2", "", "BERT", "DSTC2 Micro F1", 53.1),
    ("diaeval", "Table 2", "", "WMDC-BERT", "GSIM Micro F1", 66.1),
    ("diaeval", "Table 2", "", "WMDC-RoBERTa", "AVG. Macro F1", 10.2),
    ("diaeval", "Table 3", "", "BERT", "IC-TOD", 69.8),
    ("diaeval", "Table 3", "", "WMDC-BERT", "DECODE", 70.7),
    ("diaeval", "Table 3", "", "WMDC-RoBERTa", "AVG.", 77.8),
    ("diaeval", "Table 4", "", "BERT", "TOP@1", 8.2),
    ("diaeval", "Table 4", "", "WMDC-BERT", "TOP@5", 33.3),
    ("diaeval", "Table 4", "", "WMDC-RoBERTa", "TOP@10", 46.2),
    ("ums", "Table 2", "", "CNN", "Ubuntu R10@1", 0.549),
    ("ums", "Table 2", "", "BERT (Gu et al. 2020)", "Douban MAP", 0.591),
    ("ums", "Table 2", "", "BERT", "Douban R10@2", 0.489),
    ("ums", "Table 2", "", "UMS BERT+", "Douban P@1", 0.499),
    ("ums", "Table 2", "", "UMS BERT+", "E-commerce R10@1", 0.762),
    ("ums", "Table 2", "", "UMS ELECTRA+", "E-commerce R10@5", 0.974),
    ("ums", "Table 3", "Web", "BERT", "MAP", 0.671),
    ("ums", "Table 3", "Clean", "UMS BERT", "R10@5", 0.903),
    ("ums", "Table 4", "Baselines", "BERT", "Adversarial R10@1", 0.199),
    ("ums", "Table 4", "UMS", "UMS ELECTRA+", "Adversarial MRR", 0.692),
    ("ums", "Table 4", "UMS", "Avg", "Original R10@1", 0.862),
    ("ums", "Table 5", "", "None", "R10@1", 0.826),
    ("ums", "Table 5", "", "INS + SRCH", "MRR", 0.901),
    ("ums", "Table 5", "", "INS + DEL + SRCH", "MRR", 0.910),
]

# The average column of a table, and its parts.
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

# (paper, number, average, group, model) of the averages that the papers print and that are not their parts'.
OFF = {
    ("dse", "Table 5", "Ave.", "", "DSE-dropout"),
    ("dse", "Table 5", "Ave.", "", "DSE"),
    ("diaeval", "Table 2", "AVG. Macro F1", "", "SimCSE-BERT-sup"),
}

# (paper, number, group) whose columns, not lines, run along the text: transposed here, or two lines run together in the text.
ALONG_COLUMNS = {("dialoguecse", "Table 3", ""), ("dialoguecse", "Table 4", ""), ("tadse", "Table 4", "MASS.")}

each_table = pytest.mark.parametrize(
    "table", TABLES.values(), ids=lambda table: f"{table.paper}-{table.number}".replace(" ", "-")
)


def test_every_line_is_there_in_order() -> None:
    assert list(TABLES) == list(LINES)
    for key, table in TABLES.items():
        assert (table.paper, table.number) == key
        assert [(group.name, len(group.rows)) for group in table.groups] == list(LINES[key].items())


@pytest.mark.parametrize(("paper", "number", "group", "model", "column", "figure"), TYPED_AGAIN)
def test_figures_typed_again(
    paper: str, number: str, group: str, model: str, column: str, figure: float | None
) -> None:
    assert printed(paper, number).figure(group, model, column) == figure


def test_every_table_is_typed_again_somewhere() -> None:
    assert {(paper, number) for paper, number, *_ in TYPED_AGAIN} == set(TABLES)


@each_table
def test_tables_are_well_formed(table: PrintedTable) -> None:
    lines = [(group.name, row.model) for group in table.groups for row in group.rows]
    assert len(set(lines)) == len(lines)
    assert len(set(table.columns)) == len(table.columns)
    assert table.ours in {model for _, model in lines}
    assert len(table.groups) == 1 or all(group.name for group in table.groups)
    assert table.digits == {"diaeval": 1, "ums": 3}.get(table.paper, 2)
    least, most = (0.1, 1.0) if table.paper == "ums" else (4.0, 100.0)
    for group in table.groups:
        for row in group.rows:
            assert len(row.values) == len(table.columns), row
            for value in row.values:
                assert value is None or (least < value < most and round(value, table.digits) == value), row


def test_only_these_lines_print_nothing() -> None:
    empty = {
        (table.paper, table.number, group.name, row.model)
        for table in TABLES.values()
        for group in table.groups
        for row in group.rows
        if None in row.values
    }
    assert empty == {
        ("dse", "Table 3", "mean", "SimCSE-sup"),
        ("tadse", "Table 4", "ATIS", "L^u"),
        ("tadse", "Table 4", "ATIS", "L^pair"),
    }


def test_every_average_column_is_checked() -> None:
    columns = {
        (table.paper, table.number, column)
        for table in TABLES.values()
        for column in table.columns
        if column.lower().startswith(("ave", "avg"))
    }
    assert columns == {(paper, number, average) for paper, number, average, _ in AVERAGES}


@pytest.mark.parametrize(("paper", "number", "average", "parts"), AVERAGES)
def test_averages_are_of_their_parts(paper: str, number: str, average: str, parts: tuple[str, ...]) -> None:
    """To a unit of the last digit: half of one for the average's own rounding, half for its parts'."""
    table = printed(paper, number)
    for group in table.groups:
        for row in group.rows:
            claimed = table.figure(group.name, row.model, average)
            if claimed is None:
                continue
            figures = np.array([table.figure(group.name, row.model, part) for part in parts], float)
            close = bool(abs(figures.mean() - claimed) <= 1.001 * 10**-table.digits)
            assert close == ((paper, number, average, group.name, row.model) not in OFF), (
                group.name,
                row.model,
                figures.mean(),
                claimed,
            )


def test_average_lines_are_of_the_lines_above() -> None:
    for group in printed("ums", "Table 4").groups:
        assert [row.model for row in group.rows][-1] == "Avg"
        figures = np.array([row.values for row in group.rows], float)
        np.testing.assert_allclose(figures[:-1].mean(axis=0), figures[-1], rtol=0, atol=1.001e-3)


@pytest.mark.parametrize("model", ["TOD-BERT", "DSE"])
def test_table_6_of_dse_sums_up_the_others(model: str) -> None:
    def mean(number: str, groups: tuple[str, ...], columns: tuple[str, ...]) -> float:
        return float(
            np.mean([printed("dse", number).figure(group, model, column) for group in groups for column in columns])
        )

    top = ("Top-1 Acc.", "Top-3 Acc.", "Top-10 Acc.")
    expected = [
        mean("Table 2", ("1-shot", "5-shot"), ("Ave.",)),
        mean("Table 3", ("mean-std", "mean"), ("Ave.",)),
        mean("Table 4", ("",), tuple(f"AmazonQA {metric}" for metric in top)),
        mean("Table 4", ("",), tuple(f"DSTC7-Ubuntu {metric}" for metric in top)),
        mean("Table 5", ("",), ("Ave.",)),
    ]
    figures = [printed("dse", "Table 6").figure("", model, column) for column in ("IC", "OOS", "u-RS", "d-RS", "DA")]
    np.testing.assert_allclose(np.array(figures, float), expected, rtol=0, atol=0.0101)


def test_tables_repeat_each_other() -> None:
    """The same model on the same data in two tables of a paper has the same figure."""
    cse = "dialoguecse"
    for column in printed(cse, "Table 3").columns:
        main = proposed(cse, "Table 2", "Dialogue-based self-supervised", column)
        assert main == proposed(cse, "Table 3", "", column) == proposed(cse, "Table 4", "", column)
    ums = printed("ums", "Table 2")
    for group in printed("ums", "Table 4").groups:
        for row in group.rows[:-1]:
            assert row.values[0] == ums.figure("", row.model, "Ubuntu R10@1")
    for auxiliary, model in (("None", "ELECTRA"), ("INS + DEL + SRCH", "UMS ELECTRA")):
        for column in ("R10@1", "R10@2", "R10@5"):
            assert printed("ums", "Table 5").figure("", auxiliary, column) == ums.figure("", model, f"Ubuntu {column}")
    for data, order in (("SNIPS", "top-5"), ("ATIS", "top-3"), ("MASS.", "top-3")):
        augmented = printed("tadse", "Table 4")
        losses = printed("tadse", "Table 5")
        assert augmented.figure(data, "L^u", "Orig") == losses.figure("", "L^u (w/o aug)", data)
        assert augmented.figure(data, "L^u", order) == losses.figure("", "L^u", data)
        assert augmented.figure(data, "L^pair", order) == losses.figure("", "L^u + L^t + L^pair", data)


def test_proposed_is_the_line_of_the_method() -> None:
    assert proposed("dse", "Table 2", "1-shot", "Clinc150") == 62.53
    assert proposed("dse", "Table 10", "5-shot", "Snips") == 89.08
    assert proposed("dialoguecse", "Table 2", "Dialogue-based self-supervised", "ECD Corr.") == 83.94
    assert proposed("tadse", "Table 3", "", "ATIS") == 89.70
    assert proposed("tadse", "Table 4", "ATIS", "top-5") is None
    assert proposed("diaeval", "Table 4", "", "TOP@10") == 42.4
    assert proposed("ums", "Table 2", "", "Douban MAP") == 0.625


def test_what_is_not_there_is_an_error_that_names_what_is() -> None:
    with pytest.raises(LookupError, match=r"no 'Table 1' of 'ums'.*Table 2, Table 3, Table 4, Table 5"):
        printed("ums", "Table 1")
    with pytest.raises(LookupError, match="no 'Table 2' of 'wmdc'"):
        printed("wmdc", "Table 2")
    with pytest.raises(LookupError, match="no figure for '10-shot'"):
        proposed("dse", "Table 2", "10-shot", "Clinc150")
    with pytest.raises(LookupError, match="no figure for 'Self-supervised', 'DialogueCSE-I2'"):
        proposed("dialoguecse", "Table 2", "Self-supervised", "MDC Corr.")


@pytest.mark.skipif(PAPERS is None, reason="TURNWISE_PAPERS names no folder with the papers' texts")
@each_table
def test_figures_stand_in_succession_in_the_paper(table: PrintedTable) -> None:
    """Every figure occurs in the paper's text, with the rest of its line (or column) right after it, digit by digit."""
    assert PAPERS is not None
    text = (Path(PAPERS) / {"diaeval": "wmdc-diaeval.txt"}.get(table.paper, f"{table.paper}.txt")).read_text(
        encoding="utf-8"
    )
    numbers = " ".join(["", *re.findall(r"\d+\.\d+", text), ""])
    for group in table.groups:
        along = [row.values for row in group.rows]
        if (table.paper, table.number, group.name) in ALONG_COLUMNS:
            along = list(zip(*along, strict=True))
        for values in along:
            succession = " ".join(f"{value:.{table.digits}f}" for value in values if value is not None)
            assert f" {succession} " in numbers, (group.name, succession)
