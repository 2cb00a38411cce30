"""The on-disk cache of vectors: an encoder that computes the vector of an input once, across interruptions and runs.

A folder belongs to one encoder: name it after the encoder's fingerprint (`turnwise.models.identity`).
"""

import hashlib
import secrets
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from turnwise.core.dialogue import Turn
from turnwise.core.files import replacing
from turnwise.core.progress import Progress, silent
from turnwise.core.types import DescribedEncoder, SupportsEncode, Vectors, normalise_vectors
from turnwise.models.identity import EncoderId

#: Inputs encoded between two writes on a CPU: what an interruption can cost.
PORTION = 4_096


class VectorCache:
    """An encoder that never encodes an input twice.

    `encode` looks every input up in an index in memory. `encode_chunk` is for corpora that are too large for that: it
    recognises a list of inputs as a whole. In the folder lie pairs of files `NAME.vectors.npy` and `NAME.keys.npy`, of
    which the keys are written last, and `HASH.chunk.npy`. An interrupted write leaves nothing that is read.
    """

    def __init__(self, encoder: SupportsEncode, folder: Path | None = None, progress: Progress = silent):
        """Wrap an encoder; `folder` is for its vectors alone, and without one they are kept in memory only."""
        self._encoder = encoder
        self._folder = folder
        self._progress = progress
        self._portions: list[Vectors] = []
        self._index: dict[bytes, tuple[int, int]] = {}
        self._loaded = False

    def encode(self, inputs: Sequence[Any], *, normalise: bool | None = None, max_length: int | None = None) -> Vectors:
        """Return vectors (inputs, size) in the order of the inputs; only new inputs are encoded."""
        self._load()
        described = self._encoder if isinstance(self._encoder, DescribedEncoder) else None
        texts_only = described is not None and described.reads_texts_only
        keys = [_key(_as_text(item) if texts_only else item, max_length) for item in inputs]
        new = {key: item for key, item in zip(keys, inputs, strict=True) if key not in self._index}
        # inputs of similar length together: an encoder wastes less on an even batch
        new_keys = sorted(new, key=lambda key: sum(map(len, _texts(new[key]))))
        size = scale_to_device(PORTION, self._encoder)
        for first in range(0, len(new_keys), size):
            portion = new_keys[first : first + size]
            vectors = self._encoder.encode([new[key] for key in portion], normalise=False, max_length=max_length)
            self._write_portion(portion, np.asarray(vectors, np.float32))
            self._progress("encoding", first + len(portion), len(new))
        vectors = self._gather(keys)
        if normalise if normalise is not None else described is not None and described.normalise:
            vectors = normalise_vectors(vectors)
        return vectors

    def identify(self, max_length: int | None = None) -> EncoderId | None:
        """Return the id of the encoder; None if it has none."""
        return EncoderId.of(self._encoder, max_length)

    def encode_chunk(
        self, inputs: Sequence[Any], *, normalise: bool | None = None, max_length: int | None = None
    ) -> Vectors:
        """Return vectors (inputs, size), memory-mapped; a list that was encoded before is read from the folder."""
        path = self._chunk_path(inputs, normalise, max_length)
        if not path.is_file():
            vectors = encode_distinct(self._encoder, inputs, normalise=normalise, max_length=max_length)
            self._save(path, vectors)
        chunk: Vectors = np.load(path, mmap_mode="r", allow_pickle=False)
        return chunk

    def holds_chunk(
        self, inputs: Sequence[Any], *, normalise: bool | None = None, max_length: int | None = None
    ) -> bool:
        """Return whether `encode_chunk` with these arguments would encode nothing."""
        return self._chunk_path(inputs, normalise, max_length).is_file()

    def clear(self) -> None:
        """Forget all vectors, and remove the folder."""
        self._portions, self._index = [], {}
        if self._folder is not None and self._folder.is_dir():
            shutil.rmtree(self._folder)

    def _load(self) -> None:
        if self._loaded or self._folder is None:
            return
        self._loaded = True
        for path in sorted(self._folder.glob("*.keys.npy")):
            vectors = np.load(path.with_name(path.name.replace(".keys.", ".vectors.")), mmap_mode="r")
            self._add_portion([key.tobytes() for key in np.load(path)], vectors)

    def _gather(self, keys: list[bytes]) -> Vectors:
        places = np.array([self._index[key] for key in keys], np.int64).reshape(-1, 2)
        size = self._portions[0].shape[1] if self._portions else 0
        vectors = np.empty((len(keys), size), np.float32)
        for portion in np.unique(places[:, 0]):
            rows = places[:, 0] == portion
            vectors[rows] = self._portions[portion][places[rows, 1]]
        return vectors

    def _write_portion(self, keys: list[bytes], vectors: Vectors) -> None:
        if self._folder is not None:
            name = secrets.token_hex(8)
            self._save(self._folder / f"{name}.vectors.npy", vectors)
            key_rows = np.frombuffer(b"".join(keys), np.uint8).reshape(len(keys), -1)
            self._save(self._folder / f"{name}.keys.npy", key_rows)
        self._add_portion(keys, vectors)

    def _add_portion(self, keys: list[bytes], vectors: Vectors) -> None:
        self._index.update({key: (len(self._portions), row) for row, key in enumerate(keys)})
        self._portions.append(vectors)

    def _chunk_path(self, inputs: Sequence[Any], normalise: bool | None, max_length: int | None) -> Path:
        digest = hashlib.blake2b(f"{normalise}\0".encode(), digest_size=16)
        for item in inputs:
            digest.update(_key(item, max_length))
        assert self._folder is not None
        return self._folder / f"{digest.hexdigest()}.chunk.npy"

    @staticmethod
    def _save(path: Path, array: npt.NDArray[Any]) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path) as part, part.open("wb") as file:
            np.save(file, array)


def encode_unique(
    encoder: SupportsEncode, inputs: Sequence[Any], max_length: int | None = None, *, normalise: bool | None = True
) -> tuple[Vectors, npt.NDArray[np.int64]]:
    """Encode each distinct input once; return the vectors (distinct, size) and the row of each input (inputs,)."""
    keys = [_key(item, None) for item in inputs]
    distinct = dict(zip(keys, inputs, strict=True))
    row_of = {key: row for row, key in enumerate(distinct)}
    vectors = encoder.encode(list(distinct.values()), normalise=normalise, max_length=max_length)
    return np.asarray(vectors, np.float32), np.array([row_of[key] for key in keys], np.int64)


def encode_distinct(
    encoder: SupportsEncode, inputs: Sequence[Any], *, normalise: bool | None = None, max_length: int | None = None
) -> Vectors:
    """Return vectors (inputs, size); inputs that are equal are encoded once."""
    vectors, rows = encode_unique(encoder, inputs, max_length, normalise=normalise)
    return vectors if len(vectors) == len(inputs) else vectors[rows]


def _texts(item: Any) -> list[str]:
    return [item] if isinstance(item, str) else [turn.text if isinstance(turn, Turn) else turn for turn in item]


def _as_text(item: Any) -> str | list[str]:
    """Return the texts of an input; a single one as a text."""
    texts = _texts(item)
    return texts[0] if len(texts) == 1 else texts


def scale_to_device(inputs: int, encoder: SupportsEncode) -> int:
    """Return how many inputs to encode at a time: more on a GPU, which has nothing to do between two calls."""
    on_gpu = isinstance(encoder, DescribedEncoder) and encoder.device.startswith("cuda")
    return inputs * 16 if on_gpu else inputs


def _key(item: Any, max_length: int | None) -> bytes:
    """Return a hash of an input's texts, their speakers and slots, and its maximum length."""
    digest = hashlib.blake2b(f"{max_length}\0".encode(), digest_size=16)
    if isinstance(item, str):
        digest.update(b"text\0" + item.encode("utf-8", "surrogatepass"))
        return digest.digest()
    for turn in item:
        speaker, text = (turn.speaker, turn.text) if isinstance(turn, Turn) else ("", turn)
        digest.update(f"turn\0{speaker}\0{text}\0".encode("utf-8", "surrogatepass"))
        if isinstance(turn, Turn) and turn.slots:
            digest.update(f"slots\0{[(slot.name, slot.start, slot.end) for slot in turn.slots]}\0".encode())
    return digest.digest()
