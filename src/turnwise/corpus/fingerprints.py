"""What was there before, remembered by 64-bit fingerprints: texts are never held.

Two of a million different texts share a fingerprint with probability 3·10⁻⁸, two of 37 million with 4·10⁻⁵.
"""

import hashlib

import numpy as np
import numpy.typing as npt

#: A table begins with so many places (in powers of two) and doubles when three of four are taken.
_FIRST_BITS = 16

#: Places behind the last one, for what finds its own taken there: runs of taken places are far shorter.
_TAIL = 1 << 14

#: Places that are moved at a time when a table grows.
_MOVED = 1 << 20


def fingerprint(text: str) -> int:
    """The 64-bit number that stands for a text."""
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big")


class Fingerprints:
    """A set of fingerprints in 11 to 22 bytes each; a Python set of them takes 75.

    A fingerprint's own place in the table is given by its leading bits; where that is taken it has the next free one. So the table
    is in order but for short runs, and grows by moving one stretch after the other. 0 marks a free place.

    Example:
        >>> seen = Fingerprints()
        >>> [seen.add(fingerprint(text)) for text in ("yes", "no", "yes")]
        [True, True, False]
    """

    def __init__(self) -> None:
        self._size = 0
        self._columns = self._empty(_FIRST_BITS)
        self._open(_FIRST_BITS)

    def __len__(self) -> int:
        return self._size

    def add(self, number: int) -> bool:
        """Notes a fingerprint; false if it was there before."""
        number = number or 1
        place = self._find(number)
        if self._table[place]:
            return False
        self._put(place, number)
        return True

    def _find(self, number: int) -> int:
        """The place of a fingerprint, or the free one that it would take."""
        table, place = self._table, number >> self._shift
        while (there := table[place]) and there != number:
            place += 1
        return place

    def _put(self, place: int, number: int) -> None:
        self._table[place] = number
        self._size += 1
        if self._size >= self._most:
            self._grow()

    def _empty(self, bits: int) -> list[npt.NDArray[np.generic]]:
        """The columns of a table with so many places, the fingerprints first."""
        return [np.zeros((1 << bits) + _TAIL, np.uint64)]

    def _open(self, bits: int) -> None:
        # plain numbers come out of a memoryview several times faster than out of an array
        self._table = memoryview(self._columns[0])  # type: ignore[arg-type]
        self._shift = 64 - bits
        self._most = 3 << (bits - 2)

    def _grow(self) -> None:
        bits = 65 - self._shift
        old, new = self._columns, self._empty(bits)
        behind = 0  # the first free place behind those that were moved
        for first, last in _stretches(old[0]):
            taken = first + np.flatnonzero(old[0][first:last])
            taken = taken[np.argsort(old[0][taken])]
            homes = (old[0][taken] >> np.uint64(64 - bits)).astype(np.int64)  # type: ignore[operator]
            steps = np.arange(len(taken))
            # each has its own place or the one behind the place before it, whichever is further
            places = np.maximum(np.maximum.accumulate(homes - steps), behind) + steps
            for column, moved in zip(new, old, strict=True):
                column[places] = moved[taken]
            behind = int(places[-1]) + 1 if len(places) else behind
        self._columns = new
        self._open(bits)


class NumberedFingerprints(Fingerprints):
    """Fingerprints, numbered from 0 in the order in which they first appear; 16 to 32 bytes each.

    Example:
        >>> numbers = NumberedFingerprints()
        >>> [numbers.number(fingerprint(text)) for text in ("yes", "no", "yes")]
        [0, 1, 0]
    """

    def number(self, number: int) -> int:
        """The number of a fingerprint; a new one has the number that was this object's length."""
        number = number or 1
        place = self._find(number)
        if self._table[place]:
            return int(self._numbers[place])
        self._numbers[place] = self._size
        self._put(place, number)
        return self._size - 1

    def _empty(self, bits: int) -> list[npt.NDArray[np.generic]]:
        return [*super()._empty(bits), np.zeros((1 << bits) + _TAIL, np.uint32)]

    def _open(self, bits: int) -> None:
        super()._open(bits)
        self._numbers = memoryview(self._columns[1])  # type: ignore[arg-type]


def _stretches(table: npt.NDArray[np.generic]) -> list[tuple[int, int]]:
    """Parts of a table, one behind the other, none of which is left by a fingerprint that has not its own place."""
    starts = [0]
    while starts[-1] + _MOVED < len(table):
        # whatever stands behind a free place belongs there
        free = np.flatnonzero(table[starts[-1] : starts[-1] + _MOVED] == 0)
        starts.append(starts[-1] + int(free[-1]))
    return list(zip(starts, [*starts[1:], len(table)], strict=True))
