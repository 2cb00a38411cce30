"""What a service has loaded: a reload puts new models beside the old ones, which finish what they have."""

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from turnwise.serve.batching import BatchedEncoder, Batcher

if TYPE_CHECKING:
    from turnwise.assist.conversations.conversations import Conversations
    from turnwise.assist.intents.storage import IntentFolder
    from turnwise.assist.labelling.labelling import Labelling
    from turnwise.assist.responses.responder import Responder
    from turnwise.core.conversation import Conversation
    from turnwise.models.coherence import PositionScores
    from turnwise.models.reranker import Reranker


class OneAtATime:
    """A re-ranker that several threads may ask: a tokenizer must not be used by two at a time."""

    def __init__(self, reranker: "Reranker"):
        self._reranker = reranker
        self._lock = threading.Lock()

    @property
    def finds_misfits(self) -> bool:
        """Whether it was trained to tell which turn does not belong."""
        return "deletion" in self._reranker.heads

    def score(self, context: Sequence[Any], candidates: Sequence[str]) -> npt.NDArray[np.float64]:
        """How well each candidate goes on from the context."""
        with self._lock:
            return self._reranker.score(context, candidates)

    def score_all(self, asked: Sequence[tuple[Sequence[Any], Sequence[str]]]) -> list[npt.NDArray[np.float64]]:
        """What `score` gives for each context and its candidates."""
        with self._lock:
            return self._reranker.score_all(asked)

    def out_of_place(self, dialogue: "Conversation") -> "PositionScores":
        """How little each turn of a conversation belongs."""
        with self._lock:
            return self._reranker.out_of_place(dialogue)


@dataclass(frozen=True, slots=True)
class ServedIntents:
    """A classifier of intents with its examples on disk, and the queue of the encoder that it tells them with."""

    folder: "IntentFolder"
    batcher: Batcher


@dataclass(slots=True)
class Models:
    """What answers requests.

    Attributes:
        name: the encoder's, as it was asked for.
        batcher: the encoder's queue.
        own_batchers: the queues of encoders that classifiers brought with them.
        reranker: reads candidates with a conversation.
        responder: suggests answers.
        conversations: finds conversations alike.
        intents: tells intents, and keeps their examples.
        labelling: a map, and the labels that its groups were given.
        users: requests that these models answer now.
        is_retired: whether others have taken their place.
    """

    name: str
    batcher: Batcher
    own_batchers: list[Batcher] = field(default_factory=list)
    reranker: OneAtATime | None = None
    responder: "Responder | None" = None
    conversations: "Conversations | None" = None
    intents: ServedIntents | None = None
    labelling: "Labelling | None" = None
    users: int = 0
    is_retired: bool = False

    @property
    def encoder(self) -> BatchedEncoder:
        """The encoder, for threads that may wait."""
        return BatchedEncoder(self.batcher)

    @property
    def waiting(self) -> int:
        """Texts that wait to be encoded."""
        return sum(each.waiting for each in (self.batcher, *self.own_batchers))

    def stop(self) -> None:
        """Ends the threads of models that nobody uses any more."""
        for each in (self.batcher, *self.own_batchers):
            each.close()
