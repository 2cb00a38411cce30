"""The papers' suites: protocols and data sets, published tables, and which of our results belongs in which cell.

Every suite is a file `published/NAME.yaml` with the keys

- `title`, and `digits`: the decimals that the paper prints;
- `steps`: protocols with the paper's data sets and available alternatives;
- `stand_ins`: data sets that have the paper's names but are not its own;
- `split_remarks`: how the splits of data sets differ from the paper's;
- `summaries`: means over data sets, by name;
- `tables`: `number`, `caption`, `proposed` (the row of the paper's method), `columns`, `rows` or `groups` of rows with
  the published values, and `result`: which result belongs in a cell, as task, data set, setting and metric. Columns may
  add to it or override it, `{group}` and `{column}` are replaced, and lists stand for all combinations: with `average`
  for their mean under that name, otherwise for the first one that was evaluated.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property, partial
from itertools import product
from typing import Any

import numpy as np
import numpy.typing as npt

from turnwise.core.files import package_yaml
from turnwise.evaluation.datasets.dataset import Dataset
from turnwise.evaluation.evaluation_protocols import Effort
from turnwise.evaluation.metrics import MetricKey, MetricRow, Outcome, bootstrap_outcomes, confidence_interval
from turnwise.evaluation.results import Results, describe_source
from turnwise.evaluation.suites import Suite, SuiteStep, Summary
from turnwise.evaluation.tables import PublishedRow, ResultGroup, ResultTable
from turnwise.models.encoder import Architecture
from turnwise.models.loading import ModelUnderTest
from turnwise.papers.plots import add_plots


@dataclass(frozen=True, slots=True)
class TableCell:
    """The results that belong in a cell of a published table."""

    keys: tuple[MetricKey, ...]
    average: str = ""  # the name of their mean; empty: the cell has the first of them that was evaluated


@dataclass(frozen=True, slots=True)
class PublishedTable:
    """A table of results in a paper."""

    number: str  # 'Table 2'; 'Section 4.5' for values in the text
    caption: str
    columns: tuple[str, ...]
    #: Rows by group, such as '1-shot'; a table without groups has one without a name.
    groups: dict[str, tuple[PublishedRow, ...]]
    proposed: str  # the row of the method that the paper proposes
    digits: int
    #: Our results by group and column; empty for a table that is not reproduced.
    cells: dict[tuple[str, str], TableCell]
    #: The groups are kinds of models, so that our row belongs only in the last of them.
    groups_are_models: bool = False
    #: The rows have different backbones, so that there is no published row to compare a model with.
    several_backbones: bool = False

    def value(self, group: str, model: str, column: str) -> float | None:
        """Return a published value, or None if the table has no such row or nothing is printed there."""
        row = next((row for row in self.groups[group] if row.model == model), None)
        return None if row is None else row.values[self.columns.index(column)]


@dataclass(frozen=True, slots=True)
class PaperSuite:
    """A paper's suite."""

    name: str
    title: str  # the paper's short name
    steps: tuple[SuiteStep, ...]
    tables: dict[str, PublishedTable]  # by number
    split_remarks: dict[str, str]  # how the splits of data sets differ from the paper's, by data set
    #: Data sets that have the paper's names but are not its own; their results get separate tables.
    stand_ins: tuple[str, ...]
    summaries: tuple[Summary, ...]


def _load_suite(name: str) -> PaperSuite:
    tree = package_yaml("turnwise.papers", f"published/{name}.yaml")
    tables = [_parse_table(table, tree["digits"]) for table in tree["tables"]]
    return PaperSuite(
        name,
        tree["title"],
        tuple(
            SuiteStep(step["protocol"], tuple(step["datasets"]), tuple(step["alternatives"])) for step in tree["steps"]
        ),
        {table.number: table for table in tables},
        tree.get("split_remarks", {}),
        tuple(tree.get("stand_ins", ())),
        tuple(
            Summary(
                summary, tuple(product(_as_list(parts["task"]), _as_list(parts["setting"]), _as_list(parts["metric"])))
            )
            for summary, parts in tree["summaries"].items()
        ),
    )


def _parse_table(tree: dict[str, Any], digits: int) -> PublishedTable:
    columns = tree["columns"] if isinstance(tree["columns"], dict) else {name: {} for name in tree["columns"]}
    groups = tree.get("groups") or {"": tree["rows"]}
    cells = {
        (group, column): _parse_cell(spec, group, column)
        for group, (column, own) in product(groups, columns.items())
        if (spec := {**tree.get("result", {}), **own})
    }
    return PublishedTable(
        tree["number"],
        tree["caption"],
        tuple(columns),
        {
            group: tuple(PublishedRow(model, tuple(values)) for model, values in rows.items())
            for group, rows in groups.items()
        },
        tree["proposed"],
        digits,
        cells,
        tree.get("groups_are_models", False),
        tree.get("several_backbones", False),
    )


def _parse_cell(spec: dict[str, Any], group: str, column: str) -> TableCell:
    def fill(value: str | list[str]) -> list[str]:
        return [text.format(group=group, group_lower=group.lower(), column=column) for text in _as_list(value)]

    keys = product(fill(spec["task"]), fill(spec["dataset"]), fill(spec["setting"]), fill(spec["metric"]))
    return TableCell(tuple(keys), fill(spec.get("average", ""))[0])


def _as_list(value: str | list[str]) -> list[str]:
    return value if isinstance(value, list) else [value]


PAPER_SUITES = {name: _load_suite(name) for name in ("dse", "dialoguecse", "tadse", "diaeval", "ums")}


_PUBLISHED_BACKBONE: Architecture = ("bert", 12, 768)  # the backbone of most published results: BERT-base


def make_suite(name: str) -> Suite:
    """Return a paper's suite with its published tables, plots and summaries."""
    suite = PAPER_SUITES[name]
    return Suite(name, suite.steps, partial(add_tables, suite), partial(add_plots, name), suite.summaries)


def add_tables(
    suite: PaperSuite,
    results: Results,
    datasets: Mapping[tuple[str, str], Dataset[Any]],
    model: ModelUnderTest,
    effort: Effort,
) -> None:
    """Add a suite's tables to the results, separate ones for other data, and the published values to their rows."""
    remark = results.facts["remark"] = _backbone_remark(model.backbones)
    other_datasets = {*suite.stand_ins, *(name for step in suite.steps for name in step.alternatives)}
    differences = {
        (task, name): dataset.differs or suite.split_remarks.get(name, "") for (task, name), dataset in datasets.items()
    }
    filler = _TableFiller(results, suite, other_datasets, differences, remark, effort)
    results.tables = [filler.fill(table) for table in suite.tables.values() if table.cells]
    results.rows = [
        # the paper has no value for other data, but readers may look for one
        replace(row, comparable=f"{row.dataset}: {difference}")
        if row.dataset in other_datasets and (difference := differences.get((row.task, row.dataset)))
        else row
        for row in (*filler.rows.values(), *filler.averages.values())
    ]
    digits = max(2, *(table.digits for table in suite.tables.values()))
    results.tables += _tables_of_other_data(suite.title, results.rows, other_datasets, differences, digits)


def _backbone_remark(backbones: Sequence[Architecture | None]) -> str:
    """Return how a model differs from those of the published results; empty if all its backbones are theirs."""
    other = next((backbone for backbone in backbones if backbone != _PUBLISHED_BACKBONE), _PUBLISHED_BACKBONE)
    if other is None:
        return "another model than the paper's"
    kind, layers, hidden = other
    remark = f"another backbone ({kind} of {layers} layers and {hidden} units; the paper's is BERT-base)"
    return "" if other == _PUBLISHED_BACKBONE else remark


class _TableFiller:
    """Fills tables of a suite."""

    def __init__(
        self,
        results: Results,
        suite: PaperSuite,
        other_datasets: set[str],
        differences: Mapping[tuple[str, str], str],
        remark: str,
        effort: Effort,
    ):
        #: The results, and the means that belong in tables; a table adds its number, the published value and remarks.
        self.rows: dict[MetricKey, MetricRow] = {row.key: row for row in results.rows}
        self.averages: dict[MetricKey, MetricRow] = {}
        self._outcomes = {outcome.key: outcome for outcome in results.outcomes if outcome.key[1] not in other_datasets}
        self._suite = suite
        self._differences = differences
        self._missing = {entry["name"]: entry["home"] for entry in results.missing}
        shortened = ", ".join(f"{name} {value}" for name, value in asdict(effort).items() if value)
        excluded = "without test examples seen in training" if results.facts.get("exclude seen") else ""
        remarks = (remark, f"cut short: {shortened}" if shortened else "", excluded)
        self._remarks = [text for text in remarks if text]

    def fill(self, table: PublishedTable) -> ResultTable:
        """Return a table with our row in each of its groups."""
        groups, notes = [], list(self._remarks)
        for group, rows in table.groups.items():
            ours: list[MetricRow | None] = []
            common_means: dict[str, float | None] = {}
            if not table.groups_are_models or group == list(table.groups)[-1]:
                for column in table.columns:
                    cell = table.cells[group, column]
                    ours.append(self._find_row(cell, table, group, column))
                    notes += self._cell_remarks(cell)
                    names = dict.fromkeys(key[1] for key in cell.keys if key[1] in self._missing)
                    notes += [f"{name} is not there; {describe_source(self._missing[name])}" for name in names]
                    if coverage := self._coverage(cell):
                        common_means[column] = self._published(cell, table, group, column)
                        note = f"the difference is to {table.proposed}'s mean over the same ones"
                        if common_means[column] is None:
                            note = f"no difference, as the paper does not print {table.proposed}'s results on these"
                        notes.append(f"{column}: {coverage}" + ("" if table.several_backbones else f"; {note}"))
            groups.append(ResultGroup(group, rows, tuple(ours), common_means))
        title = f"{self._suite.title}, {table.number}: {table.caption}"
        proposed = "" if table.several_backbones else table.proposed
        return ResultTable(title, table.columns, tuple(groups), tuple(dict.fromkeys(notes)), table.digits, proposed)

    def _find_row(self, cell: TableCell, table: PublishedTable, group: str, column: str) -> MetricRow | None:
        """Return the result that belongs in a cell; the first table that has it adds its number and published value."""
        if cell.average:
            row, rows = self._average(cell), self.averages
        else:
            row, rows = next((self.rows[key] for key in cell.keys if key in self._outcomes), None), self.rows
        if row is None or row.table is not None:
            return row
        row = replace(
            row,
            table=", ".join(filter(None, (table.number, self._coverage(cell)))),
            published=self._published(cell, table, group, column),
            comparable="; ".join([*self._remarks, *self._cell_remarks(cell)]) or None,
        )
        rows[row.key] = row
        return row

    def _published(self, cell: TableCell, table: PublishedTable, group: str, column: str) -> float | None:
        """Return the proposed method's value for a cell; for a mean, over the results that ours is the mean of."""
        if table.several_backbones:
            return None
        if not self._coverage(cell):
            return table.value(group, table.proposed, column)
        values = [self._published_value(key, table) for key in self._available(cell)]
        defined = [value for value in values if value is not None]
        return float(np.mean(defined)) if len(defined) == len(values) else None

    def _published_value(self, key: MetricKey, table: PublishedTable) -> float | None:
        """Return the value of a table's proposed method for a result, from that table or another one of the paper."""
        values = (
            each.value(group, table.proposed, column)
            for each in (table, *self._suite.tables.values())
            for (group, column), cell in each.cells.items()
            if key in cell.keys and not cell.average
        )
        return next((value for value in values if value is not None), None)

    def _available(self, cell: TableCell) -> list[MetricKey]:
        return [key for key in cell.keys if key in self._outcomes]

    def _coverage(self, cell: TableCell) -> str:
        """Return which part of a mean was evaluated; empty if all or nothing was, or if the cell is not a mean."""
        available = self._available(cell)
        if not cell.average or len(available) in (0, len(cell.keys)):
            return ""
        names, covered = (list(dict.fromkeys(key[1] for key in keys)) for keys in (cell.keys, available))
        if len(covered) < len(names):
            return f"mean of {len(covered)} of {len(names)} data sets ({', '.join(covered)})"
        return f"mean of {len(available)} of {len(cell.keys)} results"

    def _average(self, cell: TableCell) -> MetricRow | None:
        outcomes = [self._outcomes[key] for key in self._available(cell)]
        if not outcomes:
            return None
        # named by all keys, available or not: an average of one data set must not pass for that data set's own result
        datasets, metrics = ({key[part] for key in cell.keys} for part in (1, 3))
        dataset, metric = (names.pop() if len(names) == 1 else "average" for names in (datasets, metrics))
        key = (outcomes[0].task, dataset, cell.average, metric)
        if key not in self.averages:
            rows = [self.rows[outcome.key] for outcome in outcomes]
            value = float(np.mean([row.value for row in rows]))
            bounds = confidence_interval(np.mean([self._samples[outcome.key] for outcome in outcomes], axis=0))
            examples = sum({row.dataset: row.n for row in rows}.values())
            runs = min(row.runs for row in rows)
            seen = "; ".join(dict.fromkeys(row.seen for row in rows if row.seen)) or None
            self.averages[key] = MetricRow(*key, value, _std_of_mean(outcomes), *bounds, runs, examples, seen=seen)
        return self.averages[key]

    @cached_property
    def _samples(self) -> dict[MetricKey, npt.NDArray[np.float64]]:
        """The bootstrap samples of the results that any mean of the suite includes, drawn together."""
        means = [cell for table in self._suite.tables.values() for cell in table.cells.values() if cell.average]
        keys = list(dict.fromkeys(key for cell in means for key in self._available(cell)))
        return dict(zip(keys, bootstrap_outcomes([self._outcomes[key] for key in keys]), strict=True))

    def _cell_remarks(self, cell: TableCell) -> list[str]:
        """Return why the result of a cell is not comparable with the paper's."""
        available = self._available(cell)
        datasets = dict.fromkeys(key[:2] for key in available or cell.keys)
        remarks = [f"{name}: {text}" for task, name in datasets if (text := self._differences.get((task, name)))]
        if not cell.average and available and cell.keys[0] not in self._outcomes:
            remarks.append("by the cosine of vectors; the paper's models read context and response together")
        return remarks


def _std_of_mean(outcomes: Sequence[Outcome]) -> float:
    """Return the standard deviation of a mean over runs; NaN if the numbers of runs differ."""
    runs = {outcome.evidence.shape[0] for outcome in outcomes}
    if len(runs) > 1:
        return float("nan")
    means = np.mean([outcome.per_run() for outcome in outcomes], axis=0)
    return float(means.std(ddof=1)) if runs.pop() > 1 else 0.0


def _tables_of_other_data(
    title: str, rows: Sequence[MetricRow], datasets: set[str], differences: Mapping[tuple[str, str], str], digits: int
) -> list[ResultTable]:
    """Return tables of the results on data that the paper does not have: one per task, with a row per setting."""
    tables = []
    for task in dict.fromkeys(row.task for row in rows):
        selected = [row for row in rows if row.task == task and row.dataset in datasets]
        if not selected:
            continue
        columns = tuple(dict.fromkeys(row.metric for row in selected))
        by_setting: dict[tuple[str, str], dict[str, MetricRow]] = {}
        for row in selected:
            by_setting.setdefault((row.dataset, row.setting), {})[row.metric] = row
        groups = tuple(
            ResultGroup(f"{dataset}, {setting}", (), tuple(metrics.get(column) for column in columns))
            for (dataset, setting), metrics in by_setting.items()
        )
        names = dict.fromkeys(row.dataset for row in selected)
        notes = tuple(f"{name}: {differences[task, name]}" for name in names if differences.get((task, name)))
        tables.append(ResultTable(f"{title}, on other data: {task}", columns, groups, notes, digits))
    return tables
