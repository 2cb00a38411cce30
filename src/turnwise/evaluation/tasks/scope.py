"""Out-of-scope detection by prototypes, as DSE measures it.

A test utterance that is less similar to its most similar prototype than a threshold is out of scope; otherwise it gets that
prototype's intent. The paper's thresholds are the mean, and the mean less the standard deviation, of these highest similarities
over the test utterances themselves: no label is looked at, but the test set is, and its share of out-of-scope utterances moves the
threshold. So there is one more, which looks at in-scope validation utterances alone, and figures that need no threshold: AUROC and
FPR95 of the highest similarity, with in-scope as the positive class (FPR95: the share of out-of-scope utterances that are let in
where 95% of the in-scope ones are).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from turnwise.core.types import SupportsEncode
from turnwise.evaluation.datasets.dataset import DatasetError
from turnwise.evaluation.datasets.intents import OUT_OF_SCOPE, IntentData
from turnwise.evaluation.metrics import Outcome
from turnwise.evaluation.tasks.intents import (
    MAX_LENGTH,
    SEEDS,
    SHOTS,
    Indices,
    Vectors,
    few_shot,
    highest,
    numbered,
    prototypes,
)
from turnwise.models.vector_cache import encode_unique

Flags = npt.NDArray[np.bool_]


def detect_out_of_scope(
    encoder: SupportsEncode,
    data: IntentData,
    *,
    shots: Sequence[int] = SHOTS,
    seeds: int = SEEDS,
    false_rejection: float = 0.05,
    authors: bool = False,
) -> list[Outcome]:
    """Accuracy, In-Accuracy, OOS-Accuracy, OOS-Recall and their mean, for each number of shots and threshold; AUROC and FPR95.

    Accuracy is over all test utterances, out-of-scope as one more class; In-Accuracy over those in scope; OOS-Accuracy is that of
    the decision between in and out, over all; OOS-Recall the share of out-of-scope utterances that are found.

    Args:
        encoder: gives the vectors.
        data: the utterances, with out-of-scope ones.
        shots: k; supports are drawn as for intent classification.
        seeds: how many draws.
        false_rejection: the share of the in-scope validation utterances of a draw that the 'threshold from validation' turns away.
        authors: as in the authors' code instead: out-of-scope has a prototype of its own, from its training utterances; the
            similarities of a test utterance to all prototypes are scaled to length 1; and what is equal to the threshold is out of
            scope too. The paper's two thresholds alone.

    Raises:
        DatasetError: if a data set has no out-of-scope test utterances (or training ones, for the authors' way), or nothing to
            validate on.
    """
    if not data.out_of_scope.test or (authors and not data.out_of_scope.train):
        raise DatasetError(
            f"{data.name} has no out-of-scope utterances: take a data set that has them, such as clinc150"
        )
    labelled = data.with_out_of_scope() if authors else data
    labels = [utterance.intent for utterance in labelled.train]
    classes, truth = numbered(labelled.train, data.test)
    texts = [*(utterance.text for utterance in (*labelled.train, *data.test)), *data.out_of_scope.test]
    vectors, rows = encode_unique(encoder, texts, MAX_LENGTH)
    train, test = vectors[rows[: len(labels)]], vectors[rows[len(labels) :]]
    outcomes = []
    for count in shots:
        runs = []
        for seed in range(seeds):
            support, validation = few_shot(labels, count, seed)
            centres = prototypes(train[support], classes[support], classes.max() + 1)
            if authors:
                runs.append(_authors_run(test, centres, truth, sorted(set(labels)).index(OUT_OF_SCOPE)))
            else:
                runs.append(_run(test, centres, truth, train[validation], false_rejection, data.name))
        for threshold in runs[0].rejected:
            setting = f"{count}-shot, threshold {threshold}" + (", as in the authors' code" if authors else "")
            rejected = np.stack([run.rejected[threshold] for run in runs])
            outcomes += decisions("out-of-scope", data.name, setting, np.stack([run.right for run in runs]), rejected)
        if not authors:
            outcomes += _scores(
                data.name, f"{count}-shot, any threshold", np.stack([run.maxima for run in runs]), len(truth)
            )
    return outcomes


@dataclass(frozen=True, slots=True)
class _Run:
    """What one draw says of the test utterances.

    Attributes:
        maxima: highest similarities.
        right: whether it is their own intent's alone, for those in scope.
        rejected: what each threshold turns away.
    """

    maxima: npt.NDArray[np.float32]
    right: Flags
    rejected: dict[str, Flags]


def _run(
    test: Vectors, centres: Vectors, truth: Indices, validation: Vectors, false_rejection: float, dataset: str
) -> _Run:
    if not len(validation):
        raise DatasetError(f"{dataset} has no second example of any intent to take a threshold from")
    similarities = test @ centres.T
    maxima = similarities.max(1)
    validated = float(np.quantile((validation @ centres.T).max(1), false_rejection))
    thresholds = {**paper_thresholds(maxima), "from validation": validated}
    rejected = {name: maxima < threshold for name, threshold in thresholds.items()}
    return _Run(maxima, highest(similarities[: len(truth)], truth), rejected)


def _authors_run(test: Vectors, centres: Vectors, truth: Indices, out_of_scope: int) -> _Run:
    similarities = test @ centres.T
    similarities /= np.linalg.norm(similarities, axis=1, keepdims=True)
    maxima, outside = similarities.max(1), similarities.argmax(1) == out_of_scope
    rejected = {name: outside | (maxima <= threshold) for name, threshold in paper_thresholds(maxima).items()}
    return _Run(maxima, highest(similarities[: len(truth)], truth), rejected)


def paper_thresholds(maxima: npt.NDArray[np.float32]) -> dict[str, float]:
    """The paper's: of all test utterances together."""
    mean, spread = float(maxima.mean(dtype=np.float64)), float(maxima.std(dtype=np.float64))
    return {"mean-std": mean - spread, "mean": mean}


def decisions(task: str, dataset: str, setting: str, nearest: Flags, rejected: Flags) -> list[Outcome]:
    """The paper's metrics of (runs, utterances), those in scope first; `nearest`: whether their own intent is nearest to them."""
    in_scope = nearest.shape[1]
    inside = within(rejected, in_scope)
    right = rejected.copy()
    right[:, :in_scope] = ~rejected[:, :in_scope] & nearest
    pairs = [(right, np.ones_like(inside)), (right & inside, inside)]
    pairs += [(rejected != inside, np.ones_like(inside)), (rejected & ~inside, ~inside)]
    accuracy, in_accuracy, oos_accuracy, oos_recall = (np.stack(pair, -1).astype(np.float32) for pair in pairs)
    return [
        Outcome(task, dataset, setting, "Accuracy", accuracy[..., 0]),
        Outcome(task, dataset, setting, "In-Accuracy", in_accuracy, "ratio"),
        Outcome(task, dataset, setting, "OOS-Accuracy", oos_accuracy[..., 0]),
        Outcome(task, dataset, setting, "OOS-Recall", oos_recall, "ratio"),
        Outcome(
            task,
            dataset,
            setting,
            "Ave.",
            np.concatenate([accuracy, in_accuracy, oos_accuracy, oos_recall], -1),
            "macro ratio",
        ),
    ]


def _scores(dataset: str, setting: str, maxima: npt.NDArray[np.float32], in_scope: int) -> list[Outcome]:
    evidence = np.stack([maxima, within(maxima, in_scope)], -1)
    return [
        Outcome("out-of-scope", dataset, setting, "AUROC", evidence, "auroc"),
        Outcome("out-of-scope", dataset, setting, "FPR95", evidence, "fpr95"),
    ]


def within(like: npt.NDArray[Any], in_scope: int) -> Flags:
    """Which utterances are in scope: the first so many of every run."""
    return np.broadcast_to(np.arange(like.shape[1]) < in_scope, like.shape)
