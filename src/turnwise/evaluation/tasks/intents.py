"""Intent classification on frozen vectors: few-shot by prototypes; by nearest neighbours or logistic regression on all examples.

Prototypes are DSE's protocol. For each of ten seeds, 2k utterances an intent are drawn from the training set; the first half is the
support, the second a validation set that this setting leaves alone. A prototype is the mean of its intent's normalised vectors; a
test utterance gets the intent whose prototype has the highest dot product with it (the authors do not normalise prototypes again);
where several have it, a wrong one.

Nearest neighbours are TaDSE's: the whole training set, and its templates where there are any, by cosine.
"""

from collections import defaultdict
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from sklearn.linear_model import LogisticRegression

from turnwise.core.types import SupportsEncode
from turnwise.corpus.slots.template import ONE_MARK, SlotMarks
from turnwise.evaluation.datasets.dataset import DatasetError
from turnwise.evaluation.datasets.intents import IntentData, Utterance
from turnwise.evaluation.metrics import Outcome
from turnwise.models.vector_cache import encode_unique

SHOTS = (1, 5)
SEEDS = 10

#: Tokens of an utterance.
MAX_LENGTH = 64

#: Inverse strengths of regularisation to choose from, the strongest first.
STRENGTHS = (1.0, 10.0, 100.0)

#: What rounding may make of a number of a normalised vector, where an input is encoded among others.
_ROUNDING = 1e-5

#: Similarities that are held at a time, in numbers.
_BLOCK = 20_000_000

Vectors = npt.NDArray[np.float32]
Indices = npt.NDArray[np.int64]


def encode_utterances(
    encoder: SupportsEncode, utterances: Sequence[Utterance], max_length: int = MAX_LENGTH
) -> tuple[Vectors, Indices]:
    """Normalised vectors, and for each utterance the row that is its.

    Utterances of one text are encoded once for each of their annotations, but have one row where that makes no difference: so what
    is said in the same words is equally near, unless the encoder looks at slots.
    """
    vectors, rows = encode_unique(encoder, [utterance.input for utterance in utterances], max_length)
    found: dict[str, dict[int, int]] = defaultdict(dict)
    for row, utterance in zip(rows.tolist(), utterances, strict=True):
        others = found[utterance.text]
        if row not in others:
            same = (
                other for other in others.values() if np.allclose(vectors[row], vectors[other], rtol=0, atol=_ROUNDING)
            )
            others[row] = next(same, row)
    shared = [found[utterance.text][row] for row, utterance in zip(rows.tolist(), utterances, strict=True)]
    return vectors, np.array(shared, np.int64)


# ---- prototypes


def few_shot(labels: Sequence[str], shots: int, seed: int) -> tuple[Indices, Indices]:
    """Support and validation examples: min(2k, n) of each label, drawn without replacement; the larger half is the support."""
    random = np.random.default_rng(seed)
    support: list[int] = []
    validation: list[int] = []
    for members in _members(labels):
        drawn = random.permutation(members)[: 2 * shots]
        half = (len(drawn) + 1) // 2
        support += drawn[:half].tolist()
        validation += drawn[half:].tolist()
    return np.array(support, np.int64), np.array(validation, np.int64)


def prototypes(vectors: Vectors, labels: Indices, classes: int) -> Vectors:
    """The mean vector of each class (classes, size)."""
    sums = np.zeros((classes, vectors.shape[1]), np.float32)
    np.add.at(sums, labels, vectors)
    means: Vectors = (sums / np.bincount(labels, minlength=classes)[:, None]).astype(np.float32)
    return means


def highest(scores: npt.NDArray[np.float32], truth: Indices) -> npt.NDArray[np.bool_]:
    """Whether the true class of each row of scores (rows, classes) has the highest alone; a truth of -1 is none of the classes."""
    own = np.take_along_axis(scores, truth[:, None], 1)
    return np.asarray((truth >= 0) & ((scores >= own).sum(1) == 1))


def prototype_intents(
    encoder: SupportsEncode, data: IntentData, *, shots: Sequence[int] = SHOTS, seeds: int = SEEDS
) -> list[Outcome]:
    """Accuracy by prototypes, an outcome a number of shots."""
    labels = [utterance.intent for utterance in data.train]
    classes, truth = numbered(data.train, data.test)
    drawn = {(count, seed): few_shot(labels, count, seed)[0] for count in shots for seed in range(seeds)}
    # only what some run draws is encoded
    needed = np.unique(np.concatenate(list(drawn.values())))
    vectors, rows = encode_utterances(encoder, [*(data.train[index] for index in needed), *data.test])
    train, test = vectors[rows[: len(needed)]], vectors[rows[len(needed) :]]
    outcomes = []
    for count in shots:
        right = np.empty((seeds, len(truth)))
        for seed in range(seeds):
            support = drawn[count, seed]
            centres = prototypes(train[np.searchsorted(needed, support)], classes[support], classes.max() + 1)
            right[seed] = highest(test @ centres.T, truth)
        outcomes.append(Outcome("intents", data.name, f"{count}-shot prototypes", "accuracy", right))
    return outcomes


# ---- nearest neighbours


def nearest_intents(
    encoder: SupportsEncode,
    data: IntentData,
    *,
    neighbours: Sequence[int] = (1,),
    references: Literal["both", "utterances"] = "both",
    include_out_of_scope: bool = True,
    marks: SlotMarks = ONE_MARK,
) -> list[Outcome]:
    """Accuracy by the k nearest training examples, an outcome a k.

    The intent is the one that most of the k have; among those the one whose similarities sum higher. Where that is even too, the
    wrong one; and of references that are equally near, those of wrong intents come first.

    Args:
        encoder: gives the vectors.
        data: the utterances.
        neighbours: k; TaDSE's tables have 1, its Figure 6 also 3, 5, 10, 20 and 50.
        references: training utterances and, where there are any, their distinct templates; or the utterances alone.
        include_out_of_scope: whether out-of-scope is one more intent where a data set has such rows, as TaDSE has it for CLINC150.
        marks: what stands for the values in templates.
    """
    labelled = data.with_out_of_scope() if include_out_of_scope else data
    known = [*labelled.train, *(_templates(labelled.train, marks) if references == "both" else ())]
    right = _nearest(encoder, known, labelled.test, neighbours)
    suffix = (", utterances only" if references == "utterances" else "") + (
        "" if include_out_of_scope else ", in scope only"
    )
    return [
        Outcome("intents", data.name, f"{count}-NN{suffix}", "accuracy", each[None].astype(np.float64))
        for count, each in zip(neighbours, right, strict=True)
    ]


def nearest_validation(
    encoder: SupportsEncode, data: IntentData, *, marks: SlotMarks = ONE_MARK, seed: int = 0
) -> float:
    """Accuracy, from 0 to 1, by the nearest training example on validation utterances, to choose a model or a setting by.

    References and out-of-scope utterances are as in `nearest_intents`.

    Args:
        encoder: gives the vectors.
        data: the utterances; where they have no validation split, a tenth of the training set, by intent, is held out of the
            references, templates included.
        marks: what stands for the values in templates.
        seed: of that tenth.

    Raises:
        DatasetError: if there is nothing to validate on.
    """
    labelled = data.with_out_of_scope()
    train, valid = labelled.train, labelled.valid
    if not data.valid:
        kept, held = _tenth([utterance.intent for utterance in train], seed, data.name)
        train, valid = tuple(train[index] for index in kept), tuple(train[index] for index in held)
    return float(_nearest(encoder, [*train, *_templates(train, marks)], valid, (1,)).mean())


def _templates(train: Sequence[Utterance], marks: SlotMarks) -> list[Utterance]:
    """The distinct templates of each intent, as texts; one without a slot is its utterance, which is there already."""
    own = [(each.template, each.intent) for each in train if each.slots]
    found = dict.fromkeys((marks.text(template), intent) for template, intent in own if template is not None)
    return [Utterance(template, intent) for template, intent in found]


def _nearest(
    encoder: SupportsEncode, known: Sequence[Utterance], asked: Sequence[Utterance], neighbours: Sequence[int]
) -> npt.NDArray[np.bool_]:
    """Whether each utterance that is asked for gets its intent from its k nearest references (neighbours, asked)."""
    classes, truth = numbered(known, asked)
    vectors, rows = encode_utterances(encoder, [*known, *asked])
    return _vote(vectors[rows[len(known) :]], vectors, rows[: len(known)], classes, truth, neighbours)


def _vote(
    queries: Vectors, vectors: Vectors, rows: Indices, classes: Indices, truth: Indices, neighbours: Sequence[int]
) -> npt.NDArray[np.bool_]:
    """Whether each query gets its intent (neighbours, queries); `rows`: of each reference in `vectors`."""
    # a text is compared once, so that references of one text are equally near
    distinct, place = np.unique(rows, return_inverse=True)
    pool = vectors[distinct].T
    most = min(max(neighbours), len(rows))
    right = np.zeros((len(neighbours), len(queries)), np.bool_)
    block = max(1, _BLOCK // len(rows))
    for first in range(0, len(queries), block):
        similarities = (queries[first : first + block] @ pool)[:, place]
        least = np.partition(similarities, -most, axis=1)[:, -most]
        for query, (row, lowest) in enumerate(zip(similarities, least, strict=True), first):
            near = np.flatnonzero(row >= lowest)
            near = near[np.lexsort((classes[near] == truth[query], -row[near]))][:most]
            for number, count in enumerate(neighbours):
                chosen = near[:count]
                right[number, query] = _wins(classes[chosen], row[chosen], truth[query])
    return right


def _wins(labels: Indices, similarities: npt.NDArray[np.float32], truth: np.int64) -> bool:
    """Whether the truth has more votes than any other label, or as many that sum higher."""
    votes, sums = np.bincount(labels), np.bincount(labels, similarities.astype(np.float64))
    if not 0 <= truth < len(votes) or not votes[truth]:
        return False
    ahead = (votes > votes[truth]) | ((votes == votes[truth]) & (sums >= sums[truth]))
    # the truth is level with itself
    return int(ahead.sum()) == 1


# ---- logistic regression


def logistic_intents(
    encoder: SupportsEncode, data: IntentData, *, strengths: Sequence[float] = STRENGTHS, seed: int = 0
) -> list[Outcome]:
    """Accuracy of logistic regression on the normalised vectors of the whole training set.

    Args:
        encoder: gives the vectors.
        data: the utterances.
        strengths: inverse strengths of regularisation; the first of the best on validation is taken. Validation is the data set's
            own; where it has none, a tenth of the training set, by intent, after which the model is fitted on all of it.
        seed: of that tenth.

    Raises:
        DatasetError: if there is nothing to validate on.
    """
    classes, truth = numbered(data.train, data.test)
    _, validation_truth = numbered(data.train, data.valid)
    vectors, rows = encode_utterances(encoder, [*data.train, *data.valid, *data.test])
    train, valid, test = np.split(rows, [len(data.train), len(data.train) + len(data.valid)])
    if data.valid:
        models = [_fitted(vectors[train], classes, strength) for strength in strengths]
        model = models[_best(models, vectors[valid], validation_truth)]
    else:
        kept, held = _tenth([utterance.intent for utterance in data.train], seed, data.name)
        models = [_fitted(vectors[train[kept]], classes[kept], strength) for strength in strengths]
        model = _fitted(vectors[train], classes, strengths[_best(models, vectors[train[held]], classes[held])])
    right = model.predict(vectors[test]) == truth
    return [Outcome("intents", data.name, "logistic regression", "accuracy", right[None].astype(np.float64))]


def _fitted(vectors: Vectors, classes: Indices, strength: float) -> Any:
    return LogisticRegression(C=strength, max_iter=1_000).fit(vectors, classes)


def _best(models: Sequence[Any], vectors: Vectors, truth: Indices) -> int:
    return int(np.argmax([(model.predict(vectors) == truth).mean() for model in models]))


def _tenth(labels: Sequence[str], seed: int, dataset: str) -> tuple[Indices, Indices]:
    """What is kept and a tenth that is held out, of each label; at least one of a label that has two."""
    random = np.random.default_rng(seed)
    held: list[int] = []
    for members in _members(labels):
        if len(members) > 1:
            held += random.permutation(members)[: max(1, len(members) // 10)].tolist()
    if not held:
        raise DatasetError(f"{dataset} has neither a validation set nor a second example of any intent to make one of")
    return np.setdiff1d(np.arange(len(labels)), held), np.array(held, np.int64)


# ---- labels


def numbered(train: Sequence[Utterance], test: Sequence[Utterance]) -> tuple[Indices, Indices]:
    """The intents of both as numbers, in alphabetical order of the training set's; -1, which nothing predicts, for others."""
    number = {intent: index for index, intent in enumerate(sorted({utterance.intent for utterance in train}))}
    return (
        np.array([number[utterance.intent] for utterance in train], np.int64),
        np.array([number.get(utterance.intent, -1) for utterance in test], np.int64),
    )


def _members(labels: Sequence[str]) -> list[list[int]]:
    """The examples of each label, in alphabetical order of the labels."""
    members: dict[str, list[int]] = defaultdict(list)
    for index, label in enumerate(labels):
        members[label].append(index)
    return [members[label] for label in sorted(members)]
