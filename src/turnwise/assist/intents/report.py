"""A report on the examples of intents: confusions, likely label issues, overlapping intents, calibration.

Everything is based on cross-validation: each example is classified by a classifier that was not fitted on it. An
intent with a single example cannot be evaluated; it remains a possible prediction for the others, and the report names
it.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from turnwise.assist.intents.calibration import Reliability, compute_reliability
from turnwise.assist.intents.classifier import IntentClassifier
from turnwise.assist.intents.examples import Indices, IntentExamples, Scores, validate_pairs
from turnwise.assist.intents.model import assign_folds
from turnwise.core.dialogue import OUT_OF_SCOPE
from turnwise.core.errors import IntentError, MissingPackageError
from turnwise.core.files import write_atomic
from turnwise.core.html import render_page
from turnwise.core.plots import line_chart
from turnwise.core.progress import Progress, silent
from turnwise.core.text import normalise_text
from turnwise.core.types import SupportsEncode, Vectors
from turnwise.models.vector_cache import encode_distinct

#: The maximum number of entries in each list of the report.
MAX_ENTRIES = 30

#: Texts that are shown for a confusion.
_CONFUSION_TEXTS = 3

#: Similarities that are held in memory at once.
_BLOCK = 2**24


@dataclass(frozen=True, slots=True)
class IntentMetrics:
    """Metrics of one intent over its evaluated examples; NaN if there are none."""

    intent: str
    examples: int
    evaluated: int
    recall: float  # ignores abstention, as precision does
    precision: float
    rejected: float  # the fraction on which the classifier abstains
    confidence: float  # the mean probability of this intent
    confused_with: str | None  # the most frequent wrong prediction


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
    """A likely mislabelled example: by classifiers not fitted on it, `proposed` is more probable than its label."""

    row: int  # its index in the input
    text: str
    intent: str
    proposed: str
    probability: float
    own_probability: float
    same_text: bool  # whether the same text is also an example of `proposed`


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
class RejectedExample:
    """An example on which the classifier abstains; `row` is its index in the input."""

    row: int
    text: str
    intent: str
    score: float


@dataclass(frozen=True, slots=True)
class IntentReport:
    """Results of cross-validation; lists have at most `MAX_ENTRIES` entries, the worst first."""

    settings: Mapping[str, Any]
    examples: int
    evaluated: int
    folds: int
    accuracy: float  # ignores abstention
    false_rejection: (
        float  # the fraction of examples on which the classifier abstains; `settings` has the requested one
    )
    answered_accuracy: float  # of the examples on which the classifier does not abstain
    out_of_scope: int
    out_of_scope_recall: float | None
    reliability: Reliability
    intents: tuple[IntentMetrics, ...]
    confusions: tuple[Confusion, ...]
    label_issues: tuple[LabelIssue, ...]
    label_issue_count: int
    overlaps: tuple[Overlap, ...]
    rejected: tuple[RejectedExample, ...]
    not_evaluated: tuple[str, ...]  # intents with a single example

    def to_json(self) -> dict[str, Any]:
        """Return the report as JSON values."""
        return {**asdict(self), "settings": dict(self.settings), "reliability": self.reliability.to_json()}


def make_report(
    texts: Sequence[str],
    intents: Sequence[str],
    classifier: IntentClassifier | None = None,
    *,
    out_of_scope: Sequence[str] = (),
    folds: int = 5,
    seed: int = 0,
    progress: Progress = silent,
) -> IntentReport:
    """Cross-validate a classifier on examples of intents, and optionally out-of-scope texts, and report problems.

    `classifier` provides the settings and is not fitted itself. Texts are encoded once, unless it tunes its encoder:
    then that is tuned in every fold. Raise IntentError if texts and intents do not match, or there are too few.
    """
    classifier = IntentClassifier() if classifier is None else classifier
    if folds < 2:
        raise IntentError(f"folds must be at least 2, got {folds}")
    _ = classifier.settings  # raises an error before anything is encoded
    pairs = [*validate_pairs(texts, intents), *((text, OUT_OF_SCOPE) for text in out_of_scope)]
    encoder = classifier.load_encoder()
    progress("encoding examples", 0, len(pairs))
    vectors = encode_distinct(encoder, [text for text, _ in pairs], normalise=True, max_length=classifier.max_length)
    examples = IntentExamples.from_pairs(pairs, vectors)
    _check_counts(examples, folds)
    result = cross_validate(classifier, encoder, examples, folds=folds, seed=seed, progress=progress)
    labels = examples.labels[result.rows]
    correct, answered = result.probabilities.argmax(1) == labels, ~result.rejected
    first = {pair: row for row, pair in reversed(list(enumerate(pairs)))}
    input_rows = [first[pair] for pair in examples.pairs]
    label_issues = find_label_issues(examples, result, input_rows)
    return IntentReport(
        settings=_describe_settings(classifier),
        examples=len(examples.labels),
        evaluated=len(labels),
        folds=folds,
        accuracy=float(correct.mean()),
        false_rejection=float(result.rejected.mean()),
        answered_accuracy=float(correct[answered].mean()) if answered.any() else float("nan"),
        out_of_scope=len(result.outside_rejected),
        out_of_scope_recall=float(result.outside_rejected.mean()) if len(result.outside_rejected) else None,
        reliability=compute_reliability(result.probabilities.max(1), correct),
        intents=compute_intent_metrics(examples, result),
        confusions=find_confusions(examples, result),
        label_issues=label_issues[:MAX_ENTRIES],
        label_issue_count=len(label_issues),
        overlaps=find_overlaps(examples),
        rejected=find_rejected(examples, result, input_rows),
        not_evaluated=tuple(name for index, name in enumerate(examples.classes) if index not in labels),
    )


def _describe_settings(classifier: IntentClassifier) -> dict[str, Any]:
    params = classifier.get_params(deep=False)
    tuning, encoder = params.pop("tuning"), params.pop("encoder")
    name = str(encoder) if isinstance(encoder, str | Path) else type(encoder).__name__
    return {"encoder": name, **params, "tuning": None if tuning is None else asdict(tuning)}


def _check_counts(examples: IntentExamples, folds: int) -> None:
    if len(examples.classes) < 2:
        raise IntentError("a report needs examples of at least two intents, got one")
    counts = np.bincount(examples.labels)
    if (counts > 1).sum() < 2:
        raise IntentError("fewer than two intents have a second example: add examples, or nothing can be evaluated")
    if counts.max() - math.ceil(counts.max() / folds) < 2:
        raise IntentError(
            f"no intent has more than {counts.max()} examples: without one of {folds} folds, fewer than two are left,"
            " and calibration needs two; add examples, or use more folds"
        )


# ---- cross-validation


@dataclass(frozen=True, slots=True)
class CrossValidation:
    """Predictions for examples by classifiers that were not fitted on them."""

    rows: Indices  # the evaluated in-scope examples, ascending: all but those that are the only one of their intent
    probabilities: Scores  # (rows, intents)
    scores: Scores  # of the best intent (rows)
    rejected: npt.NDArray[np.bool_]  # whether the classifier abstains (rows)
    outside_rejected: npt.NDArray[np.bool_]  # the same for the out-of-scope examples


def cross_validate(
    classifier: IntentClassifier,
    encoder: SupportsEncode,
    examples: IntentExamples,
    *,
    folds: int = 5,
    seed: int = 0,
    progress: Progress = silent,
) -> CrossValidation:
    """Classify the examples of each fold by a classifier fitted on the others.

    `classifier` provides the settings and is not fitted; `encoder`, which computed the examples' vectors, replaces its
    own.
    """
    inside, outside = len(examples.labels), len(examples.out_of_scope_vectors)
    outside_folds = np.random.default_rng(seed).permutation(outside) % folds
    fold_of = np.concatenate([assign_folds(examples.labels, folds, seed), outside_folds])
    probabilities, scores = np.zeros((inside, len(examples.classes))), np.zeros(len(fold_of))
    rejected = np.zeros(len(fold_of), np.bool_)

    def vectors_of(rows: Indices) -> Vectors | None:
        return examples.vectors[rows] if classifier.tuning is None else None  # tuning changes them

    for fold in range(folds):
        progress("cross-validating", fold, folds)
        seen, left_out = np.flatnonzero(fold_of != fold), np.flatnonzero(fold_of == fold)
        in_scope = left_out[left_out < inside]
        if not len(in_scope):
            continue
        fitted = classifier.clone().set_params(encoder=encoder)
        seen_texts, seen_intents = zip(*(examples.pairs[row] for row in seen), strict=True)
        fitted.fit(seen_texts, seen_intents, vectors=vectors_of(seen))
        texts = [examples.pairs[row][0] for row in left_out]
        probabilities[in_scope] = fitted.predict_proba(texts[: len(in_scope)], vectors=vectors_of(in_scope))
        decisions = fitted.decide(texts, neighbours=0, vectors=vectors_of(left_out))
        scores[left_out] = [decision.score for decision in decisions]
        rejected[left_out] = [decision.abstained for decision in decisions]
    progress("cross-validating", folds, folds)
    rows = np.flatnonzero(fold_of[:inside] >= 0)
    return CrossValidation(rows, probabilities[rows], scores[rows], rejected[rows], rejected[inside:])


# ---- metrics and confusions


def compute_intent_metrics(examples: IntentExamples, result: CrossValidation) -> tuple[IntentMetrics, ...]:
    """Return the metrics of each intent."""
    labels, count = examples.labels[result.rows], len(examples.classes)
    matrix = _confusion_matrix(examples, result)
    sizes, totals, correct = np.bincount(examples.labels, minlength=count), matrix.sum(1), matrix.diagonal()
    rejected = np.bincount(labels, result.rejected, minlength=count)
    confidence = np.bincount(labels, result.probabilities[np.arange(len(labels)), labels], minlength=count)
    wrong = matrix - np.diag(correct)
    confused_with = [examples.classes[row.argmax()] if row.any() else None for row in wrong]
    with np.errstate(invalid="ignore"):
        fractions = correct / totals, correct / matrix.sum(0), rejected / totals, confidence / totals
    columns = [column.tolist() for column in (sizes, totals, *fractions)]
    return tuple(IntentMetrics(*row) for row in zip(examples.classes, *columns, confused_with, strict=True))


def find_confusions(examples: IntentExamples, result: CrossValidation) -> tuple[Confusion, ...]:
    """Return pairs of intents that are confused, the most frequent first."""
    labels, predictions = examples.labels[result.rows], result.probabilities.argmax(1)
    matrix = _confusion_matrix(examples, result)
    both = np.triu(matrix + matrix.T, 1)
    pairs = np.argwhere(both)
    worst = pairs[np.argsort(-both[pairs[:, 0], pairs[:, 1]], kind="stable")][:MAX_ENTRIES]
    confidence = result.probabilities.max(1)
    confusions = []
    for one, other in worst.tolist():
        is_confused = ((labels == one) & (predictions == other)) | ((labels == other) & (predictions == one))
        members = np.flatnonzero(is_confused)
        rows = result.rows[members[np.argsort(-confidence[members], kind="stable")][:_CONFUSION_TEXTS]]
        texts = tuple(examples.pairs[row][0] for row in rows)
        names = examples.classes[one], examples.classes[other]
        confusions.append(Confusion(*names, int(matrix[one, other]), int(matrix[other, one]), texts))
    return tuple(confusions)


def _confusion_matrix(examples: IntentExamples, result: CrossValidation) -> npt.NDArray[np.int64]:
    """Return how often each intent (rows) is predicted as each intent (columns), ignoring abstention."""
    count = len(examples.classes)
    cells = examples.labels[result.rows] * count + result.probabilities.argmax(1)
    return np.bincount(cells, minlength=count**2).reshape(count, count)


# ---- label issues and rejected examples


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
    # a class without evaluated rows has no mean and is never a candidate
    candidates = np.where((probabilities >= mean) & (counts > 0), probabilities, -np.inf)
    best = candidates.argmax(1)
    rows = np.flatnonzero((best != labels) & np.isfinite(candidates.max(1)))
    order = rows[np.argsort(own[rows] - probabilities[rows, best[rows]], kind="stable")]
    return [(int(row), int(best[row])) for row in order]


def find_label_issues(
    examples: IntentExamples, result: CrossValidation, input_rows: Sequence[int]
) -> tuple[LabelIssue, ...]:
    """Return likely mislabelled examples, the most likely first; `input_rows` are their indices in the input."""
    keys = {(normalise_text(text), intent) for text, intent in examples.pairs}
    issues = []
    for index, proposed in find_confident_mistakes(result.probabilities, examples.labels[result.rows]):
        row, name = result.rows[index], examples.classes[proposed]
        text, intent = examples.pairs[row]
        probability, own = result.probabilities[index, [proposed, examples.labels[row]]].tolist()
        is_duplicate = (normalise_text(text), name) in keys
        issues.append(LabelIssue(input_rows[row], text, intent, name, probability, own, is_duplicate))
    return tuple(issues)


def find_rejected(
    examples: IntentExamples, result: CrossValidation, input_rows: Sequence[int]
) -> tuple[RejectedExample, ...]:
    """Return examples on which classifiers abstain, lowest scores first; `input_rows` as in `find_label_issues`."""
    rejected = np.flatnonzero(result.rejected)
    lowest = rejected[np.argsort(result.scores[rejected], kind="stable")][:MAX_ENTRIES]
    return tuple(
        RejectedExample(input_rows[row], examples.pairs[row][0], examples.pairs[row][1], score)
        for row, score in zip(result.rows[lowest], result.scores[lowest].tolist(), strict=True)
    )


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
        texts = examples.pairs[rows[left[place[0]]]][0], examples.pairs[rows[right[place[1]]]][0]
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


# ---- the HTML page


def write_report(report: IntentReport, path: Path | str) -> None:
    """Write a report as an HTML page, atomically."""
    write_atomic(Path(path), render_report(report))


def render_report(report: IntentReport) -> str:
    """Return a report as an HTML page."""
    bins, plot = reliability_plot(report.reliability)
    return render_page(
        "assist/intents/report.html",
        styles=["core/html/page.css", "assist/intents/report.css"],
        scripts=["core/html/sortable.js"],
        report=report,
        bins=bins,
        plot=plot,
        percent=lambda fraction: f"{fraction:.1%}" if math.isfinite(fraction) else "–",
        is_finite=math.isfinite,
    )


def reliability_plot(curve: Reliability) -> tuple[list[tuple[float, float, int]], str]:
    """Return the bins of a reliability curve (confidence, accuracy, count), and its plot or why there is none."""
    bins = list(zip(curve.confidence.tolist(), curve.accuracy.tolist(), curve.count.tolist(), strict=True))
    points = [(100 * confidence, 100 * accuracy) for confidence, accuracy, _ in bins]
    lines = {"measured": points, "perfect calibration": [(0.0, 0.0), (100.0, 100.0)]}
    marks = {"measured": [(x, y, y) for x, y in points]}
    try:
        return bins, line_chart(lines, "accuracy", "confidence", percent=True, intervals=marks, legend_outside=True)
    except MissingPackageError as error:
        return bins, str(error)
