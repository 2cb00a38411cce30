"""Calibration of an intent classifier: a threshold for a requested false rejection rate, and probabilities.

Both are learnt from the scores of texts that the classifier has not been fitted on. In-scope texts are enough. With
out-of-scope examples the threshold becomes tighter: similarity to those examples lowers a score, so that more
out-of-scope texts are rejected at the same false rejection rate.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import numpy.typing as npt

from turnwise.assist.intents.examples import Indices, Scores
from turnwise.assist.intents.numerics import fit_logistic, log_softmax, minimise_scalar, softmax, student_quantile

#: With fewer out-of-scope texts, similarity to out-of-scope examples is ignored.
_MIN_OUT_OF_SCOPE = 10

#: How far thresholds follow the differences between intents: of 0, 0.5 and 1, false rejection rates vary least between
#: intents, and most out-of-scope texts are rejected, at 0.5 (CLINC150, five examples per intent).
_OFFSET_FACTOR = 0.5

#: Inverse regularisation of the weight of out-of-scope similarity.
_CAUTION_INVERSE_REGULARISATION = 50.0

#: The temperature where no text is left out. Regressions on a log are underconfident: with five examples per intent of
#: CLINC150, 0.53 is fitted.
_USUAL_TEMPERATURE = 0.5

#: Bounds of the logarithm of the temperature.
_LOG_TEMPERATURE_BOUNDS = (-7.0, 3.0)


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
    log_similarity: Scores | None = None  # of the texts of a log to each intent
    log_weights: Scores | None = None  # how much each of them counts (texts)
    log_oos_similarity: Scores | None = None  # of each of them to the out-of-scope examples (texts)

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
    best = _best_scores(scores, offsets)
    if false_rejection is None:
        threshold = None
    elif data.log_similarity is None or data.log_weights is None:
        threshold = lower_quantile(best, false_rejection)
    else:
        penalty = 0 if data.log_oos_similarity is None else caution * data.log_oos_similarity[:, None]
        every = np.concatenate([best, _best_scores(data.log_similarity - penalty, offsets)])
        threshold = weighted_quantile(every, np.append(np.ones(len(best)), data.log_weights), false_rejection)
    recall = None
    if data.outside_similarity is not None and threshold is not None:
        penalty = 0 if data.outside_oos_similarity is None else caution * data.outside_oos_similarity[:, None]
        recall = float((_best_scores(data.outside_similarity - penalty, offsets) < threshold).mean())
    known = np.isfinite(data.logits).all(1)
    logits, labels = data.logits[known], data.labels[known]
    temperature = fit_temperature(logits, labels) if known.any() else _USUAL_TEMPERATURE
    probabilities = softmax(logits / temperature)
    return Calibration(
        false_rejection=false_rejection,
        threshold=threshold,
        offsets=tuple(offsets.tolist()) if per_intent else (),
        temperature=temperature,
        caution=caution,
        texts=len(scores),
        held_out=held_out,
        out_of_scope_recall=recall,
        reliability=compute_reliability(probabilities.max(1), probabilities.argmax(1) == labels),
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


def weighted_quantile(scores: Scores, weights: Scores, rate: float) -> float:
    """Return the value below which a fraction of the weight is, interpolated linearly between scores."""
    order = np.argsort(scores)
    below = np.cumsum(weights[order]) - weights[order] / 2
    return float(np.interp(rate * weights.sum(), below, scores[order]))


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
