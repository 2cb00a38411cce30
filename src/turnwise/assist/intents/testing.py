"""Testing intent classifiers: on labelled texts, or on their own examples by cross-validation; both give one result.

Accuracy, confusions and reliability are about the most probable intent, ignoring abstention. Precision, recall and F1
of intents are about decisions: a text on which the classifier abstains is predicted as 'out_of_scope'.
"""

import json
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from turnwise.assist.intents import findings
from turnwise.assist.intents.calibration import Reliability, compute_reliability
from turnwise.assist.intents.classifier import IntentClassifier
from turnwise.assist.intents.context import Utterance, encoder_input, has_context, show_turns
from turnwise.assist.intents.examples import Indices, IntentExamples, Scores, validate_pairs
from turnwise.assist.intents.heads import assign_folds
from turnwise.assist.intents.log_texts import Log, sample_log, sample_log_texts
from turnwise.assist.intents.selection import SupportSelection
from turnwise.core.dialogue import OUT_OF_SCOPE
from turnwise.core.errors import IntentError, MissingPackageError
from turnwise.core.files import csv_text, write_atomic
from turnwise.core.html import render_page
from turnwise.core.plots import line_chart
from turnwise.core.progress import Progress, silent
from turnwise.core.text import normalise_text
from turnwise.core.types import SupportsEncode, Vectors
from turnwise.evaluation.metrics import Outcome, bootstrap_outcomes, confidence_interval
from turnwise.models.vector_cache import encode_distinct

Flags = npt.NDArray[np.bool_]

#: Texts that are encoded between two reports of progress.
_CHUNK = 512


@dataclass(frozen=True, slots=True)
class Estimate:
    """A fraction with its 95% bootstrap interval over the texts; None where it is undefined."""

    value: float | None
    low: float | None
    high: float | None


@dataclass(frozen=True, slots=True)
class IntentResult:
    """The result for one intent, or for 'out_of_scope'; None where a fraction is undefined."""

    intent: str
    texts: int
    predicted: int  # how many texts are predicted as this intent
    precision: float | None
    recall: float | None
    f1: float | None
    rejected: float | None  # the fraction of its texts on which the classifier abstains
    confused_with: str | None  # the intent that is most often the most probable one instead


@dataclass(frozen=True, slots=True)
class IntentTestResult:
    """The result of a test; lists of findings have at most `MAX_ENTRIES` entries, the worst first."""

    settings: Mapping[str, Any]  # of the classifier
    texts: int
    in_scope: int
    out_of_scope: int
    correct: Estimate  # of all texts: the right intent, or rejected if out of scope
    accuracy: Estimate  # of in-scope texts, ignoring abstention
    accepted_accuracy: Estimate  # of accepted in-scope texts
    coverage: Estimate  # the fraction of all texts that are accepted
    false_rejection: Estimate  # the fraction of in-scope texts that are rejected; `settings` has the requested one
    out_of_scope_recall: Estimate  # the fraction of out-of-scope texts that are rejected
    out_of_scope_precision: Estimate  # the fraction of rejected texts that are out of scope
    macro_f1: float  # the mean over the intents that have texts
    intents: tuple[IntentResult, ...]
    confusions: tuple[findings.Confusion, ...]
    label_issues: tuple[findings.LabelIssue, ...]
    label_issue_count: int
    rejected: tuple[findings.RejectedText, ...]
    reliability: Reliability  # of the probabilities of in-scope texts
    # of a fitted classifier
    in_examples: int = 0  # texts that are also examples of the classifier
    examples_excluded: bool = False  # whether they were left out
    unknown_intents: Mapping[str, int] = field(default_factory=dict)  # texts that count as out of scope, by intent
    # of cross-validation
    folds: int | None = None
    not_evaluated: tuple[str, ...] = ()  # intents with a single example
    overlaps: tuple[findings.Overlap, ...] = ()
    # of a classifier that is fitted on names or a log
    support: SupportSelection | None = None
    log: findings.LogPredictions | None = None
    untested: str = ""  # why there are no labelled texts


# ---- two sources of predictions


def run_test(
    classifier: IntentClassifier,
    texts: Sequence[str],
    intents: Sequence[str],
    *,
    exclude_examples: bool = False,
    unknown_out_of_scope: bool = False,
    progress: Progress = silent,
) -> IntentTestResult:
    """Test a fitted classifier on texts with their intents, or 'out_of_scope'.

    `exclude_examples` leaves out texts that are examples of the classifier: it is better on them than on new texts.
    With `unknown_out_of_scope`, texts of intents without examples count as out of scope, else they are an error.
    """
    pairs = classifier.known_pairs(validate_pairs(texts, intents))
    examples = classifier.model_.examples
    classes = {name: index for index, name in enumerate(examples.classes)}
    unknown = Counter(intent for _, intent in pairs if intent not in {*classes, OUT_OF_SCOPE})
    if unknown and not unknown_out_of_scope:
        names = ", ".join(f"{name!r} ({count:,} texts)" for name, count in unknown.most_common(5))
        more = f" and {len(unknown) - 5:,} more" if len(unknown) > 5 else ""
        raise IntentError(
            f"the classifier has no examples of {names}{more}: correct the names, remove these texts, or count them as"
            " out of scope (--unknown-out-of-scope)"
        )
    example_texts = {normalise_text(text) for text, _ in examples.pairs}
    is_example = [normalise_text(text) in example_texts for text, _ in pairs]
    rows = [row for row, known in enumerate(is_example) if not (known and exclude_examples)]
    if not rows:
        raise IntentError("there is no text to test on: every text is also an example of the classifier")
    pairs = [pairs[row] for row in rows]
    labels = np.array([classes.get(intent, len(classes)) for _, intent in pairs])
    outputs = _predict_in_chunks(classifier, [text for text, _ in pairs], progress)
    settings = {"head": classifier.head_, "false_rejection": classifier.calibration_.false_rejection}
    shown = [(show_turns(text), intent) for text, intent in pairs]
    predictions = findings.IntentPredictions(examples.classes, shown, rows, labels, *outputs)
    return replace(
        _measure(predictions, _describe_settings(classifier) | settings),
        in_examples=sum(is_example),
        examples_excluded=exclude_examples,
        unknown_intents=dict(unknown),
        support=classifier.support_selection_,
    )


def cross_validate(
    texts: Sequence[str],
    intents: Sequence[str],
    classifier: IntentClassifier | None = None,
    *,
    log: Log | None = None,
    descriptions: Mapping[str, str] | None = None,
    folds: int = 5,
    seed: int = 0,
    progress: Progress = silent,
) -> IntentTestResult:
    """Test a classifier on examples, of which those of each fold are classified by one that is fitted on the others.

    `classifier` provides the settings and is not fitted itself. All are fitted on a `log` and on `descriptions` of the
    intents with examples. An intent with a single example cannot be evaluated, but is a possible prediction for the
    others. Raise IntentError if there are too few examples.
    """
    classifier = IntentClassifier() if classifier is None else classifier
    if folds < 2:
        raise IntentError(f"folds must be at least 2, got {folds}")
    _ = classifier.settings  # raises an error before anything is encoded
    pairs = validate_pairs(texts, intents)
    encoder = classifier.load_encoder()
    progress("encoding examples", 0, len(pairs))
    in_context, length = has_context(pairs), classifier.max_length
    vectors = encode_distinct(
        encoder,
        [encoder_input(text) for text, _ in pairs],
        normalise=True,
        max_length=length * 2 if in_context else length,
    )
    examples = IntentExamples.from_pairs(pairs, vectors)
    counts = np.bincount(examples.labels)
    if (counts > 1).sum() < 2:
        raise IntentError("fewer than two intents have a second example: add examples, or nothing can be evaluated")
    if counts.max() - math.ceil(counts.max() / folds) < 2:
        raise IntentError(
            f"no intent has more than {counts.max()} examples: without one of {folds} folds, fewer than two are left,"
            " and calibration needs two; add examples, or use more folds"
        )
    support: dict[str, Any] = {}
    if log is not None:
        progress("reading and encoding the log", 0)
        encode = partial(encoder.encode, normalise=True, max_length=length)
        support["log"] = (
            sample_log_texts(log, classifier.seed, with_context=True)[0]
            if in_context and not isinstance(log, np.ndarray)
            else sample_log(log, encode, classifier.seed)[0]
        )
    if described := {name: (descriptions or {})[name] for name in examples.classes if (descriptions or {}).get(name)}:
        support["descriptions"] = described
    predictions = predict_folds(
        classifier, encoder, examples, support=support, folds=folds, seed=seed, progress=progress
    )
    first = {pair: row for row, pair in reversed(list(enumerate(pairs)))}
    shown = [(show_turns(text), intent) for text, intent in predictions.pairs]
    predictions = replace(predictions, rows=[first[pair] for pair in predictions.pairs], pairs=shown)
    return replace(
        _measure(predictions, _describe_settings(classifier)),
        folds=folds,
        not_evaluated=tuple(name for index, name in enumerate(examples.classes) if index not in predictions.labels),
        overlaps=findings.find_overlaps(examples),
    )


def predict_folds(
    classifier: IntentClassifier,
    encoder: SupportsEncode,
    examples: IntentExamples,
    *,
    support: Mapping[str, Any] | None = None,
    folds: int = 5,
    seed: int = 0,
    progress: Progress = silent,
) -> findings.IntentPredictions:
    """Classify examples, with vectors by `encoder`; those that are the only one of their intent are left out.

    `support` holds further arguments of `IntentClassifier.fit`.
    """
    inside, count = len(examples.labels), len(examples.pairs)
    outside_folds = np.random.default_rng(seed).permutation(count - inside) % folds
    fold_of = np.concatenate([assign_folds(examples.labels, folds, seed), outside_folds])
    probabilities, scores = np.zeros((count, len(examples.classes))), np.zeros(count)
    decided = np.zeros(count, np.int64)
    for fold in np.unique(fold_of[:inside][fold_of[:inside] >= 0]):
        progress("cross-validating", int(fold), folds)
        seen, left_out = np.flatnonzero(fold_of != fold), np.flatnonzero(fold_of == fold)
        fitted = classifier.clone().set_params(encoder=encoder)
        texts, intents = zip(*(examples.pairs[row] for row in seen), strict=True)
        if classifier.tuning is None and not has_context(examples.pairs):
            fitted.fit(texts, intents, vectors=examples.vectors[seen], **(support or {}))
            outputs = _predict(fitted, [], examples.vectors[left_out])
        else:  # vectors depend on the examples: on tuning, or on whether context is used
            fitted.fit(texts, intents, **(support or {}))
            outputs = _predict(fitted, [examples.pairs[row][0] for row in left_out])
        probabilities[left_out], scores[left_out], decided[left_out] = outputs
    progress("cross-validating", folds, folds)
    rows = np.flatnonzero(fold_of >= 0)
    labels = np.concatenate([examples.labels, np.full(count - inside, len(examples.classes))])
    pairs = [examples.pairs[row] for row in rows]
    return findings.IntentPredictions(
        examples.classes, pairs, rows.tolist(), labels[rows], probabilities[rows], scores[rows], decided[rows]
    )


def classify_log(
    classifier: IntentClassifier, log: Iterable[Utterance] | Path, *, progress: Progress = silent
) -> findings.LogPredictions:
    """Classify the texts of a log, or a sample of them, and return those that may become examples."""
    progress("reading the log", 0)
    texts, size = sample_log_texts(log, classifier.seed, with_context=classifier.uses_context)
    probabilities, _, decided = _predict_in_chunks(classifier, texts, progress)
    examples = classifier.model_.examples
    counts = np.bincount(decided, minlength=len(examples.classes) + 1).tolist()
    frequent = sorted(zip(examples.classes, counts[:-1], strict=True), key=lambda each: -each[1])
    known = {normalise_text(text) for text, _ in examples.pairs}
    suggestions = findings.find_suggestions(texts, examples.classes, probabilities, decided, known)
    return findings.LogPredictions(size, len(texts), counts[-1], dict(frequent), suggestions)


def empty_result(classifier: IntentClassifier, reason: str) -> IntentTestResult:
    """Return a result without labelled texts, with the reason why there are none."""
    nothing = np.empty(0, np.int64)
    predictions = findings.IntentPredictions([], [], [], nothing, np.empty((0, 1)), np.empty(0), nothing)
    return replace(_measure(predictions, _describe_settings(classifier)), untested=reason)


def _predict_in_chunks(
    classifier: IntentClassifier, texts: Sequence[str], progress: Progress
) -> tuple[Scores, Scores, Indices]:
    parts = []
    for start in range(0, len(texts), _CHUNK):
        progress("classifying texts", start, len(texts))
        parts.append(_predict(classifier, texts[start : start + _CHUNK]))
    progress("classifying texts", len(texts), len(texts))
    probabilities, scores, decided = map(np.concatenate, zip(*parts, strict=True))
    return probabilities, scores, decided


def _predict(
    classifier: IntentClassifier, texts: Sequence[str], vectors: Vectors | None = None
) -> tuple[Scores, Scores, Indices]:
    """Return the probabilities (texts, intents), score and decision of each text, or of vectors instead of texts."""
    if vectors is None:
        inputs, length = classifier.inputs(texts), classifier.input_length
        vectors = encode_distinct(classifier.encoder_, inputs, normalise=True, max_length=length)
    result = classifier.model_.score(vectors)
    best = result.order[:, 0]
    rejected = result.probabilities.shape[1]
    return result.probabilities, result.scores[np.arange(len(best)), best], np.where(result.abstained, rejected, best)


def _describe_settings(classifier: IntentClassifier) -> dict[str, Any]:
    params = classifier.get_params(deep=False)
    tuning, encoder = params["tuning"], params["encoder"]
    name = str(encoder) if isinstance(encoder, str | Path) else type(encoder).__name__
    return params | {"encoder": name, "tuning": None if tuning is None else asdict(tuning)}


# ---- metrics


def _measure(predictions: findings.IntentPredictions, settings: Mapping[str, Any]) -> IntentTestResult:
    inside, rejected = predictions.in_scope, predictions.rejected
    is_correct, is_best = predictions.decided == predictions.labels, predictions.best == predictions.labels
    results = intent_results(predictions)
    f1 = [result.f1 or 0.0 for result in results if result.texts and result.intent != OUT_OF_SCOPE]
    label_issues = findings.find_label_issues(predictions)
    return IntentTestResult(
        settings=settings,
        texts=len(inside),
        in_scope=int(inside.sum()),
        out_of_scope=int((~inside).sum()),
        **_estimate(
            {
                "correct": (is_correct, np.ones_like(inside)),
                "accuracy": (is_best, inside),
                "accepted_accuracy": (is_correct, inside & ~rejected),
                "coverage": (~rejected, np.ones_like(inside)),
                "false_rejection": (rejected, inside),
                "out_of_scope_recall": (rejected, ~inside),
                "out_of_scope_precision": (~inside, rejected),
            }
        ),
        macro_f1=float(np.mean(f1)) if f1 else 0.0,
        intents=results,
        confusions=findings.find_confusions(predictions),
        label_issues=label_issues[: findings.MAX_ENTRIES],
        label_issue_count=len(label_issues),
        rejected=findings.find_rejected(predictions),
        reliability=compute_reliability(predictions.probabilities.max(1)[inside], is_best[inside]),
    )


def _estimate(fractions: dict[str, tuple[Flags, Flags]]) -> dict[str, Any]:
    """Return fractions, each the part of some texts (second) for which something holds (first), with intervals."""
    outcomes = {
        name: Outcome(
            "intents", "test", "", name, np.stack([holds & counted, counted], -1)[None].astype(np.float32), "ratio", 1.0
        )
        for name, (holds, counted) in fractions.items()
        if counted.any()
    }
    intervals = map(confidence_interval, bootstrap_outcomes(list(outcomes.values())))
    estimates = {
        name: Estimate(outcome.value, *interval)
        for (name, outcome), interval in zip(outcomes.items(), intervals, strict=True)
    }
    return {name: estimates.get(name, Estimate(None, None, None)) for name in fractions}


def intent_results(predictions: findings.IntentPredictions) -> tuple[IntentResult, ...]:
    """Return the results of the intents, and of 'out_of_scope', that occur as a label or as a prediction."""
    results = []
    for index, name in enumerate([*predictions.classes, OUT_OF_SCOPE]):
        is_true, is_predicted = predictions.labels == index, predictions.decided == index
        texts, predicted, correct = (int(flags.sum()) for flags in (is_true, is_predicted, is_true & is_predicted))
        if not texts and not predicted:
            continue
        best = predictions.best[is_true & predictions.in_scope]
        confused = np.bincount(best[best != index], minlength=1)
        results.append(
            IntentResult(
                name,
                texts,
                predicted,
                precision=correct / predicted if predicted else None,
                recall=correct / texts if texts else None,
                f1=2 * correct / (texts + predicted) if texts else None,
                rejected=float(predictions.rejected[is_true].mean()) if texts else None,
                confused_with=predictions.classes[int(confused.argmax())] if confused.any() else None,
            )
        )
    return tuple(results)


# ---- files


def write_result(result: IntentTestResult, path: Path | str) -> None:
    """Write a result as JSON (.json) or HTML, or what it suggests from a log as a table (.csv), atomically."""
    path = Path(path)
    if path.suffix == ".csv":
        if result.log is None:
            raise IntentError(f"{path} is for texts of a log: give a log, or write an .html or .json file")
        rows = [(each.text, each.intent, f"{each.probability:.4f}") for each in result.log.suggestions]
        write_atomic(path, csv_text(("text", "intent", "confidence"), rows))
    elif path.suffix == ".json":
        write_atomic(path, json.dumps(asdict(result), indent=2, ensure_ascii=False) + "\n")
    else:
        write_atomic(path, render_result(result))


def render_result(result: IntentTestResult) -> str:
    """Return a result as an HTML page."""
    curve = result.reliability
    bins = list(zip(curve.confidence, curve.accuracy, curve.count, strict=True))
    points = [(100 * confidence, 100 * accuracy) for confidence, accuracy, _ in bins]
    lines = {"measured": points, "perfect calibration": [(0.0, 0.0), (100.0, 100.0)]}
    marks = {"measured": [(x, y, y) for x, y in points]}
    try:
        plot = line_chart(lines, "accuracy", "confidence", percent=True, intervals=marks, legend_outside=True)
    except MissingPackageError as error:
        plot = str(error)
    return render_page(
        "assist/intents/testing.html",
        styles=["core/html/page.css", "assist/intents/testing.css"],
        scripts=["core/html/sortable.js"],
        result=result,
        bins=bins,
        plot=plot,
        percent=lambda value: "–" if value is None else f"{value:.1%}",
    )
