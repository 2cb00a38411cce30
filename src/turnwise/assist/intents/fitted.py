"""A fitted classifier of intents as one value that never changes: whoever decides by it is not disturbed by additions."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import numpy.typing as npt

from turnwise.assist.intents.calibration import Calibration, Evidence, calibrate
from turnwise.assist.intents.decision import RANKED, Decision, Neighbour, Ranked, decided
from turnwise.assist.intents.examples import Examples, IntentError
from turnwise.assist.intents.likeness import Likeness, Numbers, Scores, Vectors
from turnwise.assist.intents.logistic import Logistic, folds_of, left_out_logits
from turnwise.assist.search.neighbours import nearest_neighbours

HeadName = Literal["prototypes", "neighbours", "logistic"]

#: Folds of cross-validation, where examples cannot be left out one by one.
FOLDS = 5

#: Examples that are left out in turn to calibrate by, when a classifier is fitted and when its examples change; of more, so many
#: are drawn. At a rate of 5% that is a standard error of 0.3 and 0.7 points; and a change has to be quick.
_CALIBRATED = 4_096
_CALIBRATED_ANEW = 1_024


@dataclass(frozen=True, slots=True)
class Settings:
    """How intents are told.

    Attributes:
        head: what ranks them.
        neighbours: how many examples of an intent count for the heads 'neighbours' and 'logistic'.
        false_rejection: the share of texts in scope that may be turned away; None: it never abstains.
        per_intent: whether each intent has a threshold of its own.
        seed: of what is drawn.

    Raises:
        IntentError: if one is out of range.
    """

    head: HeadName
    neighbours: int
    false_rejection: float | None
    per_intent: bool
    seed: int

    def __post_init__(self) -> None:
        if self.head not in ("prototypes", "neighbours", "logistic"):
            raise IntentError(f"there is no head {self.head!r}: choose 'prototypes', 'neighbours' or 'logistic'")
        if self.neighbours < 1:
            raise IntentError(f"neighbours is {self.neighbours}: one example at least has to count")
        if self.false_rejection is not None and not 0 < self.false_rejection < 1:
            raise IntentError(
                f"a false rejection of {self.false_rejection} is not a share: give one between 0 and 1, such as 0.05, or None to"
                " never abstain"
            )

    @property
    def k(self) -> int | None:
        """How many examples of an intent count; None: all."""
        return None if self.head == "prototypes" else self.neighbours


@dataclass(frozen=True, slots=True)
class Model:
    """What examples amount to before anything is calibrated.

    Attributes:
        likeness: to the examples of each intent.
        foreign: to those out of scope; None: there are none.
        logistic: ranks intents in the place of likeness.
    """

    likeness: Likeness
    foreign: Likeness | None
    logistic: Logistic | None

    @classmethod
    def of(cls, examples: Examples, settings: Settings) -> "Model":
        """Learns from examples.

        Raises:
            IntentError: if there is one intent alone, and the head is logistic.
        """
        outside = examples.outside
        foreign = Likeness.of(outside, np.zeros(len(outside), np.int64), settings.neighbours) if len(outside) else None
        logistic = None
        if settings.head == "logistic":
            if len(examples.classes) < 2:
                raise IntentError(
                    "a logistic head tells intents apart, and there is but one: add another, or take prototypes"
                )
            logistic = Logistic.fit(examples.inside, examples.labels)
        return cls(Likeness.of(examples.inside, examples.labels, settings.k), foreign, logistic)

    def evidence(self, vectors: Vectors, truth: Numbers, outside: Vectors) -> Evidence:
        """What it makes of texts that it has not seen: in scope with the numbers of their intents, and out of scope."""
        likeness = self.likeness.scores(vectors)
        return Evidence(
            likeness,
            likeness if self.logistic is None else self.logistic.ranking(vectors),
            truth,
            None if self.foreign is None else self.foreign.scores(vectors)[:, 0],
            self.likeness.scores(outside) if len(outside) else None,
            self.foreign.scores(outside)[:, 0] if self.foreign is not None and len(outside) else None,
        )

    def left_out(self, examples: Examples, seed: int, most: int) -> Evidence | None:
        """What it makes of its own examples, each as if it were not among them; None where no intent has a second one.

        Args:
            examples: what it was made of.
            seed: of which are drawn, and of the folds of a logistic head.
            most: how many to look at.
        """
        counts = np.bincount(examples.labels)
        rows = np.flatnonzero(counts[examples.labels] > 1)
        if not len(rows):
            return None
        if len(rows) > most:
            rows = np.sort(np.random.default_rng(seed).choice(rows, most, replace=False))
        likeness = self.likeness.left_out(rows)
        ranking = likeness
        if self.logistic is not None:
            folds = folds_of(examples.labels, FOLDS, seed)
            ranking = left_out_logits(examples.inside, examples.labels, folds)[rows]
        foreign = outside = outside_foreign = None
        if self.foreign is not None:
            foreign, outside = self.foreign.scores(examples.inside[rows])[:, 0], self.likeness.scores(examples.outside)
            if len(examples.outside) > 1:
                outside_foreign = self.foreign.left_out(np.arange(len(examples.outside)))[:, 0]
        return Evidence(likeness, ranking, examples.labels[rows], foreign, outside, outside_foreign)


@dataclass(frozen=True, slots=True)
class FittedIntents:
    """Examples, what was learnt from them, and what it is calibrated to."""

    settings: Settings
    examples: Examples
    model: Model
    calibration: Calibration

    @classmethod
    def of(cls, examples: Examples, settings: Settings) -> "FittedIntents":
        """Learns from examples, and calibrates on these alone.

        Raises:
            IntentError: if no intent has a second example to calibrate on, and it is to abstain.
        """
        model = Model.of(examples, settings)
        evidence = model.left_out(examples, settings.seed, _CALIBRATED)
        if evidence is None and settings.false_rejection is not None:
            raise IntentError(
                "no intent has a second example, so that nothing says how alike texts of one intent are: give two of one intent at"
                " least, or false_rejection=None and calibrate on other texts"
            )
        return cls(settings, examples, model, _calibrated(evidence, settings))

    def with_examples(self, examples: Examples) -> "FittedIntents":
        """Another one, told by other examples; calibrated anew unless it was calibrated on held-out texts, which stay in force."""
        model = Model.of(examples, self.settings)
        # regressions for every fold would take their time, so that a logistic head keeps the temperature that it has
        likeness = replace(model, logistic=None)
        evidence = (
            None if self.calibration.held_out else likeness.left_out(examples, self.settings.seed, _CALIBRATED_ANEW)
        )
        if evidence is None:
            kept = self.calibration.moved(self.examples.classes, examples.classes)
            return FittedIntents(self.settings, examples, model, kept)
        calibration = _calibrated(evidence, self.settings)
        if model.logistic is not None:
            known = self.calibration
            calibration = replace(calibration, temperature=known.temperature, reliability=known.reliability)
        return FittedIntents(self.settings, examples, model, calibration)

    # ---- deciding

    def ranking(self, vectors: Vectors, likeness: Scores) -> Scores:
        """What intents are ranked by (texts, intents)."""
        return likeness if self.model.logistic is None else self.model.logistic.ranking(vectors)

    def probabilities(self, vectors: Vectors) -> Scores:
        """Of each intent (texts, intents)."""
        likeness = self.model.likeness.scores(vectors) if self.model.logistic is None else np.empty(0)
        return self.calibration.probabilities(self.ranking(vectors, likeness))

    def judged(self, vectors: Vectors) -> "Judged":
        """Scores, probabilities, the order of intents, and which texts are turned away.

        A text is turned away unless the intent that it is most like reaches its threshold; the answer is the most probable of those
        that reach theirs.
        """
        likeness = self.model.likeness.scores(vectors)
        probabilities = self.calibration.probabilities(self.ranking(vectors, likeness))
        if self.model.foreign is not None and self.calibration.caution:
            likeness = likeness - self.calibration.caution * self.model.foreign.scores(vectors)
        reached = likeness >= self.calibration.thresholds(len(self.examples.classes))
        most = likeness.argmax(1)[:, None]
        abstained = ~np.take_along_axis(reached, most, 1)
        is_first = np.where(abstained, np.arange(likeness.shape[1]) == most, reached)
        order = np.lexsort((-probabilities, ~is_first), axis=1)
        return Judged(likeness, probabilities, order, abstained[:, 0])

    def decide(self, texts: Sequence[str], vectors: Vectors, neighbours: int) -> list[Decision]:
        """A decision a text."""
        if not len(texts):
            return []
        judged = self.judged(vectors)
        thresholds = self.calibration.thresholds(len(self.examples.classes))
        near = self._nearest(vectors, neighbours)
        found = []
        for row, text in enumerate(texts):
            order = judged.order[row, :RANKED]
            ranked = [
                Ranked(
                    self.examples.classes[place],
                    float(judged.scores[row, place]),
                    float(judged.probabilities[row, place]),
                )
                for place in order
            ]
            threshold = None if self.calibration.threshold is None else float(thresholds[order[0]])
            found.append(decided(text, ranked, threshold, bool(judged.abstained[row]), near[row]))
        return found

    def _nearest(self, vectors: Vectors, count: int) -> list[list[Neighbour]]:
        if not count:
            return [[] for _ in vectors]
        found = nearest_neighbours(vectors, self.examples.inside, count)
        return [
            [
                Neighbour(self.examples.pairs[row][0], self.examples.pairs[row][1], float(similarity))
                for row, similarity in zip(rows, similarities, strict=True)
            ]
            for rows, similarities in zip(found.rows, found.similarities, strict=True)
        ]


@dataclass(frozen=True, slots=True)
class Judged:
    """What is made of texts; (texts, intents) where not said otherwise.

    Attributes:
        scores: likeness, less what likeness to out-of-scope examples takes off.
        probabilities: of each intent.
        order: places of intents, best first.
        abstained: whether a text is turned away (texts).
    """

    scores: Scores
    probabilities: Scores
    order: Numbers
    abstained: npt.NDArray[np.bool_]


def _calibrated(evidence: Evidence | None, settings: Settings) -> Calibration:
    if evidence is None:
        return Calibration.none()
    return calibrate(evidence, settings.false_rejection, per_intent=settings.per_intent, held_out=False)
