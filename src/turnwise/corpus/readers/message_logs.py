"""Helpers for logs of single messages: grouping them by conversation, and mapping names to speakers."""

import json
import sqlite3
from collections.abc import Iterator, Mapping
from itertools import count, groupby
from typing import Any

from turnwise.core.dialogue import SYSTEM, USER, is_speaker, peer
from turnwise.corpus.source import CorpusError, CorpusSource, DialogueBuilder

_BATCH_SIZE = 10_000

#: Words that logs use for the two roles.
ROLE_WORDS = {
    **dict.fromkeys(("user", "customer", "client", "caller", "visitor", "guest", "human", "usr", "consumer"), USER),
    **dict.fromkeys(
        ("system", "assistant", "agent", "bot", "chatbot", "operator", "representative", "advisor", "support", "sys"),
        SYSTEM,
    ),
}

#: In a speaker map: every name that is not in it.
_OTHERS = "*"


class MessageSorter:
    """An external sort: messages in any order go into a temporary SQLite file and come back by conversation.

    Within a conversation they are ordered by time, then by order of arrival.
    """

    def __init__(self) -> None:
        self._database = sqlite3.connect("")  # an empty name: a private file that SQLite deletes by itself
        self._database.execute("PRAGMA temp_store = FILE")
        self._database.execute("PRAGMA cache_size = -65536")
        self._database.execute("CREATE TABLE message (conversation TEXT, time REAL, message TEXT)")
        self._pending: list[tuple[str, float, str]] = []

    def add(self, conversation: str, time: float, message: dict[str, Any]) -> None:
        """Add a message."""
        conversation.encode()  # fail here for an invalid name, not in the middle of a batch
        self._pending.append((conversation, time, json.dumps(message)))
        if len(self._pending) >= _BATCH_SIZE:
            self._flush()

    def _flush(self) -> None:
        self._database.executemany("INSERT INTO message VALUES (?, ?, ?)", self._pending)
        self._pending.clear()

    def conversations(self) -> Iterator[tuple[str, list[dict[str, Any]]]]:
        """Yield the conversations sorted by name, each with its messages in order."""
        self._flush()
        rows = self._database.execute("SELECT conversation, message FROM message ORDER BY conversation, time, rowid")
        for conversation, group in groupby(rows, key=lambda row: row[0]):
            yield conversation, [json.loads(message) for _, message in group]
        self._database.close()


class SpeakerMapper:
    """Maps the names in a log to speakers.

    The given map comes first, then the role words, then the map's `*`. Any other name is a participant without a role,
    numbered by first appearance in the conversation, skipping numbers that the map uses; such turns are counted among
    the import's facts.
    """

    def __init__(self, source: CorpusSource, speakers: Mapping[str, str]):
        for name, speaker in speakers.items():
            if not is_speaker(speaker):
                raise CorpusError(
                    f"speakers: {name}={speaker}: map to 'user', 'system', or 'speaker_1', 'speaker_2', …"
                )
        self._speakers = {name.casefold(): speaker for name, speaker in speakers.items()}
        self._facts = source.facts
        self._builder: DialogueBuilder | None = None
        self._numbered: dict[str, str] = {}
        self._unused: Iterator[str] = iter(())

    def speaker(self, builder: DialogueBuilder, name: str) -> str:
        """Return the speaker for a name in a dialogue; an empty name stays empty, to be rejected."""
        key = name.strip().casefold()
        speaker = self._speakers.get(key) or ROLE_WORDS.get(key) or self._speakers.get(_OTHERS)
        if speaker or not key:
            return speaker or name
        fact = "turns of speakers without a role"
        self._facts[fact] = self._facts.get(fact, 0) + 1
        if builder is not self._builder:
            self._builder, self._numbered = builder, {}
            self._unused = (name for name in map(peer, count(1)) if name not in self._speakers.values())
        if key not in self._numbered:
            self._numbered[key] = next(self._unused)
        return self._numbered[key]
