"""Abstention: does an `IntentClassifier` turn away as many in-scope utterances as was named, and what does it find for that?

For each of ten seeds k utterances an intent are drawn as for few-shot intents. The classifier is fitted and calibrated on these
alone: it sees neither a validation nor a test utterance. Then it decides on the test set, in-scope and out-of-scope utterances.

Beside it stand DSE's two thresholds (the mean, and the mean less the standard deviation, of the test utterances' highest
similarities) as they are. They turn away more than a user would name, so that out-of-scope recall is compared at equal rates of
false rejection, too: DSE's similarity with its threshold moved until it turns away as many in-scope utterances as ours does (which
of the two thresholds is moved makes no difference then), and ours moved to the rates of DSE's thresholds. Moving looks at the
labels of the test set: it is a comparison of scores, not a way to choose a threshold.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from turnwise.assist.intents.classifier import IntentClassifier
from turnwise.core.progress import Progress, silent
from turnwise.core.types import SupportsEncode
from turnwise.evaluation.datasets.dataset import DatasetError
from turnwise.evaluation.datasets.intents import IntentData
from turnwise.evaluation.outcomes import FALSE_REJECTION, Outcome
from turnwise.evaluation.tasks.distinct import encode_distinct
from turnwise.evaluation.tasks.intents import (
    MAX_LENGTH,
    SEEDS,
    Indices,
    Vectors,
    few_shot,
    highest,
    numbered,
    prototypes,
)
from turnwise.evaluation.tasks.scope import Flags, decisions, paper_thresholds, within

SHOTS = (5,)

#: What is measured, by the name that results have for it: settings of the classifier. Prototypes are neighbours where an intent has
#: no more examples than neighbours are counted.
WAYS: Mapping[str, Mapping[str, Any]] = {
    "neighbours": {"head": "neighbours"},
    "neighbours, a threshold an intent": {"head": "neighbours", "per_intent": True},
    "logistic": {"head": "logistic"},
}

#: What is told of DSE's metrics.
_METRICS = ("Accuracy", "In-Accuracy", "OOS-Recall")

#: The way that is compared with DSE's thresholds, and that out-of-scope examples are tried with: what users get unless they ask.
_COMPARED = "neighbours"


@dataclass(frozen=True, slots=True)
class _Decided:
    """What was decided on the test utterances, those in scope first.

    Attributes:
        right: whether their own intent is the best guess, for those in scope.
        rejected: whether they are turned away.
    """

    right: Flags
    rejected: Flags


@dataclass(frozen=True, slots=True)
class _Drawn:
    """One draw: vectors and truth, whatever is done with them."""

    texts: Sequence[str]
    intents: Sequence[str]
    support: Vectors
    test_texts: Sequence[str]
    test: Vectors
    truth: Sequence[str]


def abstain(
    encoder: SupportsEncode,
    data: IntentData,
    *,
    shots: Sequence[int] = SHOTS,
    seeds: int = SEEDS,
    false_rejection: float = 0.05,
    ways: Mapping[str, Mapping[str, Any]] = WAYS,
    progress: Progress = silent,
) -> list[Outcome]:
    """The share of in-scope test utterances that is turned away, and DSE's metrics, for each number of shots and way.

    Where a data set has out-of-scope training utterances, one way is also calibrated with them.

    Args:
        encoder: gives the vectors.
        data: the utterances, with out-of-scope ones.
        shots: k.
        seeds: how many draws.
        false_rejection: the rate that is named.
        ways: settings of the classifier by name.
        progress: told how many draws are done.

    Raises:
        DatasetError: if a data set has no out-of-scope test utterances, or no second example of any intent to calibrate on.
    """
    if not data.out_of_scope.test:
        raise DatasetError(
            f"{data.name} has no out-of-scope utterances: take a data set that has them, such as clinc150"
        )
    labels = [utterance.intent for utterance in data.train]
    if len(set(labels)) == len(labels):
        raise DatasetError(f"{data.name} has no second example of any intent to calibrate on")
    train = [utterance.text for utterance in data.train]
    asked = [*(utterance.text for utterance in data.test), *data.out_of_scope.test]
    vectors, rows = encode_distinct(encoder, [*train, *asked], MAX_LENGTH)
    classes, truth = numbered(data.train, data.test)
    intents = [utterance.intent for utterance in data.test]
    outcomes: list[Outcome] = []
    for turn, count in enumerate(shots):
        found: dict[str, list[_Decided]] = defaultdict(list)
        for seed in range(seeds):
            progress(f"abstaining on {data.name}", turn * seeds + seed, len(shots) * seeds)
            support = few_shot(labels, count, seed)[0]
            drawn = _Drawn(
                [train[row] for row in support],
                [labels[row] for row in support],
                vectors[rows[support]],
                asked,
                vectors[rows[len(train) :]],
                intents,
            )
            centres = prototypes(drawn.support, classes[support], classes.max() + 1)
            for setting, decided in _run(encoder, drawn, data, centres, truth, false_rejection, ways).items():
                found[f"{count}-shot {setting}"].append(decided)
        for setting, runs in found.items():
            outcomes += _outcomes(data.name, setting, runs)
    return outcomes


def _run(
    encoder: SupportsEncode,
    drawn: _Drawn,
    data: IntentData,
    centres: Vectors,
    truth: Indices,
    false_rejection: float,
    ways: Mapping[str, Mapping[str, Any]],
) -> dict[str, _Decided]:
    """What one draw says, by setting."""
    named = f"{false_rejection:.0%} named"
    similarities = drawn.test @ centres.T
    maxima, right = similarities.max(1), highest(similarities[: len(truth)], truth)
    theirs = {name: _Decided(right, maxima < threshold) for name, threshold in paper_thresholds(maxima).items()}
    found = {}
    for name, settings in ways.items():
        ours, scores = _classified(encoder, drawn, (), false_rejection, settings)
        found[f"{name}, {named}"] = ours
        if name == _COMPARED:
            found[f"DSE's similarity, moved to the false rejection of {name}"] = _Decided(right, _moved(maxima, ours))
            for threshold, decided in theirs.items():
                found[f"DSE's threshold {threshold}"] = decided
                found[f"{name}, moved to the false rejection of DSE's {threshold}"] = _Decided(
                    ours.right, _moved(scores, decided)
                )
            if data.out_of_scope.train:
                found[f"{name}, {named}, with out-of-scope examples"] = _classified(
                    encoder, drawn, data.out_of_scope.train, false_rejection, settings
                )[0]
    return found


def _classified(
    encoder: SupportsEncode,
    drawn: _Drawn,
    out_of_scope: Sequence[str],
    false_rejection: float,
    settings: Mapping[str, Any],
) -> tuple[_Decided, npt.NDArray[np.float64]]:
    """What a classifier decides, and the scores of its best guesses."""
    classifier = IntentClassifier(encoder, false_rejection=false_rejection, max_length=MAX_LENGTH, **settings)
    classifier.fit(drawn.texts, drawn.intents, out_of_scope=out_of_scope, vectors=drawn.support)
    found = classifier.decide(drawn.test_texts, neighbours=0, vectors=drawn.test)
    right = [decision.ranked[0].intent == intent for decision, intent in zip(found, drawn.truth, strict=False)]
    rejected = [decision.abstained for decision in found]
    return _Decided(np.array(right), np.array(rejected)), np.array([decision.score for decision in found])


def _moved(scores: npt.NDArray[np.floating], like: _Decided) -> Flags:
    """What is turned away where as many of those in scope are as somebody else turns away; equal scores go together."""
    in_scope = len(like.right)
    count = int(like.rejected[:in_scope].sum())
    threshold = np.sort(scores[:in_scope])[count] if count < in_scope else np.inf
    return np.asarray(scores < threshold)


def _outcomes(dataset: str, setting: str, runs: Sequence[_Decided]) -> list[Outcome]:
    right, rejected = np.stack([run.right for run in runs]), np.stack([run.rejected for run in runs])
    inside = within(rejected, right.shape[1])
    wrongly = np.stack([rejected & inside, inside], -1).astype(np.float32)
    rate = Outcome("abstention", dataset, setting, FALSE_REJECTION, wrongly, "ratio")
    return [
        rate,
        *(each for each in decisions("abstention", dataset, setting, right, rejected) if each.metric in _METRICS),
    ]
