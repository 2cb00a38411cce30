"""What a re-ranker's heads see in a conversation: which turn does not belong, where one belongs, in which order turns were said.

The heads look at a few turns together (UMS's window, k), so that a conversation is read in windows, each as in training: k + 1
turns where one may not belong, k − 1 where one is to be put in, and k − 1 candidates for what was said right before a turn. Windows
of many conversations go through the model together.
"""

import heapq
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise
from typing import Literal, Protocol

import numpy as np
import numpy.typing as npt
from scipy.special import expit

from turnwise.backbone.compose import Composer
from turnwise.backbone.marked import Marked, deletion, insertion, search
from turnwise.backbone.stream import Tokens
from turnwise.dialogue import Dialogue, Turn
from turnwise.errors import TurnwiseError
from turnwise.progress import Progress, silent

#: A conversation, newest turn last.
Conversation = Dialogue | Sequence[Turn] | Sequence[str]

#: Of as many turns the best order is found for certain; of more it is searched for.
EXACT = 12

#: Turns that are read before they are scored, when a corpus is gone through.
CHUNK = 4_000

#: What an exchange has to bring: less may be rounding, and the search would never end.
_LEAST_GAIN = 1e-9

_Links = npt.NDArray[np.float64]


class CoherenceError(TurnwiseError):
    """A conversation cannot be looked at in this way; the message says why."""


class SupportsCoherence(Protocol):
    """A re-ranker, as far as these tools are concerned."""

    max_length: int
    window: int

    @property
    def composer(self) -> Composer:
        """What puts token sequences together."""

    def tokens(self, texts: Sequence[str]) -> dict[str, Tokens]:
        """The tokens of each different text."""

    def logits(
        self, task: Literal["insertion", "deletion", "search"], marked: Sequence[Marked], *, progress: Progress = silent
    ) -> list[npt.NDArray[np.float32]]:
        """What a head says at the marked places of each sequence."""


# ---- which turn does not belong


@dataclass(frozen=True, slots=True)
class Misfit:
    """How little each turn belongs.

    Attributes:
        scores: for each turn, the probability that it does not belong, the mean over the windows that hold it.
    """

    scores: tuple[float, ...]

    @property
    def index(self) -> int:
        """The most suspicious turn; the first of several."""
        return int(np.argmax(self.scores))


def misfits(reranker: SupportsCoherence, dialogues: Sequence[Conversation], *, progress: Progress = silent) -> list[Misfit]:
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
    texts = [texts_of(dialogue, least=2) for dialogue in dialogues]
    known, composer = reranker.tokens(list(chain.from_iterable(texts))), reranker.composer
    windows = list(_windows(texts, reranker.window + 1))
    marked = [deletion(composer, [known[text] for text in turns], reranker.max_length) for _, _, turns in windows]
    values = reranker.logits("deletion", marked, progress=progress)
    return [Misfit(scores) for scores in _means(windows, values, [len(turns) for turns in texts])]


# ---- where a turn belongs


@dataclass(frozen=True, slots=True)
class Placement:
    """Where an utterance belongs among turns.

    Attributes:
        scores: for each gap, the probability that it belongs there, the mean over the windows that hold the gap. Gap n is that
            before turn n, from 0; the last one is behind all turns.
    """

    scores: tuple[float, ...]

    @property
    def index(self) -> int:
        """The likeliest gap; the first of several."""
        return int(np.argmax(self.scores))


def placements(
    reranker: SupportsCoherence, asked: Sequence[tuple[Conversation, str]], *, progress: Progress = silent
) -> list[Placement]:
    """Where utterances belong.

    Args:
        reranker: with a head of insertion.
        asked: conversations of a turn or more, each with the utterance that belongs somewhere among its turns.
        progress: told how many windows are done.

    Raises:
        CoherenceError: if a conversation has no turn.
        BackboneError: if the re-ranker was trained without insertion.
    """
    texts = [texts_of(dialogue, least=1) for dialogue, _ in asked]
    known = reranker.tokens([*chain.from_iterable(texts), *(utterance for _, utterance in asked)])
    composer = reranker.composer
    windows = list(_windows(texts, reranker.window - 1))
    marked = [
        insertion(composer, [known[text] for text in turns], known[asked[number][1]], reranker.max_length)
        for number, _, turns in windows
    ]
    values = reranker.logits("insertion", marked, progress=progress)
    return [Placement(scores) for scores in _means(windows, values, [len(turns) + 1 for turns in texts])]


# ---- in which order turns were said


@dataclass(frozen=True, slots=True)
class Order:
    """The order in which turns were most likely said.

    Attributes:
        indices: of the turns given, the one that was said first coming first.
        score: the sum, over neighbours in that order, of the log-odds that the one was said right before the other.
        given: the same sum for the order in which the turns were given.
    """

    indices: tuple[int, ...]
    score: float
    given: float


def orders(reranker: SupportsCoherence, dialogues: Sequence[Conversation], *, progress: Progress = silent) -> list[Order]:
    """In which order the turns of each conversation were most likely said; the order in which they are given makes no difference.

    For each turn the others are its candidates, by their texts, in groups of nearly equal size. Of up to `EXACT` turns the order of
    greatest sum is found for certain; of more, one that no exchange of two neighbouring stretches of turns betters.

    Args:
        reranker: with a head of search.
        dialogues: of two turns or more, in any order.
        progress: told how many groups are done.

    Raises:
        CoherenceError: if a conversation has fewer turns.
        BackboneError: if the re-ranker was trained without search.
    """
    texts = [texts_of(dialogue, least=2) for dialogue in dialogues]
    ranked = [np.array(sorted(range(len(turns)), key=turns.__getitem__)) for turns in texts]
    places: list[tuple[int, int, npt.NDArray[np.int64]]] = []
    for number, turns in enumerate(texts):
        for target in range(len(turns)):
            others = np.delete(np.arange(len(turns)), target)
            groups = -(-len(others) // (reranker.window - 1))
            places += [(number, target, group) for group in np.array_split(others, groups)]
    asked = [
        ([texts[number][index] for index in ranked[number][group]], texts[number][ranked[number][target]])
        for number, target, group in places
    ]
    links = [np.full((len(turns), len(turns)), -np.inf) for turns in texts]
    for (number, target, group), values in zip(places, precedences(reranker, asked, progress=progress), strict=True):
        links[number][group, target] = values
    return [_ordered(*each) for each in zip(ranked, links, strict=True)]


def precedences(
    reranker: SupportsCoherence, asked: Sequence[tuple[Sequence[str], str]], *, progress: Progress = silent
) -> list[npt.NDArray[np.float64]]:
    """The log-odds that each of some turns was said right before another.

    Args:
        reranker: with a head of search.
        asked: candidates, which are looked at together, and the turn that one of them comes before.
        progress: told how many are done.

    Raises:
        BackboneError: if the re-ranker was trained without search.
    """
    known = reranker.tokens([*chain.from_iterable(turns for turns, _ in asked), *(target for _, target in asked)])
    composer = reranker.composer
    marked = [search(composer, [known[text] for text in turns], known[target], reranker.max_length) for turns, target in asked]
    return [values.astype(np.float64) for values in reranker.logits("search", marked, progress=progress)]


def _ordered(ranked: npt.NDArray[np.int64], links: _Links) -> Order:
    """The order of turns by the links between them, which are sorted as `ranked` says."""
    path = best_path(links)
    given = np.argsort(ranked)
    return Order(tuple(ranked[path].tolist()), path_score(links, path), path_score(links, given))


def path_score(links: _Links, path: npt.NDArray[np.int64]) -> float:
    """The sum of the links between neighbours of a path."""
    return float(links[path[:-1], path[1:]].sum())


def best_path(links: _Links) -> npt.NDArray[np.int64]:
    """The path through all places with the greatest sum of links; with more than `EXACT` places, a path that is searched for.

    Args:
        links: (places, places): what it brings to go from one to another; -∞ from a place to itself.
    """
    return exact_path(links) if len(links) <= EXACT else searched_path(links)


def exact_path(links: _Links) -> npt.NDArray[np.int64]:
    """The path through all places with the greatest sum of links, by dynamic programming over subsets (Held and Karp, 1962)."""
    count = len(links)
    subsets = np.arange(1 << count)
    size = np.bitwise_count(subsets)
    best = np.full((1 << count, count), -np.inf)  # of paths through a subset that end at a place
    came = np.zeros((1 << count, count), np.int64)
    best[1 << np.arange(count), np.arange(count)] = 0
    for length in range(1, count):
        members = subsets[size == length]
        reached = best[members][:, :, None] + links
        values, sources = reached.max(1), reached.argmax(1)
        for place in range(count):
            rows = np.flatnonzero(members >> place & 1 == 0)
            best[members[rows] | 1 << place, place] = values[rows, place]
            came[members[rows] | 1 << place, place] = sources[rows, place]
    path, subset = [int(best[-1].argmax())], (1 << count) - 1
    while len(path) < count:
        last = path[-1]
        path.append(int(came[subset, last]))
        subset ^= 1 << last
    return np.array(path[::-1])


def searched_path(links: _Links) -> npt.NDArray[np.int64]:
    """A path through all places, put together by greedy insertion, in which no exchange of two neighbouring stretches is worth it.

    The exchange is the move of Or (1976) with stretches of any length. It turns none of them round: a conversation has a direction.
    """
    count = len(links)
    wide = np.zeros((count + 1, count + 1))
    wide[:count, :count] = links
    path = np.array([count, *_inserted(links), count])  # a place that nothing is gained by stands before and behind
    bettered = True
    while bettered:
        bettered = False
        for start in range(count - 1):
            middle, end, gain = _exchange(wide[path][:, path], start)
            if gain > _LEAST_GAIN:
                path[start + 1 : end + 1] = np.concatenate([path[middle + 1 : end + 1], path[start + 1 : middle + 1]])
                bettered = True
    return path[1:-1]


def _exchange(between: _Links, start: int) -> tuple[int, int, float]:
    """The best exchange of two stretches, of which the first comes behind a given place: where they end, and what is gained.

    Args:
        between: the links between the places of a path, in its order.
        start: the place before the first stretch.
    """
    middle, end = (start + 1 + each for each in np.triu_indices(len(between) - 2 - start, 1))
    steps = between.diagonal(1)
    gains = between[start, middle + 1] + between[end, start + 1] + between[middle, end + 1]
    gains = gains - (steps[start] + steps[middle] + steps[end])
    best = int(gains.argmax())
    return int(middle[best]), int(end[best]), float(gains[best])


def _inserted(links: _Links) -> list[int]:
    """A path that grows from the best link by whatever place brings most, wherever it does."""
    path = [int(place) for place in np.unravel_index(links.argmax(), links.shape)]
    while len(path) < len(links):
        rest = np.setdiff1d(np.arange(len(links)), path)
        nothing = np.zeros((1, len(rest)))
        before = np.vstack([nothing, links[path][:, rest]])
        behind = np.vstack([links[rest][:, path].T, nothing])
        broken = np.concatenate([[0], links[path[:-1], path[1:]], [0]])
        place, which = np.unravel_index((before + behind - broken[:, None]).argmax(), before.shape)
        path.insert(int(place), int(rest[which]))
    return path


# ---- a whole corpus


@dataclass(frozen=True, slots=True)
class Suspect:
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
class Survey:
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
    suspects: tuple[Suspect, ...]


def survey(
    reranker: SupportsCoherence,
    dialogues: Iterable[Dialogue],
    *,
    top: int = 20,
    threshold: float = 0.0,
    total: int | None = None,
    progress: Progress = silent,
) -> Survey:
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
    kept: list[Suspect] = []
    for chunk in _chunks(dialogues):
        several = [dialogue for dialogue in chunk if len(dialogue.turns) > 1]
        found = zip(several, misfits(reranker, several), strict=True)
        new = (suspect for pair in found for suspect in _suspects(*pair) if suspect.score >= threshold)
        kept = heapq.nlargest(top, chain(kept, new), key=lambda suspect: suspect.score)
        read += len(chunk)
        passed_over += len(chunk) - len(several)
        turns += sum(len(dialogue.turns) for dialogue in several)
        progress("looking at dialogues", read, total)
    return Survey(read, turns, passed_over, tuple(kept))


def _suspects(dialogue: Dialogue, misfit: Misfit) -> Iterator[Suspect]:
    before = None
    for number, (turn, score) in enumerate(zip(dialogue.turns, misfit.scores, strict=True), start=1):
        yield Suspect(dialogue.id, number, turn.speaker, score, before, turn.text)
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


def texts_of(dialogue: Conversation, least: int) -> list[str]:
    """The texts of a conversation's turns.

    Raises:
        CoherenceError: if it is a single text, or has fewer turns than `least`.
    """
    if isinstance(dialogue, str):
        raise CoherenceError("a conversation is a dialogue or a list of turns, not a single text: give a single turn as [text]")
    turns = dialogue.turns if isinstance(dialogue, Dialogue) else dialogue
    if len(turns) < least:
        named = f"dialogue {dialogue.id!r}" if isinstance(dialogue, Dialogue) else "a conversation"
        raise CoherenceError(f"{named} has {len(turns)} turn{'s' * (len(turns) != 1)}: this takes {least} or more")
    return [turn.text if isinstance(turn, Turn) else turn for turn in turns]


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
    places = [firsts[number] + start + np.arange(len(each)) for (number, start, _), each in zip(windows, logits, strict=True)]
    flat = np.concatenate([*places, np.empty(0, np.int64)])
    # in double precision a probability near 1 is still told from another
    values = expit(np.concatenate([*logits, np.empty(0)]).astype(np.float64))
    means = np.bincount(flat, values, firsts[-1]) / np.bincount(flat, minlength=firsts[-1])
    return (tuple(means[first:last].tolist()) for first, last in pairwise(firsts))
