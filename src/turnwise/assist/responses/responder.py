"""Response suggestion from a vector table of agent turns and canned answers.

An answer is found by the situation that it answered: its vector is the sum of two, that of the turn before it and that
of the few turns before it together, and the situations most similar to the current one are searched. An answer without
a situation (a canned one, or the first turn of a dialogue) is found by its own vector. The answer's vector is stored as
well: answers that say the same are folded into one.
"""

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from turnwise.assist.search.schema import Filter, conversation_turns, filter_sql, normalise
from turnwise.assist.search.table import SearchHit, VectorTable
from turnwise.core.dialogue import SYSTEM, Conversation, Dialogue, EncoderInput, Turn, context_turns, response_turns
from turnwise.core.errors import SearchError
from turnwise.core.journal import Journal, read_entries
from turnwise.core.progress import Progress, silent
from turnwise.core.text import normalise_text
from turnwise.core.types import SupportsEncode, SupportsScore, Vectors
from turnwise.corpus.hygiene.masking import Masker, Masking
from turnwise.corpus.texts import TEXT_FILE_SUFFIXES, read_rows
from turnwise.models.identity import EncoderIdentity
from turnwise.models.vector_cache import encode_distinct

#: Turns before an answer that make up its situation.
TURNS = 3

#: The name of the table.
TABLE = "responses"

#: Answers with this cosine similarity say the same.
FOLDING_SIMILARITY = 0.95

#: The exponent of the inverse response frequency: 0 ignores it, 1 applies all of it.
DAMPING = 0.05

#: The columns that answers can be filtered by.
FILTER_TYPES: dict[str, type] = {
    name: int if name == "turn" else str
    for name in ("text", "speaker", "dialogue", "turn", "source", "split", "intent")
}

#: About as many turns are encoded and committed together: so many are repeated after a kill.
_BATCH = 2_048

#: Seconds to wait for another process that adds canned answers.
_JOURNAL_TIMEOUT = 10.0

#: Rows that are retrieved per answer: many have the same answer.
_ROWS_PER_ANSWER = 4


@dataclass(frozen=True, slots=True)
class Answer:
    """A canned answer."""

    text: str
    after: tuple[str, ...] = ()  # the turns that it answers, newest last; empty: it is found by its own words
    source: str | None = None
    split: str | None = None
    intent: str | None = None

    def __post_init__(self) -> None:
        # Turn and Dialogue reject blank texts and invalid labels.
        turns = (Turn(SYSTEM, self.text, self.intent), *(Turn(SYSTEM, text) for text in self.after))
        Dialogue("answer", turns, self.source, self.split)


def read_answers(path: Path) -> list[Answer]:
    """Read canned answers from a .txt file, one per line, or a table file with the fields of `Answer`."""
    plain_text = path.suffix.lower() == ".txt"
    answers = []
    for row in read_rows(path, ["text"], TEXT_FILE_SUFFIXES):
        text = row.text("text").strip() if plain_text else row.text("text")
        if plain_text and not text:
            continue
        after = row.values.get("after") or ()
        turns = (after,) if isinstance(after, str) else after
        labels = {name: row.values.get(name) or None for name in ("source", "split", "intent")}
        try:
            if not isinstance(turns, list | tuple):
                raise ValueError("'after' must be a text or a list of texts")
            answers.append(Answer(text, tuple(turns), **labels))
        except ValueError as error:
            raise SearchError(f"{row.where}: {error}") from error
    return answers


def read_canned_answers(path: Path) -> list[Answer]:
    """Return the canned answers in a project's journal, which another process may have open."""
    try:
        return [Answer(**entry | {"after": tuple(entry["after"])}) for entry in read_entries(path)]
    except (KeyError, TypeError, ValueError) as error:
        raise SearchError(f"{path} has a line that is no canned answer ({error!r}): repair or remove it") from error


def record_canned_answers(path: Path, answers: Sequence[Answer]) -> None:
    """Add canned answers to a project's journal, unless they are there; they are on disk afterwards."""
    known = set(read_canned_answers(path))
    new = [answer for answer in dict.fromkeys(answers) if answer not in known]
    if new:
        with Journal(path, timeout=_JOURNAL_TIMEOUT) as journal:
            journal.append(*map(asdict, new))


class AnswerRow(NamedTuple):
    """A row to be added to the table: an answer, and the encoder's inputs that it is found by (see `situation_of`)."""

    key: str
    situation: tuple[EncoderInput, ...]
    values: dict[str, Any]  # by the columns in `FILTER_TYPES`; a canned answer has no dialogue and no turn


def situation_of(conversation: Sequence[Turn], turns: int) -> tuple[EncoderInput, ...]:
    """Return the encoder's inputs for a conversation: its newest turn, and its newest `turns` turns together."""
    # Without labels, which the encoder does not read: equal situations must compare equal.
    newest = tuple(Turn(turn.speaker, turn.text) for turn in conversation[-turns:])
    return (newest,) if len(newest) == 1 else (newest[-1:], newest)


def _turn_answers(dialogue: Dialogue, speakers: Sequence[str], turns: int) -> Iterator[AnswerRow]:
    """Yield the turns of some speakers with the situation before each; a dialogue's first turn is its own."""
    for position, turn in enumerate(dialogue.turns):
        if turn.speaker in speakers:
            situation = situation_of(dialogue.turns[:position] or (turn,), turns)
            place = (dialogue.id, position, dialogue.source, dialogue.split)
            values = dict(zip(FILTER_TYPES, (turn.text, turn.speaker, *place, turn.intent), strict=True))
            yield AnswerRow(_key("turn", dialogue.source, dialogue.id, position), situation, values)


def _canned_answer(answer: Answer, turns: int) -> AnswerRow:
    before = context_turns(answer.after) or response_turns(answer.text)
    situation = situation_of([turn for turn in before if isinstance(turn, Turn)], turns)
    labels = answer.source, answer.split, answer.intent
    values = dict(zip(FILTER_TYPES, (answer.text, SYSTEM, None, None, *labels), strict=True))
    return AnswerRow(_key("answer", *labels, *answer.after, answer.text), situation, values)


def _key(*parts: str | int | None) -> str:
    return hashlib.blake2b(json.dumps(parts).encode(), digest_size=16).hexdigest()


@dataclass(frozen=True, slots=True)
class IndexingResult:
    """How many dialogues were read, and how many answers were given, added, or already present."""

    dialogues: int
    given: int
    added: int
    present: int


@dataclass(frozen=True, slots=True)
class Suggestion:
    """A suggested answer."""

    text: str
    """The answer; in one from a conversation, names, numbers, addresses, dates of birth and passwords are masked."""
    score: float
    """The re-ranker's probability, or else the similarity; lower for frequent answers."""
    similarity: float
    """The cosine similarity of the situation that it answered with the current one."""
    rerank: float | None
    """The re-ranker's probability; None without a re-ranker."""
    count: int
    """How often it occurs in the table."""
    folded: tuple[str, ...]
    """Other retrieved texts that say the same, best first."""
    dialogue: str | None
    """The dialogue that it is from; None for a canned answer."""
    turn: int | None
    """Its position in the dialogue, from 0; None for a canned answer."""
    speaker: str
    """Who says it."""
    source: str | None
    """The corpus that it is from."""
    split: str | None
    """The split that it is from."""


@dataclass(eq=False, repr=False)
class Responder:
    """Suggests answers from a vector table; see `open` for its attributes."""

    table: VectorTable
    encoder: SupportsEncode
    reranker: SupportsScore | None = None
    turns: int = TURNS
    max_length: int | None = None

    @classmethod
    def open(
        cls,
        uri: str | Path,
        encoder: SupportsEncode,
        reranker: SupportsScore | None = None,
        *,
        turns: int = TURNS,
        max_length: int | None = None,
        storage: Mapping[str, str] | None = None,
    ) -> "Responder":
        """Open a table of answers; create it if there is none.

        Raise `EncoderMismatchError` if the table was written with another encoder.

        Args:
            uri: a folder, or any address that LanceDB takes (`s3://bucket/path`, `gs://…`).
            encoder: the encoder that the table was written with, and so are `turns` and `max_length`.
            reranker: orders retrieved answers; None: by similarity.
            turns: the newest turns that make up a situation.
            max_length: tokens per situation or answer; None: the encoder's limit.
            storage: options for object storage.
        """
        if turns < 1:
            raise SearchError(f"turns must be at least 1, got {turns}")
        import pyarrow as pa

        size = encoder.encode(["size"], normalise=True).shape[1]
        columns = [
            pa.field(name, pa.int32() if kind is int else pa.string(), nullable=name not in ("text", "speaker"))
            for name, kind in FILTER_TYPES.items()
        ]
        columns.append(pa.field("same", pa.int64(), nullable=False))  # equal for equivalent texts, to count them
        # half precision suffices to find duplicates
        columns.append(pa.field("answer", pa.list_(pa.float16(), size), nullable=False))
        settings = {"turns": str(turns), "max_length": str(max_length)}
        table = VectorTable.open(
            uri,
            TABLE,
            size=size,
            columns=pa.schema(columns),
            settings=settings,
            encoder=EncoderIdentity.of(encoder),
            rebuild=f"turnwise responses index STORE --out {uri} --rebuild",
            storage=storage,
        )
        return cls(table, encoder, reranker, turns, max_length)

    @staticmethod
    def drop(uri: str | Path, *, storage: Mapping[str, str] | None = None) -> None:
        """Remove a table of answers, if there is one."""
        VectorTable.drop(uri, TABLE, storage=storage)

    def __len__(self) -> int:
        return len(self.table)

    # ---- indexing

    def index(
        self,
        corpus: Iterable[Dialogue],
        *,
        speakers: Sequence[str] = (SYSTEM,),
        total: int | None = None,
        progress: Progress = silent,
    ) -> IndexingResult:
        """Add every turn of some speakers that is not in the table; `total` is the number of dialogues, if known."""
        if not speakers or isinstance(speakers, str):
            raise SearchError("speakers must be a list of those whose turns may be suggested, such as ['system']")
        dialogues, given, added = 0, 0, 0
        rows: list[AnswerRow] = []
        for dialogues, dialogue in enumerate(corpus, 1):
            rows += _turn_answers(dialogue, speakers, self.turns)
            if len(rows) >= _BATCH:
                given, added = given + len(rows), added + self._add(rows)
                rows = []
                progress("indexing dialogues", dialogues, total)
        given, added = given + len(rows), added + self._add(rows)
        progress("indexing dialogues", dialogues, total)
        # Even if nothing is new: an earlier call may have been killed before this.
        self.table.optimise(progress=progress)
        return IndexingResult(dialogues, given, added, given - added)

    def add(self, answers: Sequence[str | Answer], *, progress: Progress = silent) -> IndexingResult:
        """Add and commit the canned answers that are not in the table."""
        if isinstance(answers, str):
            raise SearchError("answers must be a list of texts: give a single one as [text]")
        rows = []
        for number, answer in enumerate(answers):
            try:
                rows.append(_canned_answer(answer if isinstance(answer, Answer) else Answer(answer), self.turns))
            except ValueError as error:
                raise SearchError(f"answer {number} is not valid: {error}") from error
        added = 0
        for first in range(0, len(rows), _BATCH):
            added += self._add(rows[first : first + _BATCH])
            progress("adding answers", min(first + _BATCH, len(rows)), len(rows))
        if len(rows) > _BATCH:
            self.table.optimise(progress=progress)
        return IndexingResult(0, len(rows), added, len(rows) - added)

    def _add(self, rows: Sequence[AnswerRow]) -> int:
        present = self.table.existing_keys([row.key for row in rows])
        new = [row for row in rows if row.key not in present]
        if not new:
            return 0
        texts = [row.values["text"] for row in new]
        answers = self._encode([response_turns(text) for text in texts])
        situations = self._encode([each for row in new for each in row.situation])
        starts = np.cumsum([0, *(len(row.situation) for row in new[:-1])])
        columns: dict[str, list[Any]] = {name: [row.values[name] for row in new] for name in FILTER_TYPES}
        digests = (hashlib.blake2b(normalise_text(text).encode(), digest_size=8).digest() for text in texts)
        columns["same"] = [int.from_bytes(digest, "big", signed=True) for digest in digests]
        columns |= {"answer": list(answers.astype(np.float16))}
        return self.table.add([row.key for row in new], np.add.reduceat(situations, starts), columns)

    def _encode(self, inputs: Sequence[EncoderInput]) -> Vectors:
        return encode_distinct(self.encoder, inputs, normalise=True, max_length=self.max_length)

    # ---- suggesting

    def inputs(self, conversation: Conversation) -> tuple[EncoderInput, ...]:
        """Return the encoder's inputs for a conversation, for callers that batch the encoding themselves."""
        return situation_of(conversation_turns(conversation), self.turns)

    def suggest(
        self,
        conversation: Conversation,
        *,
        top: int = 5,
        k: int = 50,
        where: Filter | None = None,
        vectors: Vectors | None = None,
    ) -> list[Suggestion]:
        """Return suggested answers, best first; raise SearchError if nothing is indexed or there is no turn.

        Args:
            conversation: so far, newest turn last.
            top: suggestions to return at most.
            k: distinct answers that are retrieved, and read by the re-ranker.
            where: a filter, as in `VectorTable.search`, on `speaker`, `dialogue`, `turn`, `source`, `split`, `intent`,
                `text`.
            vectors: of `inputs(conversation)` (inputs, size), if the caller has them.
        """
        if not 1 <= top <= k:
            raise SearchError(f"top must be between 1 and k, got top {top} and k {k}")
        inputs = self.inputs(conversation)
        sql = None if where is None else filter_sql(where, FILTER_TYPES)
        unit = self._encode(inputs) if vectors is None else normalise(vectors, self.table.size)
        hits = self.table.search(unit.sum(0, keepdims=True), k * _ROWS_PER_ANSWER, where=sql)[0]
        if not hits and not len(self):
            raise SearchError(f"{self.table.uri} has no answers: index a store or add canned answers first")
        nearest: dict[int, SearchHit] = {}
        for hit in hits:
            nearest.setdefault(hit.values["same"], hit)
        candidates = list(nearest.values())[:k]
        if not candidates:
            return []
        texts = [hit.values["text"] for hit in candidates]
        turns = conversation.turns if isinstance(conversation, Dialogue) else conversation
        probabilities = None if self.reranker is None else self.reranker.score(turns, texts)
        repeated = self.table.read(["same"], {"same": list(nearest)[:k]})["same"].to_pylist()
        return rank_answers(candidates, Counter(repeated), probabilities, top)


@cache
def _masker() -> Masker:
    """Return the masker of other customers' data, with the kinds that need no further package."""
    return Masker(Masking(kinds=("secret_url", "email", "password", "date_of_birth", "address", "name", "number")))


def _offered_text(hit: SearchHit) -> str:
    """Return an answer as it may be offered to others: turns are masked, canned answers are not."""
    text: str = hit.values["text"]
    return text if hit.values["dialogue"] is None else _masker().mask(text)


def rank_answers(
    candidates: Sequence[SearchHit], counts: Mapping[int, int], probabilities: npt.NDArray[np.floating] | None, top: int
) -> list[Suggestion]:
    """Order answers by their damped scores, best first, and fold those that say the same into the best of them.

    Candidates are distinct; `counts` says how often each is in the table, by the column `same`. Scores are a
    re-ranker's probabilities, or the similarities if these are None.
    """
    frequencies = np.array([max(1, counts.get(hit.values["same"], 1)) for hit in candidates])
    base = [hit.similarity for hit in candidates] if probabilities is None else probabilities
    # WMDC's inverse response frequency, tempered: an answer that is given everywhere helps nowhere
    scores = np.maximum(np.asarray(base, np.float64), 0) * (1 / (np.log(frequencies) + 1)) ** DAMPING
    vectors = np.stack([hit.values["answer"].astype(np.float32) for hit in candidates])
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    heads: list[int] = []
    folded: dict[int, list[str]] = {}
    for candidate in np.argsort(-scores, kind="stable").tolist():
        similarities = vectors[heads] @ vectors[candidate]
        if len(heads) and similarities.max() > FOLDING_SIMILARITY:
            folded[heads[int(similarities.argmax())]].append(_offered_text(candidates[candidate]))
        else:
            heads.append(candidate)
            folded[candidate] = []
    columns = ("dialogue", "turn", "speaker", "source", "split")
    return [
        Suggestion(
            score=float(scores[head]),
            similarity=candidates[head].similarity,
            rerank=None if probabilities is None else float(probabilities[head]),
            count=int(frequencies[head]),
            text=_offered_text(candidates[head]),
            folded=tuple(folded[head]),
            **{name: candidates[head].values[name] for name in columns},
        )
        for head in heads[:top]
    ]
