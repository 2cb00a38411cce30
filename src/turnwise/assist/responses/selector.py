"""Response selection in two stages, in memory: an encoder retrieves candidates, a re-ranker orders them.

An encoder compares vectors: responses are encoded once, and a conversation costs one forward pass. A re-ranker reads
the conversation and a response together, which is more accurate and costs a pass per response. So k responses are
retrieved by cosine similarity, and only those are re-ranked.
"""

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from turnwise.assist.search.neighbours import Neighbours, nearest_neighbours
from turnwise.core.dialogue import Turn, as_turns, response_turns
from turnwise.core.errors import SearchError
from turnwise.core.progress import Progress, silent
from turnwise.core.types import SupportsEncode, SupportsScore, SupportsScoreAll, Vectors

#: A conversation so far, newest turn last.
Context = Sequence[str] | Sequence[Turn]

#: Responses returned by default.
_TOP = 10

#: Responses encoded between two progress reports.
_BATCH = 4_096


@dataclass(frozen=True, slots=True)
class SelectedResponse:
    """A response that was selected."""

    index: int  # its position among the indexed responses; of a repeated one, the first
    text: str
    similarity: float  # cosine similarity of its vector with the conversation's
    score: float | None  # the re-ranker's score; None without a re-ranker


@dataclass(eq=False, repr=False)
class Selector:
    """Selects the next response from a list of responses."""

    encoder: SupportsEncode
    reranker: SupportsScore | None = None  # orders what the encoder retrieves; None: by similarity
    _: KW_ONLY
    context: Literal["history", "last"] = "history"  # what the encoder reads of a conversation; a re-ranker reads all
    max_length: int | None = None  # tokens per conversation or response in the encoder; None: its limit

    def __post_init__(self) -> None:
        self._responses: list[str] = []
        self._positions: list[int] = []
        self._vectors: Vectors = np.empty((0, 0), np.float32)

    def __len__(self) -> int:
        return len(self._responses)

    @property
    def responses(self) -> Sequence[str]:
        """The distinct responses in the given order: `retrieve_all` returns positions in this list."""
        return self._responses

    def index(self, responses: Sequence[str], *, progress: Progress = silent) -> None:
        """Encode the responses to select from, each distinct text once, and replace the previous ones."""
        if isinstance(responses, str):
            raise SearchError("responses must be a list of texts: give a single one as [text]")
        positions: dict[str, int] = {}
        for position, text in enumerate(responses):
            positions.setdefault(text, position)
        distinct = list(positions)
        batches = []
        for first in range(0, len(distinct), _BATCH):
            batch = [response_turns(text) for text in distinct[first : first + _BATCH]]
            batches.append(self._encode(batch))
            progress("encoding responses", first + len(batch), len(distinct))
        self._responses, self._positions = distinct, list(positions.values())
        self._vectors = np.concatenate(batches or [np.empty((0, 0), np.float32)])

    def select(self, context: Context, k: int = 50, top: int | None = None) -> list[SelectedResponse]:
        """Return the best responses to a conversation (newest turn last), best first.

        The encoder retrieves k responses, which the re-ranker reads; `top` of them are returned (None: ten, or k if
        that is less). Raise SearchError if nothing is indexed, or the conversation has no turn.
        """
        return self.select_all([context], k, top)[0]

    def select_all(
        self, contexts: Sequence[Context], k: int = 50, top: int | None = None
    ) -> list[list[SelectedResponse]]:
        """Return what `select` returns for each of many conversations, encoding and scoring them together."""
        top = min(_TOP, k) if top is None else top
        if not 1 <= top <= k:
            raise SearchError(f"top must be between 1 and k, got top {top} and k {k}")
        retrieved = self.retrieve_all(contexts, k)
        scores = [None] * len(contexts) if self.reranker is None else self.score_all(contexts, retrieved.rows)
        selected: list[list[SelectedResponse]] = [[] for _ in contexts]
        for number, row_scores in enumerate(scores):
            rows, similarities = retrieved.rows[number], retrieved.similarities[number].tolist()
            # Ties stay in the order of similarity; NaN comes last.
            order = range(len(rows)) if row_scores is None else np.argsort(-row_scores, kind="stable")
            for place in order[:top]:
                score = None if row_scores is None else float(row_scores[place])
                response = self._positions[rows[place]], self._responses[rows[place]]
                selected[number].append(SelectedResponse(*response, similarities[place], score))
        return selected

    def retrieve_all(self, contexts: Sequence[Context], k: int) -> Neighbours:
        """Return the first stage's result: the k nearest responses of each conversation; ties in the indexed order."""
        if not self._responses:
            raise SearchError("nothing is indexed: call `index` with the responses first")
        inputs: list[Any] = []
        for number, context in enumerate(contexts):
            if isinstance(context, str) or not len(context):
                raise SearchError(f"conversation {number} must be a list with at least one turn")
            inputs.append(as_turns(context if self.context == "history" else context[-1:]) or "")
        return nearest_neighbours(self._encode(inputs), self._vectors, k)

    def score_all(self, contexts: Sequence[Context], rows: npt.NDArray[np.int64]) -> list[npt.NDArray[np.floating]]:
        """Return the second stage's result: the re-ranker's scores of responses by their rows (conversations, k)."""
        if self.reranker is None:
            raise SearchError("there is no re-ranker: give one to the selector")
        pairs = [
            (context, [self._responses[row] for row in each]) for context, each in zip(contexts, rows, strict=True)
        ]
        if isinstance(self.reranker, SupportsScoreAll):
            return [*self.reranker.score_all(pairs)] if pairs else []
        return [self.reranker.score(context, candidates) for context, candidates in pairs]

    def _encode(self, inputs: Sequence[Any]) -> Vectors:
        vectors = self.encoder.encode(inputs, normalise=True, max_length=self.max_length)
        if not np.isfinite(vectors).all():
            raise SearchError("the encoder returned vectors that are not finite")
        return vectors
