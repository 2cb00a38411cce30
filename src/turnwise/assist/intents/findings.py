"""Likely problems of labelled texts: wrong labels, overlapping intents, and texts that a classifier rejects."""

import difflib
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from turnwise.assist.intents.context import show_turns
from turnwise.assist.intents.examples import Indices, IntentExamples, IntentPair, Scores
from turnwise.core.dialogue import OUT_OF_SCOPE
from turnwise.core.text import normalise_text
from turnwise.core.types import Vectors

#: The maximum number of entries in a list.
MAX_ENTRIES = 30

#: Texts of a log that are suggested per intent.
_SUGGESTIONS = 10

#: Texts that are shown for a confusion.
_CONFUSION_TEXTS = 3

#: The similarity of two names from which one may be the other one, mistyped.
_SAME_NAME = 0.8

#: Similarities that are held in memory at once.
_BLOCK = 2**24


@dataclass(frozen=True, slots=True)
class IntentPredictions:
    """Predictions for labelled texts, by classifiers that were not fitted on them.

    The index of an intent is its position in `classes`; out of scope, or rejected, is `len(classes)`.
    """

    classes: Sequence[str]
    pairs: Sequence[IntentPair]
    rows: Sequence[int]  # the position of each text in the input
    labels: Indices
    probabilities: Scores  # (texts, intents)
    scores: Scores  # of the best intent
    decided: Indices

    @property
    def in_scope(self) -> npt.NDArray[np.bool_]:
        """Whether each text is labelled with an intent."""
        return np.less(self.labels, len(self.classes))

    @property
    def rejected(self) -> npt.NDArray[np.bool_]:
        """Whether the classifier abstains on each text."""
        return np.equal(self.decided, len(self.classes))

    @property
    def best(self) -> Indices:
        """The most probable intent of each text, ignoring abstention."""
        return np.asarray(self.probabilities.argmax(1))


@dataclass(frozen=True, slots=True)
class Confusion:
    """Two intents that are confused, how often in each direction, and texts of the most confident mistakes."""

    first: str
    second: str
    first_as_second: int
    second_as_first: int
    texts: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class LabelIssue:
    """A text that is likely mislabelled: `proposed` is its most probable candidate (`find_confident_mistakes`)."""

    row: int  # its index in the input
    text: str
    intent: str
    proposed: str
    probability: float
    own_probability: float
    same_text: bool  # whether the same text is also labelled with `proposed`


@dataclass(frozen=True, slots=True)
class RejectedText:
    """An in-scope text on which the classifier abstains; `row` is its index in the input."""

    row: int
    text: str
    intent: str
    score: float


@dataclass(frozen=True, slots=True)
class Overlap:
    """Two intents whose examples overlap."""

    first: str
    second: str
    overlap: float  # 0: every example is nearest to one of its own intent; 1: they are mixed as if labels were random
    crossing: int  # the number of examples that are nearer to one of the other intent than to any of their own
    texts: tuple[str, str]  # the most similar pair of examples
    similarity: float  # its cosine


@dataclass(frozen=True, slots=True)
class SuggestedExample:
    """A text of a log that may become an example of its most probable intent."""

    text: str
    intent: str
    probability: float


@dataclass(frozen=True, slots=True)
class LogPredictions:
    """Predictions for the texts of a log."""

    log_size: int  # texts of the log
    texts: int  # distinct ones that were classified; of many, a random sample
    rejected: int
    intents: Mapping[str, int]  # how many texts get each intent, the most frequent first
    suggestions: tuple[SuggestedExample, ...]  # the ten most probable texts of each intent that are no examples


def find_suggestions(
    texts: Sequence[str], classes: Sequence[str], probabilities: Scores, decided: Indices, known: Collection[str]
) -> tuple[SuggestedExample, ...]:
    """Return the most probable texts of each intent, without rejected ones and those with a normalised text in `known`.

    They are sorted by intent, the most probable first.
    """
    suggestions = []
    new = np.array([normalise_text(text) not in known for text in texts], bool)
    for index, intent in enumerate(classes):
        rows = np.flatnonzero(new & (decided == index))
        best = rows[np.argsort(-probabilities[rows, index], kind="stable")][:_SUGGESTIONS]
        suggestions += [SuggestedExample(texts[row], intent, float(probabilities[row, index])) for row in best]
    return tuple(suggestions)


def find_confusions(predictions: IntentPredictions) -> tuple[Confusion, ...]:
    """Return pairs of intents that are confused, ignoring abstention in scope, the most frequent first."""
    predicted = np.where(predictions.in_scope, predictions.best, predictions.decided)
    sides = np.sort(np.stack([predictions.labels, predicted], 1), 1)
    wrong = np.flatnonzero(sides[:, 0] != sides[:, 1])
    pairs, counts = np.unique(sides[wrong], axis=0, return_counts=True)
    confidence, names = predictions.probabilities.max(1), (*predictions.classes, OUT_OF_SCOPE)
    confusions = []
    for place in np.argsort(-counts, kind="stable")[:MAX_ENTRIES]:
        first, second = pairs[place].tolist()
        members = wrong[(sides[wrong] == pairs[place]).all(1)]
        forwards = int((predictions.labels[members] == first).sum())
        shown = members[np.argsort(-confidence[members], kind="stable")][:_CONFUSION_TEXTS]
        texts = tuple(predictions.pairs[row][0] for row in shown)
        confusions.append(Confusion(names[first], names[second], forwards, len(members) - forwards, texts))
    return tuple(confusions)


def find_rejected(predictions: IntentPredictions) -> tuple[RejectedText, ...]:
    """Return in-scope texts on which the classifier abstains, lowest scores first."""
    rejected = np.flatnonzero(predictions.in_scope & predictions.rejected)
    lowest = rejected[np.argsort(predictions.scores[rejected], kind="stable")][:MAX_ENTRIES]
    return tuple(
        RejectedText(predictions.rows[place], *predictions.pairs[place], float(predictions.scores[place]))
        for place in map(int, lowest)
    )


# ---- label issues


def find_mistyped_intents(pairs: Sequence[IntentPair]) -> list[tuple[str, str]]:
    """Return intents with a single example whose name is close to that of another intent, and that name."""
    counts = Counter(intent for _, intent in pairs)
    found = []
    for name in (name for name, count in counts.items() if count == 1):
        names = {each.casefold(): each for each in counts if each != name and counts[each] >= counts[name]}
        close = difflib.get_close_matches(name.casefold(), names, n=1, cutoff=_SAME_NAME)
        found += [(name, names[each]) for each in close]
    return found


def find_label_issues(predictions: IntentPredictions) -> tuple[LabelIssue, ...]:
    """Return in-scope texts that are likely mislabelled, the most likely first."""
    inside = np.flatnonzero(predictions.in_scope)
    keys = {(normalise_text(text), intent) for text, intent in predictions.pairs}
    issues = []
    for index, proposed in find_confident_mistakes(predictions.probabilities[inside], predictions.labels[inside]):
        place, name = inside[index], predictions.classes[proposed]
        text, intent = predictions.pairs[place]
        probability, own = predictions.probabilities[place, [proposed, predictions.labels[place]]].tolist()
        is_duplicate = (normalise_text(text), name) in keys
        issues.append(LabelIssue(predictions.rows[place], text, intent, name, probability, own, is_duplicate))
    return tuple(issues)


def find_confident_mistakes(probabilities: Scores, labels: Indices) -> list[tuple[int, int]]:
    """Return rows whose label is likely wrong with the class they resemble, the most likely first.

    Confident learning (Northcutt et al., 2021): a class is a candidate for a row if its probability is at least its
    mean probability over the rows with that label. A row is returned if its most probable candidate is not its label;
    rows are sorted by the difference of the two probabilities, which are those of classifiers not fitted on the rows.
    """
    classes = probabilities.shape[1]
    own = probabilities[np.arange(len(labels)), labels]
    counts = np.bincount(labels, minlength=classes)
    mean = np.bincount(labels, own, minlength=classes) / np.maximum(counts, 1)
    # a class without rows has no mean and is never a candidate
    candidates = np.where((probabilities >= mean) & (counts > 0), probabilities, -np.inf)
    best = candidates.argmax(1)
    rows = np.flatnonzero((best != labels) & np.isfinite(candidates.max(1)))
    order = rows[np.argsort(own[rows] - probabilities[rows, best[rows]], kind="stable")]
    return [(int(row), int(best[row])) for row in order]


# ---- overlaps


def find_overlaps(examples: IntentExamples) -> tuple[Overlap, ...]:
    """Return pairs of intents whose examples overlap, the worst first.

    Among the examples of two intents, the fraction of each whose nearest other example belongs to the other intent is
    averaged and divided by its expectation under random labels. Intents with a single example are excluded, and so are
    pairs in which one example is part of every crossing: it may have the wrong label.
    """
    counts = np.bincount(examples.labels)
    rows = np.flatnonzero(counts[examples.labels] > 1)
    intents, own, sizes = np.unique(examples.labels[rows], return_inverse=True, return_counts=True)
    if len(intents) < 2:
        return ()
    vectors = examples.in_scope_vectors[rows]
    crossing = _count_crossings(vectors, own, np.cumsum(sizes) - sizes)
    fractions, expected = crossing / sizes[:, None], sizes / (sizes[:, None] + sizes - 1)
    overlap = np.minimum((fractions + fractions.T) / (expected + expected.T), 1.0)
    both = np.triu(crossing + crossing.T, 1)
    pairs = np.argwhere(both > 1)
    overlaps: list[Overlap] = []
    for one, other in pairs[np.argsort(-overlap[pairs[:, 0], pairs[:, 1]], kind="stable")].tolist():
        left, right = np.flatnonzero(own == one), np.flatnonzero(own == other)
        if len(overlaps) == MAX_ENTRIES or _has_common_example(vectors[left], vectors[right]):
            continue
        cosines = vectors[left] @ vectors[right].T
        place = np.unravel_index(cosines.argmax(), cosines.shape)
        first_row, second_row = rows[left[place[0]]], rows[right[place[1]]]
        texts = show_turns(examples.pairs[first_row][0]), show_turns(examples.pairs[second_row][0])
        names = examples.classes[intents[one]], examples.classes[intents[other]]
        overlaps.append(
            Overlap(*names, float(overlap[one, other]), int(both[one, other]), texts, float(cosines[place]))
        )
    return tuple(overlaps)


def _has_common_example(left: Vectors, right: Vectors) -> bool:
    """Return whether a single example is part of every crossing between two intents."""
    vectors = np.concatenate([left, right])
    cosines = vectors @ vectors.T
    np.fill_diagonal(cosines, -np.inf)
    nearest = cosines.argmax(1)
    across = np.flatnonzero((np.arange(len(vectors)) < len(left)) != (nearest < len(left)))
    parts = np.bincount(np.r_[across, nearest[across]], minlength=len(vectors))
    return bool(parts.max() >= len(across))


def _count_crossings(vectors: Vectors, own: Indices, starts: Indices) -> npt.NDArray[np.int64]:
    """Return how many examples of each intent are nearest to one of each other intent (intents, intents)."""
    counts = np.zeros((len(starts), len(starts)), np.int64)
    block = max(1, _BLOCK // len(vectors))
    for first in range(0, len(vectors), block):
        cosines = vectors[first : first + block] @ vectors.T
        here = np.arange(len(cosines))
        cosines[here, first + here] = -np.inf
        highest = np.maximum.reduceat(cosines, starts, axis=1)
        labels = own[first : first + block]
        np.add.at(counts, labels, highest > highest[here, labels][:, None])
    return counts
