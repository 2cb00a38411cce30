"""Answers that were retrieved, put in order: generic ones damped, and those that say the same folded into one."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from turnwise.assist.search.table import Row

#: Answers whose vectors have this cosine say the same.
FOLDED = 0.95

#: How much of the inverse response frequency counts: 0 none of it, 1 all.
DAMPING = 0.05


@dataclass(frozen=True, slots=True)
class Suggestion:
    """An answer that may come next.

    Attributes:
        text: the answer.
        score: what it is ordered by: the re-ranker's probability, or without one the similarity, damped.
        similarity: the cosine of the situation that it answered with the one at hand.
        rerank: the re-ranker's probability; None without a re-ranker.
        count: how often it was given in all that is indexed.
        folded: other texts that say the same and were retrieved too, best first.
        dialogue: the dialogue that it was said in; None: a canned answer.
        turn: its place there, from 0.
        speaker: who said it.
        source: where it comes from.
        split: the part of that.
    """

    text: str
    score: float
    similarity: float
    rerank: float | None
    count: int
    folded: tuple[str, ...]
    dialogue: str | None
    turn: int | None
    speaker: str
    source: str | None
    split: str | None


@dataclass(frozen=True, slots=True)
class Candidate:
    """An answer that was retrieved: the row of it whose situation is nearest."""

    text: str
    same: int
    similarity: float
    vector: npt.NDArray[np.float32]
    dialogue: str | None
    turn: int | None
    speaker: str
    source: str | None
    split: str | None

    @classmethod
    def of(cls, row: Row) -> "Candidate":
        """The candidate that a row is."""
        values = row.values
        vector = values["answer"].astype(np.float32)
        return cls(
            text=values["text"],
            same=values["same"],
            similarity=row.similarity,
            vector=vector / np.linalg.norm(vector),
            dialogue=values["dialogue"],
            turn=values["turn"],
            speaker=values["speaker"],
            source=values["source"],
            split=values["split"],
        )


def damped(scores: npt.NDArray[np.float64], counts: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
    """Scores times (1 / (ln count + 1)) ** `DAMPING`: WMDC's inverse response frequency, tempered.

    What is said everywhere fits everywhere a little, and helps nowhere. Scores below 0 count as 0.
    """
    weights: npt.NDArray[np.float64] = (1 / (np.log(counts) + 1)) ** DAMPING
    return np.maximum(scores, 0) * weights


def ranked(
    candidates: Sequence[Candidate],
    counts: Mapping[int, int],
    probabilities: npt.NDArray[np.floating] | None,
    top: int,
) -> list[Suggestion]:
    """Answers by their damped scores, best first; one that says the same as a better one is folded into that.

    Args:
        candidates: different texts, nearest first.
        counts: how often each was given, by `Candidate.same`.
        probabilities: what a re-ranker makes of them; None: similarity counts.
        top: how many to give.
    """
    if not candidates:
        return []
    often = np.array([max(1, counts.get(each.same, 1)) for each in candidates])
    basis = (
        np.array([each.similarity for each in candidates])
        if probabilities is None
        else np.asarray(probabilities, np.float64)
    )
    scores = damped(basis, often)
    vectors = np.stack([each.vector for each in candidates])
    heads: list[int] = []
    folded: dict[int, list[str]] = {}
    for place in np.argsort(-scores, kind="stable").tolist():
        alike = vectors[heads] @ vectors[place]
        if len(heads) and alike.max() > FOLDED:
            folded[heads[int(alike.argmax())]].append(candidates[place].text)
        else:
            heads.append(place)
            folded[place] = []
    return [
        Suggestion(
            text=candidates[head].text,
            score=float(scores[head]),
            similarity=candidates[head].similarity,
            rerank=None if probabilities is None else float(probabilities[head]),
            count=int(often[head]),
            folded=tuple(folded[head]),
            dialogue=candidates[head].dialogue,
            turn=candidates[head].turn,
            speaker=candidates[head].speaker,
            source=candidates[head].source,
            split=candidates[head].split,
        )
        for head in heads[:top]
    ]
