"""Suggestions for mistyped names."""

import pytest

from turnwise.core.errors import did_you_mean


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("lerning_rate", " Did you mean learning_rate?"),
        ("DSE", " Did you mean dse?"),
        ("wmcd", " Did you mean wmdc?"),
        ("colour", ""),
    ],
)
def test_the_closest_name_is_suggested(name: str, expected: str) -> None:
    assert did_you_mean(name, ["learning_rate", "dse", "wmdc"]) == expected
