"""Tables of results: the rows that a paper published, the measured row below them, and the format of their cells."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from string import ascii_lowercase
from typing import Literal

from turnwise.evaluation.metrics import MetricRow, lower_is_better

ABSENT = "–"  # shown where there is no value
SEEN_MARK = "†"  # marks metrics on test examples that the model has seen in training


@dataclass(frozen=True, slots=True)
class PublishedRow:
    """A row of a published table: the model, and a value (or None) for each column."""

    model: str
    values: tuple[float | None, ...]


@dataclass(frozen=True, slots=True)
class ResultGroup:
    """Published rows and the measured row below them, with a metric (or None) for each column; empty: there is none."""

    name: str
    published: tuple[PublishedRow, ...]
    measured: tuple[MetricRow | None, ...]
    #: For means over fewer data sets than the paper's, by column: the mean of the proposed method over the same data
    #: sets, or None if the paper does not print all of its values. Other columns are compared with the proposed row.
    common_means: Mapping[str, float | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ResultTable:
    """A published table with a measured row."""

    title: str
    columns: tuple[str, ...]
    groups: tuple[ResultGroup, ...]
    notes: tuple[str, ...] = ()  # missing data sets and where to get them, why values are not comparable
    digits: int = 2  # decimals to print
    proposed: str = ""  # the published row of the method that the paper proposes, if any


def format_number(value: float | None, digits: int) -> str:
    """Format a value for a table."""
    if value is None:
        return ABSENT
    if not math.isfinite(value):
        return "undefined"
    # adding 0 turns the -0.0 that rounding may leave into 0.0
    return f"{round(value, digits) + 0.0:.{digits}f}".replace("-", "−")


def format_difference(value: float, digits: int) -> str:
    """Format a difference with its sign."""
    if math.isfinite(value) and round(value, digits) == 0:
        return "±" + format_number(0.0, digits)
    return ("+" if value > 0 else "") + format_number(value, digits)


def format_interval(low: float, high: float, digits: int) -> str:
    """Format a confidence interval."""
    if not (math.isfinite(low) and math.isfinite(high)):
        return "undefined"
    return f"{format_number(low, digits)} to {format_number(high, digits)}"


def decimals_for(*values: float | None) -> int:
    """Return the decimals for metrics outside published tables: two, or three where all of them are small."""
    return 2 if any(value is not None and abs(value) >= 10 for value in values) else 3


@dataclass(frozen=True, slots=True)
class MeasuredCell:
    """A measured metric in a published table, formatted."""

    row: MetricRow
    value: str
    interval: str
    #: Of the footnotes that say why the metric is not comparable with the published value, and that the model has seen
    #: test examples; empty if there is neither.
    mark: str
    published: float | None  # the value of the proposed method on the same data sets, if any
    difference: str = ""  # measured minus published; empty without a published value
    verdict: Literal["better", "worse", "within", ""] = ""  # 'within' if our interval contains the published value


def footnotes(table: ResultTable) -> list[tuple[str, str]]:
    """Return marks and texts of the footnotes; notes have no mark, and are left out if a marked one includes them."""
    reasons = _reasons(table)
    notes = [("", note) for note in dict.fromkeys(table.notes) if not any(note in reason for reason in reasons)]
    unlike = [(_mark(index), f"Not like for like: {reason}") for index, reason in enumerate(reasons)]
    seen = seen_note(row for group in table.groups for row in group.measured if row is not None)
    return [*unlike, *([(SEEN_MARK, seen)] if seen else []), *notes]


def seen_note(rows: Iterable[MetricRow]) -> str:
    """Return the note to metrics with `SEEN_MARK`; empty if there are none."""
    seen = dict.fromkeys(row.seen for row in rows if row.seen)
    return f"Seen in training: {'; '.join(seen)}" if seen else ""


def measured_cells(table: ResultTable, group: ResultGroup) -> list[MeasuredCell | None]:
    """Return the measured row of a group; empty if the group has none."""
    if not group.measured:
        return []
    absent = (None,) * len(table.columns)
    proposed = next((row.values for row in group.published if row.model == table.proposed), absent)
    compared = (group.common_means.get(column, value) for column, value in zip(table.columns, proposed, strict=True))
    reasons = _reasons(table)
    cells: list[MeasuredCell | None] = []
    for row, published in zip(group.measured, compared, strict=True):
        if row is None:
            cells.append(None)
            continue
        value, interval = format_number(row.value, table.digits), format_interval(row.low, row.high, table.digits)
        mark = (_mark(reasons.index(row.comparable)) if row.comparable else "") + (SEEN_MARK if row.seen else "")
        cell = MeasuredCell(row, value, interval, mark, published)
        if published is not None and math.isfinite(row.value):
            higher = row.value > published
            better: Literal["better", "worse"] = "better" if higher != lower_is_better(row.metric) else "worse"
            verdict = better if published < row.low or published > row.high else "within"
            cell = replace(cell, difference=format_difference(row.value - published, table.digits), verdict=verdict)
        cells.append(cell)
    return cells


def common_values(table: ResultTable, group: ResultGroup) -> list[str]:
    """Return the row of the proposed method's means over our data sets; empty if the group needs none."""
    if all(value is None for value in group.common_means.values()):
        return []
    values = (group.common_means.get(column) for column in table.columns)
    return ["" if value is None else format_number(value, table.digits) for value in values]


def sample_sizes(table: ResultTable) -> str:
    """Return runs × test examples of the measured rows: '10 × 4,500 (CLINC150), 10 × 700 (SNIPS)'."""
    sizes: dict[str, dict[str, None]] = {}
    for group in table.groups:
        for column, row in zip(table.columns, group.measured, strict=bool(group.measured)):
            if row is not None:
                sizes.setdefault(f"{row.runs:,} × {row.n:,}", {})[column] = None
    if len(sizes) < 2:
        return ", ".join(sizes)
    return ", ".join(f"{size} ({', '.join(columns)})" for size, columns in sizes.items())


def _reasons(table: ResultTable) -> list[str]:
    """Return why metrics of a table are not comparable, each reason once, in order."""
    reasons = [row.comparable for group in table.groups for row in group.measured if row is not None and row.comparable]
    return list(dict.fromkeys(reasons))


def _mark(index: int) -> str:
    """Return a, b, …, z, aa, bb, …."""
    return ascii_lowercase[index % 26] * (index // 26 + 1)
