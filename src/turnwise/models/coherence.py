"""What a re-ranker's heads see in a conversation: which turn does not belong, where one belongs, in which order turns were said.

The heads look at a few turns together (UMS's window, k), so that a conversation is read in windows, each as in training: k + 1
turns where one may not belong, k − 1 where one is to be put in. Windows of many conversations go through the model together.
"""

import heapq
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise
from typing import Literal, Protocol

import numpy as np
import numpy.typing as npt
from scipy.special import expit

from turnwise.core.dialogue import Conversation, Dialogue, turn_texts
from turnwise.core.errors import TurnwiseError
from turnwise.core.progress import Progress, silent
from turnwise.models.backbone.inputs import Composer, MarkedInput, deletion_input, insertion_input, search_input
from turnwise.models.backbone.stream import Tokens

#: Turns that are read before they are scored, when a corpus is gone through.
CHUNK = 4_000

#: The least score of a gap, whose logarithm is asked for.
_LEAST = 1e-12


class CoherenceError(TurnwiseError):
    """A conversation cannot be looked at in this way; the message says why."""


class SupportsCoherence(Protocol):
    """A re-ranker, as far as these tools are concerned."""

    max_length: int
    window: int

    @property
    def composer(self) -> Composer:
        """What puts token sequences together."""

    def tokenise(self, texts: Sequence[str]) -> dict[str, Tokens]:
        """The tokens of each different text."""

    def logits(
        self,
        task: Literal["insertion", "deletion", "search"],
        marked: Sequence[MarkedInput],
        *,
        progress: Progress = silent,
    ) -> list[npt.NDArray[np.float32]]:
        """What a head says at the marked places of each sequence."""


# ---- which turn does not belong


@dataclass(frozen=True, slots=True)
class PositionScores:
    """A probability for every position of a conversation, the mean over the windows that contain the position."""

    scores: tuple[float, ...]

    @property
    def index(self) -> int:
        """The position of the highest score; the first of several."""
        return int(np.argmax(self.scores))


def out_of_place_scores(
    reranker: SupportsCoherence, dialogues: Sequence[Conversation], *, progress: Progress = silent
) -> list[PositionScores]:
    """Which turn of each conversation does not belong.

    The head was trained on windows in which exactly one turn is foreign: scores tell turns apart better than they say whether any
    turn is foreign at all.

    Args:
        reranker: with a head of deletion.
        dialogues: of two turns or more.
        progress: told how many windows are done.

    Raises:
        CoherenceError: if a conversation has fewer turns.
        BackboneError: if the re-ranker was trained without deletion.
    """
    texts = [_texts(dialogue, least=2) for dialogue in dialogues]
    known, composer = reranker.tokenise(list(chain.from_iterable(texts))), reranker.composer
    windows = list(_windows(texts, reranker.window + 1))
    marked = [deletion_input(composer, [known[text] for text in turns], reranker.max_length) for _, _, turns in windows]
    values = reranker.logits("deletion", marked, progress=progress)
    return [PositionScores(scores) for scores in _means(windows, values, [len(turns) for turns in texts])]


# ---- where a turn belongs


def placement_scores(
    reranker: SupportsCoherence, asked: Sequence[tuple[Conversation, str]], *, progress: Progress = silent
) -> list[PositionScores]:
    """Where utterances belong.

    Args:
        reranker: with a head of insertion.
        asked: conversations of a turn or more, each with the utterance that belongs somewhere among its turns.
        progress: told how many windows are done.

    Raises:
        CoherenceError: if a conversation has no turn.
        BackboneError: if the re-ranker was trained without insertion.
    """
    texts = [_texts(dialogue, least=1) for dialogue, _ in asked]
    known = reranker.tokenise([*chain.from_iterable(texts), *(utterance for _, utterance in asked)])
    composer = reranker.composer
    windows = list(_windows(texts, reranker.window - 1))
    marked = [
        insertion_input(composer, [known[text] for text in turns], known[asked[number][1]], reranker.max_length)
        for number, _, turns in windows
    ]
    values = reranker.logits("insertion", marked, progress=progress)
    return [PositionScores(scores) for scores in _means(windows, values, [len(turns) + 1 for turns in texts])]


# ---- in which order turns were said


@dataclass(frozen=True, slots=True)
class TurnOrder:
    """The order in which turns were most likely said.

    Attributes:
        indices: of the turns given, the one that was said first coming first.
        score: the mean, over the turns, of the log of the share that the gap in which a turn stands has among all gaps for it.
        given: the same mean for the order in which the turns were given.
    """

    indices: tuple[int, ...]
    score: float
    given: float


def predict_orders(
    reranker: SupportsCoherence, dialogues: Sequence[Conversation], *, progress: Progress = silent
) -> list[TurnOrder]:
    """In which order the turns of each conversation were most likely said; the order in which they are given makes no difference.

    An order grows by the turn that is surest of its gap. Then turns are taken out and put where they belong, the one that gains
    most first, until none gains; of all predict_orders on the way that of the best score is given. There may be a better one.

    Args:
        reranker: with a head of insertion.
        dialogues: of two turns or more, in any order.
        progress: told how many turns stand, and then how many conversations have come to rest.

    Raises:
        CoherenceError: if a conversation has fewer turns.
        BackboneError: if the re-ranker was trained without insertion.
    """
    texts = [_texts(dialogue, least=2) for dialogue in dialogues]
    ranked = [sorted(range(len(turns)), key=turns.__getitem__) for turns in texts]
    sorted_texts = [[turns[index] for index in order] for turns, order in zip(texts, ranked, strict=True)]
    found = _settled(reranker, sorted_texts, _grown(reranker, sorted_texts, progress), progress)
    given = _standings(reranker, sorted_texts, [tuple(np.argsort(order).tolist()) for order in ranked])
    return [
        TurnOrder(tuple(order[place] for place in path), score, _score(stood))
        for order, (path, score), stood in zip(ranked, found, given, strict=True)
    ]


#: An order of turns, by their places among those sorted by text.
_Path = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class _Standing:
    """What the head says of a turn in an order: the share of the gap where it stands, the best gap, and the share of that."""

    own: float
    best: int
    share: float


def _grown(reranker: SupportsCoherence, texts: Sequence[Sequence[str]], progress: Progress) -> list[_Path]:
    """Orders that start with a turn and take in the others, each time the one that is surest of its gap."""
    paths: list[list[int]] = [[0] for _ in texts]
    while unfinished := [number for number, path in enumerate(paths) if len(path) < len(texts[number])]:
        rest = [
            (number, turn) for number in unfinished for turn in range(len(texts[number])) if turn not in paths[number]
        ]
        shares = _shares(reranker, texts, [(number, paths[number], turn) for number, turn in rest])
        surest: dict[int, tuple[float, int, int]] = {}
        for (number, turn), each in zip(rest, shares, strict=True):
            if number not in surest or each.max() > surest[number][0]:
                surest[number] = (float(each.max()), turn, int(each.argmax()))
        for number, (_, turn, gap) in surest.items():
            paths[number].insert(gap, turn)
        progress("ordering", sum(map(len, paths)), sum(map(len, texts)))
    return [tuple(path) for path in paths]


def _settled(
    reranker: SupportsCoherence, texts: Sequence[Sequence[str]], paths: Sequence[_Path], progress: Progress
) -> list[tuple[_Path, float]]:
    """Orders in which turns were moved to where they belong, until none gains by it, and their scores."""
    now, best = list(paths), [(path, -np.inf) for path in paths]
    seen: list[set[_Path]] = [set() for _ in paths]
    while moving := [number for number, path in enumerate(now) if path not in seen[number]]:
        for number, stood in zip(
            moving, _standings(reranker, [texts[n] for n in moving], [now[n] for n in moving]), strict=True
        ):
            path, score = now[number], _score(stood)
            seen[number].add(path)
            best[number] = max(best[number], (path, score), key=lambda each: each[1])
            place = max(range(len(path)), key=lambda place: stood[place].share / stood[place].own)
            others = [*path[:place], *path[place + 1 :]]
            now[number] = (*others[: stood[place].best], path[place], *others[stood[place].best :])
        progress("settling", len(now) - len(moving), len(now))
    return best


def _standings(
    reranker: SupportsCoherence, texts: Sequence[Sequence[str]], paths: Sequence[_Path]
) -> list[list[_Standing]]:
    """What the head says of every turn of each order, in that order."""
    asked = [
        (number, [*path[:place], *path[place + 1 :]], path[place])
        for number, path in enumerate(paths)
        for place in range(len(path))
    ]
    shares = iter(_shares(reranker, texts, asked))
    found = []
    for path in paths:
        of_path = [next(shares) for _ in path]
        found.append([_Standing(each[place], int(each.argmax()), each.max()) for place, each in enumerate(of_path)])
    return found


def _score(stood: Sequence[_Standing]) -> float:
    return float(np.mean([np.log(each.own) for each in stood]))


def _shares(
    reranker: SupportsCoherence, texts: Sequence[Sequence[str]], asked: Sequence[tuple[int, Sequence[int], int]]
) -> list[npt.NDArray[np.float64]]:
    """For a turn of a conversation and an order of some others: the share that each gap has of all the gaps' scores."""
    found = placement_scores(
        reranker, [([texts[number][place] for place in path], texts[number][turn]) for number, path, turn in asked]
    )
    scores = [np.maximum(each.scores, _LEAST) for each in found]
    return [each / each.sum() for each in scores]


def predecessor_scores(
    reranker: SupportsCoherence, asked: Sequence[tuple[Sequence[str], str]], *, progress: Progress = silent
) -> list[npt.NDArray[np.float64]]:
    """The log-odds that each of some turns was said right before another, which comes after all of them.

    Args:
        reranker: with a head of search.
        asked: candidates, which are looked at together, and the turn that one of them comes before.
        progress: told how many are done.

    Raises:
        BackboneError: if the re-ranker was trained without search.
    """
    known = reranker.tokenise([*chain.from_iterable(turns for turns, _ in asked), *(target for _, target in asked)])
    composer = reranker.composer
    marked = [
        search_input(composer, [known[text] for text in turns], known[target], reranker.max_length)
        for turns, target in asked
    ]
    return [values.astype(np.float64) for values in reranker.logits("search", marked, progress=progress)]


# ---- a whole corpus


@dataclass(frozen=True, slots=True)
class OutOfPlaceTurn:
    """A turn that may not belong.

    Attributes:
        dialogue: its id.
        turn: its number, from 1.
        speaker: who said it.
        score: the probability that it does not belong.
        before: what was said before it; None for the first turn.
        text: what was said.
    """

    dialogue: str
    turn: int
    speaker: str
    score: float
    before: str | None
    text: str


@dataclass(frozen=True, slots=True)
class CoherenceReport:
    """What was found in a corpus.

    Attributes:
        dialogues: that were read.
        turns: that were scored.
        passed_over: dialogues of a single turn, which nothing can be said of.
        suspects: the most suspicious turns, the most suspicious first.
    """

    dialogues: int
    turns: int
    passed_over: int
    suspects: tuple[OutOfPlaceTurn, ...]


def check_corpus(
    reranker: SupportsCoherence,
    dialogues: Iterable[Dialogue],
    *,
    top: int = 20,
    threshold: float = 0.0,
    total: int | None = None,
    progress: Progress = silent,
) -> CoherenceReport:
    """The most suspicious turns of a corpus, which is read in a stream: memory holds a few thousand turns at a time.

    Args:
        reranker: with a head of deletion.
        dialogues: of any number of turns.
        top: how many turns to give at most; of equal ones the first read.
        threshold: the least score of a turn that is given.
        total: how many dialogues there are, if that is known.
        progress: told how many dialogues are read.

    Raises:
        BackboneError: if the re-ranker was trained without deletion.
    """
    read = turns = passed_over = 0
    kept: list[OutOfPlaceTurn] = []
    for chunk in _chunks(dialogues):
        several = [dialogue for dialogue in chunk if len(dialogue.turns) > 1]
        found = zip(several, out_of_place_scores(reranker, several), strict=True)
        new = (suspect for pair in found for suspect in _suspects(*pair) if suspect.score >= threshold)
        kept = heapq.nlargest(top, chain(kept, new), key=lambda suspect: suspect.score)
        read += len(chunk)
        passed_over += len(chunk) - len(several)
        turns += sum(len(dialogue.turns) for dialogue in several)
        progress("looking at dialogues", read, total)
    return CoherenceReport(read, turns, passed_over, tuple(kept))


def _suspects(dialogue: Dialogue, misfit: PositionScores) -> Iterator[OutOfPlaceTurn]:
    before = None
    for number, (turn, score) in enumerate(zip(dialogue.turns, misfit.scores, strict=True), start=1):
        yield OutOfPlaceTurn(dialogue.id, number, turn.speaker, score, before, turn.text)
        before = turn.text


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


# ---- windows

#: The number of a conversation, where in it a window starts, and the window's turns.
_Window = tuple[int, int, Sequence[str]]


def _texts(dialogue: Conversation, least: int) -> list[str]:
    """The texts of a conversation's turns.

    Raises:
        CoherenceError: if it is no conversation, or has fewer turns than `least`.
    """
    try:
        texts = turn_texts(dialogue)
    except (TypeError, ValueError) as error:
        raise CoherenceError(str(error)) from None
    if len(texts) < least:
        named = f"dialogue {dialogue.id!r}" if isinstance(dialogue, Dialogue) else "a conversation"
        raise CoherenceError(f"{named} has {len(texts)} turn{'s' * (len(texts) != 1)}: this takes {least} or more")
    return texts


def _windows(texts: Sequence[Sequence[str]], width: int) -> Iterator[_Window]:
    """Every run of so many consecutive turns; a shorter conversation is a window itself."""
    for number, turns in enumerate(texts):
        for start in range(max(1, len(turns) - width + 1)):
            yield number, start, turns[start : start + width]


def _means(
    windows: Sequence[_Window], logits: Sequence[npt.NDArray[np.float32]], sizes: Sequence[int]
) -> Iterator[tuple[float, ...]]:
    """For each conversation and each of its places, the mean probability over the windows that hold the place."""
    firsts = np.cumsum([0, *sizes])
    places = [
        firsts[number] + start + np.arange(len(each)) for (number, start, _), each in zip(windows, logits, strict=True)
    ]
    flat = np.concatenate([*places, np.empty(0, np.int64)])
    # in double precision a probability near 1 is still told from another
    values = expit(np.concatenate([*logits, np.empty(0)]).astype(np.float64))
    means = np.bincount(flat, values, firsts[-1]) / np.bincount(flat, minlength=firsts[-1])
    return (tuple(means[first:last].tolist()) for first, last in pairwise(firsts))
