"""LaTeX tables are well formed: environments and braces close, lines are of one length, everything is escaped."""

import re

from hypothesis import given
from hypothesis import strategies as st

from tests.helpers.filled import NASTY, results, table, wide
from turnwise.evaluation.reporting.latex import escaped, latex, table_latex


def bare(text: str) -> str:
    """Without what is escaped."""
    return re.sub(r"\\[&%$#_{}]", "", text)


def test_environments_and_braces_close() -> None:
    text = bare(latex(results()).split("\n", 1)[1])
    open_ones: list[str] = []
    for kind, name in re.findall(r"\\(begin|end)\{(\w+)\}", text):
        if kind == "begin":
            open_ones.append(name)
        else:
            assert open_ones.pop() == name
    assert not open_ones
    depth = 0
    for letter in text:
        depth += {"{": 1, "}": -1}.get(letter, 0)
        assert depth >= 0
    assert depth == 0
    assert text.count("$") % 2 == 0
    assert "%" not in re.sub(r"%$", "", text, flags=re.MULTILINE)


def test_lines_have_as_many_cells_as_there_are_columns() -> None:
    text = latex(results())
    found = re.findall(r"\\begin\{(tabular|longtable)\}\{((?:[lr]|p\{[^}]*\})+)\}\n(.*?)\\end\{\1\}", text, re.DOTALL)
    assert len(found) == 5
    for _, columns, body in found:
        lines = [line for line in body.splitlines() if line.endswith(r"\\") and not line.startswith(r"\caption")]
        assert {bare(line).count("&") for line in lines} == {len(re.sub(r"p\{[^}]*\}", "l", columns)) - 1}
        for rule in (r"\toprule", r"\midrule", r"\bottomrule"):
            assert rule in body


def test_figures_are_there() -> None:
    text = table_latex(table(), "mine")
    assert r"BERT & 36.98 & \textendash{} & 62.51 & 2.00 \\" in text
    assert r"DSE (proposed) & 62.53 & 43.12 & 79.57 & 1.50 \\" in text
    assert r"\textbf{mine} & \textbf{65.00} & \textbf{41.00} & \textbf{79.60} & \textbf{\textendash{}} \\" in text
    assert r"\quad difference to DSE & +2.47 & $-$2.12 & +0.03 &  \\" in text
    assert r"\textbf{70.00}$^{a}$" in text
    assert r"$^{a}$\,Not like for like: other texts; fewer of them" in text
    assert "resizebox" not in text
    assert r"\resizebox{\textwidth}{!}{%" in table_latex(wide())


def test_special_letters_are_escaped() -> None:
    assert escaped("a_b & 50% #1 {x}") == r"a\_b \& 50\% \#1 \{x\}"
    assert (
        escaped("\\input ~ ^ −1 ±2 --out")
        == r"\textbackslash{}input \textasciitilde{} \textasciicircum{} $-$1 $\pm$2 -{}-out"
    )
    assert escaped(NASTY) in latex(results())


@given(st.text("ab&%$#_{}~^\\-<>|[] \n"))
def test_escaped_text_is_one_line_of_letters_and_balanced_groups(text: str) -> None:
    plain = bare(escaped(text))
    assert not re.search(r"[&%$#_~^]", plain)
    assert plain.count("{") == plain.count("}")
    assert "\n" not in plain
    assert "--" not in escaped(text)
