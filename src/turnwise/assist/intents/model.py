"""The fitted intent model: similarity to the examples of each intent, an optional logistic head, and calibration.

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

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Literal

import numpy as np
import numpy.typing as npt

from turnwise.assist.intents.calibration import Calibration, CalibrationData, calibrate
from turnwise.assist.intents.decision import MAX_RANKED, Decision, RankedIntent, SimilarExample, make_decision
from turnwise.assist.intents.examples import Indices, IntentExamples, Scores
from turnwise.assist.intents.numerics import fit_logistic
from turnwise.assist.search.neighbours import nearest_neighbours
from turnwise.core.errors import IntentError
from turnwise.core.types import Vectors

HeadName = Literal["prototypes", "neighbours", "logistic"]

#: A head, or 'auto': it is chosen by cross-validation when a classifier is fitted.
HeadChoice = Literal["auto", "prototypes", "neighbours", "logistic"]

#: Folds of cross-validation, where leaving out single examples would take too long.
FOLDS = 5

#: Inverse regularisation of the logistic head; best of 1, 10 and 100 with five examples per intent of CLINC150.
_INVERSE_REGULARISATION = 10.0

#: Examples that are left out in turn for calibration when a model is fitted and when its examples change; more are
#: sampled. At a rate of 5% the standard errors are 0.3 and 0.7 points; and changes have to be fast.
_CALIBRATION_EXAMPLES = 4_096
_RECALIBRATION_EXAMPLES = 1_024

#: Cosines that are held in memory at once.
_BLOCK = 2**23

#: Tolerance for single-precision rounding in a cosine.
_COSINE_TOLERANCE = 1e-6

#: The density that is assumed where no intent has two examples.
_DEFAULT_DENSITY = 0.5


@dataclass(frozen=True, slots=True)
class IntentSettings:
    """Settings of an intent model; see `IntentClassifier` for their meaning."""

    head: HeadChoice
    neighbours: int
    false_rejection: float | None
    per_intent: bool
    seed: int

    def __post_init__(self) -> None:
        if self.head not in ("auto", "prototypes", "neighbours", "logistic"):
            raise IntentError(
                f"there is no head {self.head!r}: choose 'auto', 'prototypes', 'neighbours' or 'logistic'"
            )
        if self.neighbours < 1:
            raise IntentError(f"neighbours must be at least 1, got {self.neighbours}")
        if self.false_rejection is not None and not 0 < self.false_rejection < 1:
            raise IntentError(
                f"false_rejection must be between 0 and 1, such as 0.05, or None to never abstain;"
                f" got {self.false_rejection}"
            )


# ---- similarity


@dataclass(frozen=True, slots=True)
class SimilarityScorer:
    """Scores texts by their similarity to the examples of each intent.

    An example's neighbours are the other examples of its intent, or the k nearest of them.
    """

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


def _cross_validated_logits(vectors: Vectors, labels: Indices, fold_of: Indices) -> Scores:
    """Return the logits of examples by regressions on the other folds; NaN where the fold is -1."""
    logits = np.full((len(vectors), int(labels.max()) + 1), np.nan)
    for fold in np.unique(fold_of[fold_of >= 0]):
        left_out = fold_of == fold
        logits[left_out] = LogisticHead.fit(vectors[~left_out], labels[~left_out]).logits(vectors[left_out])
    return logits


# ---- the model


@dataclass(frozen=True, slots=True)
class IntentScores:
    """Scores of texts (texts, intents)."""

    scores: Scores  # similarity less the weighted similarity to the out-of-scope examples
    probabilities: Scores
    order: Indices  # of the intents, best first
    abstained: npt.NDArray[np.bool_]  # whether each text is rejected (texts)


@dataclass(frozen=True, slots=True)
class IntentModel:
    """An immutable fitted model, so that concurrent predictions are not affected by changes to the examples."""

    settings: IntentSettings
    examples: IntentExamples
    similarity: SimilarityScorer  # to the examples of each intent
    out_of_scope: SimilarityScorer | None  # to the out-of-scope examples; None if there are none
    logistic: LogisticHead | None  # ranks intents instead of similarity; None for the other heads
    calibration: Calibration

    @classmethod
    def uncalibrated(cls, examples: IntentExamples, settings: IntentSettings) -> "IntentModel":
        """Fit a model that is not calibrated yet; raise IntentError if a logistic head has only one intent."""
        if settings.head == "auto":
            raise ValueError("a model needs a head: call select_head first")
        outside, out_of_scope, logistic = examples.out_of_scope_vectors, None, None
        if len(outside):
            out_of_scope = SimilarityScorer.fit(outside, np.zeros(len(outside), np.int64), settings.neighbours)
        if settings.head == "logistic":
            check_logistic(len(examples.classes))
            logistic = LogisticHead.fit(examples.in_scope_vectors, examples.labels)
        k = None if settings.head == "prototypes" else settings.neighbours
        similarity = SimilarityScorer.fit(examples.in_scope_vectors, examples.labels, k)
        return cls(settings, examples, similarity, out_of_scope, logistic, Calibration.empty())

    @classmethod
    def fit(cls, examples: IntentExamples, settings: IntentSettings) -> "IntentModel":
        """Fit a model and calibrate it on its own examples, each left out; raise IntentError if there are too few."""
        model = cls.uncalibrated(examples, settings)
        data = model.leave_one_out_data(_CALIBRATION_EXAMPLES)
        if data is None and settings.false_rejection is not None:
            raise IntentError(
                "no intent has a second example, so the threshold cannot be calibrated: provide at least two examples"
                " of one intent, or set false_rejection=None and calibrate on other texts"
            )
        return model if data is None else model.calibrated(data, held_out=False)

    def calibrated(self, data: CalibrationData, *, held_out: bool) -> "IntentModel":
        """Return this model, calibrated on data that may be held out from fitting."""
        settings = self.settings
        calibration = calibrate(data, settings.false_rejection, per_intent=settings.per_intent, held_out=held_out)
        return replace(self, calibration=calibration)

    def with_examples(self, examples: IntentExamples) -> "IntentModel":
        """Return a model with other examples; recalibrated unless this one was calibrated on held-out texts."""
        model = IntentModel.uncalibrated(examples, self.settings)
        previous = self.calibration
        # regressions for every fold would take too long, so a logistic head keeps its temperature
        without_head = replace(model, logistic=None)
        data = None if previous.held_out else without_head.leave_one_out_data(_RECALIBRATION_EXAMPLES)
        if data is None:
            return replace(model, calibration=previous.for_intents(self.examples.classes, examples.classes))
        model = model.calibrated(data, held_out=False)
        if model.logistic is None:
            return model
        temperature, reliability = previous.temperature, previous.reliability
        return replace(model, calibration=replace(model.calibration, temperature=temperature, reliability=reliability))

    # ---- data for calibration

    def calibration_data(self, vectors: Vectors, labels: Indices, outside: Vectors) -> CalibrationData:
        """Score texts that are not examples: in-scope texts with their labels, and out-of-scope texts."""
        similarity = self.similarity.score(vectors)
        return CalibrationData(
            similarity,
            self._logits(vectors, similarity),
            labels,
            None if self.out_of_scope is None else self.out_of_scope.score(vectors)[:, 0],
            self.similarity.score(outside) if len(outside) else None,
            self.out_of_scope.score(outside)[:, 0] if self.out_of_scope is not None and len(outside) else None,
        )

    def leave_one_out_data(self, limit: int) -> CalibrationData | None:
        """Score at most `limit` of the examples as if each were left out; None if no intent has two examples."""
        examples, seed = self.examples, self.settings.seed
        counts = np.bincount(examples.labels)
        rows = np.flatnonzero(counts[examples.labels] > 1)
        if not len(rows):
            return None
        if len(rows) > limit:
            rows = np.sort(np.random.default_rng(seed).choice(rows, limit, replace=False))
        similarity = logits = self.similarity.score_left_out(rows)
        if self.logistic is not None:
            fold_of = assign_folds(examples.labels, FOLDS, seed)
            logits = _cross_validated_logits(examples.in_scope_vectors, examples.labels, fold_of)[rows]
        oos_similarity = outside_similarity = None
        if self.out_of_scope is not None:
            oos_similarity = self.out_of_scope.score(examples.in_scope_vectors[rows])[:, 0]
            outside_similarity = self.similarity.score(examples.out_of_scope_vectors)
        outside_oos_similarity = self.left_out_oos_similarity()
        labels = examples.labels[rows]
        return CalibrationData(similarity, logits, labels, oos_similarity, outside_similarity, outside_oos_similarity)

    def left_out_oos_similarity(self) -> Scores | None:
        """Return the similarity of each out-of-scope example to the others; None if there are fewer than two."""
        count = len(self.examples.out_of_scope_vectors)
        if self.out_of_scope is None or count < 2:
            return None
        return self.out_of_scope.score_left_out(np.arange(count))[:, 0]

    # ---- prediction

    def _logits(self, vectors: Vectors, similarity: Scores) -> Scores:
        """Return the scores by which intents are ranked (texts, intents)."""
        return similarity if self.logistic is None else self.logistic.logits(vectors)

    def predict_proba(self, vectors: Vectors) -> Scores:
        """Return the probability of each intent (texts, intents)."""
        similarity = self.similarity.score(vectors) if self.logistic is None else np.empty(0)
        return self.calibration.probabilities(self._logits(vectors, similarity))

    def score(self, vectors: Vectors) -> IntentScores:
        """Score vectors and decide which texts are rejected.

        A text is rejected unless its most similar intent reaches its threshold. The predicted intent is the most
        probable one among those that reach theirs.
        """
        scores = self.similarity.score(vectors)
        probabilities = self.calibration.probabilities(self._logits(vectors, scores))
        if self.out_of_scope is not None and self.calibration.caution:
            scores = scores - self.calibration.caution * self.out_of_scope.score(vectors)
        reached = scores >= self.calibration.thresholds(len(self.examples.classes))
        most_similar = scores.argmax(1)[:, None]
        abstained = ~np.take_along_axis(reached, most_similar, 1)
        is_first = np.where(abstained, np.arange(scores.shape[1]) == most_similar, reached)
        order = np.lexsort((-probabilities, ~is_first), axis=1)
        return IntentScores(scores, probabilities, order, abstained[:, 0])

    def decide(self, texts: Sequence[str], vectors: Vectors, neighbours: int) -> list[Decision]:
        """Return one decision per text, with its most similar examples."""
        if not len(texts):
            return []
        result, classes = self.score(vectors), self.examples.classes
        thresholds = self.calibration.thresholds(len(classes))
        similar = self._similar_examples(vectors, neighbours)
        decisions = []
        for row, text in enumerate(texts):
            order = result.order[row, :MAX_RANKED].tolist()
            scores, probabilities = result.scores[row].tolist(), result.probabilities[row].tolist()
            ranked = [RankedIntent(classes[place], scores[place], probabilities[place]) for place in order]
            threshold = None if self.calibration.threshold is None else float(thresholds[order[0]])
            decisions.append(make_decision(text, ranked, threshold, bool(result.abstained[row]), similar[row]))
        return decisions

    def _similar_examples(self, vectors: Vectors, count: int) -> list[list[SimilarExample]]:
        if not count:
            return [[] for _ in vectors]
        nearest = nearest_neighbours(vectors, self.examples.in_scope_vectors, count)
        similar = []
        for rows, cosines in zip(nearest.rows.tolist(), nearest.similarities.tolist(), strict=True):
            pairs = zip((self.examples.pairs[row] for row in rows), cosines, strict=True)
            similar.append([SimilarExample(text, intent, cosine) for (text, intent), cosine in pairs])
        return similar
