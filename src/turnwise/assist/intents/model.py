"""The fitted intent model and its calibration: a threshold for a requested false rejection rate, and probabilities.

Both are learnt from the scores of texts that the classifier has not been fitted on. In-scope texts are enough. With
out-of-scope examples the threshold becomes tighter: similarity to those examples lowers a score, so that more
out-of-scope texts are rejected at the same false rejection rate.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, get_args

import numpy as np
import numpy.typing as npt

from turnwise.assist.intents import heads
from turnwise.assist.intents.decision import MAX_RANKED, Decision, RankedIntent, SimilarExample, make_decision
from turnwise.assist.intents.examples import Indices, IntentExamples, Scores
from turnwise.assist.intents.numerics import fit_logistic, log_softmax, minimise_scalar, softmax, student_quantile
from turnwise.assist.search.neighbours import nearest_neighbours
from turnwise.core.errors import IntentError
from turnwise.core.types import Vectors

#: Examples that are left out in turn for calibration when a model is fitted and when its examples change; more are
#: sampled. At a rate of 5% the standard errors are 0.3 and 0.7 points; and changes have to be fast.
_CALIBRATION_EXAMPLES = 4_096
_RECALIBRATION_EXAMPLES = 1_024

#: With fewer out-of-scope texts, similarity to out-of-scope examples is ignored.
_MIN_OUT_OF_SCOPE = 10

#: How far thresholds follow the differences between intents: of 0, 0.5 and 1, false rejection rates vary least between
#: intents, and most out-of-scope texts are rejected, at 0.5 (CLINC150, five examples per intent).
_OFFSET_FACTOR = 0.5

#: Inverse regularisation of the weight of out-of-scope similarity.
_CAUTION_INVERSE_REGULARISATION = 50.0

#: Bounds of the logarithm of the temperature.
_LOG_TEMPERATURE_BOUNDS = (-7.0, 3.0)


# ---- calibration


@dataclass(frozen=True, slots=True)
class Reliability:
    """A reliability curve over the non-empty bins of the predicted probability, and the expected calibration error."""

    confidence: list[float]  # per bin: the mean probability of its predictions
    accuracy: list[float]  # the fraction of them that is correct
    count: list[int]
    ece: float | None  # None without predictions


def compute_reliability(
    confidence: npt.NDArray[np.floating], correct: npt.NDArray[np.bool_], bins: int = 10
) -> Reliability:
    """Return the reliability curve of predictions in bins of equal width, given their probabilities and correctness."""
    bin_of = np.minimum((np.asarray(confidence, np.float64) * bins).astype(np.int64), bins - 1)
    count = np.bincount(bin_of, minlength=bins)
    sums = np.bincount(bin_of, confidence, bins), np.bincount(bin_of, correct, bins)
    mean_confidence, accuracy = (each[count > 0] / count[count > 0] for each in sums)
    count = count[count > 0]
    ece = float((np.abs(mean_confidence - accuracy) * count).sum() / count.sum()) if len(count) else None
    return Reliability(mean_confidence.tolist(), accuracy.tolist(), count.tolist(), ece)


@dataclass(frozen=True, slots=True)
class CalibrationData:
    """Scores of texts that the classifier has not been fitted on; (texts, intents) unless noted."""

    similarity: Scores  # of in-scope texts to each intent
    logits: Scores  # what the head ranks intents by; the similarity itself unless the head is logistic
    labels: Indices  # the index of the intent of each in-scope text (texts)
    oos_similarity: Scores | None = None  # of in-scope texts to the out-of-scope examples (texts)
    outside_similarity: Scores | None = None  # of out-of-scope texts to each intent
    outside_oos_similarity: Scores | None = None  # of out-of-scope texts to the other out-of-scope examples (texts)

    @classmethod
    def concatenate(cls, parts: Sequence["CalibrationData"]) -> "CalibrationData":
        """Join the data of several folds."""
        columns = {field.name: [getattr(part, field.name) for part in parts] for field in fields(cls)}
        joined: Any = {name: None if each[0] is None else np.concatenate(each) for name, each in columns.items()}
        return cls(**joined)


@dataclass(frozen=True, slots=True)
class Calibration:
    """Threshold and probabilities of a classifier."""

    false_rejection: float | None  # the requested rate; None if the classifier never abstains
    threshold: float | None  # the minimum score, before offsets; None if the classifier never abstains
    offsets: tuple[float, ...]  # added to the threshold for each intent; empty for a common threshold
    temperature: float  # logits are divided by it before the softmax
    caution: float  # the weight with which similarity to the out-of-scope examples is subtracted from scores
    texts: int  # the number of in-scope texts that it was calibrated on
    held_out: bool  # or else these are the examples, each left out in turn, and changing examples recalibrates
    out_of_scope_recall: float | None  # the fraction of out-of-scope texts that is rejected; None without such texts
    reliability: Reliability  # of the probabilities, on the same texts

    @classmethod
    def empty(cls) -> "Calibration":
        """Return the calibration of a classifier without calibration data: it never abstains."""
        reliability = compute_reliability(np.empty(0), np.empty(0, np.bool_))
        return cls(None, None, (), 1.0, 0.0, 0, False, None, reliability)

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> "Calibration":
        """Restore a calibration that was stored as JSON."""
        reliability = Reliability(**values["reliability"])
        return cls(**{**values, "offsets": tuple(values["offsets"]), "reliability": reliability})

    def thresholds(self, intents: int) -> Scores:
        """Return the threshold of each intent; -inf if the classifier never abstains."""
        threshold = -np.inf if self.threshold is None else self.threshold
        return threshold + (np.array(self.offsets) if self.offsets else np.zeros(intents))

    def probabilities(self, logits: Scores) -> Scores:
        """Return the probability of each intent, given that a text has one of them (texts, intents)."""
        return softmax(logits / self.temperature)


def calibrate(data: CalibrationData, false_rejection: float | None, *, per_intent: bool, held_out: bool) -> Calibration:
    """Learn threshold and temperature from scores."""
    caution = _fit_caution(data)
    scores = data.similarity - (0 if data.oos_similarity is None else caution * data.oos_similarity[:, None])
    offsets = np.zeros(scores.shape[1])
    if per_intent:
        offsets = intent_offsets(scores[np.arange(len(scores)), data.labels], data.labels, scores.shape[1])
    threshold = None if false_rejection is None else lower_quantile(_best_scores(scores, offsets), false_rejection)
    recall = None
    if data.outside_similarity is not None and threshold is not None:
        penalty = 0 if data.outside_oos_similarity is None else caution * data.outside_oos_similarity[:, None]
        recall = float((_best_scores(data.outside_similarity - penalty, offsets) < threshold).mean())
    temperature = fit_temperature(data.logits, data.labels)
    probabilities = softmax(data.logits / temperature)
    return Calibration(
        false_rejection=false_rejection,
        threshold=threshold,
        offsets=tuple(offsets.tolist()) if per_intent else (),
        temperature=temperature,
        caution=caution,
        texts=len(scores),
        held_out=held_out,
        out_of_scope_recall=recall,
        reliability=compute_reliability(probabilities.max(1), probabilities.argmax(1) == data.labels),
    )


def _best_scores(scores: Scores, offsets: Scores) -> Scores:
    """Return each text's highest score less the offset of that intent, to be compared with the threshold."""
    best = scores.argmax(1)
    return np.asarray(scores[np.arange(len(scores)), best] - offsets[best])


def lower_quantile(scores: npt.NDArray[np.floating], rate: float) -> float:
    """Return a value that a new score from the same distribution is below with probability `rate`.

    A new score is below the k-th lowest of n with probability k / (n + 1), interpolated linearly in between. If the
    rate is less than 1 / (n + 1), the scores do not reach far enough, and the prediction bound of a normal
    distribution with unknown mean and variance is used.
    """
    count = len(scores)
    if rate * (count + 1) >= 1:
        return float(np.quantile(scores, rate, method="weibull"))
    spread = float(np.std(scores, ddof=1)) * np.sqrt(1 + 1 / count) if count > 1 else 0.0
    return float(np.mean(scores) + student_quantile(rate, max(1, count - 1)) * spread)


def intent_offsets(own: Scores, labels: Indices, intents: int) -> Scores:
    """Return how far the texts of each intent score above average, shrunk towards 0 for intents with few texts.

    `own` are the scores of texts for their own intents. Observed means differ by chance with a variance of (variance
    within intents) / (number of texts). The variance of the means beyond that is the variance between intents, and
    each mean is shrunk by its ratio to the sum of both. Thresholds follow half of the result: an intent whose texts
    are more similar to each other has fewer outliers, but not in proportion to its mean.
    """
    counts = np.bincount(labels, minlength=intents)
    observed = counts > 0
    means = np.divide(np.bincount(labels, own, intents), counts, out=np.zeros(intents), where=observed)
    centre = means[observed].mean()
    degrees_of_freedom = max(1, len(own) - int(observed.sum()))
    within = float(((own - means[labels]) ** 2).sum() / degrees_of_freedom)
    chance = within * float((1 / counts[observed]).mean())
    between = max(0.0, float(means[observed].var(ddof=1)) - chance) if observed.sum() > 1 else 0.0
    shrinkage = np.divide(
        between, between + within / np.maximum(counts, 1), out=np.zeros(intents), where=observed & (between > 0)
    )
    return np.asarray(_OFFSET_FACTOR * shrinkage * (means - centre))


def fit_temperature(logits: Scores, labels: Indices) -> float:
    """Return the temperature that maximises the likelihood of the labels.

    The labels are smoothed as in Platt scaling, by one correct and one wrong text in addition to the observed ones, so
    that a few examples that are all classified correctly do not make a classifier that is always certain.
    """
    texts, intents = logits.shape
    if intents == 1:
        return 1.0
    target = (texts + 1) / (texts + 2)
    rows = np.arange(texts)

    def loss(log_temperature: float) -> float:
        log_probabilities = log_softmax(logits / np.exp(log_temperature))
        own = log_probabilities[rows, labels]
        others = (log_probabilities.sum(1) - own) / (intents - 1)
        return -float((target * own + (1 - target) * others).mean())

    return float(np.exp(minimise_scalar(loss, *_LOG_TEMPERATURE_BOUNDS)))


def _fit_caution(data: CalibrationData) -> float:
    """Return the weight of out-of-scope similarity that separates in-scope from out-of-scope texts best."""
    if data.outside_similarity is None or data.oos_similarity is None or data.outside_oos_similarity is None:
        return 0.0
    if len(data.outside_similarity) < _MIN_OUT_OF_SCOPE:
        return 0.0
    inside = np.stack([data.similarity.max(1), data.oos_similarity], 1)
    outside = np.stack([data.outside_similarity.max(1), data.outside_oos_similarity], 1)
    counts = (len(outside), len(inside))
    balanced = np.repeat([sum(counts) / (2 * count) for count in counts], counts)
    coefficients, _ = fit_logistic(
        np.concatenate([outside, inside]), np.repeat([0, 1], counts), _CAUTION_INVERSE_REGULARISATION, balanced
    )
    in_scope, out_of_scope = coefficients[1] - coefficients[0]
    # at most the weight of similarity to the intents
    return float(np.clip(-out_of_scope / max(in_scope, abs(out_of_scope)), 0, 1)) if out_of_scope else 0.0


# ---- the model


@dataclass(frozen=True, slots=True)
class IntentSettings:
    """Settings of an intent model; see `IntentClassifier` for their meaning."""

    head: heads.HeadChoice
    neighbours: int
    false_rejection: float | None
    per_intent: bool
    seed: int

    def __post_init__(self) -> None:
        if self.head not in get_args(heads.HeadChoice):
            raise IntentError(f"there is no head {self.head!r}: choose one of {', '.join(get_args(heads.HeadChoice))}")
        if self.neighbours < 1:
            raise IntentError(f"neighbours must be at least 1, got {self.neighbours}")
        if self.false_rejection is not None and not 0 < self.false_rejection < 1:
            raise IntentError(f"false_rejection must be between 0 and 1, or None, got {self.false_rejection}")


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
    similarity: heads.SimilarityScorer  # to the examples of each intent
    out_of_scope: heads.SimilarityScorer | None  # to the out-of-scope examples; None if there are none
    logistic: heads.LogisticHead | None  # ranks intents instead of similarity; None for the other heads
    calibration: Calibration

    @classmethod
    def uncalibrated(cls, examples: IntentExamples, settings: IntentSettings) -> "IntentModel":
        """Fit a model that is not calibrated yet; raise IntentError if a logistic head has only one intent."""
        outside, out_of_scope, logistic = examples.out_of_scope_vectors, None, None
        if len(outside):
            out_of_scope = heads.SimilarityScorer.fit(outside, np.zeros(len(outside), np.int64), settings.neighbours)
        if settings.head == "logistic":
            heads.check_logistic(len(examples.classes))
            logistic = heads.LogisticHead.fit(examples.in_scope_vectors, examples.labels)
        k = None if settings.head == "prototypes" else settings.neighbours
        similarity = heads.SimilarityScorer.fit(examples.in_scope_vectors, examples.labels, k)
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
            offsets = dict(zip(self.examples.classes, previous.offsets, strict=False))
            kept = tuple(offsets.get(intent, 0.0) for intent in examples.classes) if offsets else ()
            return replace(model, calibration=replace(previous, offsets=kept))
        calibration = model.calibrated(data, held_out=False).calibration
        if model.logistic is not None:
            calibration = replace(calibration, temperature=previous.temperature, reliability=previous.reliability)
        return replace(model, calibration=calibration)

    # ---- data for calibration

    def calibration_data(self, vectors: Vectors, labels: Indices, outside: Vectors) -> CalibrationData:
        """Score texts that are not examples: in-scope texts with their labels, and out-of-scope texts."""
        similarity = self.similarity.score(vectors)
        return CalibrationData(
            similarity,
            self.logits(vectors, similarity),
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
            fold_of = heads.assign_folds(examples.labels, heads.FOLDS, seed)
            logits = heads.cross_validated_logits(examples.in_scope_vectors, examples.labels, fold_of)[rows]
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

    def logits(self, vectors: Vectors, similarity: Scores | None = None) -> Scores:
        """Return the scores by which intents are ranked (texts, intents)."""
        if self.logistic is not None:
            return self.logistic.logits(vectors)
        return self.similarity.score(vectors) if similarity is None else similarity

    def score(self, vectors: Vectors) -> IntentScores:
        """Score vectors; a text is rejected unless its most similar intent reaches its threshold."""
        scores = self.similarity.score(vectors)
        probabilities = self.calibration.probabilities(self.logits(vectors, scores))
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
        result, classes = self.score(vectors), self.examples.classes
        thresholds = self.calibration.thresholds(len(classes))
        pairs = self.examples.pairs
        similar: list[list[SimilarExample]] = [[] for _ in texts]
        if neighbours:
            nearest = nearest_neighbours(vectors, self.examples.in_scope_vectors, neighbours)
            for found, rows, cosines in zip(similar, nearest.rows.tolist(), nearest.similarities.tolist(), strict=True):
                found += (SimilarExample(*pairs[int(row)], cosine) for row, cosine in zip(rows, cosines, strict=True))
        decisions = []
        for row, text in enumerate(texts):
            order = result.order[row, :MAX_RANKED].tolist()
            scores, probabilities = result.scores[row].tolist(), result.probabilities[row].tolist()
            ranked = [RankedIntent(classes[place], scores[place], probabilities[place]) for place in order]
            threshold = None if self.calibration.threshold is None else float(thresholds[order[0]])
            decisions.append(make_decision(text, ranked, threshold, bool(result.abstained[row]), similar[row]))
        return decisions
