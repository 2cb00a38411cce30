"""How like an intent's examples a text is, whether an intent has two examples or a thousand.

A text q is compared with the examples v of an intent by 2 q·v - d(v), where d(v) is the mean cosine of v with the other examples of
its intent: what a fellow example would be expected to score is then the same in a tight intent and in a loose one. The likeness is
the mean of it over the examples, or over the k best of them. Over all examples it is 1 - |q - c|², the squared distance from the
intent's centre c, with the square of c's length estimated without the bias that few examples have: a plain mean of n vectors of
length 1 is too long by (1 - r) / n in its square (r: their mean cosine), so that intents of few examples would seem too far away.

An example's density d(v) is of few cosines itself. So one more is counted in, the mean density of all examples, which is all there
is to say of an intent with one example.
"""

from dataclasses import dataclass, fields
from itertools import pairwise

import numpy as np
import numpy.typing as npt

Vectors = npt.NDArray[np.float32]
Numbers = npt.NDArray[np.int64]
Scores = npt.NDArray[np.float64]

#: Cosines that are held at once.
_BLOCK = 2**23

#: What single precision may be wrong by in a cosine, and more.
_MARGIN = 1e-6

#: What is taken for the mean cosine of an intent's examples where no intent has two.
_UNKNOWN_DENSITY = 0.5


@dataclass(frozen=True, slots=True)
class Likeness:
    """Examples to be compared with.

    Attributes:
        vectors: of length 1 (examples, size), intent by intent.
        starts: the first row of each intent, and the number of rows at the end.
        k: how many of an intent's examples count, those that are most like a text; None: all.
        fellows: what is known of each example's cosines with the others of its intent.
        typical: the mean density that is counted in with each.
    """

    vectors: Vectors
    starts: Numbers
    k: int | None
    fellows: "_Fellows"
    typical: float

    @classmethod
    def of(cls, vectors: Vectors, labels: Numbers, k: int | None) -> "Likeness":
        """Examples with the numbers of their intents: ascending, from 0, none left out."""
        starts = np.searchsorted(labels, np.arange(labels[-1] + 2)).astype(np.int64)
        fellows = _Fellows.joined([_Fellows.of(vectors[first:last], k) for first, last in pairwise(starts)])
        known = fellows.counts > 0
        typical = float((fellows.sums[known] / fellows.counts[known]).mean()) if known.any() else _UNKNOWN_DENSITY
        return cls(vectors, starts, k, fellows, typical)

    def scores(self, queries: Vectors) -> Scores:
        """The likeness of vectors of length 1 to each intent (queries, intents)."""
        found = np.empty((len(queries), len(self.starts) - 1))
        densities = (self.fellows.sums + self.typical) / (self.fellows.counts + 1)
        block = max(1, _BLOCK // len(self.vectors))
        for start in range(0, len(queries), block):
            compared = 2 * (queries[start : start + block] @ self.vectors.T).astype(np.float64) - densities
            for number, (first, last) in enumerate(pairwise(self.starts)):
                found[start : start + block, number] = _best(compared[:, first:last], self.k)
        return found

    def left_out(self, rows: Numbers) -> Scores:
        """The likeness of examples to each intent as if they were not among the examples (rows, intents).

        Where an example is the only one of its intent, its likeness to that is not a number.
        """
        found = self.scores(self.vectors[rows])
        intents = np.searchsorted(self.starts, rows, "right") - 1
        for intent in np.unique(intents):
            first, last = self.starts[intent : intent + 2]
            places = np.flatnonzero(intents == intent)
            block = max(1, _BLOCK // (last - first))
            for start in range(0, len(places), block):
                some = places[start : start + block]
                found[some, intent] = self._without(first, last, rows[some] - first)
        return found

    def _without(self, first: int, last: int, left: Numbers) -> Scores:
        """The likeness of some of an intent's examples to the others of it."""
        if last - first == 1:
            return np.full(len(left), np.nan)
        members = self.vectors[first:last]
        cosines = (members[left] @ members.T).astype(np.float64)
        sums, counts = self.fellows.without(slice(first, last), cosines)
        compared = 2 * cosines - (sums + self.typical) / (counts + 1)
        compared[np.arange(len(left)), left] = -np.inf
        others = last - first - 1
        return _best(-np.partition(-compared, others - 1, axis=1)[:, :others], self.k)


@dataclass(frozen=True, slots=True)
class _Fellows:
    """Cosines of examples with their fellows: the others of their intent, or the k nearest of them.

    Attributes:
        sums: of an example's cosines with its fellows.
        counts: how many fellows these are.
        lowest: of these cosines; minus infinity where all others of the intent are fellows.
        following: the cosine with the one that would take a fellow's place; 0 where nobody would.
    """

    sums: Scores
    counts: Numbers
    lowest: Scores
    following: Scores

    @classmethod
    def of(cls, members: Vectors, k: int | None) -> "_Fellows":
        others = len(members) - 1
        count = others if k is None else min(k, others)
        sums, lowest, following = np.zeros(len(members)), np.full(len(members), -np.inf), np.zeros(len(members))
        block = max(1, _BLOCK // len(members))
        for start in range(0, len(members) if count else 0, block):
            some = slice(start, min(start + block, len(members)))
            cosines = (members[some] @ members.T).astype(np.float64)
            cosines[np.arange(len(cosines)), np.arange(some.start, some.stop)] = -np.inf
            if count == others:
                sums[some] = np.where(np.isfinite(cosines), cosines, 0).sum(1)
                continue
            best = -np.partition(-cosines, (count - 1, count), axis=1)[:, : count + 1]
            sums[some], lowest[some], following[some] = best[:, :-1].sum(1), best[:, -2], best[:, -1]
        return cls(sums, np.full(len(members), count, np.int64), lowest, following)

    @classmethod
    def joined(cls, parts: "list[_Fellows]") -> "_Fellows":
        return cls(*(np.concatenate([getattr(part, field.name) for part in parts]) for field in fields(cls)))

    def without(self, own: slice, cosines: Scores) -> tuple[Scores, Numbers]:
        """Sums and counts of an intent's examples (left out, examples) without one of them, given its cosines with all."""
        was_fellow = cosines >= self.lowest[own] - _MARGIN
        sums = np.where(was_fellow, self.sums[own] - cosines + self.following[own], self.sums[own])
        # where all others are fellows nobody takes the place of the one that is left out
        return sums, self.counts[own] - np.isneginf(self.lowest[own])


def _best(compared: Scores, k: int | None) -> Scores:
    """The mean of the k highest of each row."""
    if k is None or k >= compared.shape[1]:
        return np.asarray(compared.mean(1))
    return np.asarray(-np.partition(-compared, k - 1, axis=1)[:, :k].mean(1))
