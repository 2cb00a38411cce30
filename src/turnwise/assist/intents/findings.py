"""What cross-validation of a classifier of intents brings to light: confusions, wrong labels, overlaps."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from turnwise.assist.intents.examples import Examples
from turnwise.assist.intents.likeness import Numbers, Scores, Vectors
from turnwise.assist.intents.validation import Judgement
from turnwise.core.dialogue import same_text

#: Entries of a list.
MOST = 30

#: Texts that are shown for a confusion.
_SHOWN = 3

#: Similarities that are held at once.
_BLOCK = 2**24


@dataclass(frozen=True, slots=True)
class IntentRow:
    """What there is to say of one intent; shares are of its judged examples, and not a number where there are none.

    Attributes:
        intent: which.
        examples: how many different ones it has.
        judged: how many of them cross-validation judged.
        recall: share that was taken for this intent, rejected or not.
        precision: of what was taken for this intent, the share that is.
        rejected: share on which the classifier abstained.
        confidence: the mean probability of this intent.
        taken_for: the intent that its examples are taken for most often wrongly; None where they never are.
    """

    intent: str
    examples: int
    judged: int
    recall: float
    precision: float
    rejected: float
    confidence: float
    taken_for: str | None


@dataclass(frozen=True, slots=True)
class Confusion:
    """Two intents that are taken for each other.

    Attributes:
        first: an intent.
        second: another.
        first_as_second: examples of the first that were taken for the second.
        second_as_first: the other way round.
        texts: some of them, the surest mistakes first.
    """

    first: str
    second: str
    first_as_second: int
    second_as_first: int
    texts: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Suspect:
    """An example whose label is likely wrong.

    Attributes:
        row: its place among what was given, from 0.
        text: what it says.
        intent: its label.
        proposed: what it looks like.
        probability: of what is proposed, by a classifier that has not seen it.
        own_probability: of its label.
        same_text: whether the same text is an example of what is proposed.
    """

    row: int
    text: str
    intent: str
    proposed: str
    probability: float
    own_probability: float
    same_text: bool


@dataclass(frozen=True, slots=True)
class Overlap:
    """Two intents that lie in each other.

    Attributes:
        first: an intent.
        second: another.
        overlap: 0: every example lies nearest to one of its own intent; 1: they are mixed as if labels had been dealt out.
        crossing: examples of the two that lie nearer to one of the other than to any of their own.
        texts: the nearest two across, of the first and of the second.
        similarity: their cosine.
    """

    first: str
    second: str
    overlap: float
    crossing: int
    texts: tuple[str, str]
    similarity: float


@dataclass(frozen=True, slots=True)
class TurnedAway:
    """An example on which the classifier would abstain if it had not seen it; `row`: its place among what was given, from 0."""

    row: int
    text: str
    intent: str
    score: float


# ---- confusions


def intent_rows(examples: Examples, judged: Judgement) -> tuple[IntentRow, ...]:
    """What there is to say of each intent."""
    truth, guesses, count = examples.labels[judged.rows], judged.probabilities.argmax(1), len(examples.classes)
    table = _counted(truth, guesses, count)
    sizes, totals, right = np.bincount(examples.labels, minlength=count), table.sum(1), table.diagonal()
    rejected = np.bincount(truth, judged.rejected, minlength=count)
    sure = np.bincount(truth, judged.probabilities[np.arange(len(truth)), truth], minlength=count)
    wrong = table - np.diag(right)
    with np.errstate(invalid="ignore"):
        recall, precision, away, confidence = right / totals, right / table.sum(0), rejected / totals, sure / totals
    return tuple(
        IntentRow(
            name,
            int(sizes[place]),
            int(totals[place]),
            float(recall[place]),
            float(precision[place]),
            float(away[place]),
            float(confidence[place]),
            examples.classes[int(wrong[place].argmax())] if wrong[place].any() else None,
        )
        for place, name in enumerate(examples.classes)
    )


def confusions(examples: Examples, judged: Judgement) -> tuple[Confusion, ...]:
    """Pairs of intents that are taken for each other, the most frequent first."""
    truth, guesses = examples.labels[judged.rows], judged.probabilities.argmax(1)
    table = _counted(truth, guesses, len(examples.classes))
    both = np.triu(table + table.T, 1)
    pairs = np.argwhere(both)
    worst = pairs[np.argsort(-both[pairs[:, 0], pairs[:, 1]], kind="stable")][:MOST]
    sure = judged.probabilities.max(1)
    found = []
    for one, other in worst.tolist():
        members = np.flatnonzero(((truth == one) & (guesses == other)) | ((truth == other) & (guesses == one)))
        surest = judged.rows[members[np.argsort(-sure[members], kind="stable")][:_SHOWN]]
        said = tuple(examples.pairs[row][0] for row in surest)
        names = examples.classes[one], examples.classes[other]
        found.append(Confusion(*names, int(table[one, other]), int(table[other, one]), said))
    return tuple(found)


def _counted(truth: Numbers, guesses: Numbers, classes: int) -> npt.NDArray[np.int64]:
    """How many of each class were taken for each class (classes, classes)."""
    return np.bincount(truth * classes + guesses, minlength=classes**2).reshape(classes, classes)


# ---- wrong labels


def confident_mistakes(probabilities: Scores, labels: Numbers) -> list[tuple[int, int]]:
    """Numbers whose label is likely wrong, and the class that each looks like, the likeliest first.

    Confident learning (Northcutt et al., 2021): a class counts as likely for a row where its probability is no less than what rows
    with that label have on average. A row is suspected where the most probable of its likely classes is not its label; the
    difference of the two probabilities puts suspects in order.

    Args:
        probabilities: of each class (rows, classes), by classifiers that have not seen the rows.
        labels: the class that each row is said to be of.
    """
    classes = probabilities.shape[1]
    own = probabilities[np.arange(len(labels)), labels]
    counts = np.bincount(labels, minlength=classes)
    usual = np.bincount(labels, own, minlength=classes) / np.maximum(counts, 1)
    # of a class that nothing was judged of, nothing is known that could be usual
    likely = np.where((probabilities >= usual) & (counts > 0), probabilities, -np.inf)
    best = likely.argmax(1)
    rows = np.flatnonzero((best != labels) & np.isfinite(likely.max(1)))
    order = rows[np.argsort(own[rows] - probabilities[rows, best[rows]], kind="stable")]
    return [(int(row), int(best[row])) for row in order]


def suspects(examples: Examples, judged: Judgement, places: Sequence[int]) -> tuple[Suspect, ...]:
    """All examples that are likely mislabelled, the likeliest first.

    Args:
        examples: in scope and out of it.
        judged: what cross-validation said.
        places: of the examples in scope among what was given.
    """
    known = {(same_text(text), intent) for text, intent in examples.pairs}
    found = []
    for place, proposed in confident_mistakes(judged.probabilities, examples.labels[judged.rows]):
        row, looks_like = judged.rows[place], examples.classes[proposed]
        text, intent = examples.pairs[row]
        probability, own = judged.probabilities[place, [proposed, examples.labels[row]]].tolist()
        again = (same_text(text), looks_like) in known
        found.append(Suspect(places[row], text, intent, looks_like, probability, own, again))
    return tuple(found)


def turned_away(examples: Examples, judged: Judgement, places: Sequence[int]) -> tuple[TurnedAway, ...]:
    """Examples on which classifiers abstain, the lowest scores first; arguments as in `suspects`."""
    away = np.flatnonzero(judged.rejected)
    lowest = away[np.argsort(judged.scores[away], kind="stable")][:MOST]
    found = []
    for row, score in zip(judged.rows[lowest], judged.scores[lowest].tolist(), strict=True):
        text, intent = examples.pairs[row]
        found.append(TurnedAway(places[row], text, intent, score))
    return tuple(found)


# ---- overlaps


def overlaps(examples: Examples) -> tuple[Overlap, ...]:
    """Pairs of intents that lie in each other, the worst first.

    Of the two intents' examples alone, which have the nearest other example across? The mean of the two intents' shares of such
    examples is divided by what it would be if labels were dealt out at random. Intents with a single example are left out, and
    pairs in which all that is across goes from or to one example: that may have the wrong label.
    """
    counts = np.bincount(examples.labels)
    rows = np.flatnonzero(counts[examples.labels] > 1)
    kept, own, sizes = np.unique(examples.labels[rows], return_inverse=True, return_counts=True)
    if len(kept) < 2:
        return ()
    vectors = examples.inside[rows]
    crossing = _crossing(vectors, own, np.cumsum(sizes) - sizes)
    shares, chance = crossing / sizes[:, None], sizes / (sizes[:, None] + sizes - 1)
    mixed = np.minimum((shares + shares.T) / (chance + chance.T), 1.0)
    both = np.triu(crossing + crossing.T, 1)
    pairs = np.argwhere(both > 1)
    found: list[Overlap] = []
    for one, other in pairs[np.argsort(-mixed[pairs[:, 0], pairs[:, 1]], kind="stable")].tolist():
        left, right = np.flatnonzero(own == one), np.flatnonzero(own == other)
        if len(found) == MOST or _one_example(vectors[left], vectors[right]):
            continue
        cosines = vectors[left] @ vectors[right].T
        place = np.unravel_index(cosines.argmax(), cosines.shape)
        texts = examples.pairs[rows[left[place[0]]]][0], examples.pairs[rows[right[place[1]]]][0]
        names = examples.classes[kept[one]], examples.classes[kept[other]]
        found.append(Overlap(*names, float(mixed[one, other]), int(both[one, other]), texts, float(cosines[place])))
    return tuple(found)


def _one_example(left: Vectors, right: Vectors) -> bool:
    """Whether one example has a part in all that lies nearest across."""
    vectors = np.concatenate([left, right])
    cosines = vectors @ vectors.T
    np.fill_diagonal(cosines, -np.inf)
    nearest = cosines.argmax(1)
    across = np.flatnonzero((np.arange(len(vectors)) < len(left)) != (nearest < len(left)))
    parts = np.bincount(np.r_[across, nearest[across]], minlength=len(vectors))
    return bool(parts.max() >= len(across))


def _crossing(vectors: Vectors, own: Numbers, starts: Numbers) -> npt.NDArray[np.int64]:
    """How many examples of each intent lie nearer to one of another than to any of their own (intents, intents)."""
    found = np.zeros((len(starts), len(starts)), np.int64)
    block = max(1, _BLOCK // len(vectors))
    for first in range(0, len(vectors), block):
        cosines = vectors[first : first + block] @ vectors.T
        here = np.arange(len(cosines))
        cosines[here, first + here] = -np.inf
        highest = np.maximum.reduceat(cosines, starts, axis=1)
        labels = own[first : first + block]
        np.add.at(found, labels, highest > highest[here, labels][:, None])
    return found
