"""Vectors that are computed once: whatever a model has encoded is kept, in memory and, where a folder is given, on disk."""

import hashlib
import secrets
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from turnwise.core.dialogue import Turn
from turnwise.core.progress import Progress, silent
from turnwise.core.types import SupportsEncode

#: Inputs encoded between two writings: what an interruption can cost.
PORTION = 4_096


class Embedder:
    """An encoder that never encodes an input twice.

    What it keeps on disk lies in pairs of files, `NAME.vectors.npy` and `NAME.keys.npy`; the keys are written last, so that an
    interruption leaves no half portion behind.
    """

    def __init__(self, encoder: SupportsEncode, folder: Path | None = None, progress: Progress = silent):
        """Wraps an encoder.

        Args:
            encoder: gives the vectors.
            folder: one for this model alone; None: nothing is kept on disk.
            progress: told how many inputs are encoded.
        """
        self._encoder = encoder
        self._folder = folder
        self._progress = progress
        self._portions: list[npt.NDArray[np.float32]] = []
        self._places: dict[bytes, tuple[int, int]] = {}
        if folder is not None:
            for keys in sorted(folder.glob("*.keys.npy")):
                vectors = np.load(keys.with_name(keys.name.replace(".keys.", ".vectors.")), mmap_mode="r")
                self._take([key.tobytes() for key in np.load(keys)], vectors)

    def encode(
        self, inputs: Sequence[Any], *, normalise: bool | None = None, max_length: int | None = None
    ) -> npt.NDArray[np.float32]:
        """Vectors (inputs, size) in the order of the inputs; only what is new is encoded."""
        keys = [_key(item, max_length) for item in inputs]
        new = {key: item for key, item in zip(keys, inputs, strict=True) if key not in self._places}
        done = 0
        for portion in _portions(new):
            vectors = self._encoder.encode(list(portion.values()), normalise=False, max_length=max_length)
            self._keep(list(portion), np.asarray(vectors, np.float32))
            done += len(portion)
            self._progress("encoding", done, len(new))
        found = self._gather(keys)
        if normalise if normalise is not None else getattr(self._encoder, "normalise", False):
            found /= np.maximum(np.linalg.norm(found, axis=1, keepdims=True), 1e-12)
        return found

    def _gather(self, keys: list[bytes]) -> npt.NDArray[np.float32]:
        places = np.array([self._places[key] for key in keys], np.int64).reshape(-1, 2)
        size = self._portions[0].shape[1] if self._portions else 0
        found = np.empty((len(keys), size), np.float32)
        for portion in np.unique(places[:, 0]):
            rows = places[:, 0] == portion
            found[rows] = self._portions[portion][places[rows, 1]]
        return found

    def _keep(self, keys: list[bytes], vectors: npt.NDArray[np.float32]) -> None:
        if self._folder is not None:
            self._folder.mkdir(parents=True, exist_ok=True)
            name = secrets.token_hex(8)
            for kind, array in (
                ("vectors", vectors),
                ("keys", np.frombuffer(b"".join(keys), np.uint8).reshape(len(keys), -1)),
            ):
                part = self._folder / f"{name}.part"
                with part.open("wb") as file:
                    np.save(file, array)
                part.replace(self._folder / f"{name}.{kind}.npy")
        self._take(keys, vectors)

    def _take(self, keys: list[bytes], vectors: npt.NDArray[np.float32]) -> None:
        self._places.update({key: (len(self._portions), row) for row, key in enumerate(keys)})
        self._portions.append(vectors)


def _key(item: Any, max_length: int | None) -> bytes:
    """What tells an input from others: its texts, who speaks them, the slots in them, and where it is cut."""
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


def _portions(inputs: dict[bytes, Any]) -> Iterator[dict[bytes, Any]]:
    """Inputs in portions, alike in length: an encoder wastes less where its batch is even."""
    ordered = sorted(inputs.items(), key=lambda pair: _length(pair[1]))
    for first in range(0, len(ordered), PORTION):
        yield dict(ordered[first : first + PORTION])


def _length(item: Any) -> int:
    return (
        len(item) if isinstance(item, str) else sum(len(turn.text if isinstance(turn, Turn) else turn) for turn in item)
    )
