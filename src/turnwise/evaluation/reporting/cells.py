"""What the cells of a table say: the same figures, intervals and marks in Markdown, in LaTeX and on the page."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from string import ascii_lowercase
from typing import Any, Literal

from turnwise.evaluation.outcomes import Row, lower_is_better
from turnwise.evaluation.tables import FilledGroup, FilledTable

#: What stands where there is no figure.
ABSENT = "–"


def number(value: float | None, digits: int) -> str:
    """A figure as tables print it."""
    if value is None:
        return ABSENT
    if not math.isfinite(value):
        return "undefined"
    # adding 0 turns the -0.0 that rounding leaves into 0.0
    return f"{round(value, digits) + 0.0:.{digits}f}".replace("-", "−")


def signed(value: float, digits: int) -> str:
    """A difference, with its sign."""
    if math.isfinite(value) and round(value, digits) == 0:
        return "±" + number(0.0, digits)
    return ("+" if value > 0 else "") + number(value, digits)


def between(low: float, high: float, digits: int) -> str:
    """An interval."""
    return (
        f"{number(low, digits)} to {number(high, digits)}"
        if math.isfinite(low) and math.isfinite(high)
        else "undefined"
    )


def digits_of(*values: float | None) -> int:
    """Decimals of figures that stand in no paper's table: two, and a third where all of them are small."""
    return 2 if any(value is not None and abs(value) >= 10 for value in values) else 3


@dataclass(frozen=True, slots=True)
class OurCell:
    """One of our figures in a paper's table.

    Attributes:
        row: the figure.
        value: as it is printed.
        interval: as it is printed.
        printed: the figure of the line that the paper proposes, where there is one.
        delta: ours less that one; empty where there is none.
        verdict: how ours compares with it; 'within' where our interval holds it; empty where there is none.
        mark: of the footnote that says why the two are not like for like; empty where they are.
    """

    row: Row
    value: str
    interval: str
    printed: float | None
    delta: str
    verdict: Literal["better", "worse", "within", ""]
    mark: str


def reasons(table: FilledTable) -> list[str]:
    """Why figures of a table are not like for like, each reason once: its footnotes, in order."""
    found = [row.comparable for group in table.groups for row in group.ours if row is not None and row.comparable]
    return list(dict.fromkeys(found))


def footnotes(table: FilledTable) -> list[tuple[str, str]]:
    """Marks and texts of what stands below a table; notes have no mark, and are left out where a reason says the same."""
    marked = reasons(table)
    unmarked = [("", note) for note in dict.fromkeys(table.notes) if not any(note in reason for reason in marked)]
    return [*((_mark(place), f"Not like for like: {reason}") for place, reason in enumerate(marked)), *unmarked]


def our_cells(table: FilledTable, group: FilledGroup) -> list[OurCell | None]:
    """Our line of a group; empty where the group has none."""
    if not group.ours:
        return []
    proposed = next(
        (line.values for line in group.printed if line.model == table.proposed), (None,) * len(table.columns)
    )
    marked = reasons(table)
    return [
        _our_cell(row, printed, table.digits, _mark(marked.index(row.comparable)) if row.comparable else "")
        if row
        else None
        for row, printed in zip(group.ours, proposed, strict=True)
    ]


def _our_cell(row: Row, printed: float | None, digits: int, mark: str) -> OurCell:
    value, interval = number(row.value, digits), between(row.low, row.high, digits)
    if printed is None or not math.isfinite(row.value):
        return OurCell(row, value, interval, printed, "", "", mark)
    difference = row.value - printed
    verdict: Literal["better", "worse", "within"] = "within"
    if printed < row.low or printed > row.high:
        verdict = "better" if (difference > 0) != lower_is_better(row.metric) else "worse"
    return OurCell(row, value, interval, printed, signed(difference, digits), verdict, mark)


def sizes(table: FilledTable) -> str:
    """How many runs our figures come from, and of how many test examples: '10 × 4,500 (CLINC150), 10 × 700 (SNIPS)'."""
    found: dict[str, dict[str, None]] = {}
    for group in table.groups:
        for column, row in zip(table.columns, group.ours, strict=bool(group.ours)):
            if row is not None:
                found.setdefault(f"{row.runs:,} × {row.n:,}", {})[column] = None
    return (
        ", ".join(found)
        if len(found) < 2
        else ", ".join(f"{count} ({', '.join(columns)})" for count, columns in found.items())
    )


@dataclass(frozen=True, slots=True)
class Line:
    """A line of a table as text: what it is, its head, and a cell a column."""

    kind: Literal["group", "printed", "proposed", "ours", "interval", "difference"]
    head: str
    cells: tuple[str, ...]
    marks: tuple[str, ...] = ()


def lines(table: FilledTable, model: str) -> Iterator[Line]:
    """A table from top to bottom: each group's printed lines, then ours, its interval, and its difference to the proposed line."""
    for group in table.groups:
        if group.name:
            yield Line("group", group.name, ("",) * len(table.columns))
        for printed in group.printed:
            kind: Literal["printed", "proposed"] = "proposed" if printed.model == table.proposed else "printed"
            yield Line(kind, printed.model, tuple(number(value, table.digits) for value in printed.values))
        ours = our_cells(table, group)
        if not ours:
            continue
        values = tuple(cell.value if cell else ABSENT for cell in ours)
        yield Line("ours", model, values, tuple(cell.mark if cell else "" for cell in ours))
        if any(ours):
            yield Line("interval", "95% interval", tuple(cell.interval if cell else "" for cell in ours))
        if any(cell and cell.delta for cell in ours):
            yield Line(
                "difference", f"difference to {table.proposed}", tuple(cell.delta if cell else "" for cell in ours)
            )


def others(rows: list[Row], tables: list[FilledTable]) -> list[Row]:
    """Figures that stand in none of the tables."""
    shown = {_name(row) for table in tables for group in table.groups for row in group.ours if row is not None}
    return [row for row in rows if _name(row) not in shown]


def known(entry: dict[str, Any]) -> str:
    """Whether the files of a data set are those that figures were first taken on."""
    return "as known" if entry["known"] else "not known"


def _name(row: Row) -> tuple[str, str, str, str]:
    return row.task, row.dataset, row.setting, row.metric


def _mark(place: int) -> str:
    """A, b, …, z, aa, bb, …."""
    return ascii_lowercase[place % 26] * (place // 26 + 1)
