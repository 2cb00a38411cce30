"""How a classifier ranks intents: by similarity to their examples or prototypes, or by a logistic regression.

How similar a text is to an intent has to be comparable whether the intent has two examples or a thousand. A text q is
compared with the examples v of an intent by 2 q·v - d(v), where d(v), the density of v, is the mean cosine of v with
the other examples of its intent: the expected score of another example is then the same for a dense and for a
spread-out intent. The similarity is the mean over all examples, or over the k highest. Over all examples it equals
1 - |q - c|², the squared distance from the centroid c, with |c|² estimated without the bias of few examples: the plain
mean of n unit vectors has a squared length that is too large by (1 - r) / n (r: their mean cosine), so that intents
with few examples would seem too far away.

A density d(v) is estimated from few cosines. So the mean density of all examples is added as one more; it is the only
estimate for an intent with a single example.
"""

from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

import numpy as np
import numpy.typing as npt

from turnwise.assist.intents.examples import Indices, IntentExamples, Scores
from turnwise.assist.intents.log_texts import LabelledLog, unit_rows
from turnwise.assist.intents.numerics import fit_logistic, fit_soft_logistic
from turnwise.core.errors import IntentError
from turnwise.core.types import Vectors

Flags = npt.NDArray[np.bool_]

HeadName = Literal["prototypes", "neighbours", "logistic"]

#: A head, or 'auto': `selection` chooses one when a classifier is fitted.
HeadChoice = Literal["auto", "prototypes", "neighbours", "logistic"]

#: Folds of cross-validation, where leaving out single examples would take too long.
FOLDS = 5

#: Inverse regularisation of the logistic head; best of 1, 10 and 100 with five examples per intent of CLINC150.
_INVERSE_REGULARISATION = 10.0

#: The largest derivative that is accepted when a head is fitted with a log, and when its examples change; the latter
#: takes half the time, with the same accuracy on validation data of CLINC150.
_LOG_TOLERANCE, _UPDATE_TOLERANCE = 2e-5, 1e-4

#: The weight of all texts of a log in proportion to that of examples and names; one text weighs 1 at most.
_LOG_SHARE = 10.0

#: Cosines that are held in memory at once.
_BLOCK = 2**23

#: Tolerance for single-precision rounding in a cosine.
_COSINE_TOLERANCE = 1e-6

#: The density that is assumed where no intent has two examples.
_DEFAULT_DENSITY = 0.5


# ---- similarity


@dataclass(frozen=True, slots=True)
class SimilarityScorer:
    """Scores texts by their similarity to the examples of intents; neighbours are others of the intent, at most k."""

    vectors: Vectors  # normalised (examples, dimensions), sorted by intent
    starts: Indices  # the first row of each intent, and the number of rows at the end
    k: int | None  # how many of the most similar examples of an intent are averaged; None: all
    neighbour_sums: Scores  # the sum of each example's cosines with its neighbours
    neighbour_counts: Indices  # the number of its neighbours
    lowest: Scores  # the lowest of these cosines; -inf if all other examples of the intent are neighbours
    following: Scores  # the next lower cosine, of the example that would replace a removed neighbour; 0 if none
    mean_density: float  # of all examples

    @classmethod
    def fit(cls, vectors: Vectors, labels: Indices, k: int | None) -> "SimilarityScorer":
        """Compute the densities of examples; labels are sorted and cover 0 to their maximum."""
        starts = np.searchsorted(labels, np.arange(labels[-1] + 2)).astype(np.int64)
        statistics = [_neighbour_statistics(vectors[first:last], k) for first, last in pairwise(starts)]
        sums, counts, lowest, following = (np.concatenate(parts) for parts in zip(*statistics, strict=True))
        has_neighbours = counts > 0
        densities = sums[has_neighbours] / counts[has_neighbours]
        mean_density = float(densities.mean()) if len(densities) else _DEFAULT_DENSITY
        return cls(vectors, starts, k, sums, counts, lowest, following, mean_density)

    def score(self, queries: Vectors) -> Scores:
        """Return the similarity of normalised vectors to each intent (queries, intents)."""
        scores = np.empty((len(queries), len(self.starts) - 1))
        densities = (self.neighbour_sums + self.mean_density) / (self.neighbour_counts + 1)
        block = max(1, _BLOCK // len(self.vectors))
        for start in range(0, len(queries), block):
            terms = 2 * (queries[start : start + block] @ self.vectors.T).astype(np.float64) - densities
            for intent, (first, last) in enumerate(pairwise(self.starts)):
                scores[start : start + block, intent] = _mean_of_highest(terms[:, first:last], self.k)
        return scores

    def score_left_out(self, rows: Indices) -> Scores:
        """Return the similarity of examples to each intent as if each were not an example itself (rows, intents).

        The similarity to its own intent is NaN if an example is the only one of it.
        """
        scores = self.score(self.vectors[rows])
        intents = np.searchsorted(self.starts, rows, "right") - 1
        for intent in np.unique(intents):
            first, last = self.starts[intent : intent + 2]
            members = np.flatnonzero(intents == intent)
            block = max(1, _BLOCK // (last - first))
            for start in range(0, len(members), block):
                some = members[start : start + block]
                scores[some, intent] = self._score_without(first, last, rows[some] - first)
        return scores

    def _score_without(self, first: int, last: int, left_out: Indices) -> Scores:
        """Return the similarity of some of an intent's examples to the others of the intent."""
        if last - first == 1:
            return np.full(len(left_out), np.nan)
        members, own = self.vectors[first:last], slice(first, last)
        cosines = (members[left_out] @ members.T).astype(np.float64)
        was_neighbour = cosines >= self.lowest[own] - _COSINE_TOLERANCE
        sums = self.neighbour_sums[own]
        sums = np.where(was_neighbour, sums - cosines + self.following[own], sums)
        # where all others are neighbours, none takes the place of the one that is left out
        counts = self.neighbour_counts[own] - np.isneginf(self.lowest[own])
        terms = 2 * cosines - (sums + self.mean_density) / (counts + 1)
        terms[np.arange(len(left_out)), left_out] = -np.inf
        others = last - first - 1
        return _mean_of_highest(-np.partition(-terms, others - 1, axis=1)[:, :others], self.k)


@dataclass(frozen=True, slots=True)
class PrototypeScorer:
    """Scores texts by the cosine to one prototype per intent, which is made of examples, a name and a log.

    The prototype is halfway between the direction of the examples and that of the log's texts.
    """

    vectors: Vectors  # of examples and names, sorted by intent
    labels: Indices  # the intent of each
    sums: Vectors  # of the vectors of each intent (intents, dimensions)
    log: Vectors  # the direction of each intent in the log; 0 where it is unknown (intents, dimensions)

    @classmethod
    def fit(cls, vectors: Vectors, labels: Indices, log: LabelledLog) -> "PrototypeScorer":
        """Take the directions of intents from a labelled log."""
        one_hot = np.eye(log.labels.shape[1], dtype=np.float32)[labels]
        return cls(vectors, labels, np.asarray(one_hot.T @ vectors), unit_rows(log.sums))

    def score(self, queries: Vectors) -> Scores:
        """Return the similarity of normalised vectors to each intent (queries, intents)."""
        return (queries @ unit_rows(unit_rows(self.sums) + self.log).T).astype(np.float64)

    def score_left_out(self, rows: Indices) -> Scores:
        """Return the similarity of rows to each intent as if each were not there itself (rows, intents)."""
        own, left_out = self.labels[rows], self.vectors[rows]
        without = unit_rows(unit_rows(self.sums[own] - left_out) + self.log[own])
        return self._with_own(left_out, own, without)

    def score_log(self, log: LabelledLog) -> Scores:
        """Return the similarity of a log's texts to each intent as if each were not in the log (texts, intents)."""
        own = log.labels.argmax(1)
        shares = np.take_along_axis(log.labels, own[:, None], 1) * log.in_scope[:, None]
        without = unit_rows(unit_rows(self.sums)[own] + unit_rows(log.sums[own] - shares * log.vectors))
        return self._with_own(log.vectors, own, without)

    def _with_own(self, queries: Vectors, own: Indices, prototypes: Vectors) -> Scores:
        """Return scores with other prototypes for the own intent of each query."""
        scores = self.score(queries)
        scores[np.arange(len(queries)), own] = (queries * prototypes).sum(1)
        return scores


def _neighbour_statistics(members: Vectors, k: int | None) -> tuple[Scores, Indices, Scores, Scores]:
    """Return neighbour sums, neighbour counts, lowest and following cosines of an intent's examples."""
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
        highest = -np.partition(-cosines, (count - 1, count), axis=1)[:, : count + 1]
        sums[some], lowest[some], following[some] = highest[:, :-1].sum(1), highest[:, -2], highest[:, -1]
    return sums, np.full(len(members), count, np.int64), lowest, following


def _mean_of_highest(terms: Scores, k: int | None) -> Scores:
    """Return the mean of the k highest values of each row."""
    if k is None or k >= terms.shape[1]:
        return np.asarray(terms.mean(1))
    return np.asarray(-np.partition(-terms, k - 1, axis=1)[:, :k].mean(1))


# ---- the logistic head


@dataclass(frozen=True, slots=True)
class LogisticHead:
    """A logistic regression over vectors: weights (intents, dimensions) and bias (intents)."""

    weights: Vectors
    bias: Vectors

    @classmethod
    def fit(cls, vectors: Vectors, labels: Indices) -> "LogisticHead":
        """Fit on examples of at least two intents."""
        weights, bias = fit_logistic(vectors, labels, _INVERSE_REGULARISATION)
        return cls(weights.astype(np.float32), bias.astype(np.float32))

    @classmethod
    def fit_with_log(
        cls, vectors: Vectors, labels: Indices, log: LabelledLog, start: "LogisticHead | None" = None
    ) -> "LogisticHead":
        """Fit on examples, names and the texts of a log; `start` is fitted on nearly the same."""
        one_hot = np.eye(log.labels.shape[1], dtype=np.float32)[labels]
        share = min(1.0, _LOG_SHARE * len(vectors) / float(log.in_scope.sum()))
        weights, bias = fit_soft_logistic(
            np.concatenate([vectors, log.vectors]),
            np.concatenate([one_hot, log.labels]),
            np.concatenate([np.ones(len(vectors), np.float32), share * log.in_scope]),
            _INVERSE_REGULARISATION,
            None if start is None else np.column_stack([start.weights, start.bias]).astype(np.float64),
            tolerance=_LOG_TOLERANCE if start is None else _UPDATE_TOLERANCE,
        )
        return cls(weights.astype(np.float32), bias.astype(np.float32))

    def logits(self, queries: Vectors) -> Scores:
        """Return the logit of each intent (queries, intents)."""
        return (queries @ self.weights.T + self.bias).astype(np.float64)


def check_logistic(intents: int) -> None:
    """Raise IntentError if there are too few intents for a logistic head."""
    if intents < 2:
        raise IntentError("the logistic head needs at least two intents: add another, or use prototypes")


def assign_folds(labels: Indices, folds: int, seed: int) -> Indices:
    """Return the fold of each example: those of an intent are spread evenly; -1 for the only example of an intent."""
    random = np.random.default_rng(seed)
    fold_of = np.full(len(labels), -1, np.int64)
    for label in np.unique(labels):
        members = random.permutation(np.flatnonzero(labels == label))
        if len(members) > 1:
            fold_of[members] = np.arange(len(members)) % folds
    return fold_of


def cross_validated_logits(examples: IntentExamples, fold_of: Indices) -> Scores:
    """Return the logits of examples by regressions on the other folds; NaN where the fold is -1."""
    logits = np.full((len(examples.labels), len(examples.classes)), np.nan)
    for fold in np.unique(fold_of[fold_of >= 0]):
        left_out = fold_of == fold
        seen = examples.select(np.flatnonzero(~left_out)).support
        logits[left_out] = LogisticHead.fit(*seen).logits(examples.in_scope_vectors[left_out])
    return logits
