"""What a classifier is fitted on, and with which head, chosen by evidence where there are enough examples.

The heads differ only in how they rank intents: abstention is by similarity with either. So the head is chosen by the
accuracy of the first intent, in cross-validation on the examples: both heads predict the same left-out examples. Names
of intents and a log are used unless left-out examples are predicted clearly better without them.
"""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from turnwise.assist.intents.examples import Indices, IntentExamples, Scores
from turnwise.assist.intents.heads import (
    FOLDS,
    Flags,
    HeadName,
    LogisticHead,
    SimilarityScorer,
    assign_folds,
    cross_validated_logits,
)
from turnwise.assist.intents.log_texts import LabelledLog
from turnwise.core.errors import IntentError
from turnwise.core.types import Vectors

#: The heads that are compared; the second is chosen unless the first is clearly better.
COMPARED_HEADS: tuple[HeadName, HeadName] = ("neighbours", "logistic")

#: With fewer examples per intent on average, cross-validation says little, and defaults are used.
MIN_EXAMPLES_PER_INTENT = 3

#: Folds are evaluated until this many examples have been predicted.
_ENOUGH_PREDICTIONS = 2_000


@dataclass(frozen=True, slots=True)
class HeadSelection:
    """Which head was chosen, and why."""

    head: HeadName
    reason: str  # in one sentence
    accuracy: Mapping[str, float]  # of each head in cross-validation; empty if there was none
    evaluated: int  # the number of examples that were predicted


def select_head(examples: IntentExamples, neighbours: int, seed: int, *, has_log: bool = False) -> HeadSelection:
    """Choose the head for examples; equal examples and seeds give the same choice."""
    if has_log and len(examples.classes) > 1:
        return HeadSelection("logistic", "the head that learns from a log", {}, 0)
    default = selection_without_evaluation(examples)
    if default is not None:
        return default
    correct: dict[str, list[Flags]] = {head: [] for head in COMPARED_HEADS}
    fold_of = assign_folds(examples.labels, FOLDS, seed)
    for fold in range(FOLDS):
        left_out = fold_of == fold
        if left_out.any() and sum(map(len, correct["logistic"])) < _ENOUGH_PREDICTIONS:
            vectors, truth = examples.in_scope_vectors[left_out], examples.labels[left_out]
            seen = examples.select(np.flatnonzero(~left_out)).support
            by_similarity = SimilarityScorer.fit(*seen, neighbours).score(vectors)
            correct["neighbours"].append(by_similarity.argmax(1) == truth)
            correct["logistic"].append(LogisticHead.fit(*seen).logits(vectors).argmax(1) == truth)
    return choose_head({head: np.concatenate(parts) for head, parts in correct.items()})


def selection_without_evaluation(examples: IntentExamples) -> HeadSelection | None:
    """Return the default head if there are too few examples for cross-validation; None if there are enough."""
    intents, count = len(examples.classes), len(examples.labels)
    if intents < 2:
        reason = "there is one intent"
    elif count < MIN_EXAMPLES_PER_INTENT * intents:
        reason = f"there are fewer than {MIN_EXAMPLES_PER_INTENT} examples per intent on average"
    else:
        return None
    return HeadSelection("neighbours", f"the default, because {reason}", {}, 0)


def choose_head(correct: Mapping[str, Flags]) -> HeadSelection:
    """Choose between `COMPARED_HEADS`, given which examples each predicts correctly."""
    first, second = (correct[head] for head in COMPARED_HEADS)
    # the standard deviation of a paired difference of counts is the root of the number of examples that differ
    margin = float(np.sqrt((first != second).sum()))
    head = COMPARED_HEADS[0] if first.sum() - second.sum() > margin else COMPARED_HEADS[1]
    accuracy = {name: float(flags.mean()) for name, flags in correct.items()}
    scores = ", ".join(f"{name} {value:.1%}" for name, value in accuracy.items())
    return HeadSelection(head, f"chosen by cross-validation on {len(first):,} examples: {scores}", accuracy, len(first))


# ---- choosing what to fit on


@dataclass(frozen=True, slots=True)
class ContextSelection:
    """Whether a classifier uses the turns before a text, and why."""

    used: bool
    reason: str  # in one sentence
    accuracy: Mapping[str, float]  # with 'context' and of the text 'alone', in cross-validation; or empty
    evaluated: int  # the number of examples that were predicted


def select_context(alone: IntentExamples, in_context: IntentExamples, seed: int) -> ContextSelection:
    """Choose whether to use context, given the same examples with vectors of texts alone and in context."""
    if selection_without_evaluation(alone) is not None:
        return ContextSelection(True, "not compared, because there are too few examples", {}, 0)
    fold_of = assign_folds(alone.labels, FOLDS, seed)
    rows = fold_of >= 0
    correct = {
        name: cross_validated_logits(examples, fold_of)[rows].argmax(1) == examples.labels[rows]
        for name, examples in (("alone", alone), ("context", in_context))
    }
    accuracy = {name: float(flags.mean()) for name, flags in correct.items()}
    reason = (
        f"compared on {int(rows.sum()):,} examples: {accuracy['context']:.1%} in context, {accuracy['alone']:.1%} alone"
    )
    return ContextSelection(_is_clearly_better(correct, "context", "alone"), reason, accuracy, int(rows.sum()))


@dataclass(frozen=True, slots=True)
class SupportSelection:
    """Whether a classifier uses the names of intents and a log beside its examples, and why."""

    names: int  # the number of names in use
    log_texts: int  # the number of texts of the log in use
    log_size: int  # the number of texts in the whole log
    reason: str  # in one sentence
    accuracy: Mapping[
        str, float
    ]  # with 'examples', also 'names', also the 'log', on left-out examples, weighted by how
    # frequent their intents are in the log; or empty
    evaluated: int  # the number of examples that were predicted

    def describe(self) -> str:
        """Return what is used beside examples, and why, without a full stop."""
        used = [f"the names of {self.names:,} intents"] * bool(self.names)
        if self.log_texts:
            of = f" of {self.log_size:,}" if self.log_size > self.log_texts else ""
            used.append(f"{self.log_texts:,}{of} texts of the log")
        return f"{' and '.join(used) or 'nothing'}, {self.reason}"


@dataclass(frozen=True, slots=True)
class Support:
    """What a classifier is fitted on."""

    examples: IntentExamples
    log: LabelledLog | None
    selection: SupportSelection | None  # None without names and a log
    left_out: tuple[Indices, Scores] | None  # rows of in-scope examples, and their logits by the log without them


def select_support(examples: IntentExamples, log: Vectors | None, log_size: int, seed: int) -> Support:
    """Choose whether to use names and a log, given the vectors of the log's texts."""
    if examples.names is None and log is None:
        return Support(examples, None, None, None)
    left_out = None
    accuracy: dict[str, float] = {}
    rows = np.empty(0, np.int64)
    if selection_without_evaluation(examples) is None:
        rows, logits, frequencies = _left_out_logits(examples, log, seed)
    if len(rows):
        truth = examples.labels[rows]
        correct = {name: each.argmax(1) == truth for name, each in logits.items()}
        weights = frequencies[truth]
        accuracy = {name: float(np.average(flags, weights=weights)) for name, flags in correct.items()}
        if _is_clearly_better(correct, "examples", "names", weights):
            examples = examples.without_names()
        if log is not None and any(_is_clearly_better(correct, name, "log", weights) for name in correct):
            log = None
        left_out = (rows, logits["log"]) if log is not None else None
    labelled = None if log is None else LabelledLog.label(log, examples)
    reason = "not compared, because there are too few examples, or they are too similar"
    if accuracy:
        scores = ", ".join(f"{_DESCRIPTIONS[name]} {value:.1%}" for name, value in accuracy.items())
        reason = f"compared on {len(rows):,} left-out examples: {scores}"
    if labelled is not None and labelled.agreement < _MIN_AGREEMENT:
        doubt = f"two estimates of the log's intents hardly agree (Cohen's kappa {labelled.agreement:.2f})"
        if not len(examples.labels):
            raise IntentError(
                f"{doubt}, so it cannot be used, and names alone cannot be calibrated: add examples, or leave the log "
                "out and set false_rejection=None (--no-log --false-rejection 0)"
            )
        reason = f"without the log, because {doubt}"
        labelled = left_out = None
    names = 0 if examples.names is None else len(examples.names.intents)
    texts = 0 if labelled is None else len(labelled.vectors)
    return Support(examples, labelled, SupportSelection(names, texts, log_size, reason, accuracy, len(rows)), left_out)


#: A log is left out if its labels by both estimates agree less, as Cohen's kappa. On validation data, with up to two
#: examples, that was at least 0.66 for logs that help, also long-tailed or half about other things; at most 0.46 for
#: logs only about other things; and at most 0.45 for ATIS, where one intent has most of the texts.
_MIN_AGREEMENT = 0.5

#: How a reason calls what was compared.
_DESCRIPTIONS = {"examples": "examples alone", "names": "with names", "log": "with the log"}

#: Folds are evaluated until this many examples have been left out.
_ENOUGH_LEFT_OUT = 150


#: The cosine from which examples of an intent are left out together.
_VERY_SIMILAR = 0.8


def _left_out_logits(
    examples: IntentExamples, log: Vectors | None, seed: int
) -> tuple[Indices, dict[str, Scores], Scores]:
    """Return the logits of left-out examples by regressions on the others, their names, and the log.

    Also return their rows, and how frequent each intent is in the log, by the predictions without it; 1 on average.
    """
    fold_of = _assign_folds_of_groups(examples, seed)
    parts: dict[str, list[Scores]] = defaultdict(list)
    every_row: list[int] = []
    counts = np.ones(len(examples.classes))
    for fold in range(FOLDS):
        rows = np.flatnonzero(fold_of == fold)
        if len(every_row) >= _ENOUGH_LEFT_OUT or not len(rows):
            continue
        seen = examples.select(np.flatnonzero(fold_of != fold))
        vectors = examples.in_scope_vectors[rows]
        every_row += rows.tolist()
        without_log: LogisticHead | None = None
        if set(seen.without_names().classes) == set(seen.classes):
            without_log = LogisticHead.fit(*seen.without_names().support)
            parts["examples"].append(without_log.logits(vectors))
        if examples.names is not None:
            without_log = LogisticHead.fit(*seen.support)
            parts["names"].append(without_log.logits(vectors))
        if log is not None:
            labelled = LabelledLog.label(log, seen)
            parts["log"].append(LogisticHead.fit_with_log(*seen.support, labelled).logits(vectors))
            if without_log is not None:
                predicted = without_log.logits(log).argmax(1)
                counts += np.bincount(predicted, labelled.in_scope, minlength=len(counts))
    complete = {name: np.concatenate(each) for name, each in parts.items() if sum(map(len, each)) == len(every_row)}
    return np.array(every_row, np.int64), complete, counts / counts.mean()


def _assign_folds_of_groups(examples: IntentExamples, seed: int) -> Indices:
    """Return the fold of each in-scope example; very similar ones of an intent are in the same fold.

    Otherwise, examples that were labelled as groups would be predicted by each other, with or without a log. The fold
    is -1 where all examples of an intent are very similar.
    """
    group_of = np.arange(len(examples.labels))
    for label in np.unique(examples.labels):
        members = np.flatnonzero(examples.labels == label)
        vectors = examples.in_scope_vectors[members]
        is_similar = vectors @ vectors.T >= _VERY_SIMILAR
        groups = members.copy()
        while not np.array_equal(lowest := np.where(is_similar, groups, len(group_of)).min(1), groups):
            groups = lowest
        group_of[members] = groups
    first = np.unique(group_of)
    folds = np.full(len(group_of), -1, np.int64)
    folds[first] = assign_folds(examples.labels[first], FOLDS, seed)
    return folds[group_of]


def _is_clearly_better(correct: Mapping[str, Flags], first: str, second: str, weights: Scores | None = None) -> bool:
    """Return whether the first predicts more examples correctly than the second, by more than a standard deviation."""
    if first not in correct or second not in correct:
        return False
    differences = correct[first].astype(np.float64) - correct[second]
    if weights is not None:
        differences *= weights
    return bool(differences.sum() > np.sqrt((differences**2).sum()))
