"""Two stages: an encoder finds the responses that may come next among many, a re-ranker reads each of those with the conversation.

An encoder compares vectors: responses are encoded once, and a conversation costs one pass. A re-ranker reads a conversation and a
response together, which tells more of them and costs a pass a response. So k are retrieved by cosine, and those k are re-ranked.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from turnwise.assist.search.neighbours import Neighbours, nearest_neighbours
from turnwise.core.conversation import conversation, reply, texts_of
from turnwise.core.dialogue import Turn
from turnwise.core.errors import TurnwiseError
from turnwise.core.progress import Progress, silent
from turnwise.core.types import SupportsEncode, SupportsScore, SupportsScoreAll

#: A conversation so far, newest turn last.
Context = Sequence[str] | Sequence[Turn]

#: Responses that are given unless a number is asked for.
_TOP = 10

#: Responses that are encoded between two reports of progress.
_PORTION = 4_096

Vectors = npt.NDArray[np.float32]


class SelectorError(TurnwiseError):
    """A response cannot be selected as asked; the message says why and what to do."""


@dataclass(frozen=True, slots=True)
class Selected:
    """A response that was selected.

    Attributes:
        index: its place among the responses that were indexed; of one that repeats, the first.
        text: the response.
        similarity: the cosine of its vector with the conversation's.
        score: what the re-ranker makes of it; None without a re-ranker.
    """

    index: int
    text: str
    similarity: float
    score: float | None


class Selector:
    """Selects what may be said next from responses that were indexed.

    Attributes:
        encoder: retrieves.
        reranker: puts what was retrieved in order; None: similarity does.
        context: what the encoder reads of a conversation; the re-ranker reads all of it.
        max_length: tokens of a conversation or a response in the encoder; None: its own.
    """

    def __init__(
        self,
        encoder: SupportsEncode,
        reranker: SupportsScore | None = None,
        *,
        context: Literal["history", "last"] = "history",
        max_length: int | None = None,
    ):
        self.encoder = encoder
        self.reranker = reranker
        self.context: Literal["history", "last"] = context
        self.max_length = max_length
        self._responses: list[str] = []
        self._places: list[int] = []
        self._vectors: Vectors = np.empty((0, 0), np.float32)

    def __len__(self) -> int:
        """How many different responses are indexed."""
        return len(self._responses)

    @property
    def responses(self) -> Sequence[str]:
        """The different responses, in the order in which they were given: a row of what is retrieved is a place here."""
        return self._responses

    def index(self, responses: Sequence[str], *, progress: Progress = silent) -> None:
        """Encodes what there is to select from, each text once; what was indexed before is forgotten.

        Args:
            responses: the texts.
            progress: told how many are encoded.

        Raises:
            SelectorError: if it is a single text.
        """
        if isinstance(responses, str):
            raise SelectorError("responses are a list of texts: give a single one as [text]")
        places: dict[str, int] = {}
        for place, text in enumerate(responses):
            places.setdefault(text, place)
        distinct = list(places)
        portions = []
        for first in range(0, len(distinct), _PORTION):
            portion = [reply(text) for text in distinct[first : first + _PORTION]]
            portions.append(self._encoded(portion))
            progress("encoding responses", first + len(portion), len(distinct))
        self._responses, self._places = distinct, list(places.values())
        self._vectors = np.concatenate(portions or [np.empty((0, 0), np.float32)])

    def select(self, context: Context, k: int = 50, top: int | None = None) -> list[Selected]:
        """What may be said next, best first.

        Args:
            context: the conversation so far, newest turn last.
            k: how many the encoder retrieves, and the re-ranker reads; all where there are fewer.
            top: how many of these to give; None: ten, or all where fewer are retrieved.

        Raises:
            SelectorError: if nothing is indexed, a number is out of range, or the conversation holds no turn.
        """
        return self.select_all([context], k, top)[0]

    def select_all(self, contexts: Sequence[Context], k: int = 50, top: int | None = None) -> list[list[Selected]]:
        """What `select` gives for many conversations: these are encoded at once, and all that was retrieved is scored at once.

        Args:
            contexts: the conversations.
            k: how many are retrieved for each.
            top: how many of these to give for each; None: as in `select`.

        Raises:
            SelectorError: as in `select`.
        """
        top = min(_TOP, k) if top is None else top
        if not 1 <= top <= k:
            raise SelectorError(f"top is {top} and k is {k}: give one at least, and at most as many as are retrieved")
        found = self.retrieve_all(contexts, k)
        if self.reranker is None:
            return [
                [
                    self._selected(row, similarity, None)
                    for row, similarity in zip(rows[:top], similarities, strict=False)
                ]
                for rows, similarities in zip(found.rows, found.similarities, strict=True)
            ]
        scores = self.score_all(contexts, found.rows)
        # of equal scores the nearer one comes first; what is not a number comes last
        orders = [np.argsort(-each, kind="stable")[:top] for each in scores]
        return [
            [self._selected(rows[place], similarities[place], float(each[place])) for place in order]
            for rows, similarities, each, order in zip(found.rows, found.similarities, scores, orders, strict=True)
        ]

    def retrieve_all(self, contexts: Sequence[Context], k: int) -> Neighbours:
        """The first stage alone: the nearest responses by cosine; of equal ones the one that was indexed first comes first.

        Args:
            contexts: the conversations.
            k: how many for each; all where there are fewer.

        Raises:
            SelectorError: as in `select`.
        """
        if not self._responses:
            raise SelectorError("nothing is indexed: give the responses to `index` first")
        if k < 1:
            raise SelectorError(f"k is {k}: retrieve one response at least")
        for number, context in enumerate(contexts):
            _check(context, number)
        read = [context if self.context == "history" else context[-1:] for context in contexts]
        return nearest_neighbours(self._encoded([_said(context) for context in read]), self._vectors, k)

    def score_all(self, contexts: Sequence[Context], rows: npt.NDArray[np.int64]) -> list[npt.NDArray[np.floating]]:
        """The second stage alone: what the re-ranker makes of responses by their rows, for each conversation.

        Args:
            contexts: the conversations.
            rows: of the responses to read with each (conversations, k).

        Raises:
            SelectorError: if there is no re-ranker.
        """
        if self.reranker is None:
            raise SelectorError("there is no re-ranker that could score: give one to the selector")
        asked = [
            (context, [self._responses[row] for row in each]) for context, each in zip(contexts, rows, strict=True)
        ]
        if isinstance(self.reranker, SupportsScoreAll):
            return [*self.reranker.score_all(asked)] if asked else []
        return [self.reranker.score(context, candidates) for context, candidates in asked]

    def _selected(self, row: int, similarity: float, score: float | None) -> Selected:
        return Selected(self._places[row], self._responses[row], float(similarity), score)

    def _encoded(self, inputs: Sequence[Any]) -> Vectors:
        vectors = self.encoder.encode(inputs, normalise=True, max_length=self.max_length)
        if not np.isfinite(vectors).all():
            raise SelectorError("the encoder gave vectors that are not numbers: nothing can be compared with them")
        return vectors


def _check(context: Context, number: int) -> None:
    if isinstance(context, str):
        raise SelectorError(
            f"conversation {number} is a single text: a conversation is a list of turns, give it as [text]"
        )
    if not len(context):
        raise SelectorError(f"conversation {number} has no turn that a response could go on from")


def _said(context: Context) -> Any:
    """A conversation for the encoder; where texts do not say who speaks, the newest is the user's."""
    turns = [turn for turn in context if isinstance(turn, Turn)]
    return tuple(turns) if len(turns) == len(context) else conversation(texts_of(context))
