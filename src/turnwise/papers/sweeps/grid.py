"""Grids: which keys of a recipe are changed, to which values, and what every combination is called."""

import hashlib
import itertools
import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import yaml

from turnwise.core.errors import TurnwiseError
from turnwise.training.recipe import parse_scalar

#: What stays as it is in a file name; letters are small ones, since some disks do not tell them apart.
_SAFE = re.compile(r"[a-z0-9._-]+")

#: File names longer than this are cut.
_LONGEST = 80


class GridError(TurnwiseError):
    """A grid says something that cannot be; the message says which axis, and how to write it."""


@dataclass(frozen=True, slots=True)
class Axis:
    """A key of a recipe and the values it takes.

    Attributes:
        key: as `load_recipe` takes it: `learning_rate`, `objectives.dse.temperature`, or short `temperature`.
        values: in the order of the points; what YAML takes for a text though it is a number, such as 1e-5, becomes one.
    """

    key: str
    values: tuple[Any, ...]

    def __post_init__(self) -> None:
        if not self.key or not self.values:
            raise GridError(f"the axis {self.key!r} has no {'values' if self.key else 'name'}: write key=value,value,…")
        try:
            plain = json.loads(json.dumps(self.values, allow_nan=False))
        except (TypeError, ValueError) as error:
            raise GridError(
                f"{self.key}: a value is neither a number, a text, true, false, null, nor a list of these ({error})"
            ) from None
        known = [parse_scalar(flow(value)) for value in plain]
        if not all(math.isfinite(value) for value in known if isinstance(value, float)):
            raise GridError(f"{self.key}: values have to be finite")
        texts = [flow(value) for value in known]
        twice = next((text for place, text in enumerate(texts) if text in texts[:place]), None)
        if twice is not None:
            raise GridError(f"{self.key}: {twice} is there twice")
        object.__setattr__(self, "values", tuple(known))


def parse_axis(text: str) -> Axis:
    """An axis as the command line has it: `key=a,b,c`; the values are the items of a YAML flow list.

    Example:
        >>> parse_axis("windows=[1],[1, 2]").values
        ([1], [1, 2])

    Raises:
        GridError: if it is not of that form.
    """
    key, equals, values = text.partition("=")
    if not equals or not key.strip():
        raise GridError(f"{text!r}: expected key=value,value,…")
    try:
        found = yaml.safe_load(f"[{values}]")
    except yaml.YAMLError as error:
        raise GridError(
            f"{text!r}: the values cannot be read ({str(error).splitlines()[0]}); write them as a,b or [1],[1,2], and quote what"
            " holds a comma or a bracket"
        ) from None
    return Axis(key.strip(), tuple(found))


def expect_distinct(axes: Sequence[Axis]) -> None:
    """Refuses two axes of one key.

    Raises:
        GridError: if there are two.
    """
    keys = [axis.key for axis in axes]
    twice = next((key for key in keys if keys.count(key) > 1), None)
    if twice is not None:
        raise GridError(f"two axes are called {twice!r}: give all its values at once")


def product(axes: Sequence[Axis]) -> list[dict[str, Any]]:
    """Every combination, the last axis changing fastest.

    Raises:
        GridError: if there are no axes, or two of one key.
    """
    if not axes:
        raise GridError("a grid needs an axis: --grid key=value,value,…")
    expect_distinct(axes)
    keys = [axis.key for axis in axes]
    return [dict(zip(keys, values, strict=True)) for values in itertools.product(*(axis.values for axis in axes))]


def flow(value: Any) -> str:
    """A value on one line, as YAML reads it back."""
    text: str = yaml.safe_dump(value, default_flow_style=True, width=math.inf, allow_unicode=True)
    return text.removesuffix("\n").removesuffix("\n...")


def changes(place: Mapping[str, Any]) -> list[str]:
    """What `load_recipe` is to change for a combination: `key=value` for each of its keys."""
    return [f"{key}={flow(value)}" for key, value in place.items()]


def slug(place: Mapping[str, Any]) -> str:
    """A combination as a file name: its changes, whatever their order; with a hash where something was cut or replaced."""
    parts = [(key, flow(value)) for key, value in sorted(place.items())]
    cleaned = ",".join(f"{_clean(key)}={_clean(text)}" for key, text in parts)
    if len(cleaned) <= _LONGEST and cleaned == ",".join(f"{key}={text}" for key, text in parts):
        return cleaned
    # no name without a hash has a tilde, so that the two kinds cannot meet
    return f"{cleaned[:_LONGEST]}~{hashlib.sha256(flow(dict(place)).encode()).hexdigest()[:8]}"


def _clean(text: str) -> str:
    return "-".join(_SAFE.findall(text.lower()))
