"""F1 where an example may have several labels, or none."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from sklearn.preprocessing import MultiLabelBinarizer

from turnwise.evaluation.metrics import Outcome

Flags = npt.NDArray[np.bool_]


def flags(examples: Sequence[Sequence[str]], labels: Sequence[str]) -> Flags:
    """Which labels each example has (examples, labels)."""
    found: Flags = MultiLabelBinarizer(classes=list(labels)).fit_transform(examples).astype(bool)
    return found


def f1_scores(predicted: Flags, truth: Flags) -> tuple[float, float]:
    """Micro and Macro F1 of predictions, both (examples, labels); 0 where nothing is asked for and nothing given."""
    above, below = 2 * (predicted & truth).sum(0), predicted.sum(0) + truth.sum(0)
    return float(above.sum() / max(1, below.sum())), float((above / np.maximum(1, below)).mean())


def f1_outcomes(task: str, dataset: str, setting: str, predicted: Flags, truth: Flags) -> list[Outcome]:
    """Micro F1, of all decisions together, and Macro F1, the mean over labels; a label neither asked for nor given counts as 0.

    Args:
        task: for the results.
        dataset: for the results.
        setting: for the results.
        predicted: (runs, examples, labels).
        truth: (examples, labels).
    """
    # F1 = 2 TP / (2 TP + FP + FN): a ratio of sums, so that numerator and denominator are kept for each example
    parts = np.stack([2 * (predicted & truth), predicted.astype(np.int64) + truth], -1).astype(np.float32)
    micro, macro = parts.sum(2), parts.reshape(*parts.shape[:2], -1)
    return [
        Outcome(task, dataset, setting, "Micro F1", micro, "ratio"),
        Outcome(task, dataset, setting, "Macro F1", macro, "macro ratio"),
    ]
