"""Charts: well-formed SVG, deterministic, every finite point drawn once and inside the picture, texts escaped."""

import math
import re
import sys
from itertools import pairwise
from pathlib import Path
from xml.etree import ElementTree

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from tests.helpers.svg import HREF, SVG, group, marks, paths, texts
from turnwise.core.errors import MissingPackageError
from turnwise.core.plots import Cloud, line_chart, palette, scatter_chart, write_chart

HOSTILE = [
    'a < b & c > "d" \' </text><script>alert(1)</script>',
    "$\\frac{1}",
    "_hidden",
    "control \x00 \x1b characters",
    "数 \U0001f642",
    "two\nlines",
]
NUMBERS = st.floats(-1e6, 1e6) | st.sampled_from([math.nan, math.inf, -math.inf])
POINTS = st.lists(st.tuples(NUMBERS, NUMBERS), max_size=8)
CLOUDS = st.lists(
    st.builds(
        Cloud,
        POINTS,
        st.just("#123456"),
        st.sampled_from(["circle", "triangle", "ring"]),
        st.text(st.characters(categories=["L", "P", "S"]), max_size=40),
    ),
    max_size=4,
)
few_examples = settings(deadline=None, max_examples=15, phases=set(Phase) - {Phase.shrink})


def parse(svg: str) -> ElementTree.Element:
    """Return the root element of a chart that refers to nothing outside itself."""
    root = ElementTree.fromstring(svg)
    assert all(element.attrib[HREF].startswith("#") for element in root.iter() if HREF in element.attrib)
    assert "<script" not in svg
    assert not re.search(r"(?:src|href)=\"http|url\((?!#)|@import", svg)
    return root


def size(root: ElementTree.Element) -> tuple[float, float]:
    _, _, width, height = map(float, root.attrib["viewBox"].split())
    return width, height


@few_examples
@given(CLOUDS)
def test_scatter_chart_draws_every_finite_point_once(clouds: list[Cloud]) -> None:
    svg = scatter_chart(clouds, "a < b & c")
    assert svg == scatter_chart(clouds, "a < b & c")
    root = parse(svg)
    width, height = size(root)
    for number, cloud in enumerate(clouds):
        finite = [point for point in cloud.points if all(map(math.isfinite, point))]
        positions = marks(group(root, f"cloud-{number}")) if finite else []
        assert len(positions) == len(finite)
        assert all(0 < x < width and 0 < y < height for x, y in positions)
    assert texts(root) == ["a < b & c", *(cloud.name for cloud in clouds if cloud.name)]


def test_scatter_chart_keeps_proportions() -> None:
    """Both directions have the same scale, and up is up: a right angle with legs 4 and 3 stays one."""
    root = parse(scatter_chart([Cloud([(0, 0), (40, 0), (40, 30)], "red")], ""))
    first, second, third = marks(group(root, "cloud-0"))
    assert first[1] == second[1] > third[1]
    assert third[0] == second[0] > first[0]
    assert (second[0] - first[0]) / (second[1] - third[1]) == pytest.approx(4 / 3, abs=0.01)


def test_long_legends_enlarge_the_chart() -> None:
    clouds = [Cloud([(0, 0)], "red", name=f"intent {number}") for number in range(60)]
    root = parse(scatter_chart(clouds, ""))
    _, height = size(root)
    assert all(0 < float(text.attrib["y"]) < height for text in root.iter(f"{SVG}text"))
    assert texts(root) == [cloud.name for cloud in clouds]


def test_palette_has_distinct_colours() -> None:
    assert palette(0) == []
    assert len(set(palette(40))) == 40


def test_line_chart_leaves_out_points_that_are_not_finite() -> None:
    root = parse(line_chart({"a": [(1, 2), (3, math.nan), (5, 6)], "b": [(1, 1), (2, 3), (4, 7)]}, "t", "step <"))
    assert [len(paths(group(root, f"line-{number}"))[0]) for number in range(2)] == [2, 3]
    assert {"t", "step <", "a", "b"} <= set(texts(root))


INTERVALS = st.lists(st.tuples(st.floats(-100, 100), st.floats(-100, 100), st.floats(0.1, 20)), min_size=2, max_size=5)


@few_examples
@given(
    st.lists(INTERVALS, min_size=1, max_size=8),
    st.dictionaries(st.sampled_from("xyz"), st.floats(-100, 100), max_size=2),
    st.booleans(),
    st.booleans(),
)
def test_line_chart_with_intervals_stays_inside_the_picture(
    lines: list[list[tuple[float, float, float]]], levels: dict[str, float], from_zero: bool, ticked: bool
) -> None:
    series = {f"line {number}": sorted((x, y) for x, y, _ in line) for number, line in enumerate(lines)}
    intervals = {
        f"line {number}": sorted((x, y - width, y + width) for x, y, width in line) for number, line in enumerate(lines)
    }
    ticks = {x: f"{x:g}" for line in series.values() for x, _ in line} if ticked else None
    root = parse(
        line_chart(
            series,
            "t",
            "x",
            intervals=intervals,
            levels=levels,
            x_ticks=ticks,
            from_zero=from_zero,
            legend_outside=True,
        )
    )
    width, height = size(root)
    for number, line in enumerate(lines):
        points = marks(group(root, f"line-{number}"))
        bars = paths(group(root, f"intervals-{number}"))
        assert len(points) == len(bars) == len(line)
        assert all(0 < x < width and 0 < y < height for x, y in points)
        assert all(0 < y < height for bar in bars for _, y in bar)
    bands = [element for element in root.iter(f"{SVG}g") if element.get("id") == "band"]
    assert len(bands) == (len(lines) == 1)
    assert {*series, *levels} <= set(texts(root))


def test_line_chart_places_intervals_and_levels_by_its_axes() -> None:
    root = parse(
        line_chart(
            {"": [(0, 51), (1, 52)]},
            "t",
            "x",
            intervals={"": [(0, 50, 53), (1, 51, 54)]},
            levels={"start": 52.5},
            x_ticks={0: "no", 1: "yes"},
            from_zero=False,
            legend_outside=True,
        )
    )
    ticks = {}
    for tick in root.iter(f"{SVG}g"):
        if tick.get("id", "").startswith("ytick"):
            ticks[float(texts(tick)[0])] = marks(tick)[0][1]
    assert {50, 51, 52, 53, 54} <= set(ticks)
    (first_x, first_y), (second_x, second_y) = marks(group(root, "line-0"))
    assert [first_y, second_y] == pytest.approx([ticks[51], ticks[52]], abs=0.1)
    bars = paths(group(root, "intervals-0"))
    assert [y for bar in bars for _, y in bar] == pytest.approx([ticks[50], ticks[53], ticks[51], ticks[54]], abs=0.1)
    ((_, level), _) = paths(group(root, "level"))[0]
    assert level == pytest.approx((ticks[52] + ticks[53]) / 2, abs=0.1)
    labels = {text.text: float(text.attrib["x"]) for text in root.iter(f"{SVG}text")}
    assert [labels["no"], labels["yes"]] == pytest.approx([first_x, second_x], abs=0.1)
    assert "start" in labels
    assert "" not in labels  # a line without a name has no entry in the legend


@pytest.mark.parametrize(("values", "bottom"), [([50, 60], 0), ([-60, -50], -60), ([-1, 1], -1)])
def test_zero_is_on_the_vertical_axis(values: list[float], bottom: float) -> None:
    root = parse(line_chart({"a": [(1, values[0]), (3, values[1])]}, "t", "step"))
    ticks = [float(texts(tick)[0].replace("−", "-")) for tick in root.iter(f"{SVG}g") if "ytick" in tick.get("id", "")]
    assert min(ticks) <= bottom
    assert 0 in ticks


@pytest.mark.parametrize(("count", "letters"), [(2, 80), (5, 1), (12, 12), (60, 1), (60, 80)])
def test_tick_labels_do_not_overlap(count: int, letters: int) -> None:
    """Upright where they fit; else slanted, fewer where even those would overlap, and within the picture."""
    ticks = {float(place): "m" * letters for place in range(count)}
    root = parse(line_chart({"": [(x, 1.0) for x in ticks]}, "t", "x", x_ticks=ticks, from_zero=False))
    labels = [text for text in root.iter(f"{SVG}text") if "m" in (text.text or "")]
    turns = {re.search(r"rotate\((\S+) (\S+) (\S+)\)", text.attrib["transform"]).groups() for text in labels}  # type: ignore[union-attr]
    angles = {float(angle) for angle, _, _ in turns}
    gaps = [second - first for first, second in pairwise(sorted(float(x) for _, x, _ in turns))]
    if angles == {-45.0}:
        assert min(gaps, default=12) >= 12
        assert all(float(y) < size(root)[1] - 10 for _, _, y in turns)
    else:
        assert angles == {0.0}
        assert len(labels) == count
        assert min(gaps) > len(labels[0].text or "") * 5


def test_charts_without_a_finite_point() -> None:
    nowhere = {"a": [(math.nan, 1.0)]}
    assert "a" in texts(parse(line_chart(nowhere, "t", "x", levels={"b": math.nan})))
    parse(line_chart(nowhere, "t", "x", from_zero=False, x_ticks={}, intervals={}, legend_outside=True))
    parse(line_chart({}, "t", "x", log_x=True, percent=True))
    parse(scatter_chart([], ""))


@pytest.mark.parametrize("text", HOSTILE)
def test_names_are_text_whatever_they_contain(text: str) -> None:
    shown = " ".join(re.sub(r"[\x00\x1b]", "\ufffd", text).split())
    ticks = {0.0: text, 1.0: "b"}
    line = line_chart({text: [(0, 1), (1, 2)]}, text, text, x_ticks=ticks, levels={text: 1.5})
    assert texts(parse(line)).count(shown) >= 4
    assert texts(parse(scatter_chart([Cloud([(0, 0)], "red", name=text)], text))) == [shown, shown]


def test_without_matplotlib_the_message_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(MissingPackageError, match=r"pip install 'turnwise\[plots\]'"):
        line_chart({"a": [(1, 2)]}, "t", "x")
    with pytest.warns(UserWarning, match=r"curve\.svg is not drawn: .*turnwise\[plots\]"):
        write_chart(tmp_path / "curve.svg", lambda: scatter_chart([], "t"))
    assert not (tmp_path / "curve.svg").exists()


def test_the_users_style_has_no_influence(monkeypatch: pytest.MonkeyPatch) -> None:
    import matplotlib

    chart = line_chart({"a": [(1, 2), (3, 4)]}, "t", "x")
    with matplotlib.rc_context({"font.size": 30, "lines.linewidth": 9, "svg.fonttype": "path"}):
        assert line_chart({"a": [(1, 2), (3, 4)]}, "t", "x") == chart
        assert matplotlib.rcParams["font.size"] == 30
