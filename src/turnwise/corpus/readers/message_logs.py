"""Logs of single messages: grouping messages by conversation, and mapping names to speakers."""

import json
import re
import sqlite3
from collections.abc import Iterator, Mapping
from itertools import count, groupby
from pathlib import Path
from typing import Any

from turnwise.core.dialogue import SYSTEM, USER, Dialogue, is_speaker, peer
from turnwise.core.errors import CorpusError
from turnwise.corpus.source.corpus_source import CorpusSource, DialogueBuilder

_BATCH_SIZE = 10_000

#: A message of a log, as JSON: file, line, time, speaker, text, intent, split, key.
Message = dict[str, Any]

_USER_WORDS = (
    "user, usr, customer, client, caller, visitor, guest, human, consumer, end user, requester, requestor, contact, "
    "lead, member, patient, buyer, shopper, subscriber, passenger, prospect, inbound, incoming, kunde, kundin, cliente"
)
_SYSTEM_WORDS = (
    "system, sys, assistant, agent, bot, chatbot, operator, representative, rep, advisor, adviser, support, staff, "
    "admin, administrator, teammate, support agent, support team, customer service, customer support, service, "
    "service desk, help desk, helpdesk, live agent, human agent, virtual agent, virtual assistant, ai, model, "
    "consultant, specialist, technician, moderator, outbound, outgoing, mitarbeiter, mitarbeiterin, berater, agente"
)

#: Words that logs use for the two roles; hyphens and underscores count as spaces.
ROLE_WORDS = {
    **dict.fromkeys(_USER_WORDS.split(", "), USER),
    **dict.fromkeys(_SYSTEM_WORDS.split(", "), SYSTEM),
}

#: In a speaker map: every name that is not in it.
_OTHERS = "*"


class MessageSorter:
    """An external sort: messages in any order go into a temporary SQLite file and come back by conversation.

    Within a conversation they are ordered by time, then by order of arrival. A message without a time stays behind the
    one that arrived before it. The place of a message that cannot be read is a hole, which comes back as None. If a
    row was rejected whose conversation is not known, the messages before and after it get one.
    """

    def __init__(self, source: CorpusSource) -> None:
        self._source = source
        self._rejections = source.rejected_rows
        self._last: tuple[str, float | None] | None = None
        self._database = sqlite3.connect("")  # an empty name: a private file that SQLite deletes by itself
        self._database.execute("PRAGMA temp_store = FILE")
        self._database.execute("PRAGMA cache_size = -65536")
        self._database.execute("CREATE TABLE message (conversation TEXT, time REAL, message TEXT)")
        self._pending: list[tuple[str, float | None, str | None]] = []

    def add(self, conversation: str, time: float | None, message: dict[str, Any]) -> None:
        """Add a message."""
        conversation.encode()  # fail here for an invalid name, not in the middle of a batch
        if self._source.rejected_rows > self._rejections:
            if self._last is not None:
                self.add_hole(*self._last)
            self.add_hole(conversation, time)
        self._pending.append((conversation, time, json.dumps(message)))
        self._last = (conversation, time)
        if len(self._pending) >= _BATCH_SIZE:
            self._flush()

    def add_hole(self, conversation: str, time: float | None = None) -> None:
        """Add the place of a message that cannot be read, and has been rejected or counted as left out."""
        conversation.encode()
        self._pending.append((conversation, time, None))
        self._rejections = self._source.rejected_rows

    def _flush(self) -> None:
        self._database.executemany("INSERT INTO message VALUES (?, ?, ?)", self._pending)
        self._pending.clear()

    def conversations(self) -> Iterator[tuple[str, list[dict[str, Any] | None]]]:
        """Yield the conversations sorted by name, each with its messages in order, and None for holes."""
        if self._last is not None and self._source.rejected_rows > self._rejections:
            self.add_hole(*self._last)
        self._flush()
        rows = self._database.execute("SELECT conversation, time, message FROM message ORDER BY conversation, rowid")
        for conversation, group in groupby(rows, key=lambda row: row[0]):
            timed, latest = [], float("-inf")
            for _, time, message in group:
                latest = latest if time is None else time
                timed.append((latest, message))
            timed.sort(key=lambda item: item[0])
            yield conversation, [None if message is None else json.loads(message) for _, message in timed]
        self._database.close()


class MessageLog:
    """Messages of a log, added in any order, as dialogues."""

    def __init__(self, source: CorpusSource, speakers: Mapping[str, str] | None = None):
        self._source = source
        self._mapper = SpeakerMapper(source, speakers or {})
        self._sorter = MessageSorter(source)
        self._files: dict[Path, int] = {}

    def add(
        self,
        conversation: str,
        time: float | None,
        speaker: str,
        text: object,
        *,
        path: Path,
        line: int | None,
        intent: str | None = None,
        split: str | None = None,
        key: str | None = None,
    ) -> None:
        """Add a message; `time` is in seconds, None: after the message before. An invalid text is rejected later.

        `key` identifies the message within its conversation.
        """
        message: Message = {"file": self._files.setdefault(path, len(self._files)), "line": line, "time": time}
        message |= {"speaker": speaker, "text": text, "intent": intent, "split": split, "key": key}
        self._sorter.add(conversation, time, message)

    def reject(
        self, conversation: str, time: float | None, reason: str, *, path: Path, line: int | None, text: object = None
    ) -> None:
        """Reject a message of a known conversation; its place is a hole."""
        self._source.counts.utterances += 1
        self._source.reject(path, line, "turn", reason, dialogue=conversation, text=text)
        self._sorter.add_hole(conversation, time)

    def leave_out(self, conversation: str, time: float | None, what: str) -> None:
        """Count a message that has no text, such as 'photos'; its place is a hole."""
        self._source.skipped[what] += 1
        self._sorter.add_hole(conversation, time)

    def dialogues(self) -> Iterator[Dialogue]:
        """Yield the dialogues, sorted by the names of their conversations."""
        files = list(self._files)
        for conversation, messages in self._sorter.conversations():
            for name, part in self._split(conversation, messages):
                yield from self._build(name, part, files)

    def _split(self, conversation: str, messages: list[Message | None]) -> Iterator[tuple[str, list[Message | None]]]:
        """Yield the dialogues in a conversation, each with its id and its messages: here the whole conversation."""
        yield conversation, messages

    def _build(self, name: str, messages: list[Message | None], files: list[Path]) -> Iterator[Dialogue]:
        first = next((message for message in messages if message is not None), None)
        if first is None:  # every message was rejected or left out
            return
        with self._source.dialogue(files[first["file"]], first["line"], first["split"] or None) as builder:
            builder.id = name
            builder.time = first["time"]
            for message in messages:
                if message is None:
                    builder.mark_hole()
                    continue
                builder.path = files[message["file"]]
                speaker = self._mapper.speaker(builder, message["speaker"])
                builder.add_turn(speaker, message["text"], message["intent"], line=message["line"])
        yield from builder.result()


class SpeakerMapper:
    """Maps the names in a log to speakers.

    The given map comes first, then the role words, then the map's `*`. Any other name is a participant without a role,
    numbered by first appearance in the conversation, skipping numbers that the map uses. The import's facts list the
    role words with what they were taken for, and count the turns of participants without a role.
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
        speaker = self._speakers.get(key) or self._role(key) or self._speakers.get(_OTHERS)
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

    def _role(self, name: str) -> str | None:
        word = re.sub(r"[\s_-]+", " ", name)
        role = ROLE_WORDS.get(word)
        if role is not None:
            self._facts.setdefault("roles", {})[word] = role
        return role
