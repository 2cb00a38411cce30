"""Fields of JSON records, checked: a missing key or a wrong type raises a ValueError that says what is wrong."""

from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

from turnwise.corpus.readers.shared.times import parse_time

_Value = TypeVar("_Value", dict[str, Any], list[Any], str, bool)

_TYPE_NAMES = {dict: "an object", list: "a list", str: "a string", bool: "true or false"}


def require_object(value: object, what: str) -> dict[str, Any]:
    """Return a value that is a JSON object; `what` names it in the message otherwise."""
    if not isinstance(value, dict):
        raise ValueError(f"{what} is a {type(value).__name__}, not an object")
    return value


def require(record: Any, key: str, kind: type[_Value]) -> _Value:
    """Return the value under a key, which must be of that type."""
    value = _value(record, key)
    if not isinstance(value, kind):
        raise ValueError(f"{key!r} is a {type(value).__name__}, not {_TYPE_NAMES[kind]}")
    return value


def optional(record: Mapping[str, Any], key: str, kind: type[_Value]) -> _Value:
    """Return the value under a key; an empty one if it is missing or null."""
    return kind() if record.get(key) is None else require(record, key, kind)


def require_text(record: Mapping[str, Any], key: str) -> str:
    """Return the string under a key, which must not be blank."""
    value = _value(record, key)
    if not isinstance(value, str) or not value.strip():
        raise ValueError(f"{key!r} must be a non-blank string")
    return value


def require_integer(record: Mapping[str, Any], key: str) -> int:
    """Return the integer under a key."""
    value = _value(record, key)
    if type(value) is not int:  # a bool is an int to isinstance
        raise ValueError(f"{key!r} must be an integer, got {type(value).__name__}")
    return value


def require_id(record: Any, key: str) -> str:
    """Return the id under a key, which is a string or a number."""
    value = _value(record, key)
    if isinstance(value, bool) or not isinstance(value, int | str) or value == "":
        raise ValueError(f"{key!r} must be a number or a text, got {value!r:.40}")
    return str(value)


def optional_id(record: Mapping[str, Any], key: str) -> str:
    """Return the id under a key; '' if it is missing or null."""
    value = record.get(key)
    if not isinstance(value, int) or isinstance(value, bool):
        return optional(record, key, str)
    if abs(value) >= 1 << 64:
        raise ValueError(f"{key!r} is too large a number")
    return str(value)


def optional_time(record: Any, key: str) -> float | None:
    """Return the time under a key in seconds since 1970; None if it is missing or null."""
    if not isinstance(record, dict):
        raise ValueError(f"expected an object with {key!r}, got a {type(record).__name__}")
    value = record.get(key)
    if value is None:
        return None
    if not isinstance(value, str | int | float):
        raise ValueError(f"{key!r} is a {type(value).__name__}, not a time")
    try:
        return parse_time(value)
    except (ValueError, OverflowError):
        raise ValueError(f"{key!r}: cannot parse the time {str(value)[:40]!r}") from None


def require_time(record: Mapping[str, Any], key: str) -> float:
    """Return the time under a key in seconds since 1970."""
    seconds = optional_time(record, key)
    if seconds is None:
        raise ValueError(f"{key!r} is missing")
    return seconds


def first_name(names: Iterable[str], what: str) -> str:
    """Return the first name that is not blank."""
    name = next((name.strip() for name in names if name.strip()), "")
    if not name:
        raise ValueError(f"{what} is missing")
    return name


def _value(record: Any, key: str) -> Any:
    if not isinstance(record, dict):
        raise ValueError(f"expected an object with {key!r}, got a {type(record).__name__}")
    if key not in record:
        raise ValueError(f"{key!r} is missing")
    return record[key]
