"""Data derived from a corpus and cached on disk, and the arrays that it consists of.

A cached folder is named by a hash of what its content was derived from, so that a resumed run finds it and a changed
one does not. An array is a file of numbers without a header, so that it can be written piece by piece.
"""

import hashlib
import mmap
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO

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


@dataclass(frozen=True)
class TrainingCorpus:
    """A corpus as a run reads it, and the folder of the data derived from it."""

    dialogues: Corpus
    cache: Path

    @cached_property
    def identity(self) -> list[str]:
        """What distinguishes it (`corpus_identity`)."""
        return corpus_identity(self.dialogues)

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


def append(file: BinaryIO, values: npt.ArrayLike, dtype: npt.DTypeLike) -> None:
    """Append values to a file of numbers."""
    np.ravel(np.asarray(values)).astype(dtype, copy=False).tofile(file)


def load_array(path: Path, dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    """Memory-map a file of numbers, unless it is empty."""
    return np.memmap(path, dtype, "r") if path.stat().st_size else np.empty(0, dtype)


def read_next(array: npt.NDArray[np.generic], ranges: Iterable[tuple[int, int]]) -> None:
    """Have the system read ranges of rows of a memory-mapped array, and free the memory of those read before."""
    mapped = getattr(array, "_mmap", None)
    if mapped is None:
        return
    mapped.madvise(mmap.MADV_DONTNEED)
    row = array.strides[0]
    for first, last in ranges:
        page = first * row - first * row % mmap.PAGESIZE
        if first < last:
            mapped.madvise(mmap.MADV_WILLNEED, page, last * row - page)
