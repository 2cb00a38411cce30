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

from dataclasses import dataclass
from importlib.resources import files
from itertools import product
from typing import Any

import yaml

from turnwise.evaluation.metrics import MetricKey
from turnwise.evaluation.suites import SuiteStep, Summary
from turnwise.evaluation.tables import PublishedRow


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
    text = files("turnwise.papers").joinpath("published", f"{name}.yaml").read_text(encoding="utf-8")
    tree = yaml.load(text, getattr(yaml, "CSafeLoader", yaml.SafeLoader))
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
