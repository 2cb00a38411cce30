"""The fitted intent model: immutable, with the examples, what they are compared with, and the calibration."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import get_args

import numpy as np
import numpy.typing as npt

from turnwise.assist.intents import heads
from turnwise.assist.intents.calibration import Calibration, CalibrationData, calibrate
from turnwise.assist.intents.context import show_turns
from turnwise.assist.intents.decision import MAX_RANKED, Decision, RankedIntent, SimilarExample, make_decision
from turnwise.assist.intents.examples import Indices, IntentExamples, Scores
from turnwise.assist.intents.log_texts import LabelledLog
from turnwise.assist.search.neighbours import nearest_neighbours
from turnwise.core.errors import IntentError
from turnwise.core.types import Vectors

#: Examples that are left out in turn for calibration when a model is fitted and when its examples change; more are
#: sampled. At a rate of 5% the standard errors are 0.3 and 0.7 points; and changes have to be fast.
_CALIBRATION_EXAMPLES = 4_096
_RECALIBRATION_EXAMPLES = 1_024

#: How many left-out examples the texts of a log count as together when the threshold is calibrated: the log may have
#: texts out of scope, but a few examples say little about how different texts in scope are.
_LOG_COUNTS_AS = 50.0


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
    similarity: heads.SimilarityScorer | heads.PrototypeScorer  # to each intent
    out_of_scope: heads.SimilarityScorer | None  # to the out-of-scope examples; None if there are none
    logistic: heads.LogisticHead | None  # ranks intents instead of similarity; None for the other heads
    calibration: Calibration
    log: LabelledLog | None = None

    @classmethod
    def uncalibrated(
        cls,
        examples: IntentExamples,
        settings: IntentSettings,
        log: LabelledLog | None = None,
        start: heads.LogisticHead | None = None,
    ) -> "IntentModel":
        """Fit a model that is not calibrated yet; raise IntentError if a logistic head has only one intent.

        `start` is the logistic head of nearly the same examples.
        """
        support = examples.support
        outside, out_of_scope, logistic = examples.out_of_scope_vectors, None, None
        if len(outside):
            out_of_scope = heads.SimilarityScorer.fit(outside, np.zeros(len(outside), np.int64), settings.neighbours)
        if settings.head == "logistic":
            heads.check_logistic(len(examples.classes))
            logistic = (
                heads.LogisticHead.fit(*support)
                if log is None
                else heads.LogisticHead.fit_with_log(*support, log, start)
            )
        k = None if settings.head == "prototypes" else settings.neighbours
        similarity = (
            heads.SimilarityScorer.fit(*support, k) if log is None else heads.PrototypeScorer.fit(*support, log)
        )
        return cls(settings, examples, similarity, out_of_scope, logistic, Calibration.empty(), log)

    @classmethod
    def fit(
        cls,
        examples: IntentExamples,
        settings: IntentSettings,
        log: LabelledLog | None = None,
        left_out: tuple[Indices, Scores] | None = None,
    ) -> "IntentModel":
        """Fit a model and calibrate it on its own examples, each left out; raise IntentError if there are too few.

        `left_out` are rows of examples and their logits by a regression on the others and the log.
        """
        model = cls.uncalibrated(examples, settings, log)
        data = model.leave_one_out_data(_CALIBRATION_EXAMPLES, left_out)
        if data is None and settings.false_rejection is not None:
            raise IntentError(
                "no intent has a second example, so the threshold cannot be calibrated: provide at least two examples"
                " of one intent or a log, or set false_rejection=None and calibrate on other texts"
            )
        return model if data is None else model.calibrated(data, held_out=False)

    def calibrated(self, data: CalibrationData, *, held_out: bool) -> "IntentModel":
        """Return this model, calibrated on data that may be held out from fitting."""
        settings = self.settings
        calibration = calibrate(data, settings.false_rejection, per_intent=settings.per_intent, held_out=held_out)
        return replace(self, calibration=calibration)

    def with_examples(self, examples: IntentExamples) -> "IntentModel":
        """Return a model with other examples; recalibrated unless this one was calibrated on held-out texts."""
        log, start = self.log, self.logistic
        if log is not None and examples.classes != self.examples.classes:
            log, start = LabelledLog.label(log.vectors, examples), None
        model = IntentModel.uncalibrated(examples, self.settings, log, start)
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

    def leave_one_out_data(self, limit: int, left_out: tuple[Indices, Scores] | None = None) -> CalibrationData | None:
        """Score at most `limit` of the examples as if each were left out; None if there is nothing to score.

        Without a log, an example can be left out if its intent has another one, or a name.
        """
        examples, seed, log = self.examples, self.settings.seed, self.log
        counts = np.bincount(examples.support[1])
        rows = np.flatnonzero(counts[examples.labels] > 1) if log is None else np.arange(len(examples.labels))
        if not len(rows) and log is None:
            return None
        if len(rows) > limit:
            rows = np.sort(np.random.default_rng(seed).choice(rows, limit, replace=False))
        similarity = logits = self.similarity.score_left_out(examples.support_rows[rows])
        log_similarity = log_weights = log_oos_similarity = None
        if log is not None and isinstance(self.similarity, heads.PrototypeScorer):
            log_similarity = self.similarity.score_log(log)
            log_weights = log.in_scope.astype(np.float64) * (_LOG_COUNTS_AS / float(log.in_scope.sum()))
            if self.logistic is not None:
                logits = np.full_like(similarity, np.nan)
                if left_out is not None:
                    in_both = np.isin(left_out[0], rows)
                    logits[np.searchsorted(rows, left_out[0][in_both])] = left_out[1][in_both]
        elif self.logistic is not None:
            fold_of = heads.assign_folds(examples.labels, heads.FOLDS, seed)
            logits = heads.cross_validated_logits(examples, fold_of)[rows]
        oos_similarity = outside_similarity = None
        if self.out_of_scope is not None:
            if log is not None:
                log_oos_similarity = self.out_of_scope.score(log.vectors)[:, 0]
            oos_similarity = self.out_of_scope.score(examples.in_scope_vectors[rows])[:, 0]
            outside_similarity = self.similarity.score(examples.out_of_scope_vectors)
        outside_oos_similarity = self.left_out_oos_similarity()
        labels = examples.labels[rows]
        return CalibrationData(
            similarity,
            logits,
            labels,
            oos_similarity,
            outside_similarity,
            outside_oos_similarity,
            log_similarity,
            log_weights,
            log_oos_similarity,
        )

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
        if neighbours and len(self.examples.labels):
            nearest = nearest_neighbours(vectors, self.examples.in_scope_vectors, neighbours)
            for found, rows, cosines in zip(similar, nearest.rows.tolist(), nearest.similarities.tolist(), strict=True):
                for row, cosine in zip(rows, cosines, strict=True):
                    text, intent = pairs[int(row)]
                    found.append(SimilarExample(show_turns(text), intent, cosine))
        decisions = []
        for row, text in enumerate(texts):
            order = result.order[row, :MAX_RANKED].tolist()
            scores, probabilities = result.scores[row].tolist(), result.probabilities[row].tolist()
            ranked = [RankedIntent(classes[place], scores[place], probabilities[place]) for place in order]
            threshold = None if self.calibration.threshold is None else float(thresholds[order[0]])
            decisions.append(make_decision(text, ranked, threshold, bool(result.abstained[row]), similar[row]))
        return decisions
