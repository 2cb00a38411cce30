"""Charts: well-formed SVG, every finite point drawn once and inside the picture, texts escaped."""

import math
from itertools import pairwise
from xml.etree import ElementTree

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from turnwise.core.svg import Cloud, line_chart, palette, scatter_chart

SVG = "{http://www.w3.org/2000/svg}"
NUMBERS = st.floats(-1e6, 1e6) | st.just(float("nan")) | st.just(float("inf"))
POINTS = st.lists(st.tuples(NUMBERS, NUMBERS), max_size=12)
CLOUDS = st.lists(
    st.builds(
        Cloud,
        POINTS,
        st.just("#123456"),
        st.sampled_from(["circle", "triangle", "ring"]),
        st.text(st.characters(categories=["L", "P", "S"]), max_size=40),
    ),
    max_size=6,
)


@settings(deadline=None)
@given(CLOUDS)
def test_scatter_draws_every_finite_point_once(clouds: list[Cloud]) -> None:
    root = ElementTree.fromstring(scatter_chart(clouds, "a < b & c"))
    width, height = float(root.attrib["width"]), float(root.attrib["height"])
    groups = root.findall(f"{SVG}g[@class='points']")
    assert len(groups) == len(clouds)
    for cloud, group in zip(clouds, groups, strict=True):
        finite = [point for point in cloud.points if all(map(math.isfinite, point))]
        assert [mark.tag for mark in group] == [f"{SVG}polygon" if cloud.mark == "triangle" else f"{SVG}circle"] * len(
            finite
        )
        for mark in group:
            assert (mark.attrib["fill"] == "none") == (cloud.mark == "ring")
            corners = mark.get("points", f"{mark.get('cx')},{mark.get('cy')}").split()
            for x, y in (map(float, corner.split(",")) for corner in corners):
                assert 0 < x < width
                assert 0 < y < height
    legend = root.find(f"{SVG}g[@class='legend']")
    assert legend is not None
    names = [text.text or "" for text in legend.findall(f"{SVG}text")]
    assert names == [cloud.name if len(cloud.name) <= 30 else f"{cloud.name[:29]}…" for cloud in clouds if cloud.name]
    assert root.findtext(f"{SVG}text") == "a < b & c"


def test_scatter_keeps_shapes() -> None:
    """One scale for both directions, and upwards is upwards: a right angle with legs 4 and 3 stays one."""
    root = ElementTree.fromstring(scatter_chart([Cloud([(0, 0), (40, 0), (40, 30)], "red")], ""))
    first, second, third = ((float(mark.attrib["cx"]), float(mark.attrib["cy"])) for mark in root.iter(f"{SVG}circle"))
    assert first[1] == second[1]
    assert second[0] == third[0]
    assert second[0] > first[0]
    assert third[1] < second[1]
    assert (second[0] - first[0]) / (second[1] - third[1]) == pytest.approx(4 / 3, abs=0.01)


def test_a_long_legend_makes_the_picture_longer() -> None:
    root = ElementTree.fromstring(
        scatter_chart([Cloud([(0, 0)], "red", name=f"intent {number}") for number in range(60)], "")
    )
    assert max(float(text.attrib["y"]) for text in root.iter(f"{SVG}text")) < float(root.attrib["height"])


@pytest.mark.parametrize("count", [0, 1, 2, 10, 40])
def test_palette_has_distinct_colours(count: int) -> None:
    colours = palette(count)
    assert len(set(colours)) == count
    assert all(len(colour) == 7 and int(colour[1:], 16) >= 0 for colour in colours)


def test_line_chart_has_a_line_a_series() -> None:
    root = ElementTree.fromstring(line_chart({"a": [(1, 2), (3, float("nan")), (5, 6)], "b": [(1, 1)]}, "t", "step <"))
    assert [len(line.attrib["points"].split()) for line in root.iter(f"{SVG}polyline")] == [2, 1]
    assert [text.text for text in root.iter(f"{SVG}text")][-1] == "step <"


INTERVALS = st.lists(st.tuples(st.floats(-100, 100), st.floats(-100, 100), st.floats(0, 20)), min_size=1, max_size=6)


def corners(root: ElementTree.Element) -> list[tuple[float, float]]:
    """Where lines, bands and marks of a chart are."""
    found = [
        (float(corner[0]), float(corner[1]))
        for shape in (*root.iter(f"{SVG}polyline"), *root.iter(f"{SVG}polygon"))
        for corner in (corner.split(",") for corner in shape.attrib["points"].split())
    ]
    found += [(float(mark.attrib["cx"]), float(mark.attrib["cy"])) for mark in root.iter(f"{SVG}circle")]
    found += [
        (float(line.attrib[f"x{end}"]), float(line.attrib[f"y{end}"]))
        for line in root.iter(f"{SVG}line")
        for end in "12"
    ]
    return found


@settings(deadline=None)
@given(
    st.lists(INTERVALS, min_size=1, max_size=9),
    st.dictionaries(st.sampled_from("xyz"), st.floats(-100, 100), max_size=2),
    st.booleans(),
    st.booleans(),
)
def test_line_chart_with_intervals_stays_in_the_picture(
    drawn: list[list[tuple[float, float, float]]], levels: dict[str, float], from_zero: bool, ticked: bool
) -> None:
    series = {f"line {number}": sorted((x, y) for x, y, _ in line) for number, line in enumerate(drawn)}
    intervals = {
        f"line {number}": sorted((x, y - width, y + width) for x, y, width in line) for number, line in enumerate(drawn)
    }
    ticks = {x: f"{x:g}" for line in series.values() for x, _ in line} if ticked else None
    root = ElementTree.fromstring(
        line_chart(series, "t", "x", intervals=intervals, levels=levels, ticks=ticks, from_zero=from_zero, beside=True)
    )
    width, height = float(root.attrib["width"]), float(root.attrib["height"])
    assert all(0 < x < width and 0 < y < height for x, y in corners(root))
    assert len(root.findall(f"{SVG}circle")) == sum(map(len, drawn))
    assert len(root.findall(f"{SVG}polygon")) == (1 if len(drawn) == 1 else 0)
    colours = [line.attrib["stroke"] for line in root.iter(f"{SVG}polyline")]
    assert len(set(colours)) == len(drawn)
    whiskers = [line.attrib["stroke"] for line in root.iter(f"{SVG}line") if line.attrib["x1"] == line.attrib["x2"]]
    assert [whiskers.count(colour) for colour in colours] == list(map(len, drawn))
    shown = [text.text for text in root.iter(f"{SVG}text")]
    assert {*series, *levels} <= set(shown)


def test_line_chart_places_intervals_and_levels_by_the_numbers_beside_it() -> None:
    root = ElementTree.fromstring(
        line_chart(
            {"": [(0, 51), (1, 52)]},
            "t",
            "x",
            intervals={"": [(0, 50, 53), (1, 51, 54)]},
            levels={"start": 52.5},
            ticks={0: "no", 1: "yes"},
            from_zero=False,
            beside=True,
        )
    )
    numbers = {
        float(text.text or ""): float(text.attrib["y"]) - 4
        for text in root.iter(f"{SVG}text")
        if text.get("text-anchor") == "end"
    }
    assert list(numbers) == [50, 51, 52, 53, 54]
    first, second = root.findall(f"{SVG}circle")
    assert [float(mark.attrib["cy"]) for mark in (first, second)] == pytest.approx([numbers[51], numbers[52]], abs=0.11)
    upright = [line for line in root.iter(f"{SVG}line") if line.attrib["stroke"] == "#1f4e79"]
    ends = [[float(line.attrib["y1"]), float(line.attrib["y2"])] for line in upright]
    assert ends == [
        pytest.approx([numbers[50], numbers[53]], abs=0.11),
        pytest.approx([numbers[51], numbers[54]], abs=0.11),
    ]
    dashed = next(line for line in root.iter(f"{SVG}line") if "stroke-dasharray" in line.attrib)
    assert float(dashed.attrib["y1"]) == pytest.approx((numbers[52] + numbers[53]) / 2, abs=0.11)
    names = {
        text.text: float(text.attrib["x"]) for text in root.iter(f"{SVG}text") if text.get("text-anchor") == "middle"
    }
    assert [names["no"], names["yes"]] == pytest.approx(
        [float(mark.attrib["cx"]) for mark in (first, second)], abs=0.11
    )
    beside = [text.text for text in root.iter(f"{SVG}text") if text.get("text-anchor") is None]
    assert beside == ["start"]  # the line itself has no name


def test_line_chart_names_lines_inside_unless_asked_otherwise() -> None:
    """As it always has: zero on the axis, five numbers on both, names in the corner, no marks."""
    root = ElementTree.fromstring(line_chart({"a": [(1, 50), (3, 60)]}, "t", "step"))
    assert root.attrib["width"] == "560"
    anchors = [text.get("text-anchor") for text in root.iter(f"{SVG}text")]
    assert (anchors.count("end"), anchors.count("middle")) == (6, 7)
    assert "0" in [text.text for text in root.iter(f"{SVG}text")]
    assert root.findall(f"{SVG}circle") == root.findall(f"{SVG}polygon") == []


@pytest.mark.parametrize("count", [2, 5, 12, 60])
@pytest.mark.parametrize("letters", [1, 12, 80])
def test_labels_do_not_overlap(count: int, letters: int) -> None:
    """Upright where they fit; else slanting, fewer where even those would, and within the picture."""
    ticks = {float(place): "m" * letters for place in range(count)}
    root = ElementTree.fromstring(
        line_chart({"": [(x, 1.0) for x in ticks]}, "t", "x", ticks=ticks, from_zero=False, beside=True)
    )
    labels = [text for text in root.iter(f"{SVG}text") if "m" in (text.text or "")]
    along = [float(text.attrib["x"]) for text in labels]
    gaps = [second - first for first, second in pairwise(along)]
    slanting = ["transform" in text.attrib for text in labels]
    assert len(set(slanting)) == 1
    if slanting[0]:
        assert min(gaps) >= 12
        length = max(len(text.text or "") for text in labels) * 6 * math.sin(math.pi / 4)
        top = float(labels[0].attrib["y"])
        assert top + length < float(root.attrib["height"]) - 10
        assert all(
            x - len(text.text or "") * 6 * math.cos(math.pi / 4) > 0 for x, text in zip(along, labels, strict=True)
        )
    else:
        assert len(labels) == count
        assert min(gaps) > letters * 6


def test_a_line_chart_without_a_finite_point_is_a_chart() -> None:
    for keywords in ({}, {"from_zero": False, "ticks": {}, "intervals": {}, "beside": True}):
        root = ElementTree.fromstring(
            line_chart({"a": [(float("nan"), 1.0)]}, "t", "x", levels={"b": float("nan")}, **keywords)
        )
        assert all(polyline.attrib["points"] == "" for polyline in root.iter(f"{SVG}polyline"))
