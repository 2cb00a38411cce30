"""Coherence: UMS's three auxiliary tasks, on dialogues that the model never saw.

From each dialogue one window of up to five turns is sampled, and the model is asked:

- misfit: a turn of another dialogue is inserted anywhere; which one is it?
- place: one turn is removed; where does it belong?
- predecessor: all but the last are shuffled; which of them came right before it?
- order: all are shuffled; in which order were they said?

A re-ranker answers with the heads it has. An encoder only answers the first, with the turn of the lowest mean cosine
with its neighbours. Each metric comes with its chance level. Ties never favour the model. Metrics are fractions.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from turnwise.core.errors import DatasetError
from turnwise.core.progress import Progress, silent
from turnwise.core.text import normalise_text
from turnwise.core.types import SupportsEncode
from turnwise.corpus.readers.responses import Candidates
from turnwise.evaluation.metrics import CHANCE, Outcome
from turnwise.models.backbone.inputs import WINDOW
from turnwise.models.coherence import out_of_place_scores, placement_scores, predecessor_scores, predict_orders
from turnwise.models.reranker import Reranker
from turnwise.models.vector_cache import encode_distinct

MAX_LENGTH = 128  # maximum tokens of a turn in an encoder; a re-ranker has its own maximum
MAX_DIALOGUES = 2_000  # dialogues per data set: enough for confidence intervals of two points
HEADS = ("deletion", "insertion", "search")  # the heads that answer

_Texts = tuple[str, ...]
_Scores = Sequence[float] | npt.NDArray[np.floating]
_Metric = tuple[str, str, list[float]]  # setting, metric, and the value of each question


@dataclass(frozen=True, slots=True)
class CoherenceQuestion:
    """The questions on one dialogue."""

    turns: _Texts  # the window
    #: A turn of another dialogue, and where it is inserted.
    foreign: str
    inserted_at: int
    removed: int  # the index of the turn that is removed
    shuffled: _Texts  # the turns before the last, in another order

    @property
    def with_foreign(self) -> _Texts:
        """Return the window with the foreign turn."""
        return (*self.turns[: self.inserted_at], self.foreign, *self.turns[self.inserted_at :])

    @property
    def without_removed(self) -> _Texts:
        """Return the window without the removed turn."""
        return self.turns[: self.removed] + self.turns[self.removed + 1 :]


def coherence(
    model: SupportsEncode | Reranker, examples: Sequence[Candidates], dataset: str, *, progress: Progress = silent
) -> list[Outcome]:
    """Compute the metrics of the questions that a model can answer on the examples' dialogues, with chance levels."""
    questions = sample_questions(complete_dialogues(examples))
    if not questions:
        raise DatasetError(
            f"{dataset} has no dialogue of two turns or more, and another one whose turns could be put in it"
        )
    return [
        Outcome("coherence", dataset, setting, metric, np.array([values]), scale=1.0)
        for setting, metric, values in _answer(model, questions, progress)
    ]


def coherence_heads(model: Any) -> tuple[str, ...]:
    """Return the heads of a model that can answer; none for an encoder, or a re-ranker that only scores candidates."""
    return tuple(head for head in HEADS if head in getattr(model, "heads", ()))


def complete_dialogues(examples: Sequence[Candidates]) -> list[_Texts]:
    """Return each distinct context with its first correct response, without empty turns and dialogues of one turn."""
    dialogues = dict.fromkeys(
        tuple(turn for turn in (*example.context, *example.positives[:1]) if turn.strip()) for example in examples
    )
    return [dialogue for dialogue in dialogues if len(dialogue) > 1]


def sample_questions(dialogues: Sequence[_Texts], seed: int = 0, window: int = WINDOW) -> list[CoherenceQuestion]:
    """Sample questions on each dialogue that lacks some turn of the others, or on `MAX_DIALOGUES` of them."""
    random = np.random.default_rng(seed)
    chosen = np.sort(random.permutation(len(dialogues))[:MAX_DIALOGUES])
    pool = [turn for dialogue in dialogues for turn in dialogue]
    distinct = len({normalise_text(turn) for turn in pool})

    questions = []
    for dialogue in (dialogues[number] for number in chosen):
        own = {normalise_text(turn) for turn in dialogue}
        if len(own) == distinct:
            continue
        size = min(window, len(dialogue))
        start = random.integers(len(dialogue) - size + 1)
        turns = dialogue[start : start + size]
        while normalise_text(foreign := pool[int(random.integers(len(pool)))]) in own:
            pass
        shuffled = tuple(turns[place] for place in random.permutation(size - 1))
        inserted_at, removed = int(random.integers(size + 1)), int(random.integers(size))
        questions.append(CoherenceQuestion(turns, foreign, inserted_at, removed, shuffled))
    return questions


def _answer(model: Any, questions: Sequence[CoherenceQuestion], progress: Progress) -> Iterator[_Metric]:
    """Yield the metrics of the questions that a model can answer."""
    heads = coherence_heads(model)
    if not heads:
        yield from _accuracy("misfit, cosine", _dissimilarities(model, questions), [{q.inserted_at} for q in questions])
    if "deletion" in heads:
        results = out_of_place_scores(model, [question.with_foreign for question in questions], progress=progress)
        scores = [each.scores for each in results]
        yield from _accuracy("misfit, re-ranker", scores, [{question.inserted_at} for question in questions])
    if "insertion" in heads:
        inputs = [(question.without_removed, question.turns[question.removed]) for question in questions]
        scores = [each.scores for each in placement_scores(model, inputs, progress=progress)]
        yield from _accuracy("place, re-ranker", scores, [_correct_gaps(question) for question in questions])
        # `predict_orders` ignores the order of its input, so turns need no shuffling
        orders = predict_orders(model, [question.turns for question in questions], progress=progress)
        ranks = [_true_positions(each.turns, order.indices) for each, order in zip(questions, orders, strict=True)]
        yield "order, re-ranker", "adjacent pairs", [float((np.diff(each) == 1).mean()) for each in ranks]
        yield "order, re-ranker", CHANCE, [1 / len(each) for each in ranks]
        yield "order, re-ranker", "Kendall's τ", [_kendall_tau(each) for each in ranks]
    chosen = [question for question in questions if len(question.shuffled) > 1]
    if "search" in heads and chosen:
        targets = [(question.shuffled, question.turns[-1]) for question in chosen]
        places = [{at for at, turn in enumerate(each.shuffled) if turn == each.turns[-2]} for each in chosen]
        yield from _accuracy("predecessor, re-ranker", predecessor_scores(model, targets, progress=progress), places)


def _accuracy(setting: str, scores: Sequence[_Scores], correct: Sequence[set[int]]) -> Iterator[_Metric]:
    """Yield how often a correct index scores higher than all wrong ones (or all are correct), and the chance of it."""
    values = []
    for each, places in zip(map(np.asarray, scores), correct, strict=True):
        flags = np.isin(np.arange(len(each)), list(places))
        values.append(float(flags.all() or each[flags].max() > each[~flags].max()))
    yield setting, "accuracy", values
    yield setting, CHANCE, [len(places) / len(each) for each, places in zip(scores, correct, strict=True)]


def _dissimilarities(encoder: SupportsEncode, questions: Sequence[CoherenceQuestion]) -> list[_Scores]:
    """Return the negative mean cosine of each turn with its neighbours, for each window."""
    texts = [turn for question in questions for turn in question.with_foreign]
    vectors = encode_distinct(encoder, texts, normalise=True, max_length=MAX_LENGTH)
    ends = np.cumsum([len(question.with_foreign) for question in questions])
    scores: list[_Scores] = []
    for window in np.split(vectors, ends[:-1]):
        turns = window.astype(np.float64)
        cosines = (turns[1:] * turns[:-1]).sum(1)
        neighbours = np.full(len(turns), 2)
        neighbours[[0, -1]] = 1
        scores.append(-(np.append(cosines, 0) + np.append(0, cosines)) / neighbours)
    return scores


def _correct_gaps(question: CoherenceQuestion) -> set[int]:
    """Return where the removed turn restores the window: more than one gap if a turn repeats its neighbour."""
    removed, rest = question.turns[question.removed], question.without_removed
    return {gap for gap in range(len(question.turns)) if (*rest[:gap], removed, *rest[gap:]) == question.turns}


def _true_positions(turns: _Texts, indices: Sequence[int]) -> npt.NDArray[np.int64]:
    """Return the true position of each turn of an order; the first of equal turns counts as the first said."""
    positions: dict[str, list[int]] = {}
    for position, turn in enumerate(turns):
        positions.setdefault(turn, []).append(position)
    return np.array([positions[turns[index]].pop(0) for index in indices])


def _kendall_tau(ranks: npt.NDArray[np.int64]) -> float:
    """Return the proportion of concordant pairs minus that of discordant ones."""
    first, second = np.triu_indices(len(ranks), 1)
    return float(np.sign(ranks[second] - ranks[first]).mean())
