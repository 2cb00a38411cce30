"""Results as LaTeX tables in booktabs' style, to be taken into a paper."""

import re
from collections.abc import Iterable, Sequence

from turnwise.core.html.document import plain
from turnwise.evaluation.outcomes import Row
from turnwise.evaluation.reporting.cells import (
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

#: Above so many columns a table is set as wide as the text.
_WIDE = 7

_ESCAPES = str.maketrans(
    {
        **{letter: f"\\{letter}" for letter in "&%$#_{}"},
        "\\": r"\textbackslash{}",
        "~": r"\textasciitilde{}",
        "^": r"\textasciicircum{}",
        "<": r"\textless{}",
        ">": r"\textgreater{}",
        "|": r"\textbar{}",
        # an optional argument must not begin where a line ends
        "[": "{[}",
        "]": "{]}",
        "−": "$-$",
        "±": r"$\pm$",
        "×": r"$\times$",
        "–": r"\textendash{}",
        "…": r"\ldots{}",
        "≥": r"$\geq$",
        "≤": r"$\leq$",
        "→": r"$\rightarrow$",
        "†": r"\dag{}",
        "♣": r"$\clubsuit$",
        "◇": r"$\diamond$",
        "♦": r"$\diamondsuit$",
    }
)


def escaped(text: object) -> str:
    """Text that LaTeX takes for nothing but text."""
    # two hyphens would be set as one dash
    return re.sub("-(?=-)", "-{}", " ".join(str(text).split()).translate(_ESCAPES))


def latex(results: Results) -> str:
    """All results, for a document to take in: tables, other figures, data sets and what is missing."""
    model = short_name(results.model)
    parts = [
        "% needs \\usepackage{booktabs,graphicx,longtable}; with symbols beyond Latin, LuaLaTeX or XeLaTeX\n",
        *(table_latex(table, model) for table in results.tables),
    ]
    if rest := others(results.rows, results.tables):
        parts.append(_rows(rest, f"{'Other figures' if results.tables else 'Figures'} of {model}."))
    if results.data:
        body = [[entry["name"], entry["licence"], known(entry), entry["sha256"][:16]] for entry in results.data]
        parts.append(_long("Data sets.", ("data set", "licence", "files", "SHA-256 begins"), "llll", body))
    if results.missing:
        body = [[entry["name"], entry["wanted_by"], entry["home"]] for entry in results.missing]
        parts.append(
            _long("Missing data sets.", ("data set", "wanted by", "where to get it"), "llp{.5\\textwidth}", body)
        )
    facts = {"suite": results.suite, **taken_with(), **results.facts}
    parts.append(
        f"\\paragraph{{Taken with}} {escaped('; '.join(f'{name} {plain(value)}' for name, value in facts.items()))}.\n"
    )
    return "\n".join(parts)


def table_latex(table: FilledTable, model: str = "ours") -> str:
    """A paper's table with our line in it.

    Args:
        table: printed lines and ours.
        model: what our line is called.
    """
    body: list[str] = []
    for line in lines(table, model):
        if line.kind == "group" and body:
            body.append("\\midrule")
        body.append(_line(_cells(line)))
    wide = len(table.columns) > _WIDE
    notes = [f"$^{{{mark}}}$\\,{escaped(note)}" if mark else escaped(note) for mark, note in footnotes(table)]
    if counts := sizes(table):
        notes.append(f"Runs $\\times$ test examples: {escaped(counts)}.")
    return "\n".join(
        [
            "\\begin{table}",
            "\\centering",
            "\\small",
            f"\\caption{{{escaped(table.title)}}}",
            *(["\\resizebox{\\textwidth}{!}{%"] if wide else []),
            f"\\begin{{tabular}}{{l{'r' * len(table.columns)}}}",
            "\\toprule",
            _line(["model", *map(escaped, table.columns)]),
            "\\midrule",
            *body,
            "\\bottomrule",
            "\\end{tabular}%" if wide else "\\end{tabular}",
            *(["}"] if wide else []),
            *(f"\\par\\footnotesize {note}" for note in notes),
            "\\end{table}",
            "",
        ]
    )


def _cells(line: Line) -> list[str]:
    head, cells = escaped(line.head), [escaped(cell) for cell in line.cells]
    if line.kind == "group":
        return [f"\\emph{{{head}}}", *cells]
    if line.kind == "proposed":
        return [f"{head} (proposed)", *cells]
    if line.kind == "ours":
        marked = (f"$^{{{mark}}}$" if mark else "" for mark in line.marks)
        return [f"\\textbf{{{head}}}", *(f"\\textbf{{{cell}}}{mark}" for cell, mark in zip(cells, marked, strict=True))]
    return [f"\\quad {head}" if line.kind in ("interval", "difference") else head, *cells]


def _rows(rows: Iterable[Row], caption: str) -> str:
    body = [
        [
            *(row.task, row.dataset, row.setting, row.metric),
            number(row.value, digits_of(row.value, row.low, row.high)),
            between(row.low, row.high, digits_of(row.value, row.low, row.high)),
            str(row.runs),
        ]
        for row in rows
    ]
    return _long(caption, ("task", "data set", "setting", "metric", "value", "95% interval", "runs"), "llllrrr", body)


def _long(caption: str, columns: Sequence[str], align: str, body: Iterable[Sequence[str]]) -> str:
    """A table that may run over several pages, of cells that are plain text."""
    return "\n".join(
        [
            "{\\small",
            f"\\begin{{longtable}}{{{align}}}",
            f"\\caption{{{escaped(caption)}}}\\\\",
            "\\toprule",
            _line(map(escaped, columns)),
            "\\midrule",
            "\\endhead",
            "\\bottomrule",
            "\\endfoot",
            *(_line(map(escaped, cells)) for cells in body),
            "\\end{longtable}}",
            "",
        ]
    )


def _line(cells: Iterable[str]) -> str:
    return " & ".join(cells) + r" \\"
