"""Intent classification on frozen vectors: by few-shot prototypes, nearest neighbours, or logistic regression.

Prototypes are DSE's protocol. For each of ten seeds, 2k utterances per intent are sampled from the training set; the
first half is the support set, the second a validation set that this setting does not use. A prototype is the mean of
its intent's normalised vectors; a test utterance gets the intent whose prototype has the highest dot product with it
(the authors do not normalise prototypes again); ties count as wrong.

Nearest neighbours are TaDSE's: the whole training set, and its templates if it has any, by cosine.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import product
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.linear_model import LogisticRegression

from turnwise.core.errors import DatasetError
from turnwise.core.types import SupportsEncode, Vectors
from turnwise.evaluation.datasets.intents import IntentData, IntentUtterance
from turnwise.evaluation.metrics import Outcome
from turnwise.models.vector_cache import encode_unique

SHOTS = (1, 5)
SEEDS = 10

DOT_PRODUCT = "mean vectors, dot product"  # the setting of the authors' similarity, after the number of shots
MAX_LENGTH = 64  # maximum tokens of an utterance
REGULARISATION = (1.0, 10.0, 100.0)  # inverse regularisation strengths to choose from, the strongest first
_ROUNDING = 1e-5  # maximum difference of normalised vectors of one input due to rounding
_MAX_SIMILARITIES = 20_000_000  # maximum number of similarities in memory

Indices = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]


def encode_examples(
    encoder: SupportsEncode, examples: Sequence[IntentUtterance], max_length: int = MAX_LENGTH
) -> tuple[Vectors, Indices]:
    """Return normalised vectors and each example's row; equal texts share one, unless the encoder uses their slots."""
    inputs = [example.input for example in examples]
    vectors, rows = encode_unique(encoder, inputs, normalise=True, max_length=max_length)
    rows_of_text: dict[str, dict[int, int]] = defaultdict(dict)
    for row, example in zip(rows.tolist(), examples, strict=True):
        others = rows_of_text[example.text]
        if row not in others:
            equal = (
                other for other in others.values() if np.allclose(vectors[row], vectors[other], rtol=0, atol=_ROUNDING)
            )
            others[row] = next(equal, row)
    shared = [rows_of_text[example.text][row] for row, example in zip(rows.tolist(), examples, strict=True)]
    return vectors, np.array(shared, np.int64)


def number_intents(train: Sequence[IntentUtterance], test: Sequence[IntentUtterance]) -> tuple[Indices, Indices]:
    """Return the intents of both as indices of the sorted training intents; others are -1, which is never predicted."""
    index = {intent: number for number, intent in enumerate(sorted({example.intent for example in train}))}
    return (
        np.array([index[example.intent] for example in train], np.int64),
        np.array([index.get(example.intent, -1) for example in test], np.int64),
    )


def _group_by_label(labels: Sequence[str | Sequence[str]]) -> list[list[int]]:
    """Return the indices of each label's examples, labels sorted."""
    members: dict[str, list[int]] = defaultdict(list)
    for index, own in enumerate(labels):
        for label in {own} if isinstance(own, str) else set(own):
            members[label].append(index)
    return [members[label] for label in sorted(members)]


def sample_few_shot(labels: Sequence[str | Sequence[str]], shots: int, seed: int) -> tuple[Indices, Indices]:
    """Sample 2k examples of each label that earlier ones have not sampled: half as support, half for validation."""
    return sample_few_shot_runs(labels, (shots,), [seed])[shots, seed]


def sample_few_shot_runs(
    labels: Sequence[str | Sequence[str]], shots: Sequence[int], seeds: Iterable[int]
) -> dict[tuple[int, int], tuple[Indices, Indices]]:
    """Return `sample_few_shot` for each number of shots and each seed."""
    groups = _group_by_label(labels)
    runs = {}
    for count, seed in product(shots, seeds):
        random = np.random.default_rng(seed)
        used: set[int] = set()
        support: list[int] = []
        validation: list[int] = []
        for members in groups:
            sample = [row for row in random.permutation(members)[: 2 * count].tolist() if row not in used]
            used.update(sample)
            half = (len(sample) + 1) // 2
            support += sample[:half]
            validation += sample[half:]
        runs[count, seed] = np.array(support, np.int64), np.array(validation, np.int64)
    return runs


def mean_vectors(vectors: Vectors, labels: Indices, classes: int) -> Vectors:
    """Return the mean vector of each class (classes, size)."""
    sums = np.zeros((classes, vectors.shape[1]), np.float32)
    np.add.at(sums, labels, vectors)
    means: Vectors = (sums / np.bincount(labels, minlength=classes)[:, None]).astype(np.float32)
    return means


def compute_prototypes(vectors: Vectors, labels: Indices, classes: int) -> Vectors:
    """Return the mean vector of each class, scaled to length 1 (classes, size): a product with one is a cosine."""
    means = mean_vectors(vectors, labels, classes)
    prototypes: Vectors = means / np.maximum(np.linalg.norm(means, axis=1, keepdims=True), 1e-12)
    return prototypes


def is_highest(scores: npt.NDArray[np.float32], truth: Indices) -> Flags:
    """Return whether only the true class of each row (rows, classes) has the highest score; -1 is no class."""
    own = np.take_along_axis(scores, truth[:, None], 1)
    return np.asarray((truth >= 0) & ((scores >= own).sum(1) == 1))


def prototype_intents(
    encoder: SupportsEncode, data: IntentData, *, shots: Sequence[int] = SHOTS, seeds: int = SEEDS
) -> list[Outcome]:
    """Compute the accuracy of prototypes by cosine, and of unscaled means by dot product, as the authors' code does."""
    labels = [example.intent for example in data.train]
    classes, truth = number_intents(data.train, data.test)
    samples = sample_few_shot_runs(labels, shots, range(seeds))
    # encode only the examples of some support set
    needed = np.unique(np.concatenate([support for support, _ in samples.values()]))
    vectors, rows = encode_examples(encoder, [*(data.train[index] for index in needed), *data.test])
    train, test = vectors[rows[: len(needed)]], vectors[rows[len(needed) :]]
    outcomes = []
    variants = {"prototypes": compute_prototypes, DOT_PRODUCT: mean_vectors}
    for count in shots:
        for name, compute in variants.items():
            correct = np.empty((seeds, len(truth)))
            for seed in range(seeds):
                support, _ = samples[count, seed]
                class_vectors = compute(train[np.searchsorted(needed, support)], classes[support], classes.max() + 1)
                correct[seed] = is_highest(test @ class_vectors.T, truth)
            outcomes.append(Outcome("intents", data.name, f"{count}-shot {name}", "accuracy", correct))
    return outcomes


def nearest_intents(
    encoder: SupportsEncode, data: IntentData, *, neighbours: Sequence[int] = (1,), include_out_of_scope: bool = True
) -> list[Outcome]:
    """Compute the accuracy of the k nearest training examples, an outcome for each k.

    The intent is that of most of the k; of several, the one with the higher sum of similarities. Remaining ties count
    as wrong, and of references that are equally near, those of wrong intents come first.

    References are training utterances and their distinct templates. Out-of-scope may be one more intent, as TaDSE has
    it for CLINC150.
    """
    labelled = data.with_out_of_scope() if include_out_of_scope else data
    known = [*labelled.train, *_make_templates(labelled.train)]
    correct = _classify_by_neighbours(encoder, known, labelled.test, neighbours)
    suffix = "" if include_out_of_scope else ", in scope only"
    return [
        Outcome("intents", data.name, f"{count}-NN{suffix}", "accuracy", each[None].astype(np.float64))
        for count, each in zip(neighbours, correct, strict=True)
    ]


def nearest_validation(encoder: SupportsEncode, data: IntentData) -> float:
    """Return the 1-NN accuracy from 0 to 1 on validation utterances, or on a held-out tenth of the training set."""
    labelled = data.with_out_of_scope()
    train, valid = labelled.train, labelled.valid
    if not data.valid:
        rest, held_out = hold_out_tenth([example.intent for example in train], data.name)
        train, valid = tuple(train[index] for index in rest), tuple(train[index] for index in held_out)
    return float(_classify_by_neighbours(encoder, [*train, *_make_templates(train)], valid, (1,)).mean())


def _make_templates(train: Sequence[IntentUtterance]) -> list[IntentUtterance]:
    """Return the distinct templates of each intent as texts, without those that have no slot and equal an utterance."""
    templates = [(example.template, example.intent) for example in train if example.slots]
    distinct = dict.fromkeys((template.text(), intent) for template, intent in templates if template is not None)
    return [IntentUtterance(text, intent) for text, intent in distinct]


def _classify_by_neighbours(
    encoder: SupportsEncode, known: Sequence[IntentUtterance], queries: Sequence[IntentUtterance], counts: Sequence[int]
) -> Flags:
    """Return whether each query gets its intent from its k nearest references (counts, queries)."""
    classes, truth = number_intents(known, queries)
    vectors, rows = encode_examples(encoder, [*known, *queries])
    query_vectors, reference_rows = vectors[rows[len(known) :]], rows[: len(known)]
    # compare each text once, so that references of one text are equally near
    distinct, place = np.unique(reference_rows, return_inverse=True)
    pool = vectors[distinct].T
    most = min(max(counts), len(known))
    correct = np.zeros((len(counts), len(queries)), np.bool_)
    block = max(1, _MAX_SIMILARITIES // len(known))
    for first in range(0, len(queries), block):
        similarities = (query_vectors[first : first + block] @ pool)[:, place]
        least = np.partition(similarities, -most, axis=1)[:, -most]
        for query, (row, lowest) in enumerate(zip(similarities, least, strict=True), first):
            near = np.flatnonzero(row >= lowest)
            near = near[np.lexsort((classes[near] == truth[query], -row[near]))][:most]
            for number, count in enumerate(counts):
                chosen = near[:count]
                correct[number, query] = _wins_vote(classes[chosen], row[chosen], truth[query])
    return correct


def _wins_vote(labels: Indices, similarities: npt.NDArray[np.float32], truth: np.int64) -> bool:
    """Return whether the true label has more votes than any other, or as many with a higher sum."""
    votes, sums = np.bincount(labels), np.bincount(labels, similarities.astype(np.float64))
    if not 0 <= truth < len(votes) or not votes[truth]:
        return False
    at_least = (votes > votes[truth]) | ((votes == votes[truth]) & (sums >= sums[truth]))
    return int(at_least.sum()) == 1  # the true label itself


def logistic_intents(
    encoder: SupportsEncode, data: IntentData, *, strengths: Sequence[float] = REGULARISATION
) -> list[Outcome]:
    """Compute the accuracy of logistic regression, its strength chosen on validation or a tenth of training data."""
    classes, truth = number_intents(data.train, data.test)
    _, validation_truth = number_intents(data.train, data.valid)
    vectors, rows = encode_examples(encoder, [*data.train, *data.valid, *data.test])
    train, valid, test = np.split(rows, [len(data.train), len(data.train) + len(data.valid)])
    if data.valid:
        models = [_fit_logistic(vectors[train], classes, strength) for strength in strengths]
        scores = [(model.predict(vectors[valid]) == validation_truth).mean() for model in models]
        model = models[int(np.argmax(scores))]
    else:
        rest, held_out = hold_out_tenth([example.intent for example in data.train], data.name)
        models = [_fit_logistic(vectors[train[rest]], classes[rest], strength) for strength in strengths]
        scores = [(model.predict(vectors[train[held_out]]) == classes[held_out]).mean() for model in models]
        model = _fit_logistic(vectors[train], classes, strengths[int(np.argmax(scores))])
    correct = model.predict(vectors[test]) == truth
    return [Outcome("intents", data.name, "logistic regression", "accuracy", correct[None].astype(np.float64))]


def _fit_logistic(vectors: Vectors, classes: Indices, strength: float) -> Any:
    return LogisticRegression(C=strength, max_iter=1_000).fit(vectors, classes)


def hold_out_tenth(labels: Sequence[str], dataset: str) -> tuple[Indices, Indices]:
    """Return nine tenths and one tenth of each label's examples; at least one of a label that has two is held out."""
    random = np.random.default_rng(0)
    held_out: list[int] = []
    for members in _group_by_label(labels):
        if len(members) > 1:
            held_out += random.permutation(members)[: max(1, len(members) // 10)].tolist()
    if not held_out:
        raise DatasetError(f"{dataset} has neither a validation set nor a second example of any intent to make one of")
    return np.setdiff1d(np.arange(len(labels)), held_out), np.array(held_out, np.int64)
