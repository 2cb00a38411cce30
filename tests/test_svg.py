"""Charts: well-formed SVG, every finite point drawn once and inside the picture, texts escaped."""

import math
from xml.etree import ElementTree

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from turnwise.svg import Cloud, line_chart, palette, scatter_chart

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
        assert [mark.tag for mark in group] == [f"{SVG}polygon" if cloud.mark == "triangle" else f"{SVG}circle"] * len(finite)
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
    root = ElementTree.fromstring(scatter_chart([Cloud([(0, 0)], "red", name=f"intent {number}") for number in range(60)], ""))
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
