"""Logistic regression over vectors: the head that learns which directions tell intents apart."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from sklearn.linear_model import LogisticRegression

from turnwise.assist.intents.likeness import Numbers, Scores, Vectors

#: How little weights are held back; best on five examples an intent of CLINC150 among 1, 10 and 100.
STRENGTH = 10.0

_STEPS = 1_000


@dataclass(frozen=True, slots=True)
class Logistic:
    """A fitted regression.

    Attributes:
        weights: (intents, size).
        bias: (intents).
    """

    weights: npt.NDArray[np.float32]
    bias: npt.NDArray[np.float32]

    @classmethod
    def fit(cls, vectors: Vectors, labels: Numbers) -> "Logistic":
        """Fits it on examples of two intents at least, all of them among the labels."""
        fitted = LogisticRegression(C=STRENGTH, max_iter=_STEPS).fit(vectors, labels)
        coefficients, intercepts = fitted.coef_, fitted.intercept_
        if len(fitted.classes_) == 2:  # one row tells two classes apart
            coefficients, intercepts = (
                np.concatenate([-coefficients, coefficients]) / 2,
                np.r_[-intercepts, intercepts] / 2,
            )
        return cls(coefficients.astype(np.float32), intercepts.astype(np.float32))

    def ranking(self, queries: Vectors) -> Scores:
        """The logit of each intent (queries, intents)."""
        return (queries @ self.weights.T + self.bias).astype(np.float64)


def left_out_logits(vectors: Vectors, labels: Numbers, fold_of: Numbers) -> Scores:
    """The logits of examples by regressions on the other folds; not a number where the fold is -1: those are always learnt from."""
    found = np.full((len(vectors), int(labels.max()) + 1), np.nan)
    for fold in np.unique(fold_of[fold_of >= 0]):
        asked = fold_of == fold
        found[asked] = Logistic.fit(vectors[~asked], labels[~asked]).ranking(vectors[asked])
    return found


def folds_of(labels: Numbers, folds: int, seed: int) -> Numbers:
    """The fold of each example: an intent's are spread evenly; -1 where it is the only one of its intent."""
    random = np.random.default_rng(seed)
    found = np.full(len(labels), -1, np.int64)
    for label in np.unique(labels):
        members = random.permutation(np.flatnonzero(labels == label))
        if len(members) > 1:
            found[members] = np.arange(len(members)) % folds
    return found
