"""A table at a glance: our figures with their intervals as dots on a line, among the figures that the paper prints.

Places are percentages and names are text of the page, so that a plot is as wide as its reader's screen and stays readable.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from turnwise.core.html.elements import Markup, element, joined
from turnwise.evaluation.reporting.cells import OurCell, number, our_cells
from turnwise.evaluation.tables import FilledTable

#: Columns share an axis unless one of them would take up less than this share of it.
_SHARE = 1 / 12

#: Room at the ends of an axis, in percent of its length.
_MARGIN = 4.0


@dataclass(frozen=True, slots=True)
class _Strip:
    """One of our figures, and what the paper prints in the same place."""

    name: str
    column: str
    ours: OurCell
    printed: tuple[tuple[str, float], ...]

    @property
    def values(self) -> list[float]:
        row = self.ours.row
        return [
            value
            for value in (row.value, row.low, row.high, *(value for _, value in self.printed))
            if math.isfinite(value)
        ]


def dots(table: FilledTable, model: str) -> Markup:
    """The plot as a figure of a page; empty where none of our figures is in the table."""
    strips = _strips(table)
    columns = [[strip for strip in strips if strip.column == column] for column in table.columns]
    columns = [column for column in columns if column]
    if not columns:
        return Markup()
    panels = [strips] if _alike(columns) else columns
    keys = [_key("ours", f"{model}, with its 95% interval")]
    keys += [_key("proposed", table.proposed)] if any(strip.ours.printed is not None for strip in strips) else []
    keys += [_key("printed", "other printed figures")] if any(strip.printed for strip in strips) else []
    caption = joined([*keys, "Every column has an axis of its own." if len(panels) > 1 else ""], " ")
    return element(
        "figure", *(_panel(panel, table, model) for panel in panels), element("figcaption", caption), class_="dots"
    )


def _strips(table: FilledTable) -> list[_Strip]:
    strips = []
    for group in table.groups:
        for place, ours in enumerate(our_cells(table, group)):
            if ours is None or not math.isfinite(ours.row.value):
                continue
            values = ((line.model, line.values[place]) for line in group.printed)
            printed = tuple((name, value) for name, value in values if value is not None)
            column = table.columns[place]
            strips.append(_Strip(f"{group.name} · {column}" if group.name else column, column, ours, printed))
    return strips


def _alike(columns: Sequence[Sequence[_Strip]]) -> bool:
    """Whether all columns can be read on one axis."""
    values = [[value for strip in column for value in strip.values] for column in columns]
    whole = max(map(max, values)) - min(map(min, values))
    return all(max(column) - min(column) >= whole * _SHARE for column in values)


def _panel(strips: Sequence[_Strip], table: FilledTable, model: str) -> Markup:
    values = [value for strip in strips for value in strip.values]
    low, high = min(values), max(values)
    if low == high:
        low, high = low - 0.5, high + 0.5

    def place(value: float) -> str:
        return f"{_MARGIN + (100 - 2 * _MARGIN) * (value - low) / (high - low):.2f}%"

    ticks, digits = _ticks(low, high)
    scale = element("svg", *(element("text", number(tick, digits), x=place(tick), y=12) for tick in ticks))
    grid = [element("line", class_="tick", x1=place(tick), x2=place(tick), y1=0, y2="100%") for tick in ticks]
    grid.append(element("line", class_="axis", x1=0, x2="100%", y1="50%", y2="50%"))
    drawn = (
        element(
            "div",
            element("span", strip.name, class_="name"),
            element(
                "svg", *grid, *_marks(strip, table, model, place), role="img", aria_label=_said(strip, table, model)
            ),
            element("span", strip.ours.value, class_="value"),
            class_="strip",
        )
        for strip in strips
    )
    below = element("div", element("span"), scale, element("span"), class_="strip scale", aria_hidden="true")
    return element("div", *drawn, below, class_="panel")


def _marks(strip: _Strip, table: FilledTable, model: str, place: Callable[[float], str]) -> list[Markup]:
    """From back to front: other printed figures, the proposed line's, our interval, ours."""
    marks = []
    for name, value in sorted(strip.printed, key=lambda line: line[0] == table.proposed):
        title = element("title", f"{name} {number(value, table.digits)}")
        if name == table.proposed:
            diamond = element("path", title, class_="proposed", d="M0-6 6 0 0 6-6 0Z")
            marks.append(element("svg", diamond, x=place(value), y="50%", overflow="visible"))
        else:
            marks.append(element("circle", title, class_="printed", cx=place(value), cy="50%", r="3.5"))
    row = strip.ours.row
    if math.isfinite(row.low) and math.isfinite(row.high):
        marks.append(element("line", class_="interval", x1=place(row.low), x2=place(row.high), y1="50%", y2="50%"))
    title = element("title", f"{model} {strip.ours.value}, 95% interval {strip.ours.interval}")
    return [*marks, element("circle", title, class_="ours", cx=place(row.value), cy="50%", r=5)]


def _said(strip: _Strip, table: FilledTable, model: str) -> str:
    """What a strip shows, in words."""
    printed = "".join(f"; {name} {number(value, table.digits)}" for name, value in strip.printed)
    return f"{strip.name}: {model} {strip.ours.value}, 95% interval {strip.ours.interval}{printed}"


def _key(kind: str, text: str) -> Markup:
    """A mark and what it stands for."""
    marks = {
        "ours": [
            element("line", class_="interval", x1=2, x2=20, y1=7, y2=7),
            element("circle", class_="ours", cx=11, cy=7, r=5),
        ],
        "proposed": [element("path", class_="proposed", d="M11 1 17 7 11 13 5 7Z")],
        "printed": [element("circle", class_="printed", cx=11, cy=7, r="3.5")],
    }[kind]
    return element("span", element("svg", *marks, width=22, height=14, aria_hidden="true"), " ", text, class_="key")


def _ticks(low: float, high: float) -> tuple[list[float], int]:
    """About five round numbers between two others, and the decimals that they need."""
    raw = (high - low) / 5
    power = math.floor(math.log10(raw))
    step = next(factor * 10.0**power for factor in (1, 2, 5, 10) if factor * 10.0**power >= raw)
    ticks = [place * step for place in range(math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) + 1)]
    return ticks, max(0, -math.floor(math.log10(step) + 1e-9))
