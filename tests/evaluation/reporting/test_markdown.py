"""Markdown tables contain every published value and ours, in the paper's order, with any names escaped."""

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.helpers.example_results import results, row, table, wide
from turnwise.evaluation.metrics import Outcome, lower_is_better
from turnwise.evaluation.reporting.report import escape_markdown, render_markdown, render_table
from turnwise.evaluation.results import Results
from turnwise.evaluation.tables import decimals_for, format_difference, format_number, measured_cells, sample_sizes
from turnwise.models.backbone.source import short_name


def lines_of(text: str) -> list[list[str]]:
    """The cells of all lines of a table; bars within them have a backslash before."""
    return [line[2:-2].split(" | ") for line in text.splitlines() if line.startswith("| ")]


def test_a_table_has_the_paper_s_lines_and_then_ours() -> None:
    cells = lines_of(render_table(table(), "mine"))
    assert [line[0] for line in cells] == [
        *("model", "*1-shot*", "BERT", "DSE (proposed)", "**mine**", "95% interval", "difference to DSE"),
        *(
            "*5-shot*",
            "DSE (proposed)",
            "**mine**",
            "95% interval",
            "difference to DSE",
            "*large models*",
            "BERT-large",
        ),
    ]
    assert cells[0][1:] == list(table().columns)
    assert cells[2][1:] == ["36.98", "–", "62.51", "2.00"]
    assert cells[4][1:] == ["**65.00**", "**41.00**", "**79.60**", "–"]
    assert cells[5][1:] == ["64.00 to 66.00", "40.00 to 42.00", "78.00 to 81.00", ""]
    assert cells[6][1:] == ["+2.47", "−2.12", "+0.03", ""]
    assert cells[9][1:] == ["**70.00**<sup>a</sup>", "**undefined**", "**12.00**", "**1.20**"]
    assert cells[11][1:] == ["−8.73", "", "", "−0.30"]


def test_notes_stand_below_and_once() -> None:
    text = render_table(table())
    assert text.count("other texts") == 1
    assert "- <sup>a</sup> Not like for like: other texts; fewer of them\n" in text
    assert "- Delta is not the paper's\n" in text
    assert "- Runs × test examples: 10 × 4,500\n" in text


def test_verdicts_know_the_interval_and_the_metric() -> None:
    first, second, third = (measured_cells(table(), group) for group in table().groups)
    assert [cell and cell.verdict for cell in first] == ["better", "worse", "within", None]
    assert [cell and cell.verdict for cell in second] == ["worse", "", "", "better"]
    assert third == []


def test_every_line_has_as_many_cells_as_there_are_columns() -> None:
    for each_table in (table(), wide()):
        assert {len(line) for line in lines_of(render_table(each_table))} == {len(each_table.columns) + 1}
    for block in render_markdown(results()).split("\n\n"):
        assert len({len(line) for line in lines_of(block)}) <= 1


def test_all_parts_are_there() -> None:
    text = render_markdown(results())
    headings = [line for line in text.splitlines() if line.startswith("#")]
    assert [heading.split(":")[0] for heading in headings] == [
        *(
            f"# {results().model}",
            "## DSE, Table 2",
            "## Wide",
            "## Other metrics",
            "## Data sets",
            "## Missing data sets",
            "## Environment",
        )
    ]
    others = text.split("## Other metrics")[1].split("##")[0]
    assert others.count("| responses |") == 30
    assert "| intents |" not in others
    assert f"`{'ab' * 32}`" in text
    assert "https://example.org/epsilon" in text
    assert "- seeds: \\[1, 2\\]" in text
    assert "- turnwise: " in text
    assert "<script>" not in text


def test_without_tables_there_is_a_list_of_metrics() -> None:
    measured = Results("model", "intents")
    measured.add(
        [Outcome("intents", "toy", "1-shot prototypes", "accuracy", np.array([[1.0, 0, 1, 1], [1.0, 1, 1, 0]]))]
    )
    lines = render_markdown(measured).splitlines()
    assert lines[0] == "# model"
    assert lines[2] == "| task | data set | setting | metric | value | 95% interval | runs |"
    assert re.fullmatch(
        r"\| intents \| toy \| 1-shot prototypes \| accuracy \| 75\.00 \| \d+\.00 to \d+\.00 \| 2 \|", lines[4]
    )


@given(st.text("ab |\\`*_<>[]~#\n\té🍕\u2028"))
def test_escaped_text_stays_in_its_cell(text: str) -> None:
    assert len(lines_of(f"| {escape_markdown(text)} | x |")[0]) == 2
    assert len(escape_markdown(text).splitlines()) <= 1
    assert re.sub(r"\\(.)", r"\1", escape_markdown(text)) == " ".join(text.split())


@pytest.mark.parametrize(
    ("value", "digits", "plain", "difference"),
    [
        (1.005, 2, "1.00", "+1.00"),
        (-0.001, 2, "0.00", "±0.00"),
        (-3.14159, 3, "−3.142", "−3.142"),
        (12.0, 0, "12", "+12"),
        (float("nan"), 2, "undefined", "undefined"),
    ],
)
def test_numbers(value: float, digits: int, plain: str, difference: str) -> None:
    assert format_number(value, digits) == plain
    assert format_difference(value, digits) == difference


def test_small_things() -> None:
    assert format_number(None, 2) == "–"
    assert (decimals_for(9.9, None), decimals_for(-10.0, 1.0)) == (3, 2)
    assert (short_name("runs/dse/"), short_name("BAAI/bge"), short_name("minilm"), short_name("")) == (
        "dse",
        "bge",
        "minilm",
        "ours",
    )
    assert all(map(lower_is_better, ("uniformity", "alignment", "FPR95", "adversary first")))
    assert not any(map(lower_is_better, ("accuracy", "MRR", "AUROC", "R10@1")))
    assert sample_sizes(table()) == "10 × 4,500"
    assert row("Alpha", 1, 0, 2).n == 4_500
