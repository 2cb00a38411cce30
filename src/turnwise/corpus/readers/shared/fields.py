"""Fields of JSON records, checked: a missing key, a wrong type or an invalid time raises a ValueError."""

import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, date, datetime
from math import isfinite
from typing import Any, TypeVar

_Value = TypeVar("_Value", dict[str, Any], list[Any], str, bool, int)

_TYPE_NAMES = {dict: "an object", list: "a list", str: "a string", bool: "true or false", int: "an integer"}


def require_object(value: object, what: str) -> dict[str, Any]:
    """Return a value that is a JSON object; `what` names it in the message otherwise."""
    if not isinstance(value, dict):
        raise ValueError(f"{what} is a {type(value).__name__}, not an object")
    return value


def require(record: Any, key: str, kind: type[_Value]) -> _Value:
    """Return the value under a key, which must be of that type."""
    value = _value(record, key)
    if type(value) is not kind:  # a bool is an int to isinstance
        raise ValueError(f"{key!r} is a {type(value).__name__}, not {_TYPE_NAMES[kind]}")
    return value


def optional(record: Mapping[str, Any], key: str, kind: type[_Value]) -> _Value:
    """Return the value under a key; an empty one if it is missing or null."""
    value = record.get(key)
    if type(value) is kind:  # as most often, and then faster than `require`
        return value
    return kind() if value is None else require(record, key, kind)


def require_text(record: Mapping[str, Any], key: str) -> str:
    """Return the string under a key, which must not be blank."""
    value = _value(record, key)
    if not isinstance(value, str) or not value.strip():
        raise ValueError(f"{key!r} must be a non-blank string")
    return value


def require_id(record: Any, key: str) -> str:
    """Return the id under a key, which is a string or a number."""
    _value(record, key)
    if not (identity := optional_id(record, key)):
        raise ValueError(f"{key!r} is empty")
    return identity


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


#: Times since 1970 above these are in milliseconds, microseconds and nanoseconds: 1e11 seconds is the year 5138.
_UNITS = ((1e17, 1e9), (1e14, 1e6), (1e11, 1e3))

_NET_TIME = re.compile(r"/Date\((-?\d{1,15})(?:[+-]\d{4})?\)/")  # milliseconds since 1970, as .NET writes them
_BASIC_DATE = re.compile(r"(?:19|20)\d{6}")  # a day without hyphens, such as 20240131


def parse_time(value: Any, formats: Sequence[str] = ()) -> float:
    """Return seconds since 1970 for a number, a date or a text in one of the formats or ISO 8601, by default in UTC."""
    if isinstance(value, datetime):
        return _seconds(value)
    if isinstance(value, date):
        return _seconds(datetime(value.year, value.month, value.day))  # noqa: DTZ001 (the zone is set below)
    if isinstance(value, int | float) and not isinstance(value, bool) and isfinite(value):
        return _from_number(float(value))
    text = str(value or "").strip()
    if milliseconds := _NET_TIME.fullmatch(text):
        return int(milliseconds[1]) / 1000
    for time_format in formats:
        try:
            return _seconds(datetime.strptime(text, time_format))  # noqa: DTZ007 (the zone is set below)
        except ValueError:
            continue
    try:  # before ISO 8601, which accepts some long numbers
        if not _BASIC_DATE.fullmatch(text) and isfinite(number := float(text)):  # not a spreadsheet's 'nan'
            return _from_number(number)
    except ValueError:
        pass
    try:
        return _seconds(datetime.fromisoformat(text))
    except ValueError:
        pass
    tried = f"it does not match {' or '.join(map(repr, formats))}; " if formats else ""
    raise ValueError(f"cannot parse the time {text!r}: {tried}give its format by --set time_format=…")


def _from_number(number: float) -> float:
    unit = next((unit for limit, unit in _UNITS if abs(number) >= limit), 1.0)
    return number / unit


def _seconds(moment: datetime) -> float:
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
