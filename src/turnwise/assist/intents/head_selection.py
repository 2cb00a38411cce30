"""Choosing the head of a classifier by cross-validation on its examples.

The heads differ only in how they rank intents: abstention is by similarity with either. So the accuracy of the first
intent decides. Both heads predict the same left-out examples, from the same vectors.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from turnwise.assist.intents.examples import IntentExamples
from turnwise.assist.intents.model import (
    FOLDS,
    HeadName,
    IntentSettings,
    LogisticHead,
    SimilarityScorer,
    assign_folds,
)

Flags = npt.NDArray[np.bool_]

#: The heads that are compared; the second is chosen unless the first is clearly better.
COMPARED_HEADS: tuple[HeadName, HeadName] = ("neighbours", "logistic")

#: With fewer examples per intent on average, cross-validation says little, and `neighbours` is used.
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


def select_head(examples: IntentExamples, settings: IntentSettings) -> tuple[IntentSettings, HeadSelection | None]:
    """Return settings with a head instead of 'auto', and how it was chosen (None: it was given).

    Equal examples and seeds give the same choice.
    """
    if settings.head != "auto":
        return settings, None
    selection = selection_without_evaluation(examples)
    if selection is None:
        correct: dict[str, list[Flags]] = {head: [] for head in COMPARED_HEADS}
        fold_of, evaluated = assign_folds(examples.labels, FOLDS, settings.seed), 0
        for fold in range(FOLDS):
            left_out = fold_of == fold
            if not left_out.any() or evaluated >= _ENOUGH_PREDICTIONS:
                continue
            vectors, labels = examples.in_scope_vectors, examples.labels
            seen, truth = (vectors[~left_out], labels[~left_out]), labels[left_out]
            scores = {
                "neighbours": SimilarityScorer.fit(*seen, settings.neighbours).score(vectors[left_out]),
                "logistic": LogisticHead.fit(*seen).logits(vectors[left_out]),
            }
            for head in COMPARED_HEADS:
                correct[head].append(scores[head].argmax(1) == truth)
            evaluated += len(truth)
        selection = choose_head({head: np.concatenate(parts) for head, parts in correct.items()})
    return replace(settings, head=selection.head), selection


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
