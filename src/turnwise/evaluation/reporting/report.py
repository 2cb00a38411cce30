"""Results as a folder: data, Markdown tables, plots, and one self-contained HTML page."""

import math
from collections.abc import Iterable
from pathlib import Path

from turnwise.core.errors import MissingPackageError
from turnwise.core.html import render_page
from turnwise.evaluation import tables as formatting
from turnwise.evaluation.reporting.dot_plot import describe_rows, dot_plot, dot_rows
from turnwise.evaluation.reporting.markdown import render_markdown
from turnwise.evaluation.results import Results, describe_seen, evaluation_environment, write_results
from turnwise.evaluation.tables import MeasuredCell, ResultTable
from turnwise.models.model_card import short_name

#: Tables with more columns are printed in landscape format.
_MAX_PORTRAIT_COLUMNS = 8


def write_report(results: Results, folder: Path) -> None:
    """Write `results.json`, `outcomes.parquet`, `tables.md`, `plots/*.svg` and `report.html`.

    Equal results give equal bytes.
    """
    write_results(results, folder)
    (folder / "tables.md").write_text(render_markdown(results), encoding="utf-8")
    for name, plot in results.plots.items():
        path = folder / "plots" / f"{name.removesuffix('.svg')}.svg"
        path.parent.mkdir(exist_ok=True)
        path.write_text(plot, encoding="utf-8")
    (folder / "report.html").write_text(render_report(results), encoding="utf-8")


def render_report(results: Results) -> str:
    """Return the HTML page: summary, tables, plots, all metrics, data sets and the environment."""
    name = short_name(results.model)
    tables = [(table, [formatting.measured_cells(table, group) for group in table.groups]) for table in results.tables]
    sections = {
        "Plots": results.plots,
        "All metrics": results.rows,
        "Data sets": results.data,
        "Missing data sets": results.missing,
        "Environment": True,
    }
    return render_page(
        "evaluation/reporting/report.html",
        scripts=["core/html/sortable.js"],
        results=results,
        name=name,
        summary=_summarise([cell for _, groups in tables for cells in groups for cell in cells if cell]),
        leakage=_summarise_leakage(results),
        tables=tables,
        sections=[title for title, content in sections.items() if content],
        environment={"suite": results.suite, **results.facts, **evaluation_environment()},
        max_portrait_columns=_MAX_PORTRAIT_COLUMNS,
        formatting=formatting,
        dot_plot=_dot_plot,
        compare_cell=_compare_cell,
        is_finite=math.isfinite,
        seen_note=formatting.seen_note(results.rows),
        describe_seen=describe_seen,
        is_link=lambda home: home.startswith(("https://", "http://")) and not any(map(str.isspace, home)),
    )


def _summarise(cells: Iterable[MeasuredCell]) -> str:
    """Return a sentence on how the metrics compare with those of the proposed methods."""
    compared = [cell for cell in cells if cell.verdict]
    if not compared:
        return "Every metric has a 95% confidence interval, for which runs and test examples are resampled together."
    verdicts = [cell.verdict for cell in compared]
    better, worse, within = (verdicts.count(verdict) for verdict in ("better", "worse", "within"))
    text = (
        f"{len(compared)} metrics can be compared with the method that a paper proposes: {better} are better,"
        f" {worse} worse, and for {within} the published value lies within our 95% interval."
    )
    unlike = sum(bool(cell.row.comparable) for cell in compared)
    if not unlike:
        return text
    count = "None of them is" if unlike == len(compared) else f"{unlike} of them are not"
    return f"{text} {count} like for like; the notes below each table say why."


def _summarise_leakage(results: Results) -> str:
    """Return a sentence on test examples that the model has seen in training; empty if there is nothing to say."""
    if results.facts.get("exclude seen"):
        return "Test examples that the model has seen in training are excluded."
    seen = sum(bool(row.seen) for row in results.rows)
    marked = f"{seen} of {len(results.rows)} metrics are on data of which the model has seen examples in training"
    return f"{marked} ({formatting.SEEN_MARK})." if seen else ""


def _dot_plot(table: ResultTable, model: str) -> tuple[str, str]:
    """Return the table as an SVG plot and its description, or an empty plot and the reason why it cannot be drawn."""
    rows = dot_rows(table)
    if not rows:
        return "", ""
    try:
        return dot_plot(rows, table, model), describe_rows(rows, table, model)
    except MissingPackageError as error:
        return "", str(error)


def _compare_cell(cell: MeasuredCell, table: ResultTable) -> tuple[str, str]:
    """Return an arrow with the difference to the published value, and its explanation."""
    assert cell.published is not None
    higher = cell.row.value >= cell.published
    arrow = ("△" if higher else "▽") if cell.verdict == "within" else ("▲" if higher else "▼")
    verdict = {"better": "better than", "worse": "worse than", "within": "our interval contains the value of"}[
        cell.verdict
    ]
    return (
        f"{arrow} {cell.difference}",
        f"{verdict} {table.proposed}: {formatting.format_number(cell.published, table.digits)}",
    )
