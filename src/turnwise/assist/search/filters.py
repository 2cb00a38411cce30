"""Conditions on the rows of a table: values by column, as the SQL that LanceDB reads, whatever the values hold."""

from collections.abc import Mapping, Sequence
from typing import Any

from turnwise.core.errors import TurnwiseError

#: Values by column, a list of them where any will do, None for rows without a value; or an SQL expression as it is.
Where = str | Mapping[str, Any]

#: What the columns of a table hold, by their names: `str`, `int`, `bool`.
Kinds = Mapping[str, type]

_NAMES = {str: "a text", int: "a whole number", bool: "true or false"}

_WHOLE = 2**63


class FilterError(TurnwiseError):
    """A condition cannot be put to a table; the message says why and what to do."""


def condition(where: Where, kinds: Kinds) -> str:
    """A condition as SQL.

    Args:
        where: an SQL expression, which is taken as it is; or values by column, all of which a row has to have.
        kinds: of the columns that values can be given for.

    Raises:
        FilterError: if a column is not there, or a value is of a kind that it does not hold.
    """
    if isinstance(where, str):
        if not where.strip():
            raise FilterError("a condition is empty: leave it out, or give an expression such as \"source = 'logs'\"")
        return where
    parts = []
    for column, value in where.items():
        if column not in kinds:
            raise FilterError(f"there is no column {column!r} to filter by: the columns are {', '.join(kinds)}")
        parts.append(_equals(column, value, kinds[column]))
    return " AND ".join(parts) or "true"


def _equals(column: str, value: Any, kind: type) -> str:
    values = list(value) if isinstance(value, list | tuple) else [value]
    given = [each for each in values if each is not None]
    parts = [f"`{column}` IN ({', '.join(_literal(column, each, kind) for each in given)})"] if given else []
    if len(given) < len(values):
        parts.append(f"`{column}` IS NULL")
    return f"({' OR '.join(parts)})" if parts else "false"


def _literal(column: str, value: Any, kind: type) -> str:
    if type(value) is not kind:
        raise FilterError(f"column {column!r} cannot be compared with {value!r}: give {_NAMES[kind]}")
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        if not -_WHOLE <= value < _WHOLE:
            raise FilterError(f"column {column!r} holds no number as large as {value}")
        return str(value)
    text = str(value)
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise FilterError(f"a value for column {column!r} holds half a character (a lone surrogate)") from error
    return "'" + text.replace("'", "''") + "'"


def one_of(column: str, values: Sequence[str]) -> str:
    """The condition that a column of texts holds one of some."""
    return _equals(column, list(values), str)
