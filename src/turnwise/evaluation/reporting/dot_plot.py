"""A paper's table as a dot plot: our results with their confidence intervals among the published values."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from turnwise.core.plots import BLUE, chart_style, shorten_label, to_svg
from turnwise.evaluation.tables import MeasuredCell, ResultTable, format_number, measured_cells

#: Columns share an axis unless one of them would take up less than this fraction of it.
_SHARED_AXIS = 1 / 12

#: Colours on light pages, and those that replace them on dark ones.
_INK, _RULE, _OURS, _PROPOSED, _PUBLISHED = "#1c2228", "#d8dce0", BLUE, "#a35f00", "#7b8590"
_DARK = {_INK: "#e4e8eb", _RULE: "#313940", _OURS: "#8fbce8", _PROPOSED: "#e6ad5c", _PUBLISHED: "#7d8893"}


@dataclass(frozen=True, slots=True)
class DotRow:
    """One of our results and the published values of the same cell, by model."""

    name: str
    column: str
    ours: MeasuredCell
    published: tuple[tuple[str, float], ...]

    @property
    def values(self) -> list[float]:
        """All finite values that the row shows."""
        row = self.ours.row
        values = (row.value, row.low, row.high, *(value for _, value in self.published))
        return [value for value in values if math.isfinite(value)]


def dot_rows(table: ResultTable) -> list[DotRow]:
    """Return a row for each of our results in the table."""
    rows = []
    for group in table.groups:
        for place, ours in enumerate(measured_cells(table, group)):
            if ours is None or not math.isfinite(ours.row.value):
                continue
            column = table.columns[place]
            values = [(line.model, line.values[place]) for line in group.published]
            if column in group.common_means:  # the printed means are over more data sets than ours
                values = [(table.proposed, group.common_means[column])]
            published = tuple((name, value) for name, value in values if value is not None)
            rows.append(DotRow(f"{group.name} · {column}" if group.name else column, column, ours, published))
    return rows


def describe_rows(rows: Sequence[DotRow], table: ResultTable, model: str) -> str:
    """Return what a dot plot shows as text, for screen readers."""
    return ". ".join(
        f"{row.name}: {model} {row.ours.value}, 95% interval {row.ours.interval}"
        + "".join(f"; {name} {format_number(value, table.digits)}" for name, value in row.published)
        for row in rows
    )


def dot_plot(rows: Sequence[DotRow], table: ResultTable, model: str) -> str:
    """Draw the rows as an SVG whose colours follow the light or dark mode of the browser.

    Columns whose values lie in different ranges get an axis each.
    """
    columns = [[row for row in rows if row.column == column] for column in table.columns]
    panels = [rows] if _share_axis(columns) else [column for column in columns if column]
    inked = dict.fromkeys(("text.color", "xtick.labelcolor", "ytick.labelcolor"), _INK)
    with chart_style(inked | dict.fromkeys(("axes.edgecolor", "grid.color"), _RULE)):
        from matplotlib.figure import Figure

        heights = [18 * len(panel) for panel in panels]
        figure = Figure(figsize=(420 / 72, (sum(heights) + 24 * len(panels)) / 72))
        figure.patch.set_visible(False)
        grid = figure.subplots(len(panels), squeeze=False, gridspec_kw={"height_ratios": heights, "hspace": 0.5})[:, 0]
        legend: dict[str, object] = {}
        for axes, panel in zip(grid, panels, strict=True):
            for place, row in enumerate(panel):
                cell = row.ours.row
                if math.isfinite(cell.low) and math.isfinite(cell.high):
                    axes.hlines(place, cell.low, cell.high, color=_OURS, linewidth=2.5, alpha=0.55, gid="interval")
                proposed = [value for name, value in row.published if name == table.proposed]
                others = [value for name, value in row.published if name != table.proposed]
                for name, values, colour, kind, options in (
                    ("other published values", others, _PUBLISHED, "published", {"markerfacecolor": "none"}),
                    (table.proposed, proposed, _PROPOSED, "proposed", {"marker": "D"}),
                    (
                        f"{shorten_label(model, 40)}, with its 95% interval",
                        [cell.value],
                        _OURS,
                        "ours",
                        {"markersize": 7},
                    ),
                ):
                    if values:
                        style = {"linestyle": "", "marker": "o", "color": colour, "gid": kind} | options
                        (legend[name],) = axes.plot(values, [place] * len(values), **style)
                axes.text(1.02, place, row.ours.value, transform=axes.get_yaxis_transform(), va="center")
            axes.set_yticks(range(len(panel)), [shorten_label(row.name, 40) for row in panel])
            axes.set_ylim(len(panel) - 0.5, -0.5)
            axes.tick_params(length=0)
            axes.patch.set_visible(False)
            axes.grid()
        labels = [shorten_label(name) for name in legend]
        grid[0].legend(list(legend.values()), labels, loc="lower center", bbox_to_anchor=(0.5, 1), ncols=3)
        return _adapt_to_dark_mode(to_svg(figure))


def _share_axis(columns: Sequence[Sequence[DotRow]]) -> bool:
    values = [[value for row in column for value in row.values] for column in columns if column]
    span = max(map(max, values)) - min(map(min, values))
    return all(max(column) - min(column) >= span * _SHARED_AXIS for column in values)


def _adapt_to_dark_mode(svg: str) -> str:
    """Replace the colours by CSS variables that depend on the colour scheme."""
    light, dark = "", ""
    for number_of_colour, (colour, replacement) in enumerate(_DARK.items()):
        svg = svg.replace(colour, f"var(--colour-{number_of_colour})")
        light += f"--colour-{number_of_colour}:{colour};"
        dark += f"--colour-{number_of_colour}:{replacement};"
    rules = f":root{{{light}}}@media (prefers-color-scheme:dark){{:root{{{dark}}}}}"
    return svg.replace("<defs>", f"<style>{rules}</style>\n <defs>", 1)
