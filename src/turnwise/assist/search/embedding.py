"""Bulk embedding into a file: the vectors of many texts; an interrupted run is continued.

During a run, vectors are stored in parts in a folder `.NAME.parts` beside the file; each part gets its name when it is
complete. At the end the file is assembled from the parts and renamed into place.
"""

import itertools
import json
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from turnwise.core.errors import TurnwiseError
from turnwise.core.files import read_json, sync, write_whole
from turnwise.core.progress import Progress, silent
from turnwise.core.types import SupportsEncode
from turnwise.corpus.text_sources import Row, Texts
from turnwise.models.loading import ModelUnderTest
from turnwise.version import __version__

#: Output formats.
FORMATS = (".npy", ".parquet", ".jsonl")

#: Texts per part: at most so many are encoded again after an interruption.
PART = 4_096

_RUN = "run.json"

Vectors = npt.NDArray[np.float32]


class EmbeddingError(TurnwiseError):
    """Texts cannot be embedded; the message says why and what to do."""


@dataclass(frozen=True, slots=True)
class EmbeddingResult:
    """What was written.

    Attributes:
        texts: number of texts.
        size: dimensions of a vector.
        resumed: texts that an earlier run had encoded.
    """

    texts: int
    size: int
    resumed: int


def get_encoder(model: ModelUnderTest) -> SupportsEncode:
    """Return a model's encoder; raise `EmbeddingError` if it has none."""
    if model.encoder is None:
        raise EmbeddingError(f"{model.name} is a re-ranker, which has no vectors: name an encoder")
    return model.encoder


def encode_distinct(
    encoder: SupportsEncode, items: Sequence[Any], normalise: bool | None, max_length: int | None
) -> Vectors:
    """Return the vectors of items, encoding repeated ones once."""
    rows = {item: row for row, item in enumerate(dict.fromkeys(items))}
    vectors = encoder.encode(list(rows), normalise=normalise, max_length=max_length)
    return np.asarray(vectors, np.float32)[[rows[item] for item in items]]


def embed(
    model: ModelUnderTest,
    texts: Texts,
    out: Path,
    *,
    normalise: bool | None = None,
    max_length: int | None = None,
    progress: Progress = silent,
) -> EmbeddingResult:
    """Write the vector of each text, in order: as an array (.npy), or with the texts (.parquet, .jsonl).

    All texts are read once before the first is encoded, so that an unreadable one is reported at once.

    Args:
        model: the encoder.
        texts: to encode.
        out: the file; an existing one is replaced at the end.
        normalise: scale vectors to length 1; None: as the model was saved.
        max_length: tokens per text, at most the model's limit; None: the model's limit.
        progress: receives the number of encoded texts.

    Raises:
        EmbeddingError: if the model has no vectors, there are no texts, or the output path does not fit.
        TableFileError: if the texts cannot be read.
    """
    _check_output(out)
    encoder = get_encoder(model)
    total = sum(1 for _ in texts.rows())
    if not total:
        raise EmbeddingError("there are no texts to encode")
    settings = {"turnwise": __version__, "texts": texts.identity, "normalise": normalise, "max_length": max_length}
    parts = _Parts(out.with_name(f".{out.name}.parts"), {**settings, "model": model.fingerprint})
    done = resumed = 0
    for number, rows in enumerate(_batches(texts.rows())):
        if parts.has(number, len(rows)):
            resumed += len(rows)
        else:
            parts.write(number, encode_distinct(encoder, [item for item, _ in rows], normalise, max_length))
        done += len(rows)
        progress("encoding", done, total)
    size = parts.read(0).shape[1]
    temporary = out.with_name(f".writing-{out.name}")
    _WRITERS[out.suffix](temporary, texts, parts, total, size)
    sync(temporary)
    temporary.replace(out)
    parts.remove()
    return EmbeddingResult(total, size, resumed)


def _check_output(out: Path) -> None:
    if out.suffix not in FORMATS:
        raise EmbeddingError(f"{out} is none of {', '.join(FORMATS)}")
    if not out.absolute().parent.is_dir():
        raise EmbeddingError(f"there is no folder {out.absolute().parent} to write to")
    if out.is_dir():
        raise EmbeddingError(f"{out} is a folder: name a file")


def _batches(rows: Iterator[Row]) -> Iterator[list[Row]]:
    while batch := list(itertools.islice(rows, PART)):
        yield batch


class _Parts:
    """The vectors of a run in numbered files; those of a run with other settings are removed."""

    def __init__(self, folder: Path, run: dict[str, Any]):
        self._folder = folder
        # A function has no fingerprint: it may have changed.
        if run["model"] is None or not (folder / _RUN).is_file() or read_json(folder / _RUN) != run:
            self.remove()
            folder.mkdir()
            write_whole(folder / _RUN, json.dumps(run))

    def has(self, number: int, rows: int) -> bool:
        return self._path(number).is_file() and len(self.read(number)) == rows

    def write(self, number: int, vectors: Vectors) -> None:
        temporary = self._folder / "unfinished.npy"
        np.save(temporary, vectors)
        temporary.replace(self._path(number))

    def read(self, number: int) -> Vectors:
        """Return the vectors of a part, memory-mapped."""
        vectors: Vectors = np.load(self._path(number), mmap_mode="r")
        return vectors

    def remove(self) -> None:
        if self._folder.is_dir():
            shutil.rmtree(self._folder)

    def _path(self, number: int) -> Path:
        return self._folder / f"{number:06d}.npy"


def _write_array(path: Path, texts: Texts, parts: _Parts, total: int, size: int) -> None:
    array = np.lib.format.open_memmap(path, "w+", np.float32, (total, size))
    for first in range(0, total, PART):
        array[first : first + PART] = parts.read(first // PART)
    array.flush()


def _write_parquet(path: Path, texts: Texts, parts: _Parts, total: int, size: int) -> None:
    schema = texts.schema.append(pa.field("vector", pa.list_(pa.float32(), size)))
    with pq.ParquetWriter(path, schema, compression="zstd") as writer:
        for number, rows in enumerate(_batches(texts.rows())):
            columns = zip(*(values for _, values in rows), strict=True)
            arrays = [pa.array(column, field.type) for column, field in zip(columns, texts.schema, strict=True)]
            flat = pa.array(np.array(parts.read(number)).ravel())
            vectors = pa.FixedSizeListArray.from_arrays(flat, size)
            writer.write_table(pa.Table.from_arrays([*arrays, vectors], schema=schema))


def _write_jsonl(path: Path, texts: Texts, parts: _Parts, total: int, size: int) -> None:
    with path.open("w", encoding="utf-8") as file:
        for number, rows in enumerate(_batches(texts.rows())):
            for (_, values), vector in zip(rows, parts.read(number), strict=True):
                keys = json.dumps(dict(zip(texts.schema.names, values, strict=True)), ensure_ascii=False)
                numbers = ", ".join(f"{value:.9g}" for value in vector.tolist())  # nine digits restore a float32
                file.write(f'{keys[:-1]}, "vector": [{numbers}]}}\n')


_WRITERS = {".npy": _write_array, ".parquet": _write_parquet, ".jsonl": _write_jsonl}
