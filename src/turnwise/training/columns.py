"""Arrays on disk: written as their numbers come, and read ahead of whoever needs them."""

import mmap
from pathlib import Path

import numpy as np
import numpy.typing as npt


class GrowingArray:
    """A file of numbers as `numpy.load` reads it, of one dimension, that nobody has to hold before it is written.

    Use it as a context manager; the file is whole when that ends.
    """

    def __init__(self, path: Path, kind: npt.DTypeLike):
        self._kind = np.dtype(kind)
        self._size = 0
        self._file = path.open("wb")
        self._write_header()

    def __len__(self) -> int:
        return self._size

    def extend(self, values: npt.ArrayLike) -> None:
        """Puts numbers behind those that are there."""
        values = np.ravel(np.asarray(values)).astype(self._kind, copy=False)
        self._file.write(values.tobytes())
        self._size += len(values)

    def _write_header(self) -> None:
        # numpy leaves room in the header for a longer length, so that it can be written over
        header = {"descr": np.lib.format.dtype_to_descr(self._kind), "fortran_order": False, "shape": (self._size,)}
        np.lib.format.write_array_header_1_0(self._file, header)

    def __enter__(self) -> "GrowingArray":
        return self

    def __exit__(self, *_: object) -> None:
        self._file.seek(0)
        self._write_header()
        self._file.close()


def read_ahead(array: npt.NDArray[np.generic], first: int, last: int) -> None:
    """Has the system read the rows from `first` to before `last` of a memory-mapped array, in one go, while others go on."""
    mapped = _map_of(array)
    if mapped is not None and first < last:
        row = array.strides[0]
        # a map begins at a page, which may be before the array
        start = array.offset % mmap.ALLOCATIONGRANULARITY + first * row  # type: ignore[attr-defined]
        page = start - start % mmap.PAGESIZE
        mapped.madvise(mmap.MADV_WILLNEED, page, min(start + (last - first) * row, len(mapped)) - page)


def release(array: npt.NDArray[np.generic]) -> None:
    """Gives back the memory in which a memory-mapped array was read; what is read again comes from the system or the disk."""
    mapped = _map_of(array)
    if mapped is not None:
        mapped.madvise(mmap.MADV_DONTNEED)


def _map_of(array: npt.NDArray[np.generic]) -> mmap.mmap | None:
    """The map behind an array; None where it is held in memory, as an empty one is."""
    return array._mmap if isinstance(array, np.memmap) else None  # type: ignore[attr-defined]
