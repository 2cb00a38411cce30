"""Tables: what a paper printed, and ours in the same rows and columns."""

from dataclasses import dataclass

from turnwise.evaluation.outcomes import Row


@dataclass(frozen=True, slots=True)
class PrintedRow:
    """A line of a paper's table: the model, and a figure (or nothing) a column."""

    model: str
    values: tuple[float | None, ...]


@dataclass(frozen=True, slots=True)
class FilledGroup:
    """Lines of a table: the printed ones, and ours below them, a figure (or nothing) a column."""

    name: str
    printed: tuple[PrintedRow, ...]
    ours: tuple[Row | None, ...]


@dataclass(frozen=True, slots=True)
class FilledTable:
    """A table with our line in it.

    Attributes:
        title: 'DSE, Table 2: …'.
        columns: names of its columns.
        groups: its lines.
        notes: what a reader must know: data sets that are missing and where to get them, why figures are not like for like.
        digits: decimals to print.
        proposed: the printed line of the method that the paper proposes, where it has one.
    """

    title: str
    columns: tuple[str, ...]
    groups: tuple[FilledGroup, ...]
    notes: tuple[str, ...] = ()
    digits: int = 2
    proposed: str = ""
