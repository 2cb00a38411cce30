"""Few-shot intent classification by prototypes, as DSE measures it.

For each of ten seeds, 2k utterances an intent are drawn from the training set; the first half is the support, the second a
validation set that this setting leaves alone. A prototype is the mean of its intent's normalised vectors; a test utterance gets the
intent whose prototype has the highest dot product with it (the authors do not normalise prototypes again).
"""

from collections import defaultdict
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from turnwise.evaluation.datasets.intents import IntentData
from turnwise.evaluation.results import Outcome
from turnwise.evaluation.tasks.encoding import SupportsEncode

SHOTS = (1, 5)
SEEDS = 10


def few_shot(labels: Sequence[str], shots: int, seed: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Support and validation examples: min(2k, n) of each label, drawn without replacement; the larger half is the support."""
    random = np.random.default_rng(seed)
    members: dict[str, list[int]] = defaultdict(list)
    for index, label in enumerate(labels):
        members[label].append(index)
    support: list[int] = []
    validation: list[int] = []
    for label in sorted(members):
        drawn = random.permutation(members[label])[: 2 * shots]
        half = (len(drawn) + 1) // 2
        support += drawn[:half].tolist()
        validation += drawn[half:].tolist()
    return np.array(support, np.int64), np.array(validation, np.int64)


def prototypes(vectors: npt.NDArray[np.float32], labels: npt.NDArray[np.int64], classes: int) -> npt.NDArray[np.float32]:
    """The mean vector of each class (classes, size)."""
    sums = np.zeros((classes, vectors.shape[1]), np.float32)
    np.add.at(sums, labels, vectors)
    means: npt.NDArray[np.float32] = (sums / np.bincount(labels, minlength=classes)[:, None]).astype(np.float32)
    return means


def prototype_intents(encoder: SupportsEncode, data: IntentData, shots: Sequence[int] = SHOTS, seeds: int = SEEDS) -> list[Outcome]:
    """Accuracy by prototypes, an outcome a number of shots."""
    intents = data.intents
    number = {intent: index for index, intent in enumerate(intents)}
    labels = [utterance.intent for utterance in data.train]
    drawn = {(count, seed): few_shot(labels, count, seed)[0] for count in shots for seed in range(seeds)}
    # only what some run draws is encoded
    needed = np.unique(np.concatenate(list(drawn.values())))
    train = dict(zip(needed.tolist(), encoder.encode([data.train[index].text for index in needed], normalise=True), strict=True))
    test = encoder.encode([utterance.text for utterance in data.test], normalise=True)
    truth = np.array([number[utterance.intent] for utterance in data.test])
    outcomes = []
    for count in shots:
        right = np.empty((seeds, len(truth)))
        for seed in range(seeds):
            support = drawn[count, seed]
            vectors = np.stack([train[index] for index in support.tolist()])
            classes = np.array([number[labels[index]] for index in support])
            right[seed] = (test @ prototypes(vectors, classes, len(intents)).T).argmax(1) == truth
        outcomes.append(Outcome("intents", data.name, f"{count}-shot prototypes", "accuracy", right))
    return outcomes
