"""Made-up results with everything that can go wrong in a table or on a page."""

import numpy as np

from turnwise.evaluation.metrics import MetricRow, Outcome
from turnwise.evaluation.results import Results
from turnwise.evaluation.tables import PublishedRow, ResultGroup, ResultTable

#: Everything that Markdown, LaTeX or HTML takes for something else than text.
NASTY = r"a_b & 50% #1 $x$ {y} ~z ^ \w | <script>alert('1')</script> [q]* `c` \"d\""

EVIL = '<img src="https://example.org/x.png" onerror="document.title=1">'


def row(
    dataset: str, value: float, low: float, high: float, metric: str = "accuracy", comparable: str | None = None
) -> MetricRow:
    return MetricRow("intents", dataset, "1-shot", metric, value, 1.25, low, high, 10, 4_500, comparable=comparable)


def table() -> ResultTable:
    """Ours better, worse, within its interval, not like for like, absent and undefined; a group without ours."""
    nan = float("nan")
    first = ResultGroup(
        "1-shot",
        (PublishedRow("BERT", (36.98, None, 62.51, 2.0)), PublishedRow("DSE", (62.53, 43.12, 79.57, 1.5))),
        (row("Alpha", 65.0, 64.0, 66.0), row("Beta", 41.0, 40.0, 42.0), row("Gamma", 79.6, 78.0, 81.0), None),
    )
    second = ResultGroup(
        "5-shot",
        (PublishedRow("DSE", (78.73, 61.65, None, 1.5)),),
        (
            row("Alpha", 70.0, 69.0, 71.0, comparable="other texts; fewer of them"),
            row("Beta", nan, nan, nan),
            row("Gamma", 12.0, 11.0, 13.0),
            row("Delta", 1.2, 1.1, 1.3, "uniformity"),
        ),
    )
    # a paper has lines of models that ours is no variant of: they get no line of ours
    third = ResultGroup("large models", (PublishedRow("BERT-large", (1.0, 2.0, 3.0, None)),), ())
    notes = ("other texts", "Delta is not the paper's")
    return ResultTable(
        "DSE, Table 2: accuracy", ("Alpha", "Beta", "Gamma", "Delta"), (first, second, third), notes, 2, "DSE"
    )


def wide() -> ResultTable:
    """More columns than a page is wide, no groups, no proposed line, names that are not harmless."""
    columns = tuple(f"column {place} of many & R10@{place}" for place in range(14))
    rows = tuple(row(column, 0.5 + place / 100, 0.4, 0.7) for place, column in enumerate(columns))
    return ResultTable(
        f"Wide: {NASTY}", columns, (ResultGroup("", (PublishedRow(EVIL, (0.5,) * 14),), rows),), (EVIL,), 3
    )


def results() -> Results:
    random = np.random.default_rng(0)
    example = Results(f"/some/where/{'long-' * 12}model", "dse")
    example.add(
        [Outcome("responses", f"toy {place}", "similarity", "MRR", random.random((2, 50))) for place in range(30)]
    )
    example.tables += [table(), wide()]
    example.rows += [entry for group in table().groups for entry in group.measured if entry]
    example.data += [
        {"name": "Alpha", "sha256": "ab" * 32, "licence": "CC BY 4.0", "known": True},
        {"name": NASTY, "sha256": "cd" * 32, "licence": NASTY, "known": False},
    ]
    example.missing += [
        {"name": "Epsilon", "home": "https://example.org/epsilon", "wanted_by": "DSE, Table 4"},
        {"name": "Zeta", "home": "javascript:alert(1)", "wanted_by": EVIL},
    ]
    example.facts |= {"seeds": [1, 2], "command": NASTY}
    shapes = '<script>alert(1)</script><circle r="40" cx="45" cy="45"/>'
    example.plots["some_picture.svg"] = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="900" height="90">{shapes}</svg>'
    )
    return example
