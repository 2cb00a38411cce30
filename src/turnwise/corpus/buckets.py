"""Equal numbers brought together, however many there are: on disk, a part of them in memory at a time."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryFile

import numpy as np
import numpy.typing as npt

#: Leading bits that choose a bucket. There are 64: of a billion fingerprints each holds a quarter of a gigabyte.
_BITS = 6

_ROW = np.dtype([("fingerprint", np.int64), ("place", np.int64)])


class Buckets:
    """Fingerprints by their leading bits, each with its place in the order in which they were added.

    Memory holds what is added at a time, and one bucket where they are read. They lie in temporary files of 16 bytes a fingerprint
    that nobody else sees and that go with the process, even with one that is killed. Use it as a context manager.

    Args:
        folder: where the files are; None: where the system keeps temporary files.
    """

    def __init__(self, folder: Path | None = None):
        self._size = 0
        with ExitStack() as stack:
            self._files = [stack.enter_context(TemporaryFile(dir=folder)) for _ in range(1 << _BITS)]
            self._stack = stack.pop_all()

    def __len__(self) -> int:
        return self._size

    def add(self, fingerprints: npt.NDArray[np.int64]) -> None:
        """Puts fingerprints behind those that are there; they are expected to be spread over 64 bits, as hashes are."""
        rows = np.empty(len(fingerprints), _ROW)
        rows["fingerprint"] = fingerprints
        rows["place"] = np.arange(self._size, self._size + len(rows))
        bucket = np.ascontiguousarray(fingerprints).view(np.uint64) >> np.uint64(64 - _BITS)
        order = np.argsort(bucket, kind="stable")
        ends = np.searchsorted(bucket[order], np.arange(1, len(self._files)))
        for file, part in zip(self._files, np.split(rows[order], ends), strict=True):
            file.write(part.tobytes())
        self._size += len(rows)

    def __iter__(self) -> Iterator[tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]]:
        """The fingerprints of each bucket with their places, first place first; equal fingerprints share a bucket."""
        for file in self._files:
            file.seek(0)
            rows = np.frombuffer(file.read(), _ROW)
            yield np.ascontiguousarray(rows["fingerprint"]), np.ascontiguousarray(rows["place"])

    def __enter__(self) -> "Buckets":
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()
