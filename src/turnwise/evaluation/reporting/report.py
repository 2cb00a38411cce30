"""Results as a folder: data, Markdown tables, plots, and one self-contained HTML page."""

import math
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from turnwise.core.html import format_value, render_page
from turnwise.evaluation import tables as formatting
from turnwise.evaluation.metrics import MetricRow
from turnwise.evaluation.results import Results, describe_seen, evaluation_environment, write_results
from turnwise.evaluation.tables import MeasuredCell, ResultTable
from turnwise.models.backbone.source import short_name


def write_report(results: Results, folder: Path) -> None:
    """Write `results.json`, `outcomes.parquet`, `tables.md`, `plots/*.svg`, `report.html`: equal for equal results."""
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
        max_portrait_columns=8,  # wider tables are printed in landscape format
        formatting=formatting,
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
    if trained := [entry["name"] for entry in results.data if (entry.get("leakage") or {}).get("verdict")]:
        return f"The model was trained on the labelled training split of {', '.join(trained)}: it knows the answers."
    if results.facts.get("exclude seen"):
        return "Test examples that the model has seen in training are excluded."
    seen = sum(bool(row.seen) for row in results.rows)
    marked = f"{seen} of {len(results.rows)} metrics are on data of which the model has seen examples in training"
    return f"{marked} ({formatting.SEEN_MARK})." if seen else ""


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


def escape_markdown(text: object) -> str:
    """Escape text for Markdown, including table cells."""
    return re.sub(r"([\\`*_<>|\[\]~])", r"\\\1", " ".join(str(text).split()))


def markdown_table(columns: Sequence[str], body: Iterable[Sequence[str]], align: str = "") -> str:
    """Return a table of cells that are Markdown already; `align` has 'l' or 'r' for each column."""
    rules = [{"l": "---", "r": "--:"}[letter] for letter in align or "l" * len(columns)]
    table = [f"| {' | '.join(columns)} |", f"|{'|'.join(rules)}|", *(f"| {' | '.join(cells)} |" for cells in body)]
    return "\n".join(table) + "\n"


def render_table(table: ResultTable, model: str = "ours") -> str:
    """Return a published table with the measured row, named `model`, and its footnotes."""
    columns = ["model", *map(escape_markdown, table.columns)]
    text = markdown_table(columns, _table_rows(table, model), "l" + "r" * len(table.columns))
    notes = [
        f"<sup>{mark}</sup> {escape_markdown(note)}" if mark else escape_markdown(note)
        for mark, note in formatting.footnotes(table)
    ]
    if sizes := formatting.sample_sizes(table):
        notes.append(f"Runs × test examples: {escape_markdown(sizes)}")
    return text + ("\n" + "".join(f"- {note}\n" for note in notes) if notes else "")


def _table_rows(table: ResultTable, model: str) -> Iterator[list[str]]:
    """Yield a table from top to bottom: published rows, then the measured one, its interval and its difference."""
    for group in table.groups:
        if group.name:
            yield [f"*{escape_markdown(group.name)}*", *[""] * len(table.columns)]
        for row in group.published:
            suffix = " (proposed)" if row.model == table.proposed else ""
            yield [
                escape_markdown(row.model) + suffix,
                *(formatting.format_number(value, table.digits) for value in row.values),
            ]
        if values := formatting.common_values(table, group):
            yield [escape_markdown(f"{table.proposed} on our data sets"), *values]
        cells = formatting.measured_cells(table, group)
        if cells:
            yield [f"**{escape_markdown(model)}**", *map(_measured_value, cells)]
        if any(cells):
            yield ["95% interval", *(cell.interval if cell else "" for cell in cells)]
        if any(cell and cell.difference for cell in cells):
            header = escape_markdown(f"difference to {table.proposed}")
            yield [header, *(cell.difference if cell else "" for cell in cells)]


def _measured_value(cell: MeasuredCell | None) -> str:
    if cell is None:
        return formatting.ABSENT
    return f"**{cell.value}**" + (f"<sup>{cell.mark}</sup>" if cell.mark else "")


def _render_rows(rows: Sequence[MetricRow]) -> str:
    body = []
    for row in rows:
        digits = formatting.decimals_for(row.value, row.low, row.high)
        value = formatting.format_number(row.value, digits) + (f"<sup>{formatting.SEEN_MARK}</sup>" if row.seen else "")
        values = value, formatting.format_interval(row.low, row.high, digits), str(row.runs)
        body.append((*map(escape_markdown, row.key), *values))
    columns = ("task", "data set", "setting", "metric", "value", "95% interval", "runs")
    note = formatting.seen_note(rows)
    return markdown_table(columns, body, "llllrrr") + (
        f"\n- <sup>{formatting.SEEN_MARK}</sup> {escape_markdown(note)}\n" if note else ""
    )


def render_markdown(results: Results) -> str:
    """Return all results: tables, other metrics, data sets, missing data sets and the environment."""
    model = short_name(results.model)
    parts = [f"# {escape_markdown(results.model or 'Evaluation')}\n"]
    if not results.tables:
        parts.append(_render_rows(results.rows))
    for table in results.tables:
        parts.append(f"## {escape_markdown(table.title)}\n\n{render_table(table, model)}")
    shown = {row.key for table in results.tables for group in table.groups for row in group.measured if row is not None}
    rest = [row for row in results.rows if row.key not in shown]
    if results.tables and rest:
        parts.append(f"## Other metrics\n\n{_render_rows(rest)}")
    if results.data:
        body = [
            (
                escape_markdown(entry["name"]),
                escape_markdown(entry["licence"]),
                "as known" if entry["known"] else "not known",
                escape_markdown(describe_seen(entry)),
                f"`{escape_markdown(entry['sha256'])}`",
            )
            for entry in results.data
        ]
        columns = ("data set", "licence", "files", "seen in training", "SHA-256")
        parts.append(f"## Data sets\n\n{markdown_table(columns, body, 'lllll')}")
    if results.missing:
        keys = ("name", "wanted_by", "home")
        missing = [[escape_markdown(entry[key]) for key in keys] for entry in results.missing]
        names = ("data set", "needed by", "where to get it")
        parts.append(f"## Missing data sets\n\n{markdown_table(names, missing)}")
    facts = {"suite": results.suite, **evaluation_environment(), **results.facts}
    lines = (f"- {escape_markdown(name)}: {escape_markdown(format_value(value))}\n" for name, value in facts.items())
    parts.append("## Environment\n\n" + "".join(lines))
    return "\n".join(parts)
