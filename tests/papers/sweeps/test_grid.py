"""Grids: what is written is what is tried, in the order in which it is written, under names that cannot be mistaken."""

import itertools
import math
import string
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from turnwise.papers.sweeps.grid import Axis, GridError, changes, flow, parse_axis, product, slug
from turnwise.training.recipe import load_recipe, parse_scalar

SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(10**9), 10**9)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(string.ascii_letters + string.digits + " ,[]{}'\"=:#&*!|>%@é—", max_size=12)
)
VALUES = SCALARS | st.lists(SCALARS, max_size=3)
KEYS = st.text(string.ascii_lowercase + "_.-", min_size=1, max_size=12)


def is_number(value: Any) -> bool:
    """Whether a text is one that recipes take for a number."""
    try:
        return isinstance(value, str) and math.isfinite(float(value))
    except ValueError:
        return False


def is_special(value: Any) -> bool:
    """Whether a text is one that recipes take for a number that is none, such as 'nan'."""
    try:
        return isinstance(value, str) and not math.isfinite(float(value))
    except ValueError:
        return False


def expected(value: Any) -> Any:
    return float(value) if is_number(value) else value


def same(first: Any, second: Any) -> bool:
    """Equal as they are written: 1, 1.0 and true are three values."""
    return repr(first) == repr(second)


@given(st.lists(VALUES.filter(lambda value: not is_special(value)), min_size=1, max_size=4))
def test_values_come_back_whatever_is_in_them(values: list[Any]) -> None:
    """The text between the brackets of a YAML list is read as its items: commas in brackets and quotes part nothing."""
    wanted = [expected(value) for value in values]
    text = yaml.safe_dump(values, default_flow_style=True, width=math.inf, allow_unicode=True).strip()[1:-1]
    if any(same(first, second) for first, second in itertools.combinations(wanted, 2)):
        with pytest.raises(GridError, match="is there twice"):
            parse_axis(f"key={text}")
        return
    axis = parse_axis(f"key={text}")
    assert axis.key == "key"
    assert len(axis.values) == len(wanted)
    assert all(map(same, axis.values, wanted))
    # and so it reaches the recipe
    assert all(same(parse_scalar(flow(value)), value) for value in axis.values)


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("learning_rate=1e-5,3e-5", (1e-5, 3e-5)),
        ("windows=[1],[1,2],[1,2,3]", ([1], [1, 2], [1, 2, 3])),
        ("windows=[1], [1, 2]", ([1], [1, 2])),
        ("reweight=true,false", (True, False)),
        ("backbone=minilm,/models/a=b,'one, two',\"three\"", ("minilm", "/models/a=b", "one, two", "three")),
        ("clip=null,1", (None, 1)),
        ("seed=1", (1,)),
        ("objectives={dse: {}},{simcse: {temperature: 0.1}}", ({"dse": {}}, {"simcse": {"temperature": 0.1}})),
    ],
)
def test_what_people_write(text: str, values: tuple[Any, ...]) -> None:
    axis = parse_axis(text)
    assert (axis.key, axis.values) == (text.partition("=")[0], values)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("windows", r"'windows': expected key=value,value"),
        ("=1,2", r"expected key=value,value"),
        (" =1", r"expected key=value,value"),
        ("windows=", r"the axis 'windows' has no values"),
        ("windows=[1", r"'windows=\[1': the values cannot be read"),
        ("windows=1],[2", r"the values cannot be read"),
        ("windows=a,,b", r"the values cannot be read"),
        ("windows='a", r"the values cannot be read"),
        ("windows=\x00", r"the values cannot be read"),
        ("steps=5,6,5", r"steps: 5 is there twice"),
        ("rate=1e-5,0.00001", r"rate: 1.0e-05 is there twice"),
        ("steps=2024-01-01", r"steps: a value is neither a number"),
        ("steps=.nan", r"steps: a value is neither a number"),
        ("steps=inf", r"steps: values have to be finite"),
        ("steps=&a [*a]", r"steps: a value is neither a number"),
    ],
)
def test_bad_axes_are_refused(text: str, message: str) -> None:
    with pytest.raises(GridError, match=message):
        parse_axis(text)


def test_axes_of_python_values_are_checked_alike() -> None:
    assert Axis("windows", ((1,), (1, 2))).values == ([1], [1, 2])
    assert Axis("rate", ("1e-5",)).values == (1e-5,)
    with pytest.raises(GridError, match="neither a number"):
        Axis("windows", ({1, 2},))


@given(st.lists(st.integers(1, 4), min_size=1, max_size=4))
def test_the_first_axis_is_the_slowest(sizes: list[int]) -> None:
    """The n-th point is n written in the digits of the axes."""
    axes = [Axis(f"axis{number}", tuple(range(size))) for number, size in enumerate(sizes)]
    points = product(axes)
    assert len(points) == math.prod(sizes)
    for number, point in enumerate(points):
        assert list(point) == [axis.key for axis in axes]
        rest = number
        for size, digit in zip(reversed(sizes), reversed(point.values()), strict=True):
            rest, wanted = divmod(rest, size)
            assert digit == wanted


def test_grids_without_axes_or_with_two_of_one_key_are_refused() -> None:
    with pytest.raises(GridError, match="needs an axis"):
        product([])
    with pytest.raises(GridError, match="two axes are called 'steps'"):
        product([parse_axis("steps=1"), parse_axis("seed=1"), parse_axis("steps=2")])


PLACES = st.dictionaries(KEYS, VALUES, min_size=1, max_size=4)


@given(PLACES, PLACES)
def test_file_names_are_safe_and_tell_points_apart(first: dict[str, Any], second: dict[str, Any]) -> None:
    names = slug(first), slug(second)
    alike = first.keys() == second.keys() and all(same(first[key], second[key]) for key in first)
    assert (names[0] == names[1]) == alike
    for name in names:
        assert set(name) <= set(string.ascii_lowercase + string.digits + ".,=_-~")
        assert len(name) <= 100
        assert name not in (".", "..")


@given(PLACES)
def test_file_names_do_not_depend_on_the_order_of_axes(place: dict[str, Any]) -> None:
    assert slug(place) == slug(dict(reversed(place.items())))


def test_file_names_can_be_read() -> None:
    assert slug({"learning_rate": 3e-5, "reweight": True}) == "learning_rate=3.0e-05,reweight=true"
    assert slug({"windows": [1, 2]}).startswith("windows=1-2~")
    assert len({slug({"backbone": name}) for name in ("BERT", "bert", "b/ert", "b-ert", "é" * 300, "é" * 301)}) == 6


def test_changes_reach_the_recipe() -> None:
    place = {"query_turns": [1, 2], "learning_rate": 1e-5, "schedule": "cosine", "clip": None, "mask_equal": False}
    recipe = load_recipe("dse", changes(place))
    assert (recipe.learning_rate, recipe.schedule, recipe.clip) == (1e-5, "cosine", None)
    assert recipe.objectives["dse"]["query_turns"] == [1, 2]
    assert recipe.objectives["dse"]["mask_equal"] is False
