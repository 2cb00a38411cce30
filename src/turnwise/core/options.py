"""Conversion of values from YAML files and command lines to the types that dataclasses declare."""

import math
import types
import typing
from collections.abc import Sequence
from typing import Any, Literal

from turnwise.core.errors import TurnwiseError


class OptionError(TurnwiseError):
    """The value of an option has the wrong type."""


def convert_option(key: str, kind: Any, value: Any) -> Any:
    """Return the value of an option as the declared type: numbers are converted, lists become tuples.

    `kind` is `int`, `float` (finite), `str`, `bool`, a `Literal`, `tuple[KIND, ...]`, None, or a union of these with at
    most one tuple.

    Raises:
        OptionError: if the value does not have that type.
    """
    kinds = typing.get_args(kind) if typing.get_origin(kind) in (types.UnionType, typing.Union) else (kind,)
    for choice in kinds:
        if typing.get_origin(choice) is Literal:
            if value in typing.get_args(choice):
                return value
        elif typing.get_origin(choice) is tuple:
            if isinstance(value, list | tuple):
                return tuple(convert_option(key, typing.get_args(choice)[0], item) for item in value)
        elif choice is float and isinstance(value, int | float | str) and not isinstance(value, bool):
            try:
                number = float(value)
            except (ValueError, OverflowError):
                continue
            if math.isfinite(number):
                return number
        elif choice is int and isinstance(value, float) and value.is_integer():
            return int(value)
        elif isinstance(value, choice) and not (choice is int and isinstance(value, bool)):
            return value
    raise OptionError(f"{key}={value!r}: expected {_describe(kinds)}")


def _describe(kinds: Sequence[Any]) -> str:
    names = []
    for kind in kinds:
        if typing.get_origin(kind) is Literal:
            names += [repr(value) for value in typing.get_args(kind)]
        elif typing.get_origin(kind) is tuple:
            names.append(f"a list of {_describe(typing.get_args(kind)[:1])}")
        else:
            names.append("nothing" if kind is type(None) else kind.__name__)
    return " or ".join(names)
