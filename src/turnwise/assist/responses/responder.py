"""What to say next, from what was said before: agent turns of a corpus, and canned answers, in a table of vectors.

A turn is found by the situation that it answered: the vector of a row is the sum of two, of the turn before it and of the few turns
before it together, and what is looked for are situations like the one at hand. An answer that stands alone (a canned one, or a turn
that opens a dialogue) is found by its own vector. The vector of the answer lies beside, by which answers that say the same are
folded into one.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from turnwise.assist.responses.answers import FILTERS, Answer, Entry, canned, columns_of, entries_of, situation, values
from turnwise.assist.responses.ranking import Candidate, Suggestion, ranked
from turnwise.assist.search.filters import Where, condition
from turnwise.assist.search.schema import scaled
from turnwise.assist.search.table import VectorTable
from turnwise.core.conversation import Conversation, Said, conversation, reply, texts_of
from turnwise.core.dialogue import SYSTEM, Dialogue, Turn
from turnwise.core.errors import TurnwiseError
from turnwise.core.progress import Progress, silent
from turnwise.core.types import SupportsEncode, SupportsScore

#: Turns before an answer that are its situation.
TURNS = 3

#: The name of the table.
TABLE = "responses"

#: Turns that are encoded and committed at a time: what a killed process has to do again at most.
_PORTION = 2_048

#: Rows that are retrieved for each answer that is asked for: many of them give an answer that another one gives too.
_SPARE = 4

Vectors = npt.NDArray[np.float32]


class ResponderError(TurnwiseError):
    """Responses cannot be kept or suggested as asked; the message says why and what to do."""


@dataclass(frozen=True, slots=True)
class Ingested:
    """What became of dialogues or answers that were given.

    Attributes:
        dialogues: that were read.
        given: answers that these hold.
        added: of these, the rows that are new.
        present: of these, the rows that were there before.
    """

    dialogues: int
    given: int
    added: int
    present: int


class Responder:
    """Suggests what may be said next.

    Attributes:
        table: the answers.
        encoder: finds situations like the one at hand.
        reranker: reads each answer with the conversation; None: similarity decides.
        turns: the newest turns of a conversation that are its situation.
        max_length: tokens of a situation or an answer in the encoder; None: its own.
    """

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
        """Opens what was indexed, and begins a table where there is none.

        Args:
            uri: a folder, or what LanceDB takes (`s3://bucket/path`, `gs://…`).
            encoder: the one that the table was made with, or is to be.
            reranker: puts what is retrieved in order; None: similarity does.
            turns: the newest turns of a conversation that are its situation, as the table was made.
            max_length: tokens of a situation or an answer in the encoder, as the table was made; None: its own.
            storage: options for object storage.

        Raises:
            ResponderError: if a number is out of range.
            TableError: if the table is of another kind or encoder.
        """
        if turns < 1:
            raise ResponderError(f"turns is {turns}: a situation is one turn at least")
        size = encoder.encode(["size"], normalise=True).shape[1]
        about = {"turns": str(turns), "max_length": str(max_length)}
        table = VectorTable.open(
            uri, TABLE, size=size, columns=columns_of(size), about=about, encoder=encoder, storage=storage
        )
        return cls(table, encoder, reranker, turns, max_length)

    def __init__(
        self,
        table: VectorTable,
        encoder: SupportsEncode,
        reranker: SupportsScore | None = None,
        turns: int = TURNS,
        max_length: int | None = None,
    ):
        self.table = table
        self.encoder = encoder
        self.reranker = reranker
        self.turns = turns
        self.max_length = max_length

    def __len__(self) -> int:
        """How many answers there are, repeated ones included."""
        return len(self.table)

    # ---- indexing

    def index(
        self,
        corpus: Iterable[Dialogue],
        *,
        speakers: Sequence[str] = (SYSTEM,),
        total: int | None = None,
        progress: Progress = silent,
    ) -> Ingested:
        """Adds every turn of some speakers; those that are there already are passed over, so it can be done again, or go on.

        A turn is known by its source, its dialogue's id, and its place there. Turns are committed a portion at a time.

        Args:
            corpus: the dialogues.
            speakers: whose turns may be suggested.
            total: how many dialogues there are, for the progress; None: unknown.
            progress: told how many dialogues are done.

        Raises:
            ResponderError: if no speaker is named.
            TableError: if the table cannot be written.
        """
        if not speakers or isinstance(speakers, str):
            raise ResponderError("name the speakers whose turns may be suggested, as a list such as ['system']")
        dialogues, given, added = 0, 0, 0
        for dialogues, entries in self._portions(corpus, frozenset(speakers)):
            given, added = given + len(entries), added + self._add(entries)
            progress("indexing dialogues", dialogues, total)
        # even where nothing is new: a process may have been killed before it came to this
        self.table.settle(progress=progress)
        return Ingested(dialogues, given, added, given - added)

    def add(self, answers: Sequence[str | Answer], *, progress: Progress = silent) -> Ingested:
        """Adds canned answers; those that are there already are passed over. When this comes back, they are committed.

        Args:
            answers: texts, or texts with what is known of them.
            progress: told how many are done.

        Raises:
            ResponderError: if they are a single text, or one of them is empty.
            TableError: if the table cannot be written.
        """
        if isinstance(answers, str):
            raise ResponderError("answers are a list of texts: give a single one as [text]")
        entries = []
        for number, answer in enumerate(answers):
            try:
                entries.append(canned(answer if isinstance(answer, Answer) else Answer(answer), self.turns))
            except ValueError as error:
                raise ResponderError(f"answer {number} cannot be kept: {error}") from error
        added = 0
        for first in range(0, len(entries), _PORTION):
            added += self._add(entries[first : first + _PORTION])
            progress("adding answers", min(first + _PORTION, len(entries)), len(entries))
        if len(entries) > _PORTION:
            self.table.settle(progress=progress)
        return Ingested(0, len(entries), added, len(entries) - added)

    def _portions(self, corpus: Iterable[Dialogue], speakers: frozenset[str]) -> Iterator[tuple[int, list[Entry]]]:
        """Turns to index, a portion at a time, and how many dialogues were read for it."""
        entries: list[Entry] = []
        read = 0
        for read, dialogue in enumerate(corpus, 1):
            for entry in entries_of(dialogue, speakers, self.turns):
                entries.append(entry)
                if len(entries) == _PORTION:
                    yield read, entries
                    entries = []
        yield read, entries

    def _add(self, entries: Sequence[Entry]) -> int:
        present = self.table.holds([entry.key for entry in entries])
        new = [entry for entry in entries if entry.key not in present]
        if not new:
            return 0
        answers = self._encoded([reply(entry.text) for entry in new])
        read = self._encoded([each for entry in new for each in entry.situation])
        starts = np.cumsum([0, *(len(entry.situation) for entry in new[:-1])])
        return self.table.add([entry.key for entry in new], np.add.reduceat(read, starts), values(new, answers))

    def _encoded(self, inputs: Sequence[Said]) -> Vectors:
        """Vectors of inputs, each different one encoded once."""
        places = {each: place for place, each in enumerate(dict.fromkeys(inputs))}
        vectors = self.encoder.encode(list(places), normalise=True, max_length=self.max_length)
        return vectors[[places[each] for each in inputs]]

    # ---- suggesting

    def inputs(self, said: Conversation) -> tuple[Said, ...]:
        """What the encoder is given for a conversation, for a caller that batches encoding itself.

        Raises:
            ResponderError: if the conversation holds no turn, or something else than turns.
        """
        try:
            texts = texts_of(said)
        except (ValueError, TypeError) as error:
            raise ResponderError(str(error)) from error
        spoken = [turn for turn in _turns(said) if isinstance(turn, Turn)]
        if len(spoken) < len(texts):
            spoken = [turn for turn in conversation(texts) if isinstance(turn, Turn)]
        if not spoken:
            raise ResponderError("the conversation holds no word that could be answered")
        return situation(spoken, self.turns)

    def suggest(
        self,
        said: Conversation,
        *,
        top: int = 5,
        k: int = 50,
        where: Where | None = None,
        vectors: Vectors | None = None,
    ) -> list[Suggestion]:
        """What may be said next, best first.

        Args:
            said: the conversation so far, newest turn last.
            top: how many to give; fewer where there are fewer.
            k: how many different answers are retrieved, and read by the re-ranker.
            where: a condition on the rows, as in `VectorTable.search`; columns are `speaker`, `dialogue`, `turn`, `source`,
                `split`, `intent`, `text`.
            vectors: of `inputs(said)` (inputs, size), where the caller has them.

        Raises:
            ResponderError: if a number is out of range, nothing is indexed, or the conversation holds no turn.
            FilterError: if the condition names a column that is not there.
        """
        if not 1 <= top <= k:
            raise ResponderError(f"top is {top} and k is {k}: give one at least, and at most as many as are retrieved")
        asked = self.inputs(said)
        wanted = None if where is None else condition(where, FILTERS)
        read = self._encoded(asked) if vectors is None else scaled(vectors, self.table.size)
        found = self.table.search(read.sum(0, keepdims=True), k * _SPARE, where=wanted)[0]
        if not found and not len(self):
            raise ResponderError(f"{self.table.uri} holds no answer yet: index a store or add canned answers first")
        candidates: dict[int, Candidate] = {}
        for row in found:
            candidates.setdefault(row.values["same"], Candidate.of(row))
        near = list(candidates.values())[:k]
        scores = None if self.reranker is None else self.reranker.score(_turns(said), [each.text for each in near])
        return ranked(near, self._counts(near), scores, top)

    def _counts(self, candidates: Sequence[Candidate]) -> Mapping[int, int]:
        """How often each answer was given."""
        if not candidates:
            return {}
        return Counter(self.table.read(["same"], {"same": [each.same for each in candidates]})["same"].to_pylist())


def _turns(said: Conversation) -> Sequence[Any]:
    return said.turns if isinstance(said, Dialogue) else said
