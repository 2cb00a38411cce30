"""Bulk embedding into a file: the vectors of many texts; an interrupted run is continued.

Vectors are cached in chunks in a folder `.NAME.parts` beside the file, which is removed when the file is complete.
The file is written under a temporary name and renamed into place.
"""

import hashlib
import itertools
import json
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from turnwise.assist.search.schema import rows_to_table, vector_array
from turnwise.core.errors import SearchError
from turnwise.core.files import replacing
from turnwise.core.progress import Progress, silent
from turnwise.core.types import SupportsEncode
from turnwise.corpus.texts import TextSource, columns_schema
from turnwise.models.loading import ModelUnderTest
from turnwise.models.vector_cache import VectorCache, scale_to_device
from turnwise.version import __version__

#: Texts per chunk on a CPU: at most so many are encoded again after an interruption.
CHUNK = 4_096

#: The columns of some texts, and their vectors.
_Chunk = tuple[list[tuple[Any, ...]], npt.NDArray[np.float32]]


@dataclass(frozen=True, slots=True)
class EmbeddingResult:
    """The number of texts, the size of a vector, and how many texts an earlier run had encoded."""

    texts: int
    size: int
    resumed: int


def get_encoder(model: ModelUnderTest) -> SupportsEncode:
    """Return a model's encoder; raise `SearchError` if it has none."""
    if model.encoder is None:
        raise SearchError(f"{model.name} is a re-ranker, which has no vectors: name an encoder")
    return model.encoder


def embed(
    model: ModelUnderTest,
    texts: TextSource,
    out: Path,
    *,
    normalise: bool | None = None,
    max_length: int | None = None,
    progress: Progress = silent,
) -> EmbeddingResult:
    """Write the vector of each text, in order: as an array (.npy), or with the texts (.parquet, .jsonl).

    All texts are read once before the first is encoded, so that an unreadable one is reported at once. An existing
    file is replaced at the end. `normalise` scales vectors to length 1 (None: as the model was saved); `max_length` are
    tokens per text (None: the model's limit).
    """
    if out.is_dir():
        raise SearchError(f"{out} is a folder: name a file")
    encoder = get_encoder(model)
    total = sum(1 for _ in texts.rows())
    if not total:
        raise SearchError("there are no texts to encode")
    folder = out.with_name(f".{out.name}.parts")
    identity = hashlib.sha256(f"{model.fingerprint} {__version__}".encode()).hexdigest()
    cache = VectorCache(encoder, folder / identity[:16])
    if model.fingerprint is None:  # a function, which may have changed
        cache.clear()
    resumed = 0

    def encode_chunks() -> Iterator[_Chunk]:
        nonlocal resumed
        done, rows, most = 0, texts.rows(), scale_to_device(CHUNK, encoder)
        while chunk := list(itertools.islice(rows, most)):
            items = [item for item, _ in chunk]
            if cache.holds_chunk(items, normalise=normalise, max_length=max_length):
                resumed += len(chunk)
            vectors = cache.encode_chunk(items, normalise=normalise, max_length=max_length)
            done += len(chunk)
            progress("encoding", done, total)
            yield [values for _, values in chunk], vectors

    chunks = encode_chunks()
    first = next(chunks)
    size = first[1].shape[1]
    with replacing(out, durable=True) as part:
        _WRITERS[out.suffix](part, texts, total, size, itertools.chain([first], chunks))
    shutil.rmtree(folder)
    return EmbeddingResult(total, size, resumed)


def _write_array(path: Path, texts: TextSource, total: int, size: int, chunks: Iterator[_Chunk]) -> None:
    array = np.lib.format.open_memmap(path, "w+", np.float32, (total, size))
    first = 0
    for _, vectors in chunks:
        array[first : first + len(vectors)] = vectors
        first += len(vectors)
    array.flush()


def _write_parquet(path: Path, texts: TextSource, total: int, size: int, chunks: Iterator[_Chunk]) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    schema = columns_schema(texts.columns)
    output = schema.append(pa.field("vector", pa.list_(pa.float32(), size)))
    with pq.ParquetWriter(path, output, compression="zstd") as writer:
        for rows, vectors in chunks:
            writer.write_table(rows_to_table(rows, schema).append_column(output.field("vector"), vector_array(vectors)))


def _write_jsonl(path: Path, texts: TextSource, total: int, size: int, chunks: Iterator[_Chunk]) -> None:
    with path.open("w", encoding="utf-8") as file:
        for row, vector in ((row, vector) for chunk in chunks for row, vector in zip(*chunk, strict=True)):
            keys = json.dumps(dict(zip(texts.columns, row, strict=True)), ensure_ascii=False)
            numbers = ", ".join(f"{value:.9g}" for value in vector.tolist())  # nine digits restore a float32
            file.write(f'{keys[:-1]}, "vector": [{numbers}]}}\n')


_WRITERS = {".npy": _write_array, ".parquet": _write_parquet, ".jsonl": _write_jsonl}
