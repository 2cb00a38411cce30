"""Cross-validation of a classifier of intents: every example is judged by a classifier that has not seen it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from turnwise.assist.intents.classifier import IntentClassifier
from turnwise.assist.intents.examples import Examples
from turnwise.assist.intents.likeness import Numbers, Scores, Vectors
from turnwise.assist.intents.logistic import folds_of
from turnwise.core.progress import Progress, silent
from turnwise.core.types import SupportsEncode


@dataclass(frozen=True, slots=True)
class Judgement:
    """What was said of examples by classifiers that had not seen them.

    Attributes:
        rows: which examples in scope were judged, ascending: all but those that are the only one of their intent.
        probabilities: of each intent (rows, intents).
        scores: of the best intent (rows).
        rejected: whether the classifier abstained (rows).
        outside: whether it did so on each out-of-scope example.
    """

    rows: Numbers
    probabilities: Scores
    scores: Scores
    rejected: npt.NDArray[np.bool_]
    outside: npt.NDArray[np.bool_]


class Kept:
    """An encoder that has encoded all it will be asked for: folds share their texts."""

    def __init__(self, texts: Sequence[str], vectors: Vectors):
        """Keeps vectors of length 1, a row a text."""
        self._rows = {text: row for row, text in enumerate(texts)}
        self._vectors = vectors

    def encode(self, inputs: Sequence[Any], *, normalise: bool | None = None, max_length: int | None = None) -> Vectors:
        """Vectors of length 1, whatever is asked for."""
        return self._vectors[[self._rows[text] for text in inputs]]


def cross_validate(
    classifier: IntentClassifier,
    encoder: SupportsEncode,
    examples: Examples,
    *,
    folds: int = 5,
    seed: int = 0,
    progress: Progress = silent,
) -> Judgement:
    """What classifiers say of the examples of the fold that they were not fitted on.

    Args:
        classifier: says how; it is not fitted itself.
        encoder: instead of the classifier's.
        examples: in scope and out of it; both are spread over the folds.
        folds: how many.
        seed: of the folds.
        progress: told how many folds are done.
    """
    inside, outside = examples.pairs[: len(examples.labels)], examples.pairs[len(examples.labels) :]
    fold_of = folds_of(examples.labels, folds, seed)
    outside_of = np.random.default_rng(seed).permutation(len(outside)) % folds
    probabilities, scores = np.zeros((len(inside), len(examples.classes))), np.zeros(len(inside))
    rejected, found = np.zeros(len(inside), np.bool_), np.zeros(len(outside), np.bool_)
    settings = {**classifier.get_params(deep=False), "encoder": encoder}
    for fold in range(folds):
        progress("cross-validating", fold, folds)
        asked, foreign = np.flatnonzero(fold_of == fold), np.flatnonzero(outside_of == fold)
        known = [pair for pair, own in zip(inside, fold_of, strict=True) if own != fold]
        if len(known) == len(inside):
            continue
        fitted = type(classifier)(**settings).fit(
            [text for text, _ in known],
            [intent for _, intent in known],
            out_of_scope=[text for (text, _), own in zip(outside, outside_of, strict=True) if own != fold],
        )
        judged = [inside[row][0] for row in asked]
        probabilities[asked] = fitted.predict_proba(judged)
        decisions = fitted.decide([*judged, *(outside[row][0] for row in foreign)], neighbours=0)
        scores[asked] = [decision.score for decision in decisions[: len(asked)]]
        rejected[asked] = [decision.abstained for decision in decisions[: len(asked)]]
        found[foreign] = [decision.abstained for decision in decisions[len(asked) :]]
    progress("cross-validating", folds, folds)
    rows = np.flatnonzero(fold_of >= 0)
    return Judgement(rows, probabilities[rows], scores[rows], rejected[rows], found)
