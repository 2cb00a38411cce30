"""What the rows of a table of vectors hold, what is noted with it, and whether a table that is found is the one that is meant."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from turnwise.core.errors import TurnwiseError
from turnwise.core.types import SupportsEncode

#: The columns that every table has.
KEY, VECTOR = "key", "vector"

#: Where a schema keeps what was noted when a table was made, and the vector that tells its encoder.
ABOUT, _PROBE = b"turnwise", b"turnwise-probe"

#: Two encoders are one where they give this text vectors of this cosine: an exported or a rounded one is still the same.
_PROBED = "The quick brown fox asks whether the 7:30 train to the lazy dog's house is late."
_SAME = 0.98

Vectors = npt.NDArray[np.float32]


class TableError(TurnwiseError):
    """A table cannot be opened, written or searched as asked; the message says why and what to do."""


def schema_of(size: int, columns: pa.Schema, about: Mapping[str, str], encoder: SupportsEncode | None) -> pa.Schema:
    """The schema of a table.

    Args:
        size: of a vector.
        columns: of the caller.
        about: what is noted with the table.
        encoder: that its vectors come from; None: nothing is noted of it.
    """
    # of two processes that add the same key at once, LanceDB lets one try again: it needs to know what tells rows apart
    key = pa.field(KEY, pa.string(), nullable=False, metadata={"lance-schema:unenforced-primary-key": "true"})
    vector = pa.field(VECTOR, pa.list_(pa.float32(), size), nullable=False)
    return pa.schema(
        [key, vector, *columns], metadata={ABOUT: json.dumps(dict(about)), _PROBE: json.dumps(_probe(encoder))}
    )


def compare(found: pa.Schema, wanted: pa.Schema, where: str) -> None:
    """Refuses a table that holds something else than is wanted.

    Raises:
        TableError: saying what is different.
    """
    for field in wanted:
        if field.name not in found.names:
            raise TableError(
                f"{where} has no column {field.name!r}: it was made by something else; give another folder"
            )
        if found.field(field.name).type != field.type:
            raise TableError(
                f"{where} holds {found.field(field.name).type} in {field.name!r}, not {field.type}: it was made by another model "
                "or version; give another folder, or index anew"
            )
    noted, expected = (json.loads((schema.metadata or {}).get(ABOUT, b"{}")) for schema in (found, wanted))
    for name, value in expected.items():
        if noted.get(name) != value:
            raise TableError(
                f"{where} was made with {name} {noted.get(name)!r}, not {value!r}: use that, or give another folder"
            )
    probes = [json.loads((schema.metadata or {}).get(_PROBE, b"[]")) for schema in (found, wanted)]
    if all(probes) and (len(probes[0]) != len(probes[1]) or np.dot(*probes) < _SAME):
        raise TableError(f"{where} was made with another encoder: load that one, or give another folder")


def _probe(encoder: SupportsEncode | None) -> list[float]:
    """What tells an encoder from another one: the vector of a text."""
    if encoder is None:
        return []
    return [float(number) for number in encoder.encode([_PROBED], normalise=True)[0]]


def scaled(vectors: Vectors, size: int) -> Vectors:
    """Vectors of length 1.

    Raises:
        TableError: if they are not of that size, or one has no direction.
    """
    if vectors.ndim != 2 or vectors.shape[1] != size:
        raise TableError(f"vectors of shape {vectors.shape} do not fit a table of vectors of size {size}")
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    if not np.isfinite(lengths).all() or not (lengths > 0).all():
        row = int(np.flatnonzero(~(np.isfinite(lengths) & (lengths > 0)))[0])
        raise TableError(f"vector {row} is zero or holds what is not a number: nothing can be compared with it")
    unit: Vectors = (vectors / lengths).astype(np.float32)
    return unit


def kinds_of(schema: pa.Schema) -> dict[str, type]:
    """What the columns hold that a condition can be put on."""
    tests = ((str, pa.types.is_string), (int, pa.types.is_integer), (bool, pa.types.is_boolean))
    return {field.name: kind for field in schema for kind, test in tests if test(field.type)}


def plain(column: pa.ChunkedArray) -> Sequence[Any]:
    """What a column holds, a value a row; a vector is an array."""
    if not pa.types.is_fixed_size_list(column.type):
        values: list[Any] = column.to_pylist()
        return values
    vectors: Sequence[Any] = list(matrix(column))
    return vectors


def matrix(column: pa.ChunkedArray) -> Vectors:
    """The vectors of a column without gaps (rows, size)."""
    flat: Vectors = column.combine_chunks().flatten().to_numpy()
    return flat.reshape(-1, column.type.list_size)
