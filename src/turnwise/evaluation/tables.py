"""Tables: what a paper printed, and ours in the same rows and columns."""

from dataclasses import dataclass

from turnwise.evaluation.outcomes import Row


@dataclass(frozen=True, slots=True)
class PrintedRow:
    """A line of a paper's table: the model, and a figure (or nothing) a column."""

    model: str
    values: tuple[float | None, ...]


@dataclass(frozen=True, slots=True)
class PrintedGroup:
    """Lines of a paper's table that belong together, such as '1-shot'; a table without groups has one without a name."""

    name: str
    rows: tuple[PrintedRow, ...]


@dataclass(frozen=True, slots=True)
class PrintedTable:
    """A table of results as its paper prints it.

    Attributes:
        paper: 'dse', 'dialoguecse', 'tadse', 'diaeval' or 'ums'.
        number: 'Table 2'; 'Section 4.5' for figures that stand in the text.
        caption: what it shows, in our words.
        columns: names of its columns, in its order.
        groups: its lines, in its order.
        ours: the row that the paper proposes: what a reader compares with first.
        digits: decimals that it prints.
    """

    paper: str
    number: str
    caption: str
    columns: tuple[str, ...]
    groups: tuple[PrintedGroup, ...]
    ours: str
    digits: int = 2

    def figure(self, group: str, model: str, column: str) -> float | None:
        """One printed figure.

        Raises:
            KeyError: if the table has no such group, line or column.
        """
        for lines in self.groups:
            for row in lines.rows:
                if lines.name == group and row.model == model and column in self.columns:
                    return row.values[self.columns.index(column)]
        raise KeyError(f"{self.paper} {self.number} has no figure for {group!r}, {model!r}, {column!r}")


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
