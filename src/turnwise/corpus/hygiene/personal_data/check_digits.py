"""Check digits of numbers, by python-stdnum."""

from collections.abc import Callable
from functools import cache
from importlib import import_module


@cache
def _checker(module: str) -> Callable[[str], bool]:
    checker: Callable[[str], bool] = import_module(f"stdnum.{module}").is_valid
    return checker


def is_valid(module: str, number: str) -> bool:
    """Return whether a number is valid by a module of python-stdnum."""
    return bool(_checker(module)(number))
