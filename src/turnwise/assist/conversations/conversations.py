"""Whole conversations in a table, a vector each: the ones like a given one, and clusters of them.

What is usual is found over the first corpus that is indexed, before any of its dialogues is, and kept with them: what is added
later, and what is asked, is held against the same, so that all vectors can be compared.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from turnwise.assist.conversations.clusters import Clustered, ConversationCluster, Placed, clustered
from turnwise.assist.conversations.vectors import Census, Usual, Vectors, conversation_vector
from turnwise.assist.map.reduction import Method
from turnwise.assist.search.filters import Where
from turnwise.assist.search.schema import KEY
from turnwise.assist.search.table import VectorTable
from turnwise.core.conversation import Conversation, conversation, texts_of
from turnwise.core.dialogue import USER, Dialogue, Turn
from turnwise.core.errors import TurnwiseError
from turnwise.core.progress import Progress, silent
from turnwise.core.types import SupportsEncode

__all__ = ["ConversationCluster", "Conversations", "ConversationsError", "Indexed", "Placed", "SimilarConversation"]

#: Dialogues that are encoded and committed at once: so many are done again, at most, by an index that was stopped.
PORTION = 256

#: The tables in a database.
TABLE, _USUAL = "conversations", "usual"
_COLUMNS = pa.schema(
    [
        pa.field("dialogue", pa.string()),
        pa.field("source", pa.string()),
        pa.field("split", pa.string()),
        pa.field("speakers", pa.list_(pa.string())),
        pa.field("texts", pa.list_(pa.string())),
    ]
)
_USUAL_COLUMNS = pa.schema([pa.field("count", pa.int64()), pa.field("centre", pa.list_(pa.float32()))])

#: The key of the mean turn; no text is empty.
_CENTRE = ""


class ConversationsError(TurnwiseError):
    """Conversations cannot be kept or compared as asked; the message says why and what to do."""


@dataclass(frozen=True, slots=True)
class SimilarConversation:
    """A conversation that was found.

    Attributes:
        dialogue: its id.
        similarity: the cosine of its vector with the one that was asked about.
        source: where it comes from, if that is known.
        split: which split it is of, if any.
        turns: all of it.
    """

    dialogue: str
    similarity: float
    source: str | None
    split: str | None
    turns: tuple[Turn, ...]


@dataclass(frozen=True, slots=True)
class Indexed:
    """What came of indexing.

    Attributes:
        read: dialogues that the corpus has.
        added: those that were not there before.
        dialogues: all that are there now.
    """

    read: int
    added: int
    dialogues: int


class Conversations:
    """Conversations in a LanceDB database, in a folder or on object storage.

    Attributes:
        encoder: makes the vectors of turns.
        max_length: tokens of a turn in the encoder; None: its own.
    """

    @classmethod
    def open(cls, uri: str | Path, encoder: SupportsEncode, *, max_length: int | None = None) -> "Conversations":
        """Opens the conversations in a database; where there are none, `index` makes them.

        Args:
            uri: a folder, or what LanceDB takes (`s3://bucket/path`, …).
            encoder: makes the vectors of turns; always the same one.
            max_length: tokens of a turn in the encoder; None: its own.

        Raises:
            TableError: if LanceDB is missing, or the database holds something else, or was made with another encoder.
        """
        size = encoder.encode([USER], normalise=True).shape[1]
        table = VectorTable.open(uri, TABLE, size=2 * size, columns=_COLUMNS, encoder=encoder)
        # what is kept of a text is a count, and every row of a table has a vector: it is 1
        return cls(table, VectorTable.open(uri, _USUAL, size=1, columns=_USUAL_COLUMNS), encoder, max_length)

    def __init__(self, table: VectorTable, usual: VectorTable, encoder: SupportsEncode, max_length: int | None):
        """Takes tables; `open` is what you want."""
        self.encoder = encoder
        self.max_length = max_length
        self._table = table
        self._usual_table = usual
        self._usual = self._read_usual()
        self._clusters: dict[tuple[Any, ...], Clustered] = {}

    def __len__(self) -> int:
        """How many conversations there are."""
        return len(self._table)

    def index(self, corpus: Iterable[Dialogue], *, total: int | None = None, progress: Progress = silent) -> Indexed:
        """Adds the dialogues of a corpus that are not there yet. What was stopped goes on where it was when it is called again.

        A dialogue is told by its source and id: one that is there stays as it is, even if its turns have changed.

        Args:
            corpus: a store, or a list; it is read twice the first time.
            total: how many dialogues there are, where that is known.
            progress: told how many dialogues are done.

        Raises:
            ConversationsError: if the corpus is an iterator, or has no dialogue.
            TableError: if the database cannot be written.
        """
        if isinstance(corpus, Iterator):
            raise ConversationsError(
                "an iterator can be read only once, and texts are counted first: give a store or a list"
            )
        before = len(self)
        if self._usual is None:
            self._find_usual(corpus, total, progress)
        done = 0
        for portion in _portions(corpus):
            self._add(portion)
            done += len(portion)
            progress("indexing conversations", done, total)
        self._table.settle(progress=progress)
        return Indexed(done, len(self) - before, len(self))

    def inputs(self, said: Conversation) -> list[tuple[Turn, ...]]:
        """What the encoder is given for a conversation: each turn by itself, for callers that encode many things at once.

        Raises:
            ConversationsError: if it holds no turn.
        """
        return [(turn,) for turn in _turns(said)]

    def vector(self, said: Conversation, *, vectors: Vectors | None = None) -> Vectors:
        """The vector of a conversation, of length 1; see `conversation_vectors`.

        Args:
            said: newest turn last; where texts do not say who speaks, speakers alternate and the newest is the user's.
            vectors: of its `inputs`, of length 1, where a caller has them.

        Raises:
            ConversationsError: if it holds no turn.
        """
        turns = _turns(said)
        if vectors is None:
            vectors = self._encoded(turns)
        return conversation_vector(turns, vectors, self._usual or Usual())

    def similar(
        self, said: Conversation, *, top: int = 5, where: Where | None = None, vector: Vectors | None = None
    ) -> list[SimilarConversation]:
        """The conversations most like one, nearest first; the one itself is left out where it is a dialogue that is there.

        Args:
            said: the conversation.
            top: how many at most.
            where: a condition on `dialogue`, `source` or `split`, as `VectorTable.search` takes it.
            vector: the conversation's, where a caller has it.

        Raises:
            ConversationsError: if there is none to be found, a number is out of range, or the conversation holds no turn.
            FilterError: if the condition cannot be put.
        """
        if top < 1:
            raise ConversationsError(f"top is {top}: ask for one conversation at least")
        self._check_holds_some()
        asked = self.vector(said) if vector is None else vector
        own = _key(said) if isinstance(said, Dialogue) else None
        (found,) = self._table.search(asked[None], top + (own is not None), where=where)
        return [
            SimilarConversation(
                row.values["dialogue"],
                row.similarity,
                row.values["source"],
                row.values["split"],
                _spoken(row.values),
            )
            for row in found
            if row.key != own
        ][:top]

    def dialogue(self, name: str, source: str | None = None) -> Dialogue:
        """A conversation that is there.

        Args:
            name: its id.
            source: where it comes from; None: wherever there is one of that id.

        Raises:
            ConversationsError: if there is none, or there are several, of different sources.
        """
        rows = self._table.read(where={"dialogue": name} | ({} if source is None else {"source": source})).to_pylist()
        if not rows:
            raise ConversationsError(f"{self._table.uri} holds no dialogue {name!r}")
        if len(rows) > 1:
            sources = ", ".join(sorted(str(row["source"]) for row in rows))
            raise ConversationsError(
                f"{self._table.uri} holds several dialogues {name!r}: say of which source, {sources}"
            )
        (row,) = rows
        return Dialogue(name, _spoken(row), row["source"], row["split"])

    def clusters(
        self, *, least: int | None = None, method: Method = "umap", seed: int = 0, progress: Progress = silent
    ) -> list[ConversationCluster]:
        """Clusters of the conversations, the largest first, named by what users say in them; kept until conversations are added.

        Args:
            least: conversations of the smallest cluster; None: by their number.
            method: how dimensions are reduced.
            seed: of all that is drawn at random.
            progress: told how far it is.

        Raises:
            ConversationsError: if there is no conversation.
            ClusteringError: if `least` is below 2.
            ReductionError: if the method is not installed.
        """
        return self._clustered(least, method, seed, progress).clusters

    def cluster_of(
        self, *, least: int | None = None, method: Method = "umap", seed: int = 0, progress: Progress = silent
    ) -> list[Placed]:
        """The cluster that each conversation is in; as in `clusters`."""
        return self._clustered(least, method, seed, progress).placed

    def _clustered(self, least: int | None, method: Method, seed: int, progress: Progress) -> Clustered:
        self._check_holds_some()
        settings = (len(self), least, method, seed)
        if settings not in self._clusters:
            self._clusters = {settings: clustered(self._table, least, method, seed, progress)}
        return self._clusters[settings]

    def _check_holds_some(self) -> None:
        if not len(self):
            raise ConversationsError(
                f"{self._table.uri} holds no conversation: index a store first, by `turnwise conversations index STORE --out …`"
            )

    # ---- writing

    def _add(self, dialogues: Sequence[Dialogue]) -> None:
        """Adds those that are not there."""
        there = self._table.holds([_key(dialogue) for dialogue in dialogues])
        fresh = [dialogue for dialogue in dialogues if _key(dialogue) not in there]
        if not fresh:
            return
        turns = list(dict.fromkeys((turn.speaker, turn.text) for dialogue in fresh for turn in dialogue.turns))
        encoded = self._encoded([Turn(*turn) for turn in turns])
        place = {turn: number for number, turn in enumerate(turns)}
        rows = [[place[turn.speaker, turn.text] for turn in each.turns] for each in fresh]
        vectors = np.stack(
            [self.vector(each, vectors=encoded[numbers]) for each, numbers in zip(fresh, rows, strict=True)]
        )
        columns: dict[str, Sequence[Any]] = {
            "dialogue": [each.id for each in fresh],
            "source": [each.source for each in fresh],
            "split": [each.split for each in fresh],
            "speakers": [[turn.speaker for turn in each.turns] for each in fresh],
            "texts": [[turn.text for turn in each.turns] for each in fresh],
        }
        self._table.add([_key(each) for each in fresh], vectors, columns)

    def _find_usual(self, corpus: Iterable[Dialogue], total: int | None, progress: Progress) -> None:
        """Finds what is usual and keeps it; all of it in one commit, so that it is there or not."""
        census = Census()
        number = 0
        for number, dialogue in enumerate(corpus, 1):
            census.read(dialogue.turns)
            if number % PORTION == 0:
                progress("counting texts", number, total)
        if not number:
            raise ConversationsError("the corpus has no dialogue: there is nothing to index")
        usual = census.usual(self._encoded(census.sample))
        columns = {
            "count": [*usual.counts.values(), None],
            "centre": [*[None] * len(usual.counts), np.asarray(usual.centre).tolist()],
        }
        self._usual_table.add([*usual.counts, _CENTRE], np.ones((len(usual.counts) + 1, 1), np.float32), columns)
        self._usual = self._read_usual()

    def _read_usual(self) -> Usual | None:
        """What is usual; None: nothing has been indexed yet."""
        rows = self._usual_table.read([KEY, "count", "centre"]).to_pylist()
        centres = [np.array(row["centre"], np.float32) for row in rows if row[KEY] == _CENTRE]
        counts = {row[KEY]: row["count"] for row in rows if row[KEY] != _CENTRE}
        return Usual(counts, centres[0]) if centres else None

    def _encoded(self, turns: Sequence[Turn]) -> Vectors:
        return self.encoder.encode([(turn,) for turn in turns], normalise=True, max_length=self.max_length)


def _spoken(row: Mapping[str, Any]) -> tuple[Turn, ...]:
    return tuple(Turn(*turn) for turn in zip(row["speakers"], row["texts"], strict=True))


def _portions(corpus: Iterable[Dialogue]) -> Iterator[list[Dialogue]]:
    dialogues = iter(corpus)
    while portion := list(islice(dialogues, PORTION)):
        yield portion


def _key(dialogue: Dialogue) -> str:
    return json.dumps([dialogue.source, dialogue.id], ensure_ascii=False)


def _turns(said: Conversation) -> tuple[Turn, ...]:
    try:
        texts = texts_of(said)
        turns = said.turns if isinstance(said, Dialogue) else said
        if all(isinstance(turn, Turn) for turn in turns):
            return tuple(turn for turn in turns if isinstance(turn, Turn))
        found = conversation(texts)
    except (ValueError, TypeError) as error:
        raise ConversationsError(str(error)) from error
    if isinstance(found, str):
        raise ConversationsError("a conversation needs a turn with a word in it")
    return found
