"""Whole conversations in a vector table, one vector each: search for similar ones, and clusters.

The turn statistics (see `vectors`) are computed from the first corpus that is indexed and stored with it. Later
additions and queries use the same statistics, so that all vectors are comparable.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from turnwise.assist.conversations.titles import conversation_title
from turnwise.assist.conversations.vectors import TurnStatistics, TurnStatisticsBuilder, conversation_vector
from turnwise.assist.map.clustering import describe_clusters, find_clusters
from turnwise.assist.map.reduction import DimensionReduction, MapSettings
from turnwise.assist.search.schema import KEY, VECTOR, Filter, as_matrix, conversation_turns
from turnwise.assist.search.table import VectorTable
from turnwise.core.dialogue import USER, Conversation, Dialogue, Turn
from turnwise.core.errors import SearchError
from turnwise.core.progress import Progress, silent
from turnwise.core.types import SupportsEncode, Vectors
from turnwise.models.identity import EncoderIdentity
from turnwise.models.vector_cache import encode_distinct

if TYPE_CHECKING:
    import pyarrow as pa


#: Dialogues that are encoded and committed together: at most so many are repeated after an interruption.
BATCH = 256

#: The tables of a database: conversations, and turn statistics.
TABLE, _STATISTICS = "conversations", "usual"

#: The key of the mean turn; no text is empty.
_MEAN = ""


@dataclass(frozen=True, slots=True)
class SimilarConversation:
    """A conversation that a search has returned, by its id, with the cosine similarity to the query."""

    dialogue: str
    similarity: float
    source: str | None
    split: str | None
    turns: tuple[Turn, ...]

    @property
    def title(self) -> str:
        """The user's first request."""
        return conversation_title(self.turns)


@dataclass(frozen=True, slots=True)
class ConversationCluster:
    """Conversations about the same topic."""

    number: int
    """The number of the cluster, from 0, the largest first."""
    name: str
    """The name, made of its most characteristic words."""
    words: tuple[str, ...]
    """More characteristic words."""
    size: int
    """The number of conversations."""
    examples: tuple[str, ...]
    """The ids of representative dialogues, most central first."""
    titles: tuple[str, ...]
    """The titles of these dialogues."""


@dataclass(frozen=True, slots=True)
class ConversationClustering:
    """The clusters of conversations, and id, source and cluster number (−1: none) of each conversation."""

    clusters: list[ConversationCluster]
    assignments: list[tuple[str, str | None, int]]


@dataclass(frozen=True, slots=True)
class ConversationIndexResult:
    """How many dialogues were read, how many of them are new, and how many are in the table now."""

    read: int
    added: int
    dialogues: int


class Conversations:
    """Conversations in a LanceDB database, in a folder or on object storage."""

    @classmethod
    def open(cls, uri: str | Path, encoder: SupportsEncode, *, max_length: int | None = None) -> "Conversations":
        """Open the conversations in a database; create its tables if there are none.

        `uri` is a folder, or any address that LanceDB takes (`s3://bucket/path`, …). The encoder must be the one that
        the table was written with, else `EncoderMismatchError` is raised. It reads `max_length` tokens per turn (None:
        its limit), which must be as the table was written, else `SearchError` is raised.
        """
        columns, statistics_columns = _table_columns()
        size = encoder.encode([USER], normalise=True).shape[1]
        table = VectorTable.open(
            uri,
            TABLE,
            size=2 * size,
            columns=columns,
            settings={"max_length": str(max_length)},
            encoder=EncoderIdentity.of(encoder),
            rebuild=f"turnwise conversations index STORE --out {uri} --rebuild",
        )
        statistics = VectorTable.open(uri, _STATISTICS, size=1, columns=statistics_columns)
        return cls(table, statistics, encoder, max_length)

    @staticmethod
    def drop(uri: str | Path) -> None:
        """Remove the conversations in a database, if there are any."""
        for name in (TABLE, _STATISTICS):
            VectorTable.drop(uri, name)

    def __init__(self, table: VectorTable, statistics: VectorTable, encoder: SupportsEncode, max_length: int | None):
        """Wrap tables; use `open` instead."""
        self.encoder = encoder
        self.max_length = max_length
        self._table = table
        self._statistics_table = statistics
        self._statistics = self._read_statistics()
        self._clustering: tuple[Any, ConversationClustering] | None = None  # the latest, with its settings

    def __len__(self) -> int:
        return len(self._table)

    def index(
        self, corpus: Iterable[Dialogue], *, total: int | None = None, progress: Progress = silent
    ) -> ConversationIndexResult:
        """Add the dialogues that are not in the table; an interrupted call can be repeated.

        A dialogue is identified by its source and id: an existing one stays as it is even if its turns have changed.
        The first corpus is read twice. `total` is the number of dialogues, if known, for `progress`.
        """
        if isinstance(corpus, Iterator):
            raise SearchError("the corpus is read twice, which an iterator does not allow: give a list")
        before = len(self)
        if self._statistics is None:
            self._compute_statistics(corpus, total, progress)
        done = 0
        dialogues = iter(corpus)
        while batch := list(islice(dialogues, BATCH)):
            self._add(batch)
            done += len(batch)
            progress("indexing conversations", done, total)
        self._table.optimise(progress=progress)
        return ConversationIndexResult(done, len(self) - before, len(self))

    def inputs(self, conversation: Conversation) -> list[tuple[Turn, ...]]:
        """Return the encoder's inputs for a conversation, one per turn, for callers that encode in batches."""
        return [(turn,) for turn in conversation_turns(conversation)]

    def vector(self, conversation: Conversation, *, vectors: Vectors | None = None) -> Vectors:
        """Return the unit vector of a conversation; see `conversation_vector`.

        Of bare texts the speakers alternate, and the newest is the user's. `vectors` are unit vectors of its `inputs`,
        if the caller has them.
        """
        turns = conversation_turns(conversation)
        if vectors is None:
            vectors = self._encode(turns)
        return conversation_vector(turns, vectors, self._statistics or TurnStatistics())

    def similar(
        self, conversation: Conversation, *, top: int = 5, where: Filter | None = None, vectors: Vectors | None = None
    ) -> list[SimilarConversation]:
        """Return up to `top` most similar conversations, most similar first, without the conversation itself.

        `where` filters by `dialogue`, `source` or `split`, as in `VectorTable.search`; `vectors` as for `vector`. Raise
        SearchError if the table is empty, `top` is out of range, or the conversation has no turn.
        """
        if top < 1:
            raise SearchError(f"top must be at least 1, got {top}")
        self._check_not_empty()
        query = self.vector(conversation, vectors=vectors)
        own = _key(conversation) if isinstance(conversation, Dialogue) else None
        (hits,) = self._table.search(query[None], top + (own is not None), where=where)
        results = []
        for hit in hits:
            dialogue, source, split = (hit.values[name] for name in ("dialogue", "source", "split"))
            if hit.key != own:
                results.append(SimilarConversation(dialogue, hit.similarity, source, split, _stored_turns(hit.values)))
        return results[:top]

    def dialogue(self, name: str, source: str | None = None) -> Dialogue:
        """Return a conversation by its id; `source` is needed if several sources have this id."""
        rows = self._table.read(where={"dialogue": name} | ({} if source is None else {"source": source})).to_pylist()
        if not rows:
            raise SearchError(f"{self._table.uri} has no dialogue {name!r}")
        if len(rows) > 1:
            sources = ", ".join(sorted(str(row["source"]) for row in rows))
            raise SearchError(f"{self._table.uri} has several dialogues {name!r}: give one of the sources {sources}")
        (row,) = rows
        return Dialogue(name, _stored_turns(row), row["source"], row["split"])

    def cluster(self, settings: MapSettings | None = None, *, progress: Progress = silent) -> ConversationClustering:
        """Return clusters of the conversations, named by what users say in them; cached until conversations are added.

        By default, the size of the smallest cluster depends on the number of conversations.
        """
        self._check_not_empty()
        settings = settings or MapSettings()
        cached = self._clustering
        if cached is not None and cached[0] == (len(self), settings):
            return cached[1]
        rows = self._table.read([KEY, VECTOR, "dialogue", "source", "speakers", "texts"])
        # In a fixed order, independent of the order in the files.
        rows = rows.take(np.argsort(np.array(rows[KEY].to_pylist()), kind="stable"))
        vectors = as_matrix(rows[VECTOR])
        labels = find_clusters(DimensionReduction(vectors, settings, progress=progress))
        names, sources, speakers, texts = (
            rows[name].to_pylist() for name in ("dialogue", "source", "speakers", "texts")
        )
        clusters = []
        for each in describe_clusters(list(map(_user_texts, speakers, texts)), labels, vectors):
            examples = tuple(names[row] for row in each.representatives)
            titles = tuple(
                conversation_title([Turn(*turn) for turn in zip(speakers[row], texts[row], strict=True)])
                for row in each.representatives
            )
            clusters.append(ConversationCluster(each.number, each.name, each.words, each.size, examples, titles))
        clustering = ConversationClustering(clusters, list(zip(names, sources, labels.tolist(), strict=True)))
        self._clustering = (len(self), settings), clustering
        return clustering

    def _check_not_empty(self) -> None:
        if not len(self):
            raise SearchError(
                f"{self._table.uri} has no conversations: index a store, `turnwise conversations index STORE --out …`"
            )

    # ---- writing

    def _add(self, dialogues: Sequence[Dialogue]) -> None:
        existing = self._table.existing_keys([_key(dialogue) for dialogue in dialogues])
        new = [dialogue for dialogue in dialogues if _key(dialogue) not in existing]
        if not new:
            return
        turns = [(Turn(turn.speaker, turn.text),) for dialogue in new for turn in dialogue.turns]
        turn_vectors = encode_distinct(self.encoder, turns, normalise=True, max_length=self.max_length)
        starts = np.cumsum([len(dialogue.turns) for dialogue in new[:-1]])
        vectors = np.stack(
            [self.vector(each, vectors=own) for each, own in zip(new, np.split(turn_vectors, starts), strict=True)]
        )
        columns: dict[str, Sequence[Any]] = {
            "dialogue": [each.id for each in new],
            "source": [each.source for each in new],
            "split": [each.split for each in new],
            "speakers": [[turn.speaker for turn in each.turns] for each in new],
            "texts": [[turn.text for turn in each.turns] for each in new],
        }
        self._table.add([_key(each) for each in new], vectors, columns)

    def _compute_statistics(self, corpus: Iterable[Dialogue], total: int | None, progress: Progress) -> None:
        """Compute the turn statistics and store them in one commit."""
        builder = TurnStatisticsBuilder()
        number = 0
        for number, dialogue in enumerate(corpus, 1):
            builder.add(dialogue.turns)
            if number % BATCH == 0:
                progress("counting texts", number, total)
        if not number:
            raise SearchError("the corpus has no dialogues: there is nothing to index")
        statistics = builder.build(self._encode(builder.sample))
        columns = {
            "count": [*statistics.counts.values(), None],
            "centre": [*[None] * len(statistics.counts), np.asarray(statistics.mean).tolist()],
        }
        keys = [*statistics.counts, _MEAN]
        self._statistics_table.add(keys, np.ones((len(keys), 1), np.float32), columns)
        self._statistics = self._read_statistics()

    def _read_statistics(self) -> TurnStatistics | None:
        """Return the stored turn statistics; None: nothing has been indexed."""
        rows = self._statistics_table.read([KEY, "count", "centre"]).to_pylist()
        counts = {row[KEY]: row["count"] for row in rows if row[KEY] != _MEAN}
        means = [np.array(row["centre"], np.float32) for row in rows if row[KEY] == _MEAN]
        return TurnStatistics(counts, means[0]) if means else None

    def _encode(self, turns: Sequence[Turn]) -> Vectors:
        return self.encoder.encode([(turn,) for turn in turns], normalise=True, max_length=self.max_length)


def _user_texts(speakers: Sequence[str], texts: Sequence[str]) -> str:
    """Return what users say, which tells what a conversation is about; all texts if there is no user."""
    return "\n".join([text for speaker, text in zip(speakers, texts, strict=True) if speaker == USER] or texts)


def _stored_turns(row: Mapping[str, Any]) -> tuple[Turn, ...]:
    return tuple(Turn(*turn) for turn in zip(row["speakers"], row["texts"], strict=True))


def _key(dialogue: Dialogue) -> str:
    return json.dumps([dialogue.source, dialogue.id], ensure_ascii=False)


def _table_columns() -> "tuple[pa.Schema, pa.Schema]":
    """Return the columns of conversations, and those of turn statistics."""
    import pyarrow as pa

    columns = dict.fromkeys(("dialogue", "source", "split"), pa.string())
    columns |= dict.fromkeys(("speakers", "texts"), pa.list_(pa.string()))
    return pa.schema(columns), pa.schema({"count": pa.int64(), "centre": pa.list_(pa.float32())})
