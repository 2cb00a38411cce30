"""64-bit fingerprints of texts, in memory and on disk, for finding duplicates without holding the texts.

Two of a million different texts share a fingerprint with probability 3·10⁻⁸, two of 37 million with 4·10⁻⁵.
"""

import hashlib
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryFile

import numpy as np
import numpy.typing as npt

#: The initial number of places in a table, as a power of two; it doubles when three quarters are taken.
_INITIAL_BITS = 16

#: Places behind the last home place, for fingerprints whose home is taken: runs of taken places are far shorter.
_OVERFLOW = 1 << 14

#: Places that are moved at a time when a table grows.
_MOVE_SIZE = 1 << 20

#: Leading bits that select a bucket file. With 64 files, a bucket of a billion fingerprints takes 250 MB of memory.
_BUCKET_BITS = 6

_BUCKET_ROW = np.dtype([("fingerprint", np.int64), ("position", np.int64)])


def text_fingerprint(text: str) -> int:
    """Return the 64-bit fingerprint of a text."""
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big")


class FingerprintSet:
    """A set of fingerprints in 11 to 22 bytes each; a Python set takes 75.

    The leading bits of a fingerprint are its home place in the table; if that is taken, it gets the next free one
    (linear probing). So the table is sorted except for short runs, and grows by moving one slice after the other. 0
    marks a free place.
    """

    def __init__(self) -> None:
        self._size = 0
        self._use_columns(_INITIAL_BITS, self._allocate(_INITIAL_BITS))

    def __len__(self) -> int:
        return self._size

    def add(self, fingerprint: int) -> bool:
        """Add a fingerprint; return False if it was in the set."""
        fingerprint = fingerprint or 1
        place = self._find(fingerprint)
        if self._table[place]:
            return False
        self._insert(place, fingerprint)
        return True

    def _find(self, fingerprint: int) -> int:
        """Return the place of a fingerprint, or the free one where it belongs."""
        table, place = self._table, fingerprint >> self._shift
        while (current := table[place]) and current != fingerprint:
            place += 1
        return place

    def _insert(self, place: int, fingerprint: int) -> None:
        self._table[place] = fingerprint
        self._size += 1
        if self._size >= self._capacity:
            self._grow()

    def _allocate(self, bits: int) -> list[npt.NDArray[np.generic]]:
        """Return the columns of an empty table, the fingerprints first."""
        return [np.zeros((1 << bits) + _OVERFLOW, np.uint64)]

    def _use_columns(self, bits: int, columns: list[npt.NDArray[np.generic]]) -> None:
        self._columns = columns
        # reading single numbers from a memoryview is several times faster than from an array
        self._table = memoryview(self._columns[0])  # type: ignore[arg-type]
        self._shift = 64 - bits
        self._capacity = 3 << (bits - 2)

    def _grow(self) -> None:
        bits = 65 - self._shift
        old, new = self._columns, self._allocate(bits)
        first_free = 0  # behind the places that were filled
        for start, end in _independent_slices(old[0]):
            taken = start + np.flatnonzero(old[0][start:end])
            taken = taken[np.argsort(old[0][taken])]
            homes = (old[0][taken] >> np.uint64(64 - bits)).astype(np.int64)  # type: ignore[operator]
            steps = np.arange(len(taken))
            # each gets its home or the place behind its predecessor, whichever is further
            places = np.maximum(np.maximum.accumulate(homes - steps), first_free) + steps
            for new_column, old_column in zip(new, old, strict=True):
                new_column[places] = old_column[taken]
            first_free = int(places[-1]) + 1 if len(places) else first_free
        self._use_columns(bits, new)


class FingerprintIndex(FingerprintSet):
    """Fingerprints numbered from 0 in the order of their first appearance, in 16 to 32 bytes each."""

    def index(self, fingerprint: int) -> int:
        """Return the number of a fingerprint, which is added if it is new."""
        fingerprint = fingerprint or 1
        place = self._find(fingerprint)
        if self._table[place]:
            return int(self._numbers[place])
        self._numbers[place] = self._size
        self._insert(place, fingerprint)
        return self._size - 1

    def _allocate(self, bits: int) -> list[npt.NDArray[np.generic]]:
        return [*super()._allocate(bits), np.zeros((1 << bits) + _OVERFLOW, np.uint32)]

    def _use_columns(self, bits: int, columns: list[npt.NDArray[np.generic]]) -> None:
        super()._use_columns(bits, columns)
        self._numbers = memoryview(columns[1])  # type: ignore[arg-type]


def _independent_slices(table: npt.NDArray[np.generic]) -> list[tuple[int, int]]:
    """Split a table after free places, so that no fingerprint was pushed from its home across a boundary."""
    starts = [0]
    while starts[-1] + _MOVE_SIZE < len(table):
        free = np.flatnonzero(table[starts[-1] : starts[-1] + _MOVE_SIZE] == 0)
        starts.append(starts[-1] + int(free[-1]))
    return list(zip(starts, [*starts[1:], len(table)], strict=True))


class FingerprintBuckets:
    """Fingerprints on disk, grouped by their leading bits, each with its position in the order of addition.

    Memory holds one batch while adding and one bucket while iterating. The files, in `folder` or the system's folder
    for temporary files, take 16 bytes per fingerprint and disappear with the process, even if it is killed. Use it as a
    context manager.
    """

    def __init__(self, folder: Path | None = None):
        self._size = 0
        with ExitStack() as stack:
            self._files = [stack.enter_context(TemporaryFile(dir=folder)) for _ in range(1 << _BUCKET_BITS)]
            self._stack = stack.pop_all()

    def __len__(self) -> int:
        return self._size

    def add(self, fingerprints: npt.NDArray[np.int64]) -> None:
        """Append fingerprints; they should be spread over 64 bits, as hashes are."""
        rows = np.empty(len(fingerprints), _BUCKET_ROW)
        rows["fingerprint"] = fingerprints
        rows["position"] = np.arange(self._size, self._size + len(rows))
        bucket = np.ascontiguousarray(fingerprints).view(np.uint64) >> np.uint64(64 - _BUCKET_BITS)
        order = np.argsort(bucket, kind="stable")
        ends = np.searchsorted(bucket[order], np.arange(1, len(self._files)))
        for file, part in zip(self._files, np.split(rows[order], ends), strict=True):
            file.write(part.tobytes())
        self._size += len(rows)

    def __iter__(self) -> Iterator[tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]]:
        """Yield the fingerprints and ascending positions of each bucket; equal fingerprints share a bucket."""
        for file in self._files:
            file.seek(0)
            rows = np.frombuffer(file.read(), _BUCKET_ROW)
            yield np.ascontiguousarray(rows["fingerprint"]), np.ascontiguousarray(rows["position"])

    def __enter__(self) -> "FingerprintBuckets":
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()
