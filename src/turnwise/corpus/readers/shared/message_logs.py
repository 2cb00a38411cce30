"""Logs of single messages in any order: grouping them by conversation, sorting them, and building dialogues."""

import json
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple, Self, TypeVar

from turnwise.core.dialogue import Dialogue
from turnwise.corpus.readers.shared.speakers import SpeakerMapper
from turnwise.corpus.source.corpus_source import CorpusSource

_BATCH_SIZE = 10_000

_Item = TypeVar("_Item")


class Message(NamedTuple):
    """A message of a log, which JSON can represent as a list."""

    #: The number of the file among those of the log.
    file: int
    line: int | None
    #: In seconds since 1970, if it is known.
    time: float | None
    speaker: str
    #: A string; other values are rejected when the dialogue is built.
    text: Any
    intent: str | None = None
    split: str | None = None
    #: What identifies the message within its conversation, and the key of the message that it replies to.
    key: str | None = None
    reply_to: str | None = None


def in_time_order(items: Iterable[_Item], time: Callable[[_Item], float | None]) -> list[_Item]:
    """Sort by time; an item without a time stays behind its predecessor, and items of one time keep their order."""
    latest, timed = float("-inf"), []
    for item in items:
        own = time(item)
        latest = latest if own is None else own
        timed.append((latest, item))
    timed.sort(key=itemgetter(0))
    return [item for _, item in timed]


def build_dialogue(
    source: CorpusSource,
    name: str,
    messages: Sequence[Message | None],
    files: Sequence[Path],
    *,
    mapper: SpeakerMapper | None = None,
    conversation: str = "",
) -> Iterator[Dialogue]:
    """Yield the dialogue of messages in order, or its parts; None is the place of one that is not known.

    Args:
        source: the source that counts turns and rejects invalid ones.
        name: the dialogue's id.
        messages: the messages in order.
        files: the files of the log.
        mapper: maps the names of speakers; without it they are speakers already.
        conversation: what the dialogue is a part of, if it shares messages with others.
    """
    first = next((message for message in messages if message is not None), None)
    if first is None:
        return
    with source.dialogue(files[first.file], first.line, first.split or None) as builder:
        builder.id, builder.conversation, builder.time = name, conversation, first.time
        for message in messages:
            if message is None:
                builder.mark_hole()
                continue
            builder.path = files[message.file]
            speaker = mapper.speaker(builder, message.speaker) if mapper else message.speaker
            builder.add_turn(speaker, message.text, message.intent, line=message.line)
    yield from builder.result()


class MessageLog:
    """Messages added in any order, as dialogues.

    An external sort: the messages go into a temporary SQLite file and come back by conversation, in time order. The
    place of a message that cannot be read is a hole. If a row was rejected whose conversation is not known, there is a
    hole behind the message before it, and one before the message after it.
    """

    def __init__(self, source: CorpusSource, speakers: Mapping[str, str] | None = None):
        self.source = source
        self.files: list[Path] = []
        self._file_numbers: dict[Path, int] = {}
        self._place: tuple[Path, int | None] = source.root, None
        self._mapper = SpeakerMapper(source, speakers or {})
        self._rejections = source.rejected_rows
        self._last: tuple[str, float | None] | None = None
        self._database = sqlite3.connect("")  # an empty name: a private file that SQLite deletes by itself
        self._database.execute("PRAGMA temp_store = FILE")
        self._database.execute("PRAGMA cache_size = -65536")
        self._database.execute("CREATE TABLE message (conversation TEXT, time REAL, message TEXT)")
        self._pending: list[tuple[str, float | None, str | None]] = []

    def at(self, path: Path, line: int | None) -> Self:
        """Set the place of the messages that are added next."""
        self._place = path, line
        return self

    def add(self, conversation: str, time: float | None, speaker: str, text: object, **fields: str | None) -> None:
        """Add a message; `fields` are others of `Message`. An invalid text is rejected later."""
        conversation.encode()  # fail here for an invalid name, not in the middle of a batch
        if self.source.rejected_rows > self._rejections:
            if self._last is not None:
                self.add_hole(*self._last)
            self.add_hole(conversation, time)
        path, line = self._place
        if path not in self._file_numbers:
            self._file_numbers[path] = len(self.files)
            self.files.append(path)
        message = Message(self._file_numbers[path], line, time, speaker, text, **fields)
        self._pending.append((conversation, time, json.dumps(message)))
        self._last = (conversation, time)
        if len(self._pending) >= _BATCH_SIZE:
            self._flush()

    def reject(self, conversation: str, time: float | None, reason: str, text: object = None) -> None:
        """Reject a message of a known conversation; its place is a hole."""
        path, line = self._place
        self.source.counts.utterances += 1
        self.source.reject(path, line, "turn", reason, dialogue=conversation, text=text)
        self.add_hole(conversation, time)

    def leave_out(self, conversation: str, time: float | None, what: str) -> None:
        """Count a message that has no text, such as 'photos'; its place is a hole."""
        self.source.skipped[what] += 1
        self.add_hole(conversation, time)

    def add_hole(self, conversation: str, time: float | None = None) -> None:
        """Add the place of a message that cannot be read, and has been rejected or counted as left out."""
        conversation.encode()
        self._pending.append((conversation, time, None))
        self.forget_rejections()

    def forget_rejections(self) -> None:
        """Take the rejections so far for none of messages: they leave no holes."""
        self._rejections = self.source.rejected_rows

    def _flush(self) -> None:
        self._database.executemany("INSERT INTO message VALUES (?, ?, ?)", self._pending)
        self._pending.clear()

    def dialogues(self) -> Iterator[Dialogue]:
        """Yield the dialogues, sorted by the names of their conversations."""
        if self._last is not None and self.source.rejected_rows > self._rejections:
            self.add_hole(*self._last)
        self._flush()
        rows = self._database.execute("SELECT conversation, time, message FROM message ORDER BY conversation, rowid")
        for conversation, group in groupby(rows, key=itemgetter(0)):
            ordered = in_time_order(group, itemgetter(1))
            messages = [None if text is None else Message._make(json.loads(text)) for _, _, text in ordered]
            yield from self._build(conversation, messages)
        self._database.close()

    def _build(self, conversation: str, messages: list[Message | None]) -> Iterator[Dialogue]:
        """Yield the dialogues in a conversation: here the whole conversation."""
        yield from self._build_part(conversation, messages)

    def _build_part(self, name: str, messages: Sequence[Message | None], conversation: str = "") -> Iterator[Dialogue]:
        yield from build_dialogue(
            self.source, name, messages, self.files, mapper=self._mapper, conversation=conversation
        )
