"""Data derived from a corpus and cached on disk, and the arrays that it consists of.

A cached folder is named by a hash of what its content was derived from, so that a resumed run finds it and a changed
one does not.
"""

import hashlib
import mmap
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import numpy as np
import numpy.typing as npt
from filelock import FileLock

from turnwise.core.dialogue import Dialogue
from turnwise.core.errors import TurnwiseError
from turnwise.core.files import replacing
from turnwise.core.progress import Progress
from turnwise.corpus.storage.corpus import Corpus

#: Dialogues that are processed at a time.
BATCH_DIALOGUES = 2_000


def corpus_identity(corpus: Corpus) -> list[str]:
    """Return what distinguishes a corpus: its stores' contents, and which dialogues and turns are read, and how."""
    fraction = () if corpus.fraction == 1 else (f"fraction {corpus.fraction!r}",)
    combined = ("combined turns",) if corpus.combine_turns else ()
    minimum = () if corpus.min_turns == 1 else (f"at least {corpus.min_turns} turns",)
    generations = (store.manifest["generation"] for store in corpus.stores)
    return [*generations, *(corpus.splits or ("all splits",)), *fraction, *combined, *minimum]


@dataclass(frozen=True, slots=True)
class TrainingCorpus:
    """A corpus as a run reads it, with its identity, and the folder of the data derived from it."""

    dialogues: Corpus
    identity: list[str]
    cache: Path

    @classmethod
    def of(cls, corpus: Corpus, cache: Path) -> "TrainingCorpus":
        """Compute a corpus's identity."""
        return cls(corpus, corpus_identity(corpus), cache)

    def batches(self, task: str, progress: Progress) -> Iterator[tuple[int, list[Dialogue]]]:
        """Iterate over batches of dialogues, each with the number of its store, and report progress after each."""
        total, done = len(self.dialogues), 0
        for number, store in enumerate(self.dialogues.stores):
            dialogues = self.dialogues.read(store)
            while batch := list(islice(dialogues, BATCH_DIALOGUES)):
                yield number, batch
                done += len(batch)
                progress(task, done, total)

    def derive(self, kind: str, inputs: Sequence[str], write: Callable[[Path], None]) -> Path:
        """Return the cached folder of something derived from `inputs`, which has `write` fill it unless it exists.

        Runs that share a cache wait for the one that writes. What a killed run left unfinished is overwritten.
        """
        place = self.cache / f"{kind}-{hashlib.sha256(chr(0).join(inputs).encode()).hexdigest()[:12]}"
        if place.is_dir():
            return place
        locks = self.cache / ".locks"
        locks.mkdir(parents=True, exist_ok=True)
        try:  # a lock that the system releases when the process is killed
            lock = FileLock(locks / place.name).acquire()
        except (OSError, NotImplementedError) as error:
            raise TurnwiseError(f"{self.cache} cannot be locked ({error}): keep the cache on a local disk") from error
        with lock:
            if not place.is_dir():
                with replacing(place) as part:
                    part.mkdir()
                    write(part)
        return place


class ArrayWriter:
    """Writes a one-dimensional `.npy` file piece by piece; the file is complete when the context manager ends."""

    def __init__(self, path: Path, dtype: npt.DTypeLike):
        self._dtype = np.dtype(dtype)
        self._size = 0
        self._file = path.open("wb")
        self._write_header()

    def __len__(self) -> int:
        return self._size

    def extend(self, values: npt.ArrayLike) -> None:
        """Append values."""
        values = np.ravel(np.asarray(values)).astype(self._dtype, copy=False)
        self._file.write(values.tobytes())
        self._size += len(values)

    def _write_header(self) -> None:
        # numpy pads the header for a longer shape, so that it can be overwritten in place
        header = {"descr": np.lib.format.dtype_to_descr(self._dtype), "fortran_order": False, "shape": (self._size,)}
        np.lib.format.write_array_header_1_0(self._file, header)

    def __enter__(self) -> "ArrayWriter":
        return self

    def __exit__(self, *_: object) -> None:
        self._file.seek(0)
        self._write_header()
        self._file.close()


def read_ahead(array: npt.NDArray[np.generic], first: int, last: int) -> None:
    """Have the system read the rows [first, last) of a memory-mapped array in the background."""
    mapped = _memory_map(array)
    if mapped is not None and first < last:
        row = array.strides[0]
        # a map begins at a page, which may be before the array
        start = array.offset % mmap.ALLOCATIONGRANULARITY + first * row  # type: ignore[attr-defined]
        page = start - start % mmap.PAGESIZE
        mapped.madvise(mmap.MADV_WILLNEED, page, min(start + (last - first) * row, len(mapped)) - page)


def release(array: npt.NDArray[np.generic]) -> None:
    """Free the memory into which a memory-mapped array was read; rows are read again when they are needed."""
    mapped = _memory_map(array)
    if mapped is not None:
        mapped.madvise(mmap.MADV_DONTNEED)


def _memory_map(array: npt.NDArray[np.generic]) -> mmap.mmap | None:
    """Return the map behind an array; None if it is held in memory, as an empty one is."""
    return array._mmap if isinstance(array, np.memmap) else None  # type: ignore[attr-defined]
