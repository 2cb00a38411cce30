"""Metrics of ranked candidates and multi-label predictions; ties and undefined scores count against a model."""

from collections.abc import Sequence
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import torch
from sklearn.preprocessing import MultiLabelBinarizer

from turnwise.evaluation.metrics import Outcome

Ranks = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]


# ---- ranking; `ranks` are those of the correct candidates of one context, best first


def correct_ranks(scores: npt.NDArray[np.floating[Any]], labels: Flags) -> Ranks:
    """Return the ranks (from 1) of the correct candidates of one context, best first."""
    worst = np.where(labels, -np.inf, np.inf)
    defined = np.where(np.isnan(scores), worst, scores)
    return cast(Ranks, np.flatnonzero(labels[np.lexsort((labels, -defined))]) + 1)


def single_correct_ranks(
    correct: npt.NDArray[np.floating[Any]], scores: npt.NDArray[np.floating[Any]], wrong: Flags
) -> Ranks:
    """Return the rank of each question's correct candidate, whose score is given, among those that are wrong."""
    return cast(Ranks, 1 + (wrong & ~(scores < correct[:, None])).sum(1))


def average_precision(ranks: Ranks) -> float:
    """Return the mean precision at the ranks of the correct candidates."""
    return float((np.arange(1, len(ranks) + 1) / ranks).mean())


def reciprocal_rank(ranks: Ranks) -> float:
    """Return the reciprocal rank of the best correct candidate."""
    return 1 / float(ranks[0])


def recall_at(ranks: Ranks, cutoff: int) -> float:
    """Return the proportion of correct candidates among the first `cutoff`."""
    return float((ranks <= cutoff).mean())


# ---- classification, and several labels, or none, per example


def accuracy(logits: torch.Tensor, targets: torch.Tensor) -> float:
    """Return the proportion of examples whose highest logit (examples, classes) is that of their target (examples,)."""
    return float((logits.argmax(1) == targets).float().mean())


def binarise_labels(examples: Sequence[Sequence[str]], labels: Sequence[str]) -> Flags:
    """Return which labels each example has (examples, labels)."""
    flags: Flags = MultiLabelBinarizer(classes=list(labels)).fit_transform(examples).astype(bool)
    return flags


def f1_scores(predicted: Flags, truth: Flags) -> tuple[float, float]:
    """Return micro and macro F1 of (examples, labels); 0 where a label neither occurs nor is predicted."""
    numerator, denominator = 2 * (predicted & truth).sum(0), predicted.sum(0) + truth.sum(0)
    micro = numerator.sum() / max(1, denominator.sum())
    return float(micro), float((numerator / np.maximum(1, denominator)).mean())


def logit_f1_scores(logits: torch.Tensor, targets: torch.Tensor) -> tuple[float, float]:
    """Return micro and macro F1 of labels whose sigmoid is above 0.5."""
    return f1_scores((logits > 0).cpu().numpy(), (targets > 0).cpu().numpy())


def f1_outcomes(task: str, dataset: str, setting: str, predicted: Flags, truth: Flags) -> list[Outcome]:
    """Return micro and macro F1 of predictions (runs, examples, labels) with the true labels (examples, labels)."""
    # F1 = 2 TP / (2 TP + FP + FN): a ratio of sums, so that numerator and denominator are kept for each example
    parts = np.stack([2 * (predicted & truth), predicted.astype(np.int64) + truth], -1).astype(np.float32)
    micro, macro = parts.sum(2), parts.reshape(*parts.shape[:2], -1)
    return [
        Outcome(task, dataset, setting, "Micro F1", micro, "ratio"),
        Outcome(task, dataset, setting, "Macro F1", macro, "macro ratio"),
    ]
