"""Out-of-scope detection by prototypes, as DSE evaluates it.

A test utterance whose highest similarity to a prototype is below a threshold is out of scope; otherwise it gets that
prototype's intent. The paper's thresholds are the mean, and the mean minus the standard deviation, of these highest
similarities over the test utterances themselves. One more threshold comes from in-scope validation utterances; AUROC
and FPR95 of the highest similarity need none, with in-scope as the positive class.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from turnwise.core.dialogue import OUT_OF_SCOPE
from turnwise.core.errors import DatasetError
from turnwise.core.types import SupportsEncode
from turnwise.evaluation.datasets.intents import IntentData
from turnwise.evaluation.metrics import Outcome
from turnwise.evaluation.tasks.intents import (
    MAX_LENGTH,
    SEEDS,
    SHOTS,
    Flags,
    compute_prototypes,
    is_highest,
    mean_vectors,
    number_intents,
    sample_few_shot_runs,
)
from turnwise.models.vector_cache import encode_distinct


def detect_out_of_scope(
    encoder: SupportsEncode,
    data: IntentData,
    *,
    shots: Sequence[int] = SHOTS,
    seeds: int = SEEDS,
    false_rejection: float = 0.05,
    authors: bool = False,
) -> list[Outcome]:
    """Compute Accuracy, In-Accuracy, OOS-Accuracy, OOS-Recall and their mean by shots and threshold; AUROC, FPR95.

    Accuracy is over all test utterances, with out-of-scope as one more class; In-Accuracy over those in scope;
    OOS-Accuracy is that of the decision between in and out of scope; OOS-Recall the proportion of out-of-scope
    utterances that are rejected. The 'threshold from validation' rejects a proportion of in-scope validation utterances
    (`false_rejection`).

    With `authors`, as in the authors' code, out-of-scope has its own prototype, from its training utterances;
    prototypes are not scaled to length 1, but the products of a test utterance with all of them are; what equals the
    threshold is rejected too; and there are only the paper's two thresholds.
    """
    if not data.out_of_scope.test or (authors and not data.out_of_scope.train):
        raise DatasetError(
            f"{data.name} has no out-of-scope utterances: take a data set that has them, such as clinc150"
        )
    labelled = data.with_out_of_scope() if authors else data
    labels = [example.intent for example in labelled.train]
    classes, truth = number_intents(labelled.train, data.test)
    texts = [*(example.text for example in (*labelled.train, *data.test)), *data.out_of_scope.test]
    vectors = encode_distinct(encoder, texts, normalise=True, max_length=MAX_LENGTH)
    train, test = vectors[: len(labels)], vectors[len(labels) :]
    samples = sample_few_shot_runs(labels, shots, range(seeds))
    outcomes = []
    for count in shots:
        # highest similarities, whether the true intent's alone is highest, and which utterances each threshold rejects
        runs: list[tuple[npt.NDArray[np.float32], Flags, dict[str, Flags]]] = []
        for seed in range(seeds):
            support, validation = samples[count, seed]
            compute = mean_vectors if authors else compute_prototypes
            prototypes = compute(train[support], classes[support], classes.max() + 1)
            similarities = test @ prototypes.T
            if authors:
                similarities /= np.linalg.norm(similarities, axis=1, keepdims=True)
                outside = similarities.argmax(1) == sorted(set(labels)).index(OUT_OF_SCOPE)
                highest = similarities.max(1)
                thresholds = paper_thresholds(highest)
                rejected = {name: outside | (highest <= threshold) for name, threshold in thresholds.items()}
            elif not len(validation):
                raise DatasetError(f"{data.name} has no second example of any intent to take a threshold from")
            else:
                highest = similarities.max(1)
                held_out = (train[validation] @ prototypes.T).max(1)
                thresholds = {
                    **paper_thresholds(highest),
                    "from validation": float(np.quantile(held_out, false_rejection)),
                }
                rejected = {name: highest < threshold for name, threshold in thresholds.items()}
            runs.append((highest, is_highest(similarities[: len(truth)], truth), rejected))
        correct = np.stack([each for _, each, _ in runs])
        for threshold in runs[0][2]:
            setting = f"{count}-shot, threshold {threshold}" + (", as in the authors' code" if authors else "")
            decisions = np.stack([each[threshold] for _, _, each in runs])
            outcomes += scope_outcomes("out-of-scope", data.name, setting, correct, decisions)
        if not authors:
            scores = np.stack([each for each, _, _ in runs])
            evidence = np.stack([scores, in_scope_mask(scores, len(truth))], -1)
            setting = f"{count}-shot, any threshold"
            outcomes.append(Outcome("out-of-scope", data.name, setting, "AUROC", evidence, "auroc"))
            outcomes.append(Outcome("out-of-scope", data.name, setting, "FPR95", evidence, "fpr95"))
    return outcomes


def paper_thresholds(similarities: npt.NDArray[np.float32]) -> dict[str, float]:
    """Return the paper's thresholds, from all test utterances."""
    mean, std = float(similarities.mean(dtype=np.float64)), float(similarities.std(dtype=np.float64))
    return {"mean-std": mean - std, "mean": mean}


def scope_outcomes(task: str, dataset: str, setting: str, correct: Flags, rejected: Flags) -> list[Outcome]:
    """Return the paper's metrics; `rejected` has the utterances in scope first, for which alone `correct` is."""
    count = correct.shape[1]
    in_scope = in_scope_mask(rejected, count)
    right = rejected.copy()
    right[:, :count] = ~rejected[:, :count] & correct
    ratios = [(right, np.ones_like(in_scope)), (right & in_scope, in_scope)]
    ratios += [(rejected != in_scope, np.ones_like(in_scope)), (rejected & ~in_scope, ~in_scope)]
    accuracy, in_accuracy, oos_accuracy, oos_recall = (np.stack(pair, -1).astype(np.float32) for pair in ratios)
    mean = np.concatenate([accuracy, in_accuracy, oos_accuracy, oos_recall], -1)
    return [
        Outcome(task, dataset, setting, "Accuracy", accuracy[..., 0]),
        Outcome(task, dataset, setting, "In-Accuracy", in_accuracy, "ratio"),
        Outcome(task, dataset, setting, "OOS-Accuracy", oos_accuracy[..., 0]),
        Outcome(task, dataset, setting, "OOS-Recall", oos_recall, "ratio"),
        Outcome(task, dataset, setting, "Ave.", mean, "macro ratio"),
    ]


def in_scope_mask(like: npt.NDArray[Any], count: int) -> Flags:
    """Return which utterances (runs, utterances) are in scope: the first `count` of every run."""
    return np.broadcast_to(np.arange(like.shape[1]) < count, like.shape)
