"""Fields of JSON records from exports, checked: a wrong type raises a ValueError that says what is wrong."""

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

from turnwise.corpus.readers.times import parse_time

_LAST_SECOND = datetime(9999, 12, 31, tzinfo=UTC).timestamp()


def require_object(value: object, what: str) -> Mapping[str, Any]:
    """Return a value that is a JSON object."""
    if not isinstance(value, dict):
        raise ValueError(f"{what} is a {type(value).__name__}, not an object")
    return value


def require_list(record: Mapping[str, Any], key: str) -> list[Any]:
    """Return the list under a key."""
    value = record[key]
    if not isinstance(value, list):
        raise ValueError(f"{key!r} is a {type(value).__name__}, not a list")
    return value


def require_name(names: Iterable[str], what: str) -> str:
    """Return the first name that is not blank."""
    name = next((name.strip() for name in names if name.strip()), "")
    if not name:
        raise ValueError(f"{what} is missing")
    return name


def require_time(value: object) -> float:
    """Return the seconds since 1970 of a time."""
    if not isinstance(value, str | int | float):
        raise ValueError(f"the time is a {type(value).__name__}, not a string or a number")
    try:
        seconds = parse_time(value)
    except (ValueError, OverflowError):
        raise ValueError(f"cannot parse the time {str(value)[:40]!r}") from None
    if not 0 <= seconds < _LAST_SECOND:
        raise ValueError(f"the time {str(value)[:40]!r} is not between 1970 and 9999")
    return seconds


def optional_object(record: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    """Return the object under a key; an empty one if it is missing or null."""
    value = record.get(key)
    return {} if value is None else require_object(value, repr(key))


def optional_text(record: Mapping[str, Any], key: str) -> str:
    """Return the string under a key; '' if it is missing or null."""
    value = record.get(key)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise ValueError(f"{key!r} is a {type(value).__name__}, not a string")
    return value


def optional_id(record: Mapping[str, Any], key: str) -> str:
    """Return the id under a key, which is a string or a number; '' if it is missing or null."""
    value = record.get(key)
    if not isinstance(value, int) or isinstance(value, bool):
        return optional_text(record, key)
    if abs(value) >= 1 << 64:
        raise ValueError(f"{key!r} is too large a number")
    return str(value)
