"""Values of recipes and command lines against a table of kinds, and the messages that name what is wrong."""

import math
import re
from typing import Any, Literal, Optional

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnwise.core.errors import TurnwiseError
from turnwise.core.options import OptionError, convert_option

Colour = Literal["red", "green"]


@pytest.mark.parametrize(
    ("kind", "value", "expected"),
    [
        (int, 3, 3),
        (int, -3, -3),
        (int, 3.0, 3),
        (float, 3, 3.0),
        (float, 0.5, 0.5),
        (float, "3e-5", 3e-5),
        (str, "three", "three"),
        (str, "", ""),
        (bool, True, True),
        (bool, False, False),
        (Colour, "green", "green"),
        (Literal[1, 2], 2, 2),
        (int | None, None, None),
        (int | None, 4, 4),
        (Optional[int], 4.0, 4),  # noqa: UP045
        (float | None, None, None),
        (float | None, "0.1", 0.1),
        (Colour | None, "red", "red"),
        (Colour | None, None, None),
        (int | str, "a", "a"),
        (int | str, 1, 1),
        (int | float, 0.5, 0.5),
        (tuple[int, ...], [1, 2.0], (1, 2)),
        (tuple[int, ...], (3,), (3,)),
        (tuple[int, ...], [], ()),
        (tuple[float, ...], [1, "2"], (1.0, 2.0)),
        (tuple[str, ...] | None, ["a", "b"], ("a", "b")),
        (tuple[str, ...] | None, None, None),
        (tuple[Colour, ...], ["red", "red"], ("red", "red")),
        (tuple[int | None, ...], [1, None], (1, None)),
    ],
)
def test_values_become_what_the_kind_says(kind: Any, value: object, expected: object) -> None:
    actual = convert_option("key", kind, value)
    assert actual == expected
    assert type(actual) is type(expected)
    if isinstance(actual, tuple):
        assert [type(each) for each in actual] == [type(each) for each in expected]  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("kind", "value", "words"),
    [
        (int, 3.5, "int"),
        (int, "3", "int"),
        (int, True, "int"),
        (int, None, "int"),
        (int, math.inf, "int"),
        (int, math.nan, "int"),
        (float, "warm", "float"),
        (float, True, "float"),
        (float, None, "float"),
        (float, [0.1], "float"),
        (str, 3, "str"),
        (str, None, "str"),
        (bool, 1, "bool"),
        (bool, "yes", "bool"),
        (Colour, "blue", "'red' or 'green'"),
        (Colour, ["red"], "'red' or 'green'"),
        (Literal[1, 2], 3, "1 or 2"),
        (int | None, "none", "int or nothing"),
        (float | None, "a", "float or nothing"),
        (Colour | None, "blue", "'red' or 'green' or nothing"),
        (tuple[int, ...], 3, "a list of int"),
        (tuple[int, ...], "12", "a list of int"),
        (tuple[int, ...], {1: 2}, "a list of int"),
        (tuple[int, ...], None, "a list of int"),
        (tuple[str, ...] | None, "a", "a list of str or nothing"),
        (tuple[Colour, ...], "red", "a list of 'red' or 'green'"),
    ],
)
def test_other_kinds_are_refused_with_key_value_and_kind(kind: Any, value: object, words: str) -> None:
    with pytest.raises(OptionError, match=f"^{re.escape(f'objectives.wmdc.key={value!r}: expected {words}')}$"):
        convert_option("objectives.wmdc.key", kind, value)


def test_a_list_with_one_wrong_member_names_that_member() -> None:
    with pytest.raises(OptionError, match=r"^windows='two': expected int$"):
        convert_option("windows", tuple[int, ...], [1, "two", 3])
    with pytest.raises(OptionError, match=r"^rates=None: expected float$"):
        convert_option("rates", tuple[float, ...], [0.1, None])


def test_the_error_is_one_that_commands_catch() -> None:
    assert issubclass(OptionError, TurnwiseError)


MEMBERS = {
    int: st.integers(),
    float: st.floats(allow_nan=False, allow_infinity=False),
    str: st.text(),
    bool: st.booleans(),
    Colour: st.sampled_from(["red", "green"]),
}


@given(st.data(), st.sampled_from(list(MEMBERS)))
def test_tuples_survive_yamls_lists(data: st.DataObject, kind: Any) -> None:
    """What a dataclass holds becomes a list in YAML and comes back the same; checked again, nothing changes."""
    value = tuple(data.draw(st.lists(MEMBERS[kind], max_size=6)))
    for whole in (tuple[kind, ...], tuple[kind, ...] | None):  # type: ignore[valid-type]
        converted = convert_option("key", whole, list(value))
        assert converted == value
        assert [type(each) for each in converted] == [type(each) for each in value]
        assert convert_option("key", whole, converted) == value


@given(st.data(), st.sampled_from(list(MEMBERS)), st.sampled_from(list(MEMBERS)))
def test_a_value_is_never_of_another_kind_than_asked_for(data: st.DataObject, kind: Any, given: Any) -> None:
    value = data.draw(MEMBERS[given])
    try:
        converted = convert_option("key", kind, value)
    except OptionError as error:
        assert str(error).startswith(f"key={value!r}: expected ")
        return
    if kind is Colour:
        assert converted in ("red", "green")
        return
    assert type(converted) is kind
    assert converted == kind(value) or math.isnan(converted)  # large integers are rounded, "nan" is a number to Python
