"""64-bit fingerprints of texts: two of a million different texts share one with probability 3·10⁻⁸."""

import hashlib
from bisect import bisect_left
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryFile

import numpy as np
import numpy.typing as npt

#: The recent fingerprints of an index are merged into its sorted ones when they are this many, and this fraction.
_MIN_RECENT, _RECENT_FRACTION = 1 << 14, 1 / 16

#: Leading bits that select a bucket file. With 64 files, a bucket of a billion fingerprints takes 250 MB of memory.
_BUCKET_BITS = 6

_BUCKET_ROW = np.dtype([("fingerprint", np.int64), ("position", np.int64)])


def text_fingerprint(text: str) -> int:
    """Return the 64-bit fingerprint of a text."""
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big")


class FingerprintIndex:
    """Fingerprints numbered from 0 by first appearance, in 20 bytes each, where a dictionary takes more than 100."""

    def __init__(self) -> None:
        self._recent: dict[int, int] = {}
        self._sorted, self._numbers = memoryview(b"").cast("Q"), memoryview(b"").cast("I")
        self._starts = [0] * ((1 << 16) + 1)

    def __len__(self) -> int:
        return len(self._sorted) + len(self._recent)

    def add(self, fingerprint: int) -> bool:
        """Add a fingerprint; return False if it was there before."""
        return len(self) == self.index(fingerprint)

    def index(self, fingerprint: int) -> int:
        """Return the number of a fingerprint, which is added if it is new."""
        if (known := self.find(fingerprint)) is not None:
            return known
        number = self._recent[fingerprint] = len(self)
        if len(self._recent) >= max(_MIN_RECENT, _RECENT_FRACTION * len(self._sorted)):
            self._merge_recent()
        return number

    def find(self, fingerprint: int) -> int | None:
        """Return the number of a fingerprint, None if it was not added."""
        if (known := self._recent.get(fingerprint)) is not None:
            return known
        leading = fingerprint >> 48
        end = self._starts[leading + 1]
        place = bisect_left(self._sorted, fingerprint, self._starts[leading], end)
        return self._numbers[place] if place < end and self._sorted[place] == fingerprint else None

    def _merge_recent(self) -> None:
        recent = np.fromiter(self._recent, np.uint64, len(self._recent))
        numbers = np.fromiter(self._recent.values(), np.uint32, len(recent))
        order = np.argsort(recent)
        known = np.asarray(self._sorted)
        places = np.searchsorted(known, recent[order])
        self._keep(
            np.insert(known, places, recent[order]), np.insert(np.asarray(self._numbers), places, numbers[order])
        )
        self._recent.clear()

    def _keep(self, fingerprints: npt.NDArray[np.uint64], numbers: npt.NDArray[np.uint32]) -> None:
        # where the fingerprints with each value of their 16 leading bits start
        leading = np.arange(1, 1 << 16, dtype=np.uint64) << np.uint64(48)
        self._starts = [0, *np.searchsorted(fingerprints, leading).tolist(), len(fingerprints)]
        # reading single numbers from a memoryview is several times faster than from an array
        self._sorted = memoryview(fingerprints)  # type: ignore[arg-type]
        self._numbers = memoryview(numbers)  # type: ignore[arg-type]


class TextSet:
    """A set of texts, of which it keeps the fingerprints."""

    def __init__(self) -> None:
        self._index = FingerprintIndex()

    def add(self, text: str) -> bool:
        """Add a text; return False if it was there before."""
        return self._index.add(text_fingerprint(text))

    def __contains__(self, text: str) -> bool:
        return self._index.find(text_fingerprint(text)) is not None


class FingerprintBuckets:
    """Fingerprints in temporary files, grouped by their leading bits, with their positions; memory holds one group."""

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
