"""Schemas of vector tables: their columns and metadata, and filters on them as the SQL that LanceDB takes."""

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from turnwise.core.dialogue import Conversation, Turn, as_turns
from turnwise.core.errors import SearchError
from turnwise.core.types import Vectors
from turnwise.models.identity import EncoderIdentity

if TYPE_CHECKING:
    import pyarrow as pa


#: The columns that every table has.
KEY, VECTOR = "key", "vector"

#: Schema metadata: the caller's settings, and what identifies the encoder.
SETTINGS, _PROBE = b"turnwise", b"turnwise-probe"

#: Values by column (a list for alternatives, None for rows without a value), or an SQL expression.
Filter = str | Mapping[str, Any]

_TYPE_NAMES = {str: "a string", int: "an integer"}
_INT64 = 2**63

_OTHER = "it was not written by this command and model; choose another folder, or remove it and index again"


def make_schema(
    size: int, columns: "pa.Schema", settings: Mapping[str, str], encoder: EncoderIdentity | None
) -> "pa.Schema":
    """Return the schema of a table; settings and the encoder's identity are stored in its metadata."""
    import pyarrow as pa

    # LanceDB retries one of two concurrent insertions of the same key if it knows the primary key.
    key = pa.field(KEY, pa.string(), nullable=False, metadata={"lance-schema:unenforced-primary-key": "true"})
    vector = pa.field(VECTOR, pa.list_(pa.float32(), size), nullable=False)
    probe = [] if encoder is None else encoder.to_json()
    return pa.schema(
        [key, vector, *columns], metadata={SETTINGS: json.dumps(dict(settings)), _PROBE: json.dumps(probe)}
    )


def check_schema(actual: "pa.Schema", expected: "pa.Schema", table: str, rebuild: str = "") -> None:
    """Raise an error if a table's encoder, columns or settings differ; `rebuild` builds it again."""
    probes = [json.loads((schema.metadata or {}).get(_PROBE, b"[]")) for schema in (actual, expected)]
    if all(probes):
        EncoderIdentity.from_json(probes[0]).check(EncoderIdentity.from_json(probes[1]), table, rebuild)
    for field in expected:
        if field.name not in actual.names or actual.field(field.name).type != field.type:
            raise SearchError(f"{table} has no column {field.name!r} of type {field.type}: {_OTHER}")
    stored, requested = (json.loads((schema.metadata or {}).get(SETTINGS, b"{}")) for schema in (actual, expected))
    for name, value in requested.items():
        if stored.get(name) != value:
            raise SearchError(
                f"{table} was written with {name} {stored.get(name)!r}, not {value!r}: use that value, "
                "choose another folder, or remove it and index again"
            )


def conversation_turns(conversation: Conversation) -> tuple[Turn, ...]:
    """Return the turns of a conversation; raise `SearchError` if it has none, or is not one."""
    try:
        turns = as_turns(conversation)
    except (ValueError, TypeError) as error:
        raise SearchError(str(error)) from error
    if not turns:
        raise SearchError("a conversation needs a turn with at least one word")
    return turns


def normalise(vectors: Vectors, size: int) -> Vectors:
    """Return vectors (rows, size) scaled to length 1; raise `SearchError` if one is zero or not finite."""
    if vectors.ndim != 2 or vectors.shape[1] != size:
        raise SearchError(f"vectors of shape {vectors.shape} do not fit a table of vectors of size {size}")
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    valid = np.isfinite(lengths) & (lengths > 0)
    if not valid.all():
        raise SearchError(f"vector {int(np.flatnonzero(~valid)[0])} is zero or not finite: it has no cosine similarity")
    return np.asarray(vectors / lengths, np.float32)


def vector_array(vectors: Vectors) -> "pa.FixedSizeListArray":
    """Return vectors (rows, size) as a column of a table; `as_matrix` is the inverse."""
    import pyarrow as pa

    return pa.FixedSizeListArray.from_arrays(pa.array(vectors.ravel(), pa.float32()), vectors.shape[1])


def rows_to_table(rows: Sequence[Sequence[Any]], schema: "pa.Schema") -> "pa.Table":
    """Return rows of values as a table."""
    import pyarrow as pa

    columns = zip(*rows, strict=True) if rows else ([] for _ in schema)
    arrays = [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)]
    return pa.Table.from_arrays(arrays, schema=schema)


def as_matrix(column: "pa.ChunkedArray") -> Vectors:
    """Return a column of vectors without nulls as an array (rows, size)."""
    return np.asarray(column.combine_chunks().flatten().to_numpy()).reshape(-1, column.type.list_size)


def filter_sql(where: Filter, types: Mapping[str, type]) -> str:
    """Return a filter as an SQL expression: of values by column, which are quoted, a row must have all."""
    if isinstance(where, str):
        if not where.strip():
            raise SearchError("the filter is empty: leave it out, or give an expression such as \"source = 'logs'\"")
        return where
    parts = []
    for column, value in where.items():
        if column not in types:
            raise SearchError(f"there is no column {column!r} to filter by: the columns are {', '.join(types)}")
        values = list(value) if isinstance(value, list | tuple) else [value]
        given = [_literal(column, each, types[column]) for each in values if each is not None]
        alternatives = [f"`{column}` IN ({', '.join(given)})"] if given else []
        if len(given) < len(values):
            alternatives.append(f"`{column}` IS NULL")
        parts.append(f"({' OR '.join(alternatives)})" if alternatives else "false")
    return " AND ".join(parts) or "true"


def _literal(column: str, value: Any, python_type: type) -> str:
    if type(value) is not python_type:
        raise SearchError(f"column {column!r} cannot be compared with {value!r}: give {_TYPE_NAMES[python_type]}")
    if isinstance(value, int):
        if not -_INT64 <= value < _INT64:
            raise SearchError(f"{value} is out of range for column {column!r}, which has 64-bit integers")
        return str(value)
    text = str(value)
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise SearchError(f"a value for column {column!r} is not valid Unicode: it has a lone surrogate") from error
    return "'" + text.replace("'", "''") + "'"
