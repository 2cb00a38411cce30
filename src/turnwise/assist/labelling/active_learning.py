"""Active learning: which groups of utterances to ask a person about next.

A label helps with the utterance itself and with similar ones, as far as they are uncertain and nothing near them has
been labelled yet. So an utterance is selected, and the question includes the utterances that are so similar to it that
they probably have the same label: one answer labels all of them. With k(r, s) the similarity of two utterances, from 0
to 1, the value of asking about r is

    u(r) · Σ_s u(s) · n(s) · max(0, k(r, s) - c(s))

- u is the uncertainty of an utterance: 1 minus the margin between the most likely label and the runner-up, among all
  labels, groups without a name, and "none of these". An utterance that most likely belongs to a group without a name
  has u = 1.
- n is the weight of an utterance: 1 + ln of its occurrences.
- c(s) is the coverage of s: its similarity to the most similar utterance that has been labelled individually, or is
  part of a question that was just selected. So questions differ from each other and from earlier ones.

Questions are selected greedily; of many utterances, sums and candidates are samples.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from turnwise.assist.intents.numerics import softmax
from turnwise.assist.labelling.changes import NO_GROUP, GroupAssignment
from turnwise.assist.map.clustering import compute_centroids
from turnwise.core.types import Vectors

#: The size of the sample over which sums run, and of that of candidates.
SAMPLE_SIZE = 2_000

#: Utterances from which the similarity threshold is estimated.
_THRESHOLD_SAMPLE = 1_000

#: The number of utterances in a question, and their least similarity to the selected one.
GROUP_SIZE, _GROUP_SIMILARITY = 10, 0.7

#: This fraction of pairs has different labels, unless one label makes up seven eighths of all.
_DIFFERENT_FRACTION = 0.25

#: The highest similarity threshold: from this cosine, utterances are the same up to rounding.
_MAX_THRESHOLD = 0.999

#: The temperature of label probabilities, relative to the range from the similarity threshold to 1.
_TEMPERATURE = 1 / 8

#: Added to values and uncertainties: if everything is covered, the most uncertain utterance comes first.
_EPSILON = 1e-6


@dataclass(frozen=True, slots=True)
class Question:
    """An utterance to ask about, with similar ones that probably have the same label."""

    row: int
    """Its row."""
    rows: tuple[int, ...]
    """Its row and those of the similar utterances, the most similar first."""
    text: str
    """Its text."""
    guess: str | None
    """The predicted label; None: unknown."""
    reason: str
    """Why it was selected."""


@dataclass(frozen=True, slots=True)
class LabelPredictions:
    """Predictions of labels for every utterance."""

    best: npt.NDArray[np.int64]  # the index of the most likely label; NO_GROUP if something else is more likely
    runner_up: npt.NDArray[np.int64]  # the index of the next label; NO_GROUP if it is not a label
    uncertainty: npt.NDArray[np.float64]  # from 0 to 1
    names: tuple[str, ...]  # the labels


class QuestionSelector:
    """Selects questions over fixed vectors while labels change; two are similar from the cosine `threshold` on."""

    def __init__(self, vectors: npt.NDArray[np.floating], counts: npt.NDArray[np.integer], seed: int = 0):
        """Estimate the similarity threshold; vectors need not be normalised, counts are occurrences."""
        lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
        self._vectors: Vectors = np.asarray(vectors / np.maximum(lengths, 1e-12), np.float32)
        self._counts = counts
        random = np.random.default_rng(seed)
        sample = random.permutation(len(vectors))[:SAMPLE_SIZE]
        self._sample = np.sort(sample)
        self.threshold = _estimate_threshold(self._vectors[sample[:_THRESHOLD_SAMPLE]])
        self._gumbel_noise = random.gumbel(size=len(vectors))

    def select(self, texts: Sequence[str], state: GroupAssignment, count: int) -> list[Question]:
        """Return up to `count` questions about utterances that nobody has labelled individually, the best first.

        No utterance is in two questions.
        """
        predictions = self.predict(state.groups, state.names)
        names = {NO_GROUP: None, **dict(enumerate(predictions.names))}
        questions = []
        for row, *others in self.select_groups(predictions, state.confirmed, count):
            best, runner_up = names[int(predictions.best[row])], names[int(predictions.runner_up[row])]
            reason = self._explain(row, best, runner_up, state.names.get(int(state.groups[row])))
            questions.append(Question(row, (row, *others), texts[row], best, reason))
        return questions

    def _explain(self, row: int, best: str | None, runner_up: str | None, label: str | None) -> str:
        is_similar = self._vectors @ self._vectors[row] >= self.threshold
        is_similar[row] = True
        count = int(self._counts[is_similar].sum())
        similar = f"it represents {count:,} similar utterances" if count > 1 else "no other utterance is similar"
        if best is None and runner_up is None:
            reason = "No similar utterance is labelled yet"
        elif best is None:
            reason = f"It is not similar to any labelled utterance; the closest label is {runner_up}"
        elif label is not None and best != label:
            reason = f"It is labelled {label} but more similar to {best}"
        elif runner_up is None:
            reason = f"It may be {best}, or belong to a group without a name"
        else:
            reason = f"It may be {best} or {runner_up}"
        return f"{reason}; {similar}."

    def predict(self, groups: npt.NDArray[np.int32], names: Mapping[int, str]) -> LabelPredictions:
        """Predict the label of every utterance from the centroids of labels and of groups without a name."""
        numbers, inverse = np.unique(groups, return_inverse=True)
        labels = tuple(sorted({names[number] for number in numbers.tolist() if number in names}))
        unnamed = [number for number in numbers.tolist() if number != NO_GROUP and number not in names]
        classes: dict[str | int, int] = {name: index for index, name in enumerate([*labels, *unnamed])}
        class_of_group = [classes.get(names.get(number, number), NO_GROUP) for number in numbers.tolist()]
        centroids = compute_centroids(self._vectors, np.array(class_of_group)[inverse], len(classes))
        # "none of these" has a cosine equal to the threshold: utterances far from all centroids are uncertain
        cosines = np.column_stack([self._vectors @ centroids.T, np.full(len(groups), self.threshold, np.float32)])
        if not labels:
            none = np.full(len(groups), NO_GROUP)
            return LabelPredictions(none, none, np.ones(len(groups)), labels)
        rows = np.arange(len(groups))
        others = softmax(cosines.astype(np.float64) / ((1 - self.threshold) * _TEMPERATURE))
        best = others[:, : len(labels)].argmax(1)
        highest = others[rows, best]
        others[rows, best] = 0
        margin = np.maximum(highest - others.max(1), 0)
        runner_up = others.argmax(1)
        best, runner_up = np.where(margin > 0, best, NO_GROUP), np.where(runner_up < len(labels), runner_up, NO_GROUP)
        return LabelPredictions(best, runner_up, 1 - margin, labels)

    def select_groups(
        self, predictions: LabelPredictions, confirmed: npt.NDArray[np.bool_], count: int
    ) -> list[list[int]]:
        """Return up to `count` groups of rows to ask about, the best first; `confirmed` rows are excluded."""
        uncertainty, sample = predictions.uncertainty, self._sample
        unlabelled = np.flatnonzero(~confirmed)
        # the highest sums with Gumbel noise are a sample without replacement, with probabilities ~ uncertainty
        noisy = np.log(uncertainty[unlabelled] + _EPSILON) + self._gumbel_noise[unlabelled]
        candidates = np.sort(unlabelled[np.argsort(-noisy, kind="stable")[:SAMPLE_SIZE]])
        weights = uncertainty[sample] * (1 + np.log(self._counts[sample]))
        similarity = self._similarity(self._vectors[candidates], self._vectors[sample])
        coverage = self._similarity(self._vectors[confirmed], self._vectors[sample]).max(0, initial=0.0)
        groups: list[list[int]] = []
        available = ~confirmed
        while len(groups) < count and available[candidates].any():
            gains = np.maximum(similarity - coverage, 0) @ weights
            values = (gains + _EPSILON) * (uncertainty[candidates] + _EPSILON)
            row = int(candidates[np.argmax(np.where(available[candidates], values, -1.0))])
            group = self._similar_rows(row, available & (predictions.best == predictions.best[row]))
            available[group] = False
            coverage = np.maximum(coverage, self._similarity(self._vectors[group], self._vectors[sample]).max(0))
            groups.append(group)
        return groups

    def _similar_rows(self, row: int, available: npt.NDArray[np.bool_]) -> list[int]:
        """Return a row and the rows among the available ones that are most similar to it, the most similar first."""
        others = available.copy()
        others[row] = False
        similarity = self._similarity(self._vectors, self._vectors[[row]])[:, 0]
        similar = np.flatnonzero(others & (similarity >= _GROUP_SIMILARITY))
        nearest = similar[np.argsort(-similarity[similar], kind="stable")[: GROUP_SIZE - 1]]
        return [row, *nearest.tolist()]

    def _similarity(self, left: Vectors, right: Vectors) -> Vectors:
        """Return cosines rescaled so that the threshold becomes 0; negative values become 0."""
        similarity: Vectors = left @ right.T
        similarity -= np.float32(self.threshold)
        similarity /= np.float32(1 - self.threshold)
        return np.maximum(similarity, 0, out=similarity)


def _estimate_threshold(vectors: Vectors) -> float:
    """Return the midpoint between the cosines of different utterances and of nearest neighbours."""
    if len(vectors) < 2:
        return _MAX_THRESHOLD
    cosines = vectors @ vectors.T
    different = np.quantile(cosines[np.triu_indices(len(vectors), 1)], _DIFFERENT_FRACTION)
    np.fill_diagonal(cosines, -1)
    return min(float(different + np.median(cosines.max(1))) / 2, _MAX_THRESHOLD)
