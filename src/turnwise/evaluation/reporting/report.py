"""Results as a folder: data to compute with, tables to paste, pictures, and one page to read that asks nothing of the network."""

import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from turnwise.core.html.document import contents, document, facts, image, listing, scrolling, section
from turnwise.core.html.elements import Markup, element, joined
from turnwise.core.plots import MissingPlotsError
from turnwise.evaluation.outcomes import Row
from turnwise.evaluation.reporting.cells import (
    ABSENT,
    OurCell,
    between,
    digits_of,
    footnotes,
    known,
    number,
    our_cells,
    sizes,
)
from turnwise.evaluation.reporting.dot_plot import describe_rows, dot_plot, dot_rows
from turnwise.evaluation.reporting.latex import latex
from turnwise.evaluation.reporting.markdown import markdown
from turnwise.evaluation.results import Results, taken_with, write_results
from turnwise.evaluation.tables import FilledGroup, FilledTable
from turnwise.models.model_card import short_name

_LEGEND = (
    "Below each of our figures: its 95% interval, and the difference to {}, with a hollow arrow where the printed figure lies "
    "within our interval. Printed figures come without intervals."
)

#: Above so many columns a table is printed across the page.
_WIDE = 8


def write_report(results: Results, folder: Path) -> None:
    """Writes everything: `results.json`, `outcomes.parquet`, `tables.md`, `tables.tex`, `figures/*.svg` and `report.html`.

    Equal results give equal bytes.
    """
    write_results(results, folder)
    (folder / "tables.md").write_text(markdown(results), encoding="utf-8")
    (folder / "tables.tex").write_text(latex(results), encoding="utf-8")
    for name, picture in results.figures.items():
        path = folder / "figures" / f"{name.removesuffix('.svg')}.svg"
        path.parent.mkdir(exist_ok=True)
        path.write_text(picture, encoding="utf-8")
    (folder / "report.html").write_text(page(results), encoding="utf-8")


def page(results: Results) -> str:
    """The page: summary, tables, pictures, all figures, data sets, and how they were taken."""
    sections = _sections(results)
    header = _header(results, [heading for heading, _ in sections])
    title = f"{short_name(results.model)}: evaluation, {results.suite}"
    return document(title, header, (content for _, content in sections), script="sortable.js")


def _sections(results: Results) -> list[tuple[str, Markup]]:
    """The parts of the page that have something to say, with their headings."""
    model = short_name(results.model)
    sections = [(table.title, _table(table, model, place)) for place, table in enumerate(results.tables)]
    parts = {
        "Pictures": _pictures(results.figures),
        "All figures": _all(results.rows),
        "Data sets": _data(results.data),
        "Missing data sets": _missing(results.missing),
        "Taken with": facts({"suite": results.suite, **results.facts, **taken_with()}),
    }
    for title, content in parts.items():
        if content:
            sections.append((title, section(len(sections), title, content)))
    return sections


# ---- the head of the page


def _header(results: Results, headings: Iterable[str]) -> Markup:
    name = short_name(results.model) if results.model else "Evaluation"
    sure = sum(bool(entry["known"]) for entry in results.data)
    totals = {
        "figures": [f"{len(results.rows):,}"],
        "tables": [f"{len(results.tables):,}"],
        "data sets": [f"{len(results.data):,} ", element("small", f"{sure:,} with known files")],
        "missing data sets": [f"{len(results.missing):,}"],
    }
    boxes = (element("div", element("dt", name), element("dd", *said)) for name, said in totals.items())
    return element(
        "header",
        element("p", f"Evaluation · {results.suite}", class_="eyebrow"),
        element("h1", name),
        element("p", results.model, class_="full") if results.model not in ("", name) else "",
        element("p", _summary(results.tables), class_="lead"),
        element("dl", *boxes, class_="totals"),
        contents(headings),
    )


def _summary(tables: Iterable[FilledTable]) -> str:
    """How our figures compare with the lines that the papers propose."""
    cells = [
        cell for table in tables for group in table.groups for cell in our_cells(table, group) if cell and cell.verdict
    ]
    if not cells:
        return "Every figure stands with its 95% interval, for which runs and test examples are drawn anew together."
    unlike = sum(bool(cell.mark) for cell in cells)
    verdicts = [cell.verdict for cell in cells]
    better, worse, within = (verdicts.count(verdict) for verdict in ("better", "worse", "within"))
    text = (
        f"{len(cells)} figures stand beside the line that a paper proposes: {better} are better, {worse} worse, and in {within} "
        "the printed figure lies within our 95% interval."
    )
    every = "None of them is" if unlike == len(cells) else f"{unlike} of them are not"
    return text + (f" {every} like for like; the notes below each table say why." if unlike else "")


# ---- the paper's tables


def _table(table: FilledTable, model: str, place: int) -> Markup:
    heads = (element("th", column, scope="col", class_="number") for column in table.columns)
    head = element("thead", element("tr", element("th", "model", scope="col"), *heads))
    body = (_group(table, group, model) for group in table.groups)
    notes = [[element("sup", mark), " ", note] if mark else [note] for mark, note in footnotes(table)]
    if any(cell and cell.delta for group in table.groups for cell in our_cells(table, group)):
        notes.append([_LEGEND.format(table.proposed)])
    if counts := sizes(table):
        notes.append([f"Runs × test examples: {counts}."])
    listed = element("ul", *(element("li", *note) for note in notes), class_="notes") if notes else Markup()
    content = [scrolling(table.title, element("table", head, *body, class_="paper")), listed, _dot_plot(table, model)]
    return section(place, table.title, joined(content), "wide" if len(table.columns) > _WIDE else None)


def _dot_plot(table: FilledTable, model: str) -> Markup:
    rows = dot_rows(table)
    if not rows:
        return Markup()
    try:
        picture = image(dot_plot(rows, table, model), describe_rows(rows, table, model))
    except MissingPlotsError as error:
        return element("p", str(error), class_="remark")
    return element("figure", picture, class_="dots", tabindex=0, role="region", aria_label="Dot plot")


def _group(table: FilledTable, group: FilledGroup, model: str) -> Markup:
    rows = []
    if group.name:
        width = len(table.columns) + 1
        head = element("th", element("span", group.name), scope="rowgroup", colspan=width)
        rows.append(element("tr", head, class_="group"))
    for line in group.printed:
        tag = element("span", "proposed", class_="tag") if line.model == table.proposed else ""
        cells = (element("td", number(value, table.digits), class_="number") for value in line.values)
        rows.append(element("tr", element("th", line.model, tag, scope="row"), *cells))
    if ours := our_cells(table, group):
        cells = (_our_cell(cell, table) for cell in ours)
        rows.append(element("tr", element("th", model, scope="row"), *cells, class_="ours"))
    return element("tbody", *rows)


def _our_cell(cell: OurCell | None, table: FilledTable) -> Markup:
    if cell is None:
        return element("td", ABSENT, class_="number")
    row = cell.row
    low, high, deviation = (number(value, table.digits) for value in (row.low, row.high, row.std))
    return element(
        "td",
        element("strong", cell.value),
        element("sup", cell.mark) if cell.mark else "",
        element("small", f"[{low}, {high}]" if math.isfinite(row.low) and math.isfinite(row.high) else "no interval"),
        _delta(cell, table),
        class_="number",
        title=f"{row.dataset}, {row.setting}, {row.metric}: {row.runs:,} × {row.n:,} examples, deviation over runs {deviation}",
    )


def _delta(cell: OurCell, table: FilledTable) -> Markup:
    if cell.printed is None or not cell.verdict:
        return Markup()
    up = cell.row.value >= cell.printed
    arrow = ("△" if up else "▽") if cell.verdict == "within" else ("▲" if up else "▼")
    said = {"better": "better than", "worse": "worse than", "within": "our interval holds the figure of"}[cell.verdict]
    title = f"{said} {table.proposed}: {number(cell.printed, table.digits)}"
    return element("small", f"{arrow} {cell.delta}", class_=cell.verdict, title=title)


# ---- everything else


def _pictures(pictures: dict[str, str]) -> Markup:
    drawn = []
    for name, picture in pictures.items():
        title = name.removesuffix(".svg").replace("-", " ").replace("_", " ")
        drawn.append(element("figure", image(picture, title), element("figcaption", title)))
    return joined(drawn)


def _all(rows: Sequence[Row]) -> Markup:
    if not rows:
        return Markup()
    numbers = ("figure", "95% interval", "deviation over runs", "runs", "examples", "printed")
    columns = [
        *((name, None) for name in ("task", "data set", "setting", "metric")),
        *((name, "number") for name in numbers),
    ]
    return listing("All figures", columns, map(_row, rows), "list sortable")


def _row(row: Row) -> list[Markup]:
    digits = digits_of(row.value, row.low, row.high)
    printed = "" if row.published is None else number(row.published, digits)
    source = ", ".join(filter(None, [row.table, "not like for like" if row.comparable else ""])) if printed else ""
    values: list[tuple[float | None, str]] = [
        (row.value, element("strong", number(row.value, digits))),
        (row.low, between(row.low, row.high, digits)),
        (row.std, number(row.std, digits)),
        (row.runs, f"{row.runs:,}"),
        (row.n, f"{row.n:,}"),
        (row.published, joined([printed, element("small", source)]) if source else printed),
    ]
    return [
        *(element("td", text) for text in (row.task, row.dataset, row.setting, row.metric)),
        *(element("td", text, class_="number", data_value=_sortable(value)) for value, text in values),
    ]


def _sortable(value: float | None) -> str:
    return "" if value is None or not math.isfinite(value) else repr(value)


def _data(entries: Sequence[dict[str, Any]]) -> Markup:
    if not entries:
        return Markup()
    columns = [("data set", None), ("licence", None), ("files", None), ("examples", "number"), ("SHA-256", "hash")]
    body = (
        [
            element("th", entry["name"], scope="row"),
            element("td", entry["licence"]),
            element("td", f"{'✓' if entry['known'] else '?'} {known(entry)}"),
            element("td", f"{entry['examples']:,}" if entry.get("examples") is not None else "", class_="number"),
            element("td", element("code", entry["sha256"]), class_="hash"),
        ]
        for entry in entries
    )
    note = "Files are ‘as known’ where they hash to what they did when figures were first taken on them."
    return joined([listing("Data sets", columns, body), element("p", note, class_="remark")])


def _missing(entries: Sequence[dict[str, str]]) -> Markup:
    if not entries:
        return Markup()
    body = (
        [
            element("th", entry["name"], scope="row"),
            element("td", entry["wanted_by"]),
            element("td", _linked(entry["home"])),
        ]
        for entry in entries
    )
    return listing("Missing data sets", [("data set", None), ("wanted by", None), ("where to get it", None)], body)


def _linked(home: str) -> str:
    web = home.startswith(("https://", "http://")) and not any(map(str.isspace, home))
    return element("a", home, href=home, rel="noreferrer") if web else home
