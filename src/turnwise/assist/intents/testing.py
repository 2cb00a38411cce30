"""Testing a fitted intent classifier on labelled texts: accuracy, abstention, confusions and calibration.

Accuracy, false rejection and reliability are about in-scope texts. Precision, recall and confusions are about
decisions: a text on which the classifier abstains is predicted as 'out_of_scope'.
"""

import json
import math
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from turnwise.assist.intents.calibration import Reliability, compute_reliability
from turnwise.assist.intents.classifier import IntentClassifier
from turnwise.assist.intents.examples import IntentPair, validate_pairs
from turnwise.assist.intents.report import reliability_plot
from turnwise.core.dialogue import OUT_OF_SCOPE
from turnwise.core.errors import IntentError
from turnwise.core.files import write_atomic
from turnwise.core.html import render_page
from turnwise.core.progress import Progress, silent
from turnwise.core.text import normalise_text
from turnwise.evaluation.metrics import Outcome, bootstrap_outcomes, confidence_interval
from turnwise.models.vector_cache import encode_distinct

Flags = npt.NDArray[np.bool_]

#: The maximum number of confusions that are listed, and of texts for each.
MAX_CONFUSIONS = 30
_CONFUSION_TEXTS = 3

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


@dataclass(frozen=True, slots=True)
class Misclassification:
    """How often texts of one intent are predicted as another, and the most confident of these texts."""

    intent: str
    predicted: str
    count: int
    texts: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ClassifierTest:
    """The result of testing a classifier."""

    head: str
    requested_false_rejection: float | None  # None: the classifier never abstains
    texts: int
    in_scope: int
    out_of_scope: int
    in_examples: int  # texts that are also examples of the classifier
    examples_excluded: bool  # whether they were left out
    unknown_intents: dict[str, int]  # texts of intents that the classifier does not know, which count as out of scope
    correct: Estimate  # of all texts: the right intent, or rejected if out of scope
    accuracy: Estimate  # of in-scope texts, ignoring abstention
    accepted_accuracy: Estimate  # of accepted in-scope texts
    coverage: Estimate  # the fraction of all texts that are accepted
    false_rejection: Estimate  # the fraction of in-scope texts that are rejected
    out_of_scope_recall: Estimate  # the fraction of out-of-scope texts that are rejected
    out_of_scope_precision: Estimate  # the fraction of rejected texts that are out of scope
    macro_f1: float  # the mean over the intents that have texts
    intents: tuple[IntentResult, ...]
    confusions: tuple[Misclassification, ...]  # the most frequent first
    reliability: Reliability  # of the probabilities of in-scope texts

    def to_json(self) -> dict[str, Any]:
        """Return the result as JSON values."""
        return {**asdict(self), "reliability": self.reliability.to_json()}


def run_test(
    classifier: IntentClassifier,
    texts: Sequence[str],
    intents: Sequence[str],
    *,
    exclude_examples: bool = False,
    unknown_out_of_scope: bool = False,
    progress: Progress = silent,
) -> ClassifierTest:
    """Test a fitted classifier on labelled texts.

    Raise IntentError if no text is left, or an intent has no examples and `unknown_out_of_scope` is not set.

    Args:
        classifier: it is not changed.
        texts: of the intents, or out of scope.
        intents: the intent of each text, or 'out_of_scope'.
        exclude_examples: leave out texts that are examples of the classifier: it is better on them than on new texts.
        unknown_out_of_scope: texts of intents without examples count as out of scope.
        progress: called while texts are encoded.
    """
    pairs = validate_pairs(texts, intents)
    examples = classifier.model_.examples
    unknown = Counter(intent for _, intent in pairs if intent not in {*examples.classes, OUT_OF_SCOPE})
    if unknown and not unknown_out_of_scope:
        raise IntentError(_describe_unknown(unknown))
    example_texts = {normalise_text(text) for text, _ in examples.pairs}
    is_example = [normalise_text(text) in example_texts for text, _ in pairs]
    if exclude_examples:
        pairs = [pair for pair, known in zip(pairs, is_example, strict=True) if not known]
    if not pairs:
        raise IntentError("there is no text to test on: every text is also an example of the classifier")
    pairs = [(text, OUT_OF_SCOPE if intent in unknown else intent) for text, intent in pairs]
    predictions = _predict(classifier, [text for text, _ in pairs], progress)
    truth = np.array([intent for _, intent in pairs])
    inside = truth != OUT_OF_SCOPE
    is_best = predictions.best == truth
    results = _intent_results(truth, predictions.decided, examples.classes)
    scores = [result.f1 or 0.0 for result in results if result.texts and result.intent != OUT_OF_SCOPE]
    return ClassifierTest(
        head=classifier.head_,
        requested_false_rejection=classifier.calibration_.false_rejection,
        texts=len(pairs),
        in_scope=int(inside.sum()),
        out_of_scope=int((~inside).sum()),
        in_examples=sum(is_example),
        examples_excluded=exclude_examples,
        unknown_intents=dict(unknown),
        **_estimate(
            {
                "correct": (predictions.decided == truth, np.ones_like(inside)),
                "accuracy": (is_best, inside),
                "accepted_accuracy": (predictions.decided == truth, inside & ~predictions.rejected),
                "coverage": (~predictions.rejected, np.ones_like(inside)),
                "false_rejection": (predictions.rejected, inside),
                "out_of_scope_recall": (predictions.rejected, ~inside),
                "out_of_scope_precision": (~inside, predictions.rejected),
            }
        ),
        macro_f1=float(np.mean(scores)) if scores else 0.0,
        intents=results,
        confusions=_find_confusions(pairs, predictions),
        reliability=compute_reliability(predictions.confidence[inside], is_best[inside]),
    )


def _describe_unknown(unknown: Counter[str]) -> str:
    names = ", ".join(f"{name!r} ({count:,} texts)" for name, count in unknown.most_common(5))
    more = f" and {len(unknown) - 5:,} more" if len(unknown) > 5 else ""
    return (
        f"the classifier has no examples of {names}{more}: correct the names, remove these texts, or count them as out"
        " of scope (--unknown-out-of-scope)"
    )


@dataclass(frozen=True, slots=True)
class _Predictions:
    """Predictions for texts."""

    best: npt.NDArray[np.str_]  # the most probable intent, ignoring abstention
    confidence: npt.NDArray[np.float64]  # its probability
    decided: npt.NDArray[np.str_]  # the intent, or 'out_of_scope'
    rejected: Flags


def _predict(classifier: IntentClassifier, texts: Sequence[str], progress: Progress) -> _Predictions:
    model, classes = classifier.model_, np.array([*classifier.classes_, OUT_OF_SCOPE])
    best, confidence, decided, rejected = [], [], [], []
    for start in range(0, len(texts), _CHUNK):
        progress("classifying texts", start, len(texts))
        chunk = texts[start : start + _CHUNK]
        vectors = encode_distinct(classifier.encoder_, chunk, normalise=True, max_length=classifier.max_length)
        result = model.score(vectors)
        best.append(result.probabilities.argmax(1))
        confidence.append(result.probabilities.max(1))
        decided.append(np.where(result.abstained, len(classes) - 1, result.order[:, 0]))
        rejected.append(result.abstained)
    progress("classifying texts", len(texts), len(texts))
    return _Predictions(
        classes[np.concatenate(best)],
        np.concatenate(confidence),
        classes[np.concatenate(decided)],
        np.concatenate(rejected),
    )


def _estimate(fractions: dict[str, tuple[Flags, Flags]]) -> dict[str, Estimate]:
    """Return fractions, each the part of some texts (second) for which something holds (first), with intervals."""
    outcomes = {
        name: Outcome(
            "intents", "test", "", name, np.stack([holds & counted, counted], -1)[None].astype(np.float32), "ratio", 1.0
        )
        for name, (holds, counted) in fractions.items()
        if counted.any()
    }
    samples = dict(zip(outcomes, bootstrap_outcomes(list(outcomes.values())), strict=True))
    intervals = {name: confidence_interval(values) for name, values in samples.items()}
    return {
        name: Estimate(outcomes[name].value, *intervals[name]) if name in outcomes else Estimate(None, None, None)
        for name in fractions
    }


def _intent_results(
    truth: npt.NDArray[np.str_], decided: npt.NDArray[np.str_], classes: Sequence[str]
) -> tuple[IntentResult, ...]:
    results = []
    for name in [*classes, OUT_OF_SCOPE]:
        is_true, is_predicted = truth == name, decided == name
        texts, predicted, correct = (int(flags.sum()) for flags in (is_true, is_predicted, is_true & is_predicted))
        precision, recall = correct / predicted if predicted else None, correct / texts if texts else None
        f1 = 2 * correct / (texts + predicted) if texts else None
        if texts or predicted:
            results.append(IntentResult(name, texts, predicted, precision, recall, f1))
    return tuple(results)


def _find_confusions(pairs: Sequence[IntentPair], predictions: _Predictions) -> tuple[Misclassification, ...]:
    rows_of: dict[tuple[str, str], list[int]] = defaultdict(list)
    for row, ((_, intent), predicted) in enumerate(zip(pairs, predictions.decided.tolist(), strict=True)):
        if intent != predicted:
            rows_of[intent, predicted].append(row)
    most_frequent = sorted(rows_of.items(), key=lambda item: (-len(item[1]), item[0]))[:MAX_CONFUSIONS]
    confusions = []
    for (intent, predicted), rows in most_frequent:
        confident = sorted(rows, key=lambda row: -predictions.confidence[row])[:_CONFUSION_TEXTS]
        confusions.append(Misclassification(intent, predicted, len(rows), tuple(pairs[row][0] for row in confident)))
    return tuple(confusions)


# ---- files


def write_test(result: ClassifierTest, path: Path | str) -> None:
    """Write a result as JSON (.json) or as an HTML page, atomically."""
    path = Path(path)
    is_json = path.suffix == ".json"
    write_atomic(
        path, json.dumps(result.to_json(), indent=2, ensure_ascii=False) + "\n" if is_json else render_test(result)
    )


def render_test(result: ClassifierTest) -> str:
    """Return a result as an HTML page."""
    bins, plot = reliability_plot(result.reliability)
    return render_page(
        "assist/intents/testing.html",
        styles=["core/html/page.css", "assist/intents/report.css"],
        scripts=["core/html/sortable.js"],
        result=result,
        bins=bins,
        plot=plot,
        percent=lambda value: "–" if value is None or not math.isfinite(value) else f"{value:.1%}",
    )
