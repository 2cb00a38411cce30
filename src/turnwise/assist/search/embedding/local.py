"""Vectors of many texts, written to a file; what was interrupted goes on where it stopped.

While the work is under way, vectors lie in parts in a folder `.NAME.parts` beside the file: each part takes its name when it is
whole. The file itself is put together at the end and takes its name at once.
"""

import itertools
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from turnwise.assist.search.embedding.embedded import Embedded, EmbeddingError, Vectors, encoded, encoder_of
from turnwise.core.files import read_json, sync, write_whole
from turnwise.core.progress import Progress, silent
from turnwise.corpus.text_sources import Row, Texts
from turnwise.models.loading import ModelUnderTest
from turnwise.version import __version__

#: What vectors can be written as.
FORMATS = (".npy", ".parquet", ".jsonl")

#: Texts of a part: what an interruption can cost.
PART = 4_096

_RUN = "run.json"


def embed(
    model: ModelUnderTest,
    texts: Texts,
    out: Path,
    *,
    normalise: bool | None = None,
    max_length: int | None = None,
    progress: Progress = silent,
) -> Embedded:
    """Writes a vector for each text, in their order: as an array (.npy), or with the texts (.parquet, .jsonl).

    All texts are read once before the first is encoded, so that one that cannot be read is told at once.

    Args:
        model: gives the vectors.
        texts: what to encode.
        out: the file; one that is there is replaced when all is done.
        normalise: scale vectors to length 1; None: as the model was saved.
        max_length: tokens of a text, at most the model's own; None: the model's own.
        progress: told how many texts are encoded.

    Raises:
        EmbeddingError: if the model gives no vectors, there are no texts, or the file cannot be of that kind.
        TableFileError: if the texts cannot be read.
    """
    _expect_writable(out)
    encoder = encoder_of(model)
    total = sum(1 for _ in texts.rows())
    if not total:
        raise EmbeddingError("there are no texts to encode")
    settings = {"turnwise": __version__, "texts": texts.identity, "normalise": normalise, "max_length": max_length}
    parts = _Parts(out.with_name(f".{out.name}.parts"), {**settings, "model": model.fingerprint})
    done = resumed = 0
    for number, rows in enumerate(_portions(texts.rows())):
        if parts.holds(number, len(rows)):
            resumed += len(rows)
        else:
            parts.keep(number, encoded(encoder, [item for item, _ in rows], normalise, max_length))
        done += len(rows)
        progress("encoding", done, total)
    size = parts.read(0).shape[1]
    unfinished = out.with_name(f".writing-{out.name}")
    _WRITERS[out.suffix](unfinished, texts, parts, total, size)
    sync(unfinished)
    unfinished.replace(out)
    parts.remove()
    return Embedded(total, size, resumed)


def _expect_writable(out: Path) -> None:
    if out.suffix not in FORMATS:
        raise EmbeddingError(f"{out} is none of {', '.join(FORMATS)}")
    if not out.absolute().parent.is_dir():
        raise EmbeddingError(f"there is no folder {out.absolute().parent} to write to")
    if out.is_dir():
        raise EmbeddingError(f"{out} is a folder: name a file")


def _portions(rows: Iterator[Row]) -> Iterator[list[Row]]:
    while portion := list(itertools.islice(rows, PART)):
        yield portion


class _Parts:
    """Vectors on their way into a file."""

    def __init__(self, folder: Path, run: dict[str, Any]):
        self._folder = folder
        # of a function nobody knows whether it is still the same
        if run["model"] is None or not (folder / _RUN).is_file() or read_json(folder / _RUN) != run:
            self.remove()
            folder.mkdir()
            write_whole(folder / _RUN, json.dumps(run))

    def holds(self, number: int, rows: int) -> bool:
        """Whether a part is there."""
        return self._path(number).is_file() and len(self.read(number)) == rows

    def keep(self, number: int, vectors: Vectors) -> None:
        """Writes a part."""
        unfinished = self._folder / "unfinished.npy"
        np.save(unfinished, vectors)
        unfinished.replace(self._path(number))

    def read(self, number: int) -> Vectors:
        """The vectors of a part, mapped, not loaded."""
        found: Vectors = np.load(self._path(number), mmap_mode="r")
        return found

    def remove(self) -> None:
        """Removes all of them."""
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
        for number, rows in enumerate(_portions(texts.rows())):
            columns = zip(*(told for _, told in rows), strict=True)
            arrays = [pa.array(column, field.type) for column, field in zip(columns, texts.schema, strict=True)]
            flat = pa.array(np.array(parts.read(number)).ravel())
            writer.write_table(
                pa.Table.from_arrays([*arrays, pa.FixedSizeListArray.from_arrays(flat, size)], schema=schema)
            )


def _write_lines(path: Path, texts: Texts, parts: _Parts, total: int, size: int) -> None:
    with path.open("w", encoding="utf-8") as file:
        for number, rows in enumerate(_portions(texts.rows())):
            for (_, told), vector in zip(rows, parts.read(number), strict=True):
                keys = json.dumps(dict(zip(texts.schema.names, told, strict=True)), ensure_ascii=False)
                numbers = ", ".join(f"{value:.9g}" for value in vector.tolist())  # which gives back the same 32 bits
                file.write(f'{keys[:-1]}, "vector": [{numbers}]}}\n')


_WRITERS = {".npy": _write_array, ".parquet": _write_parquet, ".jsonl": _write_lines}
