"""Grid axes: parsing, validation, order of the points, and folder names."""

import itertools
import math
import string
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from turnwise.core.errors import TrainingError
from turnwise.papers.sweeps.plan import Axis, folder_name, format_value, grid_points, parse_axis, recipe_settings
from turnwise.training.recipe_loading import load_recipe, parse_scalar

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
    """Return whether recipes parse a string as a number."""
    try:
        return isinstance(value, str) and math.isfinite(float(value))
    except ValueError:
        return False


def is_special(value: Any) -> bool:
    """Return whether recipes parse a string as a number that is not finite, such as 'nan'."""
    try:
        return isinstance(value, str) and not math.isfinite(float(value))
    except ValueError:
        return False


def expected(value: Any) -> Any:
    return float(value) if is_number(value) else value


def same(first: Any, second: Any) -> bool:
    """Compare by representation: 1, 1.0 and true are three values."""
    return repr(first) == repr(second)


@given(st.lists(VALUES.filter(lambda value: not is_special(value)), min_size=1, max_size=4))
def test_axis_values_round_trip_through_yaml(values: list[Any]) -> None:
    """The text between the brackets of a YAML list is parsed as its items, so brackets and quotes protect commas."""
    parsed = [expected(value) for value in values]
    text = yaml.safe_dump(values, default_flow_style=True, width=math.inf, allow_unicode=True).strip()[1:-1]
    if any(same(first, second) for first, second in itertools.combinations(parsed, 2)):
        with pytest.raises(TrainingError, match="occurs twice"):
            parse_axis(f"key={text}")
        return
    axis = parse_axis(f"key={text}")
    assert axis.key == "key"
    assert len(axis.values) == len(parsed)
    assert all(map(same, axis.values, parsed))
    # values reach the recipe unchanged
    assert all(same(parse_scalar(format_value(value)), value) for value in axis.values)


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
def test_common_axes_are_parsed(text: str, values: tuple[Any, ...]) -> None:
    axis = parse_axis(text)
    assert (axis.key, axis.values) == (text.partition("=")[0], values)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("windows", r"'windows': expected key=value,value"),
        ("=1,2", r"expected key=value,value"),
        (" =1", r"expected key=value,value"),
        ("windows=", r"the axis 'windows' has no values"),
        ("windows=[1", r"'windows=\[1': the values cannot be parsed"),
        ("windows=1],[2", r"the values cannot be parsed"),
        ("windows=a,,b", r"the values cannot be parsed"),
        ("windows='a", r"the values cannot be parsed"),
        ("windows=\x00", r"the values cannot be parsed"),
        ("steps=5,6,5", r"steps: 5 occurs twice"),
        ("rate=1e-5,0.00001", r"rate: 1.0e-05 occurs twice"),
        ("steps=2024-01-01", r"steps: values must be numbers"),
        ("steps=.nan", r"steps: values must be numbers"),
        ("steps=inf", r"steps: values must be finite"),
        ("steps=&a [*a]", r"steps: values must be numbers"),
    ],
)
def test_invalid_axes_are_rejected(text: str, message: str) -> None:
    with pytest.raises(TrainingError, match=message):
        parse_axis(text)


def test_axes_of_python_values_are_normalised_and_checked() -> None:
    assert Axis("windows", ((1,), (1, 2))).values == ([1], [1, 2])
    assert Axis("rate", ("1e-5",)).values == (1e-5,)
    with pytest.raises(TrainingError, match="values must be numbers"):
        Axis("windows", ({1, 2},))


@given(st.lists(st.integers(1, 4), min_size=1, max_size=4))
def test_first_axis_changes_slowest(sizes: list[int]) -> None:
    """The digits of point n, in the mixed radix of the axis sizes, are its values."""
    axes = [Axis(f"axis{number}", tuple(range(size))) for number, size in enumerate(sizes)]
    points = grid_points(axes)
    assert len(points) == math.prod(sizes)
    for number, point in enumerate(points):
        assert list(point) == [axis.key for axis in axes]
        rest = number
        for size, digit in zip(reversed(sizes), reversed(point.values()), strict=True):
            rest, expected_digit = divmod(rest, size)
            assert digit == expected_digit


def test_grids_without_axes_or_with_duplicate_keys_are_rejected() -> None:
    with pytest.raises(TrainingError, match="needs an axis"):
        grid_points([])
    with pytest.raises(TrainingError, match="two axes have the key 'steps'"):
        grid_points([parse_axis("steps=1"), parse_axis("seed=1"), parse_axis("steps=2")])


PARAMETERS = st.dictionaries(KEYS, VALUES, min_size=1, max_size=4)


@given(PARAMETERS, PARAMETERS)
def test_folder_names_are_safe_and_unique(first: dict[str, Any], second: dict[str, Any]) -> None:
    names = folder_name(first), folder_name(second)
    alike = first.keys() == second.keys() and all(same(first[key], second[key]) for key in first)
    assert (names[0] == names[1]) == alike
    for name in names:
        assert set(name) <= set(string.ascii_lowercase + string.digits + ".,=_-~")
        assert len(name) <= 100
        assert name not in (".", "..")


@given(PARAMETERS)
def test_folder_names_do_not_depend_on_the_order_of_axes(parameters: dict[str, Any]) -> None:
    assert folder_name(parameters) == folder_name(dict(reversed(parameters.items())))


def test_folder_names_are_readable() -> None:
    assert folder_name({"learning_rate": 3e-5, "reweight": True}) == "learning_rate=3.0e-05,reweight=true"
    assert folder_name({"windows": [1, 2]}).startswith("windows=1-2~")
    assert (
        len({folder_name({"backbone": name}) for name in ("BERT", "bert", "b/ert", "b-ert", "é" * 300, "é" * 301)}) == 6
    )


def test_parameters_reach_the_recipe() -> None:
    parameters = {"query_turns": [1, 2], "learning_rate": 1e-5, "schedule": "cosine", "clip": None, "mask_equal": False}
    recipe = load_recipe("dse", recipe_settings(parameters))
    assert (recipe.learning_rate, recipe.schedule, recipe.clip) == (1e-5, "cosine", None)
    assert recipe.objectives["dse"]["query_turns"] == [1, 2]
    assert recipe.objectives["dse"]["mask_equal"] is False
