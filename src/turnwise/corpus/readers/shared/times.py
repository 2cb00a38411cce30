"""Parsing the times of messages."""

import re
from collections.abc import Sequence
from datetime import UTC, date, datetime
from math import isfinite
from typing import Any

#: Times since 1970 above these are in milliseconds, microseconds and nanoseconds: 1e11 seconds is the year 5138.
_UNITS = ((1e17, 1e9), (1e14, 1e6), (1e11, 1e3))

#: A day without hyphens, such as 20240131.
_BASIC_DATE = re.compile(r"(?:19|20)\d{6}")


def parse_time(value: Any, formats: Sequence[str] = ()) -> float:
    """Return seconds since 1970; times without a zone count as UTC, which keeps the order within a conversation.

    Accepts numbers (in seconds, or smaller units if they are too large), dates of Python, and texts: in one of
    `formats` (of strptime), in ISO 8601, or a number.

    Raises:
        ValueError: if the value is none of these; the message says what to do.
    """
    if isinstance(value, datetime):
        return _seconds(value)
    if isinstance(value, date):
        return _seconds(datetime(value.year, value.month, value.day))  # noqa: DTZ001 (the zone is set below)
    if isinstance(value, int | float) and not isinstance(value, bool) and isfinite(value):
        return _from_number(float(value))
    text = str(value or "").strip()
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
