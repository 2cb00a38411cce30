"""Coherence of conversations by a re-ranker's heads: turns out of place, where a turn belongs, the order of turns.

The heads see a few turns together (UMS's window, k), so a conversation is read in windows as in training: k + 1 turns
of which one may be out of place, k − 1 turns into which one is inserted.
"""

import heapq
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Protocol

import numpy as np
import numpy.typing as npt
from scipy.special import expit

from turnwise.core.dialogue import Conversation, Dialogue, turn_texts
from turnwise.core.errors import ModelError
from turnwise.core.progress import Progress, silent
from turnwise.core.types import Vectors
from turnwise.models.backbone.inputs import AuxiliaryTask, MarkedInput, RerankerTask

#: Turns that are read at a time when a corpus is checked.
CHUNK = 4_000

#: An order of turns, by their indices in a list sorted by text.
_Order = tuple[int, ...]

_Probabilities = npt.NDArray[np.float64]


class SupportsMarkedInputs(Protocol):
    """A re-ranker with heads for marked positions; see `turnwise.models.reranker.Reranker`."""

    window: int

    def mark_texts(self, task: AuxiliaryTask, queries: Sequence[tuple[Sequence[str], str | None]]) -> list[MarkedInput]:
        """Return the inputs for turns, each with a target if the task has one."""

    def logits(self, task: RerankerTask, marked: Sequence[MarkedInput], *, progress: Progress = ...) -> list[Vectors]:
        """Return a head's output at the marked positions of each sequence (positions,)."""


@dataclass(frozen=True, slots=True)
class PositionScores:
    """A probability for every position of a conversation, the mean over the windows that contain the position."""

    scores: tuple[float, ...]

    @property
    def index(self) -> int:
        """The position of the highest score; the first of several."""
        return int(np.argmax(self.scores))


def out_of_place_scores(
    reranker: SupportsMarkedInputs, dialogues: Sequence[Conversation], *, progress: Progress = silent
) -> list[PositionScores]:
    """Return, for each turn of each conversation of two or more turns, the probability that it is out of place.

    The head for deletion was trained on windows with exactly one foreign turn: scores rank the turns of a conversation
    better than they say whether any turn is foreign.
    """
    texts = [_check_texts(dialogue, minimum=2) for dialogue in dialogues]
    windows = list(_windows(texts, reranker.window + 1))
    marked = reranker.mark_texts("deletion", [(turns, None) for *_, turns in windows])
    logits = reranker.logits("deletion", marked, progress=progress)
    return _mean_scores(windows, logits, [len(turns) for turns in texts])


def placement_scores(
    reranker: SupportsMarkedInputs, queries: Sequence[tuple[Conversation, str]], *, progress: Progress = silent
) -> list[PositionScores]:
    """Return, for each gap of each conversation, the probability that an utterance belongs there.

    Gap n is the one before turn n, from 0; the last gap comes after all turns.
    """
    texts = [_check_texts(dialogue, minimum=1) for dialogue, _ in queries]
    windows = list(_windows(texts, reranker.window - 1))
    marked = reranker.mark_texts("insertion", [(turns, queries[number][1]) for number, _, turns in windows])
    logits = reranker.logits("insertion", marked, progress=progress)
    return _mean_scores(windows, logits, [len(turns) + 1 for turns in texts])


def predecessor_scores(
    reranker: SupportsMarkedInputs, queries: Sequence[tuple[Sequence[str], str]], *, progress: Progress = silent
) -> list[_Probabilities]:
    """Return, for candidates that are read together, the log-odds that each directly precedes a target."""
    logits = reranker.logits("search", reranker.mark_texts("search", queries), progress=progress)
    return [values.astype(np.float64) for values in logits]


@dataclass(frozen=True, slots=True)
class TurnOrder:
    """The most likely order of turns."""

    indices: tuple[int, ...]  # of the given turns, the first turn first
    score: float  # the mean, over the turns, of the log-probability of a turn's gap among all gaps for it
    given: float  # the same mean for the order in which the turns were given


def predict_orders(
    reranker: SupportsMarkedInputs, dialogues: Sequence[Conversation], *, progress: Progress = silent
) -> list[TurnOrder]:
    """Return the most likely order of the two or more turns of each conversation, whatever order they are given in.

    A greedy search inserts the turn with the most probable gap first. Then turns are moved to their best gap, the one
    that gains most first, until none gains; the best-scoring order on the way need not be the best of all orders.
    """
    texts = [_check_texts(dialogue, minimum=2) for dialogue in dialogues]
    ranks = [sorted(range(len(turns)), key=turns.__getitem__) for turns in texts]
    sorted_texts = [[turns[index] for index in rank] for turns, rank in zip(texts, ranks, strict=True)]
    best = _improve_orders(reranker, sorted_texts, _build_orders(reranker, sorted_texts, progress), progress)
    given = _own_gaps(reranker, sorted_texts, [tuple(np.argsort(rank).tolist()) for rank in ranks])
    return [
        TurnOrder(tuple(rank[index] for index in order), score, _order_score(gaps))
        for rank, (order, score), gaps in zip(ranks, best, given, strict=True)
    ]


def _build_orders(reranker: SupportsMarkedInputs, texts: Sequence[Sequence[str]], progress: Progress) -> list[_Order]:
    """Start with one turn and insert the others, each time the one whose best gap is most probable."""
    orders: list[list[int]] = [[0] for _ in texts]
    while unfinished := [number for number, order in enumerate(orders) if len(order) < len(texts[number])]:
        remaining = [(n, turn) for n in unfinished for turn in range(len(texts[n])) if turn not in orders[n]]
        probabilities = _gap_probabilities(reranker, texts, [(n, orders[n], turn) for n, turn in remaining])
        best: dict[int, tuple[float, int, int]] = {}
        for (number, turn), gaps in zip(remaining, probabilities, strict=True):
            if number not in best or gaps.max() > best[number][0]:
                best[number] = (float(gaps.max()), turn, int(gaps.argmax()))
        for number, (_, turn, gap) in best.items():
            orders[number].insert(gap, turn)
        progress("ordering", sum(map(len, orders)), sum(map(len, texts)))
    return [tuple(order) for order in orders]


def _improve_orders(
    reranker: SupportsMarkedInputs, texts: Sequence[Sequence[str]], orders: Sequence[_Order], progress: Progress
) -> list[tuple[_Order, float]]:
    """Move turns to their best gap until none gains by it; return the best orders and their scores."""
    current, best = list(orders), [(order, -np.inf) for order in orders]
    seen: list[set[_Order]] = [set() for _ in orders]
    while moving := [number for number, order in enumerate(current) if order not in seen[number]]:
        probabilities = _own_gaps(reranker, [texts[n] for n in moving], [current[n] for n in moving])
        for number, gaps in zip(moving, probabilities, strict=True):
            order = current[number]
            seen[number].add(order)
            best[number] = max(best[number], (order, _order_score(gaps)), key=lambda scored: scored[1])
            place = int(np.argmax([each.max() / each[own] for own, each in enumerate(gaps)]))
            others, target = [*order[:place], *order[place + 1 :]], int(gaps[place].argmax())
            current[number] = (*others[:target], order[place], *others[target:])
        progress("improving orders", len(current) - len(moving), len(current))
    return best


def _own_gaps(
    reranker: SupportsMarkedInputs, texts: Sequence[Sequence[str]], orders: Sequence[_Order]
) -> list[list[_Probabilities]]:
    """Return, for turn n of each order, the probabilities of the gaps among the other turns; its own gap is n."""
    queries = [
        (number, [*order[:place], *order[place + 1 :]], order[place])
        for number, order in enumerate(orders)
        for place in range(len(order))
    ]
    probabilities = iter(_gap_probabilities(reranker, texts, queries))
    return [[next(probabilities) for _ in order] for order in orders]


def _order_score(gaps: Sequence[_Probabilities]) -> float:
    return float(np.mean([np.log(each[own]) for own, each in enumerate(gaps)]))


def _gap_probabilities(
    reranker: SupportsMarkedInputs, texts: Sequence[Sequence[str]], queries: Sequence[tuple[int, Sequence[int], int]]
) -> list[_Probabilities]:
    """Return the normalised scores of the gaps for (conversation, an order of some of its turns, another turn)."""
    placements = placement_scores(
        reranker, [([texts[number][turn] for turn in order], texts[number][other]) for number, order, other in queries]
    )
    scores = [np.maximum(each.scores, 1e-12) for each in placements]  # so that logarithms are finite
    return [each / each.sum() for each in scores]


@dataclass(frozen=True, slots=True)
class OutOfPlaceTurn:
    """A turn that may be out of place."""

    dialogue: str  # its id
    turn: int  # its number, from 1
    speaker: str
    score: float  # the probability that it is out of place
    before: str | None  # the text of the previous turn
    text: str


@dataclass(frozen=True, slots=True)
class CoherenceReport:
    """The result of checking a corpus: counts, and the most suspicious turns first."""

    dialogues: int
    turns: int
    skipped: int  # dialogues of a single turn, which cannot be scored
    suspects: tuple[OutOfPlaceTurn, ...]


def check_corpus(
    reranker: SupportsMarkedInputs,
    dialogues: Iterable[Dialogue],
    *,
    top: int = 20,
    threshold: float = 0.0,
    total: int | None = None,
    progress: Progress = silent,
) -> CoherenceReport:
    """Find the `top` most suspicious turns of a corpus, with a score of `threshold` at least.

    Of equal scores the first read counts. The corpus is streamed; `total` is the number of its dialogues, if known.
    """
    read = turns = skipped = 0
    suspects: list[OutOfPlaceTurn] = []
    for chunk in _chunks(dialogues):
        scorable = [dialogue for dialogue in chunk if len(dialogue.turns) > 1]
        for dialogue, result in zip(scorable, out_of_place_scores(reranker, scorable), strict=True):
            before = None
            for number, (turn, score) in enumerate(zip(dialogue.turns, result.scores, strict=True), start=1):
                if score >= threshold:
                    suspects.append(OutOfPlaceTurn(dialogue.id, number, turn.speaker, score, before, turn.text))
                before = turn.text
        suspects = heapq.nlargest(top, suspects, key=lambda suspect: suspect.score)
        read += len(chunk)
        skipped += len(chunk) - len(scorable)
        turns += sum(len(dialogue.turns) for dialogue in scorable)
        progress("checking dialogues", read, total)
    return CoherenceReport(read, turns, skipped, tuple(suspects))


def _chunks(dialogues: Iterable[Dialogue]) -> Iterator[list[Dialogue]]:
    chunk: list[Dialogue] = []
    turns = 0
    for dialogue in dialogues:
        chunk.append(dialogue)
        turns += len(dialogue.turns)
        if turns >= CHUNK:
            yield chunk
            chunk, turns = [], 0
    if chunk:
        yield chunk


#: The number of a conversation, where a window starts in it, and the window's turns.
_Window = tuple[int, int, Sequence[str]]


def _check_texts(dialogue: Conversation, minimum: int) -> list[str]:
    try:
        texts = turn_texts(dialogue)
    except (TypeError, ValueError) as error:
        raise ModelError(str(error)) from None
    if len(texts) < minimum:
        name = f"dialogue {dialogue.id!r}" if isinstance(dialogue, Dialogue) else "a conversation"
        raise ModelError(f"{name} has {len(texts)} turn{'s' * (len(texts) != 1)}: {minimum} or more are needed")
    return texts


def _windows(texts: Sequence[Sequence[str]], width: int) -> Iterator[_Window]:
    """Yield every run of `width` consecutive turns; a shorter conversation is one window."""
    for number, turns in enumerate(texts):
        for start in range(max(1, len(turns) - width + 1)):
            yield number, start, turns[start : start + width]


def _mean_scores(windows: Sequence[_Window], logits: Sequence[Vectors], sizes: Sequence[int]) -> list[PositionScores]:
    """Average the probabilities of every position over its windows; `sizes` are positions per conversation."""
    firsts = np.cumsum([0, *sizes])
    positions = [
        firsts[number] + start + np.arange(len(each)) for (number, start, _), each in zip(windows, logits, strict=True)
    ]
    flat = np.concatenate([*positions, np.empty(0, np.int64)])
    values = expit(np.concatenate([*logits, np.empty(0)]))  # double precision distinguishes probabilities near 1
    means = np.bincount(flat, values, firsts[-1]) / np.bincount(flat, minlength=firsts[-1])
    return [PositionScores(tuple(means[first:last].tolist())) for first, last in pairwise(firsts)]
