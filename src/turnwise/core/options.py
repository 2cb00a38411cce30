"""Values from YAML and command lines, held against the types that dataclasses declare."""

import math
import types
import typing
from collections.abc import Sequence
from typing import Any, Literal

from turnwise.core.errors import TurnwiseError


class OptionError(TurnwiseError):
    """A value is not of the kind that an option takes; the message says which kind that is."""


def checked(key: str, kind: Any, value: Any) -> Any:
    """The value as the kind that a key takes: numbers become the right ones, lists become tuples.

    Args:
        key: for the message.
        kind: `int`, `float` (a finite one), `str`, `bool`, a `Literal`, `tuple[KIND, ...]`, None, or a union of such in which there
            is one kind of tuple at most.
        value: what was given.

    Raises:
        OptionError: if it is of another kind.
    """
    allowed = typing.get_args(kind) if typing.get_origin(kind) in (types.UnionType, typing.Union) else (kind,)
    for choice in allowed:
        if typing.get_origin(choice) is Literal:
            if value in typing.get_args(choice):
                return value
        elif typing.get_origin(choice) is tuple:
            if isinstance(value, list | tuple):
                return tuple(checked(key, typing.get_args(choice)[0], each) for each in value)
        elif choice is type(None):
            if value is None:
                return None
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
    raise OptionError(f"{key}={value!r}: expected {_words(allowed)}")


def _words(allowed: Sequence[Any]) -> str:
    names = []
    for choice in allowed:
        if typing.get_origin(choice) is Literal:
            names += [repr(value) for value in typing.get_args(choice)]
        elif typing.get_origin(choice) is tuple:
            names.append(f"a list of {_words(typing.get_args(choice)[:1])}")
        else:
            names.append("nothing" if choice is type(None) else choice.__name__)
    return " or ".join(names)
