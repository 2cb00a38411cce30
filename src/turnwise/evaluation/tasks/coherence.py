"""What a model knows of how dialogues hang together: UMS's three tasks beside response selection, on dialogues that it never saw.

Of each dialogue one window of up to five turns is drawn, and asked of it is:

- misfit: a turn of another dialogue is put in at any place; which one is it?
- place: one turn is taken out; where does it belong?
- predecessor: all but the last are shuffled; which of them was said right before it?
- order: all are shuffled; in which order were they said?

A re-ranker is asked by whichever of the heads it has. An encoder has none; it is asked for the misfit alone, as the turn of least
mean cosine with its neighbours. Beside each figure stands chance, which depends on how long the windows are. Ties never favour the
model: what is right has to score more than all else. Figures are fractions.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from turnwise.core.progress import Progress, silent
from turnwise.core.text import normalise_text
from turnwise.core.types import SupportsEncode
from turnwise.corpus.readers.responses import Candidates
from turnwise.evaluation.datasets.dataset import DatasetError
from turnwise.evaluation.metrics import CHANCE, Outcome
from turnwise.models.backbone.inputs import WINDOW
from turnwise.models.coherence import (
    SupportsCoherence,
    out_of_place_scores,
    placement_scores,
    predecessor_scores,
    predict_orders,
)
from turnwise.models.vector_cache import encode_unique

#: Tokens of a turn in an encoder; a re-ranker has its own length.
MAX_LENGTH = 128

#: Dialogues of a data set: enough for intervals of two points.
DIALOGUES = 2_000

#: The heads that are asked.
HEADS = ("deletion", "insertion", "search")

_Texts = tuple[str, ...]
_Scores = Sequence[float] | npt.NDArray[np.floating]


def coherence(
    model: SupportsEncode | SupportsCoherence,
    examples: Sequence[Candidates],
    dataset: str,
    *,
    max_length: int = MAX_LENGTH,
    seed: int = 0,
    progress: Progress = silent,
) -> list[Outcome]:
    """Accuracies of misfit, place and predecessor, adjacent pairs and Kendall's τ of the order, each beside its chance.

    Args:
        model: a re-ranker with some of the heads, or an encoder.
        examples: contexts with labelled candidates, of which the first right one ends the dialogue.
        dataset: its name, for the results.
        max_length: tokens of a turn, for an encoder.
        seed: of all that is drawn.
        progress: told how much is scored.

    Raises:
        DatasetError: if there is no dialogue of two turns that a turn of another could be put in.
    """
    puzzles = drawn_puzzles(whole_dialogues(examples), seed)
    if not puzzles:
        raise DatasetError(
            f"{dataset} has no dialogue of two turns or more, and another one whose turns could be put in it"
        )
    heads = heads_of(model)
    if not heads:
        return _misfit(dataset, "cosine", puzzles, _least_alike(cast(SupportsEncode, model), puzzles, max_length))
    reranker = cast(SupportsCoherence, model)
    outcomes: list[Outcome] = []
    if "deletion" in heads:
        found = out_of_place_scores(reranker, [puzzle.planted for puzzle in puzzles], progress=progress)
        outcomes += _misfit(dataset, "re-ranker", puzzles, [each.scores for each in found])
    if "insertion" in heads:
        outcomes += _place(dataset, reranker, puzzles, progress)
        outcomes += _order(dataset, reranker, puzzles, progress)
    if "search" in heads:
        outcomes += _predecessor(dataset, reranker, puzzles, progress)
    return outcomes


def heads_of(model: Any) -> tuple[str, ...]:
    """The heads of a model that can be asked; none of an encoder, or of a re-ranker that only scores candidates."""
    return tuple(head for head in HEADS if head in getattr(model, "heads", ()))


# ---- what is asked


@dataclass(frozen=True, slots=True)
class Puzzle:
    """What is asked of one dialogue.

    Attributes:
        turns: the window.
        foreign: a turn of another dialogue.
        planted_at: where it is put in.
        taken: the turn that is taken out.
        shuffled: the turns before the last, in another order.
    """

    turns: _Texts
    foreign: str
    planted_at: int
    taken: int
    shuffled: _Texts

    @property
    def planted(self) -> _Texts:
        """The window with the foreign turn."""
        return (*self.turns[: self.planted_at], self.foreign, *self.turns[self.planted_at :])

    @property
    def rest(self) -> _Texts:
        """The window without the turn that is taken out."""
        return self.turns[: self.taken] + self.turns[self.taken + 1 :]


def whole_dialogues(examples: Sequence[Candidates]) -> list[_Texts]:
    """Each different context with its first right response.

    Turns without a word are left out, and then dialogues of a single turn.
    """
    dialogues = dict.fromkeys(
        tuple(turn for turn in (*example.context, *example.positives[:1]) if turn.strip()) for example in examples
    )
    return [dialogue for dialogue in dialogues if len(dialogue) > 1]


def drawn_puzzles(dialogues: Sequence[_Texts], seed: int = 0, window: int = WINDOW) -> list[Puzzle]:
    """A puzzle for each dialogue, or for `DIALOGUES` of them, drawn at random; every place is as likely as any other.

    The foreign turn is never one that is said in the dialogue itself, whatever its case. A dialogue that has none is left out.
    """
    random = np.random.default_rng(seed)
    chosen = np.sort(random.permutation(len(dialogues))[:DIALOGUES])
    pool = [turn for dialogue in dialogues for turn in dialogue]
    distinct = len({normalise_text(turn) for turn in pool})
    return list(_puzzles([dialogues[number] for number in chosen], pool, distinct, window, random))


def _puzzles(
    dialogues: Sequence[_Texts], pool: Sequence[str], distinct: int, window: int, random: np.random.Generator
) -> Iterator[Puzzle]:
    for dialogue in dialogues:
        own = {normalise_text(turn) for turn in dialogue}
        if len(own) == distinct:
            continue
        size = min(window, len(dialogue))
        start = random.integers(len(dialogue) - size + 1)
        turns = dialogue[start : start + size]
        while normalise_text(foreign := pool[int(random.integers(len(pool)))]) in own:
            pass
        shuffled = tuple(turns[place] for place in random.permutation(size - 1))
        yield Puzzle(turns, foreign, int(random.integers(size + 1)), int(random.integers(size)), shuffled)


# ---- what is found


def _misfit(dataset: str, way: str, puzzles: Sequence[Puzzle], scores: Sequence[_Scores]) -> list[Outcome]:
    right = [_found(each, {puzzle.planted_at}) for puzzle, each in zip(puzzles, scores, strict=True)]
    return _beside_chance(dataset, f"misfit, {way}", "accuracy", right, [1 / len(each) for each in scores])


def _least_alike(encoder: SupportsEncode, puzzles: Sequence[Puzzle], max_length: int) -> list[_Scores]:
    """For each turn of each window, how little it is like its neighbours: less their mean cosine with it."""
    texts = [turn for puzzle in puzzles for turn in puzzle.planted]
    vectors, rows = encode_unique(encoder, texts, max_length)
    ends = np.cumsum([len(puzzle.planted) for puzzle in puzzles])
    return [_strangeness(vectors[each].astype(np.float64)) for each in np.split(rows, ends[:-1])]


def _strangeness(vectors: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    alike = (vectors[1:] * vectors[:-1]).sum(1)
    sums = np.append(alike, 0) + np.append(0, alike)
    neighbours = np.full(len(vectors), 2)
    neighbours[[0, -1]] = 1
    return np.asarray(-sums / neighbours)


def _place(dataset: str, reranker: SupportsCoherence, puzzles: Sequence[Puzzle], progress: Progress) -> list[Outcome]:
    asked = [(puzzle.rest, puzzle.turns[puzzle.taken]) for puzzle in puzzles]
    found = placement_scores(reranker, asked, progress=progress)
    right = [_found(each.scores, _right_gaps(puzzle)) for puzzle, each in zip(puzzles, found, strict=True)]
    chances = [len(_right_gaps(puzzle)) / len(puzzle.turns) for puzzle in puzzles]
    return _beside_chance(dataset, "place, re-ranker", "accuracy", right, chances)


def _right_gaps(puzzle: Puzzle) -> set[int]:
    """Where the turn that was taken out makes the window again: more than one gap where a turn repeats its neighbour."""
    taken, rest = puzzle.turns[puzzle.taken], puzzle.rest
    return {gap for gap in range(len(puzzle.turns)) if (*rest[:gap], taken, *rest[gap:]) == puzzle.turns}


def _predecessor(
    dataset: str, reranker: SupportsCoherence, puzzles: Sequence[Puzzle], progress: Progress
) -> list[Outcome]:
    """Of windows with two candidates or more; a data set without such has no such figure."""
    chosen = [puzzle for puzzle in puzzles if len(puzzle.shuffled) > 1]
    if not chosen:
        return []
    found = predecessor_scores(reranker, [(puzzle.shuffled, puzzle.turns[-1]) for puzzle in chosen], progress=progress)
    places = [{at for at, turn in enumerate(puzzle.shuffled) if turn == puzzle.turns[-2]} for puzzle in chosen]
    right = [_found(*each) for each in zip(found, places, strict=True)]
    chances = [len(each) / len(puzzle.shuffled) for puzzle, each in zip(chosen, places, strict=True)]
    return _beside_chance(dataset, "predecessor, re-ranker", "accuracy", right, chances)


def _order(dataset: str, reranker: SupportsCoherence, puzzles: Sequence[Puzzle], progress: Progress) -> list[Outcome]:
    """`orders` does not see in which order turns are given, so that they need no shuffling."""
    found = predict_orders(reranker, [puzzle.turns for puzzle in puzzles], progress=progress)
    ranks = [_ranks(puzzle.turns, each.indices) for puzzle, each in zip(puzzles, found, strict=True)]
    adjacent = [float((np.diff(each) == 1).mean()) for each in ranks]
    outcomes = _beside_chance(
        dataset, "order, re-ranker", "adjacent pairs", adjacent, [1 / len(each) for each in ranks]
    )
    return [*outcomes, _outcome(dataset, "order, re-ranker", "Kendall's τ", [_tau(each) for each in ranks])]


def _ranks(turns: _Texts, indices: Sequence[int]) -> npt.NDArray[np.int64]:
    """When each turn of an order was really said; of turns of one text the first in the order counts as the one said first."""
    places: dict[str, list[int]] = {}
    for place, turn in enumerate(turns):
        places.setdefault(turn, []).append(place)
    return np.array([places[turns[index]].pop(0) for index in indices])


def _tau(ranks: npt.NDArray[np.int64]) -> float:
    """Kendall's τ: of all pairs, the share in the right order less the share in the wrong one."""
    first, second = np.triu_indices(len(ranks), 1)
    return float(np.sign(ranks[second] - ranks[first]).mean())


def _found(scores: _Scores, right: set[int]) -> float:
    """Whether something right scores more than all that is wrong; where all is right, it does."""
    values = np.asarray(scores)
    is_right = np.isin(np.arange(len(values)), list(right))
    return float(is_right.all() or values[is_right].max() > values[~is_right].max())


def _beside_chance(dataset: str, setting: str, metric: str, values: list[float], chances: list[float]) -> list[Outcome]:
    return [_outcome(dataset, setting, metric, values), _outcome(dataset, setting, CHANCE, chances)]


def _outcome(dataset: str, setting: str, metric: str, values: list[float]) -> Outcome:
    return Outcome("coherence", dataset, setting, metric, np.array([values]), scale=1.0)
