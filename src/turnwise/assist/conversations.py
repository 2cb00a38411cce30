"""Whole conversations in a vector table, one vector each: search for similar ones, and clusters.

For each role, user and system, a vector takes the mean of the vectors of its turns, minus the mean turn of the corpus,
weighted by inverse frequency. So "Thank you, goodbye." counts little, and a system that speaks three times as much as
the user does not drown out what the user wants. The vector is the sum of the two means, concatenated with half of their
difference, and normalised: conversations are similar if they are about the same topic, more so if the same side talks
about it. A role whose turns are about one topic has a longer mean than one whose turns vary, and weighs more.

Frequencies and the mean turn are computed from the first corpus that is indexed and stored with it. Later additions and
queries use the same ones, so that all vectors are comparable.
"""

import json
import random
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from pydantic import TypeAdapter

from turnwise.assist.map.clustering import describe_clusters, find_clusters
from turnwise.assist.map.reduction import DimensionReduction, MapSettings
from turnwise.assist.search.schema import KEY, VECTOR, Filter, as_matrix, conversation_turns
from turnwise.assist.search.table import VectorTable
from turnwise.core.dialogue import SYSTEM, USER, Conversation, Dialogue, Turn
from turnwise.core.errors import SearchError
from turnwise.core.progress import Progress, silent
from turnwise.core.text import normalise_text, shorten_text
from turnwise.core.types import SupportsEncode, Vectors
from turnwise.models.identity import EncoderIdentity
from turnwise.models.vector_cache import encode_distinct

#: Dialogues that are encoded and committed together: at most so many are repeated after an interruption.
BATCH = 256

#: The tables of a database: conversations, turn statistics, and the results of clustering.
TABLE, _STATISTICS, _CLUSTERS = "conversations", "usual", "clusters"

#: The key of the mean turn; no text is empty.
_MEAN = ""

#: The weight of who says something, relative to what is said.
_ROLE_WEIGHT = 0.5

#: Turns sampled for the mean turn.
_SAMPLE = 2_000

#: The mean turn is shrunk towards zero as if so many turns were zero: a few turns say little about all conversations.
_SHRINKAGE = 10

#: Characters of a title.
_TITLE_LENGTH = 100

#: A turn states a request if it has at least this many words that are not greetings or masks.
_MIN_WORDS = 2

#: Masked personal data, such as [NAME_1]; a word; and two characters of a script without spaces, which count as a word.
_UNSPACED = r"\u0e00-\u0eff\u3040-\u30ff\u3400-\u9fff"
_TOKEN = re.compile(rf"\[[A-Z][A-Z0-9_-]*\]|[{_UNSPACED}]{{2}}|[^\W{_UNSPACED}]+(?:['’][^\W\d_]+)*")

#: Words of greetings and of offers to talk ("hi there, can you help me please?"), which say nothing about a request.
_GREETING_WORDS = """
    a afternoon all am an any anybody anyone are bot can chat could day dear doing everybody everyone evening folks good
    got greetings guys have hello help hey hi hiya hope how howdy i i'd i'm i've in is it's just like madam me morning
    my name need ok okay one or people please question questions quick sir so some somebody someone speak support talk
    team thank thanks that the there this to today up want was well what's with would yes yo you your
    bonjour bonsoir salut hallo guten tag morgen abend servus moin hola buenos buenas días dias tardes noches ciao
    buongiorno olá ola bom dia boa tarde noite goedemorgen goedemiddag
"""
_GREETINGS = frozenset(_GREETING_WORDS.split())


def conversation_title(turns: Sequence[Turn]) -> str:
    """Return the user's first turn that has two words besides greetings and masked data, or else the one with most."""
    candidates = [turn.text for turn in turns if turn.speaker == USER] or [turn.text for turn in turns]
    if not candidates:
        return ""
    counts = [_count_words(text) for text in candidates]
    first = next((place for place, count in enumerate(counts) if count >= _MIN_WORDS), counts.index(max(counts)))
    return shorten_text(candidates[first], _TITLE_LENGTH)


def _count_words(text: str) -> int:
    """Return the number of words that are neither greetings nor masks."""
    tokens = (token.casefold().replace("’", "'") for token in _TOKEN.findall(text) if not token.startswith("["))
    return sum(token not in _GREETINGS for token in tokens)


@dataclass(frozen=True, slots=True)
class TurnStatistics:
    """What is common in a corpus."""

    counts: Mapping[str, int] = field(default_factory=dict)  # frequency of each text that occurs more than once
    mean: Vectors | float = 0.0  # the mean turn's vector (size); 0 if unknown


def conversation_vector(turns: Sequence[Turn], vectors: Vectors, statistics: TurnStatistics) -> Vectors:
    """Return the unit vector of a conversation (2 · size), given unit vectors of its turns (turns, size)."""
    frequencies = [statistics.counts.get(normalise_text(turn.text), 1) for turn in turns]
    weights = 1 / (1 + np.log10(frequencies))
    user, system = (
        _mean(weights * np.array([turn.speaker != other for turn in turns]), vectors - statistics.mean)
        for other in (SYSTEM, USER)
    )
    combined = np.concatenate([user + system, _ROLE_WEIGHT * (user - system)])
    return np.asarray(combined / max(float(np.linalg.norm(combined)), 1e-12), np.float32)


def _mean(weights: npt.NDArray[np.float64], vectors: Vectors) -> npt.NDArray[np.float64]:
    return np.asarray(weights @ vectors / max(float(weights.sum()), 1e-12))


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

        `uri` is a folder, or any address that LanceDB takes (`s3://bucket/path`, …). The encoder, which reads
        `max_length` tokens per turn (None: its limit), and this limit must be as the table was written, else
        `EncoderMismatchError` or `SearchError` is raised.
        """
        import pyarrow as pa

        columns = dict.fromkeys(("dialogue", "source", "split"), pa.string())
        columns |= dict.fromkeys(("speakers", "texts"), pa.list_(pa.string()))
        statistics_columns = {"count": pa.int64(), "centre": pa.list_(pa.float32())}
        size = encoder.encode([USER], normalise=True).shape[1]
        table = VectorTable.open(
            uri,
            TABLE,
            size=2 * size,
            columns=pa.schema(columns),
            settings={"max_length": str(max_length)},
            encoder=EncoderIdentity.of(encoder),
            rebuild=f"turnwise conversations index STORE --out {uri} --rebuild",
        )
        statistics = VectorTable.open(uri, _STATISTICS, size=1, columns=pa.schema(statistics_columns))
        return cls(table, statistics, encoder, max_length)

    @staticmethod
    def drop(uri: str | Path) -> None:
        """Remove the conversations in a database, if there are any."""
        for name in (TABLE, _STATISTICS, _CLUSTERS):
            VectorTable.drop(uri, name)

    def __init__(self, table: VectorTable, statistics: VectorTable, encoder: SupportsEncode, max_length: int | None):
        """Wrap tables; use `open` instead."""
        self.encoder = encoder
        self.max_length = max_length
        self._table = table
        self._statistics_table = statistics
        self._statistics = self._read_statistics()
        self._clustering: tuple[str, ConversationClustering] | None = None  # the latest, with its state

    def __len__(self) -> int:
        return len(self._table)

    def index(
        self, corpus: Iterable[Dialogue], *, total: int | None = None, progress: Progress = silent
    ) -> ConversationIndexResult:
        """Add the dialogues that are not in the table, by source and id; `total` is their number, if known."""
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
        """Return the unit vector of a conversation; `vectors` are unit vectors of its `inputs`, if known."""
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
        query = self.vector(conversation, vectors=vectors)
        own = _key(conversation) if isinstance(conversation, Dialogue) else None
        self._check_not_empty()
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

    def cluster(
        self, settings: MapSettings | None = None, *, keep: bool = False, progress: Progress = silent
    ) -> ConversationClustering:
        """Return clusters, named by what users say in them; cached until conversations are added.

        `keep` stores them in the database, for other processes.
        """
        self._check_not_empty()
        settings = settings or MapSettings()
        state = f"{len(self)} {settings}"
        if self._clustering is None or self._clustering[0] != state:
            stored = self._read_clusters(state)
            self._clustering = state, stored or self._compute_clusters(settings, progress)
            if keep and stored is None:
                rows = {"clustering": [TypeAdapter(ConversationClustering).dump_json(self._clustering[1]).decode()]}
                self._open_clusters().add([state], np.ones((1, 1), np.float32), rows)
        return self._clustering[1]

    def _open_clusters(self) -> VectorTable:
        import pyarrow as pa

        return VectorTable.open(self._table.uri, _CLUSTERS, size=1, columns=pa.schema({"clustering": pa.string()}))

    def _read_clusters(self, state: str) -> ConversationClustering | None:
        """Return the clusters that were stored for a state of the table; None if there are none."""
        if not VectorTable.exists(self._table.uri, _CLUSTERS):
            return None
        for row in self._open_clusters().read(["clustering"], {KEY: state}).to_pylist():
            return TypeAdapter(ConversationClustering).validate_json(row["clustering"])
        return None

    def _compute_clusters(self, settings: MapSettings, progress: Progress) -> ConversationClustering:
        rows = self._table.read([KEY, VECTOR, "dialogue", "source", "speakers", "texts"])
        # In a fixed order, independent of the order in the files.
        rows = rows.take(np.argsort(np.array(rows[KEY].to_pylist()), kind="stable"))
        vectors = as_matrix(rows[VECTOR])
        labels = find_clusters(DimensionReduction(vectors, settings, progress=progress))
        stored = rows.select(["dialogue", "source", "speakers", "texts"]).to_pylist()
        clusters = []
        for each in describe_clusters([_user_texts(row) for row in stored], labels, vectors):
            examples = tuple(stored[row]["dialogue"] for row in each.representatives)
            titles = tuple(conversation_title(_stored_turns(stored[row])) for row in each.representatives)
            clusters.append(ConversationCluster(each.number, each.name, each.words, each.size, examples, titles))
        pairs = zip(stored, labels.tolist(), strict=True)
        return ConversationClustering(clusters, [(row["dialogue"], row["source"], label) for row, label in pairs])

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
        """Count texts, encode a uniform sample of the turns, with a fixed seed, and store both in one commit."""
        counts: Counter[str] = Counter()
        sample: list[Turn] = []
        generator, turns, number = random.Random(0), 0, 0
        for number, dialogue in enumerate(corpus, 1):
            for turn in dialogue.turns:
                turns += 1
                counts[normalise_text(turn.text)] += 1
                if len(sample) < _SAMPLE:
                    sample.append(turn)
                elif (place := generator.randrange(turns)) < _SAMPLE:  # reservoir sampling
                    sample[place] = turn
            if number % BATCH == 0:
                progress("counting texts", number, total)
        if not number:
            raise SearchError("the corpus has no dialogues: there is nothing to index")
        vectors = self._encode(sample)
        mean = (vectors.sum(0) / (len(vectors) + _SHRINKAGE)).astype(np.float32)
        repeated = {text: count for text, count in counts.items() if count > 1}
        columns = {"count": [*repeated.values(), None], "centre": [*[None] * len(repeated), mean.tolist()]}
        keys = [*repeated, _MEAN]
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


def _user_texts(row: Mapping[str, Any]) -> str:
    """Return what users say, which tells what a conversation is about; all texts if there is no user."""
    turns = zip(row["speakers"], row["texts"], strict=True)
    return "\n".join([text for speaker, text in turns if speaker == USER] or row["texts"])


def _stored_turns(row: Mapping[str, Any]) -> tuple[Turn, ...]:
    return tuple(Turn(*turn) for turn in zip(row["speakers"], row["texts"], strict=True))


def _key(dialogue: Dialogue) -> str:
    return json.dumps([dialogue.source, dialogue.id], ensure_ascii=False)
