"""Results as Markdown: the paper's tables with our line in them, and what it takes to trust it."""

import re
from collections.abc import Iterable, Sequence
from typing import Any

from turnwise.core.html.document import plain
from turnwise.evaluation.outcomes import Row
from turnwise.evaluation.reporting.cells import (
    ABSENT,
    Line,
    between,
    digits_of,
    footnotes,
    known,
    lines,
    number,
    others,
    sizes,
)
from turnwise.evaluation.results import Results, taken_with
from turnwise.evaluation.tables import FilledTable
from turnwise.models.model_card import short_name


def escaped(text: object) -> str:
    """Text that Markdown takes for nothing but text, also in the cell of a table."""
    return re.sub(r"([\\`*_<>|\[\]~])", r"\\\1", " ".join(str(text).split()))


def grid(columns: Sequence[str], body: Iterable[Sequence[str]], align: str = "") -> str:
    """A table of cells that are Markdown already.

    Args:
        columns: heads.
        body: lines.
        align: a letter a column, 'l' or 'r'; all 'l' where it is not given.
    """
    rules = [{"l": "---", "r": "--:"}[letter] for letter in align or "l" * len(columns)]
    table = [f"| {' | '.join(columns)} |", f"|{'|'.join(rules)}|", *(f"| {' | '.join(cells)} |" for cells in body)]
    return "\n".join(table) + "\n"


def table_text(table: FilledTable, model: str = "ours") -> str:
    """A paper's table with our line in it, and its notes.

    Args:
        table: printed lines and ours.
        model: what our line is called.
    """
    body = [_cells(line) for line in lines(table, model)]
    text = grid(["model", *map(escaped, table.columns)], body, "l" + "r" * len(table.columns))
    notes = [f"<sup>{mark}</sup> {escaped(note)}" if mark else escaped(note) for mark, note in footnotes(table)]
    if counts := sizes(table):
        notes.append(f"Runs × test examples: {escaped(counts)}")
    return text + ("\n" + "".join(f"- {note}\n" for note in notes) if notes else "")


def _cells(line: Line) -> list[str]:
    head, cells = escaped(line.head), [escaped(cell) for cell in line.cells]
    if line.kind == "group":
        return [f"*{head}*", *cells]
    if line.kind == "proposed":
        return [f"{head} (proposed)", *cells]
    if line.kind == "ours":
        marked = (f"<sup>{mark}</sup>" if mark else "" for mark in line.marks)
        return [
            f"**{head}**",
            *(f"**{cell}**{mark}" if cell != ABSENT else cell for cell, mark in zip(cells, marked, strict=True)),
        ]
    return [head, *cells]


def rows_text(rows: Iterable[Row]) -> str:
    """Figures one by one."""
    return grid(
        ("task", "data set", "setting", "metric", "value", "95% interval", "runs"),
        (
            (
                *map(escaped, (row.task, row.dataset, row.setting, row.metric)),
                number(row.value, digits_of(row.value, row.low, row.high)),
                between(row.low, row.high, digits_of(row.value, row.low, row.high)),
                str(row.runs),
            )
            for row in rows
        ),
        "llllrrr",
    )


def markdown(results: Results) -> str:
    """All results: tables, other figures, data sets, what is missing, and the environment."""
    model = short_name(results.model)
    parts = [f"# {escaped(results.model or 'Evaluation')}\n"]
    if not results.tables:
        parts.append(rows_text(results.rows))
    for table in results.tables:
        parts.append(f"## {escaped(table.title)}\n\n{table_text(table, model)}")
    rest = others(results.rows, results.tables)
    if results.tables and rest:
        parts.append(f"## Other figures\n\n{rows_text(rest)}")
    if results.data:
        parts.append(f"## Data sets\n\n{_data(results.data)}")
    if results.missing:
        names = ("name", "wanted_by", "home")
        body = [[escaped(entry[name]) for name in names] for entry in results.missing]
        parts.append(f"## Missing data sets\n\n{grid(('data set', 'wanted by', 'where to get it'), body)}")
    facts = {"suite": results.suite, **taken_with(), **results.facts}
    parts.append(
        "## Taken with\n\n" + "".join(f"- {escaped(name)}: {escaped(plain(value))}\n" for name, value in facts.items())
    )
    return "\n".join(parts)


def _data(entries: Iterable[dict[str, Any]]) -> str:
    return grid(
        ("data set", "licence", "files", "examples", "SHA-256"),
        (
            (
                escaped(entry["name"]),
                escaped(entry["licence"]),
                known(entry),
                f"{entry['examples']:,}" if entry.get("examples") is not None else "",
                f"`{escaped(entry['sha256'])}`",
            )
            for entry in entries
        ),
        "lllrl",
    )
