"""Our figures in the papers' tables: each where it belongs, with what was printed there and why the two may not be alike."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from turnwise.evaluation.datasets.dataset import Dataset
from turnwise.evaluation.evaluation_protocols import Effort
from turnwise.evaluation.outcomes import Outcome, Row, mean_drawings
from turnwise.evaluation.results import Results, whence
from turnwise.evaluation.statistics import figures, interval
from turnwise.evaluation.tables import FilledGroup, FilledTable
from turnwise.papers.suites import Average, Either, Key, PaperSuite, SuiteTable


def fill(
    suite: PaperSuite, results: Results, datasets: Mapping[tuple[str, str], Dataset[Any]], remark: str, effort: Effort
) -> None:
    """Adds a suite's tables to results, and to each figure what the paper prints; figures on other data get tables of their own.

    Args:
        suite: whose tables.
        results: with all outcomes and rows.
        datasets: what was used, by task and name.
        remark: how the model differs from the papers'.
        effort: how much of the protocols was run.
    """
    others = {*suite.stand_ins, *(name for step in suite.steps for name in step.alternatives)}
    differences = {place: dataset.differs or suite.remarks.get(place[1], "") for place, dataset in datasets.items()}
    filler = _Filler(results, suite, others, differences, remark, effort)
    results.tables = [filler.filled(table) for table in suite.tables]
    results.rows = [
        # no figure is printed for what is not the paper's, but a reader may look for one
        replace(row, comparable=f"{row.dataset}: {said}")
        if row.dataset in others and (said := differences.get((row.task, row.dataset)))
        else row
        for row in (*filler.rows.values(), *filler.averages.values())
    ]
    results.tables += _other_tables(suite, results.rows, others, differences)


class _Filler:
    """Looks figures up, and notes at each what a reader has to know."""

    def __init__(
        self,
        results: Results,
        suite: PaperSuite,
        others: set[str],
        differences: Mapping[tuple[str, str], str],
        remark: str,
        effort: Effort,
    ):
        self.rows: dict[Key, Row] = {(row.task, row.dataset, row.setting, row.metric): row for row in results.rows}
        self.averages: dict[Key, Row] = {}
        self._outcomes = {outcome.key: outcome for outcome in results.outcomes}
        self._suite = suite
        self._others = others
        self._differing = differences
        self._missing = {entry["name"]: entry["home"] for entry in results.missing}
        cut = {
            name: value
            for name, value in (("seeds", effort.seeds), ("steps", effort.steps), ("shots", effort.shots))
            if value
        }
        hurried = f"cut short: {', '.join(f'{name} {value}' for name, value in cut.items())}" if cut else ""
        self._remarks = [text for text in (remark, hurried) if text]

    def filled(self, table: SuiteTable) -> FilledTable:
        """A table with our line in it."""
        printed = table.printed
        groups, notes = [], list(self._remarks)
        for number, group in enumerate(printed.groups):
            ours: list[Row | None] = []
            wanted = not table.groups_are_models or number == len(printed.groups) - 1
            for column in printed.columns if wanted else ():
                cell = table.cells(group.name, column)
                ours.append(self._placed(cell, table, group.name, column))
                notes += self._notes(cell)
            groups.append(FilledGroup(group.name, group.rows, tuple(ours)))
        title = f"{self._suite.title}, {printed.number}: {printed.caption}"
        proposed = "" if table.backbones else printed.ours
        return FilledTable(title, printed.columns, tuple(groups), tuple(dict.fromkeys(notes)), printed.digits, proposed)

    def _placed(self, cell: Key | Average | Either, table: SuiteTable, group: str, column: str) -> Row | None:
        row = self._average(cell) if isinstance(cell, Average) else self._found(cell)
        if row is None:
            return None
        if row.table is None:
            row = replace(
                row,
                table=table.printed.number,
                published=_published(table, group, column),
                comparable="; ".join([*self._remarks, *self._differences(cell)]) or None,
            )
            kept = self.averages if isinstance(cell, Average) else self.rows
            kept[row.task, row.dataset, row.setting, row.metric] = row
        return row

    def _found(self, cell: Key | Either) -> Row | None:
        keys = cell.keys if isinstance(cell, Either) else (cell,)
        return next((self.rows[key] for key in keys if key in self.rows and key[1] not in self._others), None)

    def _average(self, cell: Average) -> Row | None:
        members = [self._outcomes[key] for key in cell.keys if key in self._outcomes and key[1] not in self._others]
        if not members:
            return None
        # by what is asked for, whatever of it is there: the mean of one data set is not to be taken for that data set's own figure
        dataset, metric = (
            each.pop() if len(each) == 1 else "average" for each in ({key[at] for key in cell.keys} for at in (1, 3))
        )
        key = (members[0].task, dataset, cell.name, metric)
        if key not in self.averages:
            rows = [self.rows[outcome.key] for outcome in members]
            examples = {row.dataset: row.n for row in rows}
            value = float(np.mean([row.value for row in rows]))
            spread, bounds = _spread_of_mean(members), interval(mean_drawings(members))
            self.averages[key] = Row(
                *key, value, spread, *bounds, min(row.runs for row in rows), sum(examples.values())
            )
        return self.averages[key]

    def _differences(self, cell: Key | Average | Either) -> list[str]:
        """Why our data are not the paper's."""
        keys = (cell,) if isinstance(cell, tuple) else cell.keys
        names = tuple(dict.fromkeys(key[1] for key in keys))
        places = dict.fromkeys(key[:2] for key in keys)
        said = [f"{place[1]}: {self._differing[place]}" for place in places if self._differing.get(place)]
        there = dict.fromkeys(key[1] for key in keys if key in self._outcomes and key[1] not in self._others)
        if isinstance(cell, Average) and len(there) < len(names):
            said.append(f"the mean of {len(there)} of {len(names)} data sets ({', '.join(there)})")
        if isinstance(cell, Either) and there and cell.keys[0] not in self._outcomes:
            said.append("by the cosine of vectors; the paper's models read context and response together")
        return said

    def _notes(self, cell: Key | Average | Either) -> list[str]:
        keys = (cell,) if isinstance(cell, tuple) else cell.keys
        names = dict.fromkeys(key[1] for key in keys if key[1] in self._missing)
        return self._differences(cell) + [f"{name} is not there; {whence(self._missing[name])}" for name in names]


def _published(table: SuiteTable, group: str, column: str) -> float | None:
    """What the proposed line prints there; None where that line stands in another group, or there is none."""
    if table.backbones:
        return None
    try:
        return table.printed.figure(group, table.printed.ours, column)
    except KeyError:
        return None


def _spread_of_mean(members: Sequence[Outcome]) -> float:
    """The deviation of a mean over the runs; undefined where its members have different numbers of them."""
    runs = {outcome.evidence.shape[0] for outcome in members}
    if len(runs) > 1:
        return float("nan")
    means = np.mean([figures(outcome.statistic, outcome.table) * outcome.scale for outcome in members], axis=0)
    return float(means.std(ddof=1)) if runs.pop() > 1 else 0.0


def _other_tables(
    suite: PaperSuite, rows: Sequence[Row], others: set[str], differences: Mapping[tuple[str, str], str]
) -> list[FilledTable]:
    """Figures on data that no table of the paper has: a table a task, a line a data set and setting."""
    tables = []
    for task in dict.fromkeys(row.task for row in rows):
        mine = [row for row in rows if row.task == task and row.dataset in others]
        columns = tuple(dict.fromkeys(row.metric for row in mine))
        lines: dict[tuple[str, str], dict[str, Row]] = {}
        for row in mine:
            lines.setdefault((row.dataset, row.setting), {})[row.metric] = row
        groups = [
            FilledGroup(f"{dataset}, {setting}", (), tuple(found.get(column) for column in columns))
            for (dataset, setting), found in lines.items()
        ]
        names = dict.fromkeys(row.dataset for row in mine)
        notes = [f"{name}: {differences[task, name]}" for name in names if differences.get((task, name))]
        if groups:
            digits = 3 if suite.name == "ums" else 2
            tables.append(
                FilledTable(f"{suite.title}, on other data: {task}", columns, tuple(groups), tuple(notes), digits)
            )
    return tables
