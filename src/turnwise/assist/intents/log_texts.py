"""Soft labels for the unlabelled texts of a log: the probability of each intent, and of having none of them.

The mean of two estimates is used. The first is similarity to prototypes: those of the intents, means of their examples
and names, are refined by the texts that are most similar to them. The second is label propagation over the graph of
nearest neighbours. The first is better where some intents are much more frequent than others, the second where all are
about equally frequent.

Texts about other things are connected with each other, but hardly with any example, so they receive little label mass.
If the logarithms of the masses have two clearly separate modes, texts of the lower one are ignored.
"""

import random
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from turnwise.assist.intents.context import Utterance, join_turns, last_turn, turns_in_context
from turnwise.assist.intents.examples import Indices, IntentExamples, validate_vectors
from turnwise.assist.intents.numerics import softmax
from turnwise.assist.search.neighbours import nearest_neighbours
from turnwise.core.dialogue import USER, Dialogue
from turnwise.core.errors import IntentError
from turnwise.core.imports import require
from turnwise.core.text import normalise_text
from turnwise.core.types import Vectors

#: A log: texts, dialogues, the folder of a store, or normalised vectors; of dialogues, the turns of users are read.
Log = Iterable[Utterance] | Path | Vectors

#: Distinct texts of a log that are used at most; of more, a random sample.
MAX_LOG_TEXTS = 8_000

#: The number of neighbours of a text in the graph, the power of their cosines that weighs them, the part of a label
#: that comes from neighbours, and the number of rounds.
_NEIGHBOURS, _POWER, _DAMPING, _ROUNDS = 10, 3, 0.9, 20

#: The inverse temperature of similarity to prototypes, and how often these are refined.
_SHARPNESS, _REFINEMENTS = 40.0, 5

#: Two modes of logarithms are separate if their means differ by this much, and by this many standard deviations. On
#: validation data these were at least 2.2 and 3.3 where half of the log was about other things. Where nothing was, one
#: of them was lower, except for HWU64 by names alone (2.6 and 3.8: one text in twenty did not count).
_SEPARATE, _SEPARATE_DEVIATIONS = 2.0, 3.0


@dataclass(frozen=True, slots=True)
class LabelledLog:
    """Texts of a log with soft labels."""

    vectors: Vectors  # normalised, rounded to half precision, as the labels are (texts, dimensions)
    labels: npt.NDArray[np.float32]  # the probability of each intent (texts, intents)
    in_scope: npt.NDArray[np.float32]  # the probability that a text has one of the intents (texts)
    #: Cohen's kappa of the most probable intents by both estimates, for texts in scope; not saved.
    agreement: float = 1.0

    @classmethod
    def label(cls, vectors: Vectors, examples: IntentExamples) -> "LabelledLog":
        """Label the texts of a log by the examples and names of intents."""
        vectors = _round_to_half(vectors)
        support, labels = examples.support
        one_hot = np.eye(len(examples.classes), dtype=np.float32)[labels]
        propagated = _propagate_labels(np.concatenate([support, vectors]), one_hot)[len(support) :]
        mass = propagated.sum(1)
        in_scope = _upper_mode(np.log(mass + 1e-6)).astype(np.float32)
        prototypes = unit_rows(np.asarray(one_hot.T @ support))
        refined = prototypes
        for _ in range(_REFINEMENTS):
            weights: Vectors = softmax(_SHARPNESS * (vectors @ refined.T)) * in_scope[:, None]
            refined = unit_rows(prototypes + unit_rows(np.asarray(weights.T @ vectors)))
        similar = softmax(_SHARPNESS * (vectors @ refined.T))
        # an intent with many similar texts spreads its labels thinly: sums over the log are made equal
        propagated /= np.maximum((propagated * in_scope[:, None]).sum(0), 1e-12)
        propagated /= np.maximum(propagated.sum(1, keepdims=True), 1e-12)
        soft = (similar + propagated) / 2
        agreement = _kappa(similar.argmax(1), propagated.argmax(1), in_scope)
        return cls(vectors, _round_to_half(np.asarray(soft, np.float32)), in_scope, agreement)

    @property
    def sums(self) -> Vectors:
        """The sum of the vectors of each intent, weighted by its probability (intents, dimensions)."""
        return np.asarray((self.labels * self.in_scope[:, None]).T @ self.vectors)


def sample_log(
    log: Log, encode: Callable[[list[str]], Vectors], seed: int, *, with_context: bool = False
) -> tuple[Vectors, int]:
    """Return vectors of distinct texts of a log, at most `MAX_LOG_TEXTS`, and how many texts the log has.

    With `with_context`, texts of dialogues have the turns before them.
    """
    if isinstance(log, np.ndarray) and log.ndim == 2:
        rows = np.random.default_rng(seed).permutation(len(log))[:MAX_LOG_TEXTS]
        return validate_vectors(log[np.sort(rows)], len(rows)), len(log)
    texts, count = sample_log_texts(log, seed, with_context=with_context)
    return encode(texts), count


def sample_log_texts(
    log: Iterable[Utterance] | Path, seed: int, *, with_context: bool = False
) -> tuple[list[str], int]:
    """Return distinct texts of a log, at most `MAX_LOG_TEXTS`, and how many texts the log has."""
    sample: list[str] = []
    chance, count = random.Random(seed), 0
    for count, text in enumerate(_read_log(log, with_context), 1):
        if len(sample) < 4 * MAX_LOG_TEXTS:  # many texts of a log occur more than once
            sample.append(text)
        elif (place := chance.randrange(count)) < len(sample):
            sample[place] = text
    distinct = list({normalise_text(text): text for text in sample}.values())
    if not distinct:
        raise IntentError("the log has no text of a user: give texts, or a store whose user turns have text")
    return chance.sample(distinct, MAX_LOG_TEXTS) if len(distinct) > MAX_LOG_TEXTS else distinct, count


def _read_log(log: "Iterable[Utterance] | Path", with_context: bool) -> Iterator[str]:
    if isinstance(log, str | Path):
        from turnwise.corpus.storage.corpus import read_corpus

        log = read_corpus(Path(log))
    for item in log:
        if isinstance(item, Dialogue):
            pairs = turns_in_context(item.turns) if with_context else ((turn, turn.text) for turn in item.turns)
            texts = [text for turn, text in pairs if turn.speaker == USER]
        else:
            texts = [join_turns(item) if with_context else last_turn(join_turns(item))]
        yield from (text for text in texts if text.strip())


def _propagate_labels(vectors: Vectors, known: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """Propagate the labels of the first rows over the graph of nearest neighbours (rows, intents)."""
    require("scipy", extra="train")
    from scipy import sparse

    count, near = len(vectors), min(_NEIGHBOURS, len(vectors) - 1)
    found = nearest_neighbours(vectors, vectors, near + 1)
    rows = np.repeat(np.arange(count), near + 1)
    weights = np.maximum(found.similarities.ravel(), 0).astype(np.float32) ** _POWER
    weights[found.rows.ravel() == rows] = 0  # a text is no neighbour of itself
    graph = sparse.csr_matrix((weights, (rows, found.rows.ravel())), (count, count))
    graph = graph.maximum(graph.T)
    scale = sparse.diags(1 / np.sqrt(np.maximum(np.asarray(graph.sum(1)).ravel(), 1e-9)))
    graph = (scale @ graph @ scale).tocsr().astype(np.float32)
    start = np.zeros((count, known.shape[1]), np.float32)
    start[: len(known)] = known
    propagated = start
    for _ in range(_ROUNDS):
        propagated = _DAMPING * (graph @ propagated) + (1 - _DAMPING) * start
    return propagated


def _upper_mode(values: npt.NDArray[np.floating]) -> npt.NDArray[np.float64]:
    """Return the probability that each value belongs to the upper of two separate modes; 1, if there is only one.

    The modes are normal distributions, fitted by expectation maximisation from the quartiles.
    """
    values = values.astype(np.float64)
    means, deviations = np.quantile(values, [0.25, 0.75]), np.full(2, values.std() + 1e-6)
    shares = np.full(2, 0.5)
    for _ in range(100):
        log_density = np.log(shares) - np.log(deviations) - ((values[:, None] - means) / deviations) ** 2 / 2
        belongs = softmax(log_density)
        sums = belongs.sum(0) + 1e-9
        means = (belongs * values[:, None]).sum(0) / sums
        deviations = np.sqrt((belongs * (values[:, None] - means) ** 2).sum(0) / sums) + 1e-3
        shares = sums / sums.sum()
    difference = abs(means[0] - means[1])
    if difference <= _SEPARATE or difference / deviations.mean() <= _SEPARATE_DEVIATIONS:
        return np.ones(len(values))
    return np.asarray(belongs[:, means.argmax()])


def _kappa(first: Indices, second: Indices, weights: npt.NDArray[np.float32]) -> float:
    """Return Cohen's kappa of two lists of intents: how much more often they agree than by chance, at most 1."""
    total, size = float(weights.sum()), max(first.max(), second.max()) + 1
    agreed = float(weights[first == second].sum()) / total
    chance = float(np.bincount(first, weights, size) @ np.bincount(second, weights, size)) / total**2
    return 1.0 if chance > 1 - 1e-6 else (agreed - chance) / (1 - chance)


def _round_to_half(values: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    return values.astype(np.float16).astype(np.float32)


def unit_rows(vectors: Vectors) -> Vectors:
    """Return vectors scaled to length 1; zeros remain."""
    scaled: Vectors = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
    return scaled
