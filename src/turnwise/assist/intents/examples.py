"""The examples that intents are told by: each text once an intent, with its vector."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from turnwise.assist.intents.decision import OUT_OF_SCOPE
from turnwise.assist.intents.likeness import Numbers, Vectors
from turnwise.core.dialogue import same_text
from turnwise.core.errors import TurnwiseError

#: What a vector's length may differ from 1 by.
_MARGIN = 1e-3

#: A text and its intent.
Pair = tuple[str, str]


class IntentError(TurnwiseError):
    """Intents cannot be learnt, told or kept as asked; the message says why and what to do."""


@dataclass(frozen=True, slots=True)
class Examples:
    """Examples, by intent, and in each in the order in which they came; those out of scope last.

    Attributes:
        pairs: each text and its intent.
        vectors: of length 1, a row a pair.
        classes: the intents, sorted, without 'out_of_scope'.
        labels: the place of each intent among them, of the examples in scope.
    """

    pairs: tuple[Pair, ...]
    vectors: Vectors
    classes: tuple[str, ...] = field(init=False)
    labels: Numbers = field(init=False)

    def __post_init__(self) -> None:
        inside = [intent for _, intent in self.pairs if intent != OUT_OF_SCOPE]
        classes = tuple(sorted(set(inside)))
        object.__setattr__(self, "classes", classes)
        object.__setattr__(self, "labels", np.searchsorted(np.array(classes), np.array(inside)).astype(np.int64))

    @classmethod
    def of(cls, pairs: Sequence[Pair], vectors: Vectors) -> "Examples":
        """Examples in any order; of equal texts of an intent (but for case and surrounding space) the first is kept.

        Raises:
            IntentError: if none of them is in scope.
        """
        first = {key: row for row, key in reversed(list(enumerate(map(_key, pairs))))}
        rows = sorted(first.values(), key=lambda row: (pairs[row][1] == OUT_OF_SCOPE, pairs[row][1], row))
        if not rows or pairs[rows[0]][1] == OUT_OF_SCOPE:
            raise IntentError(
                "there is no example of any intent: give texts that ask for something, with what they ask for"
            )
        return cls(tuple(pairs[row] for row in rows), np.ascontiguousarray(vectors[rows]))

    @property
    def texts(self) -> list[str]:
        """The texts in scope."""
        return [text for text, _ in self.pairs[: len(self.labels)]]

    @property
    def inside(self) -> Vectors:
        """The vectors of what is in scope."""
        return self.vectors[: len(self.labels)]

    @property
    def outside(self) -> Vectors:
        """The vectors of what is out of scope."""
        return self.vectors[len(self.labels) :]

    def missing(self, pairs: Sequence[Pair]) -> list[int]:
        """The rows of those pairs that are not among the examples."""
        known = {_key(pair) for pair in self.pairs}
        return [row for row, pair in enumerate(pairs) if _key(pair) not in known]

    def with_more(self, pairs: Sequence[Pair], vectors: Vectors) -> "Examples":
        """These and others."""
        return Examples.of([*self.pairs, *pairs], np.concatenate([self.vectors, vectors]))

    def without(self, pairs: Sequence[Pair]) -> "Examples":
        """These but for some.

        Raises:
            IntentError: if nothing in scope would be left.
        """
        gone = {_key(pair) for pair in pairs}
        rows = [row for row, pair in enumerate(self.pairs) if _key(pair) not in gone]
        if not any(self.pairs[row][1] != OUT_OF_SCOPE for row in rows):
            raise IntentError("no example of any intent would be left: add others first, or fit a new classifier")
        return Examples(tuple(self.pairs[row] for row in rows), self.vectors[rows])


def checked_pairs(texts: Sequence[str], intents: Sequence[str]) -> list[Pair]:
    """Texts with their intents.

    Raises:
        IntentError: if they do not go together, or one is not a text or is blank.
    """
    for name, given in (("texts", texts), ("intents", intents)):
        if isinstance(given, str):
            raise IntentError(f"{name} are a list: give a single one as [{name[:-1]}]")
    if len(texts) != len(intents):
        raise IntentError(f"there are {len(texts):,} texts and {len(intents):,} intents: give an intent for each text")
    for number, (text, intent) in enumerate(zip(texts, intents, strict=True), 1):
        for name, given in (("text", text), ("intent", intent)):
            if not isinstance(given, str) or not given.strip():
                raise IntentError(f"the {name} of example {number:,} is {given!r}: give a {name} that is not blank")
    return [(str(text), str(intent).strip()) for text, intent in zip(texts, intents, strict=True)]


def checked_vectors(vectors: Vectors, count: int) -> Vectors:
    """Vectors that can be compared, as float32.

    Raises:
        IntentError: if there are not as many as texts, one holds something that is not a number, or is not of length 1.
    """
    given = np.asarray(vectors, np.float32)
    if given.ndim != 2 or len(given) != count:
        raise IntentError(
            f"the vectors have the shape {given.shape}, and there are {count:,} texts: give a row for each text"
        )
    lengths = np.linalg.norm(given, axis=1)
    if not np.isfinite(lengths).all():
        raise IntentError("the vectors hold something that is not a number: nothing can be compared with them")
    if count and np.abs(lengths - 1).max() > _MARGIN:
        raise IntentError("the vectors are not of length 1: normalise them")
    return given


def _key(pair: Pair) -> Pair:
    return same_text(pair[0]), pair[1]
