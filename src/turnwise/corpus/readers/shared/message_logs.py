"""Logs of single messages in any order: grouping them by conversation, sorting them, and building dialogues."""

import pickle
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple, Self, TypeVar

from turnwise.corpus.readers.shared.speakers import SpeakerMapper, Speakers
from turnwise.corpus.source.corpus_source import CorpusSource, Dialogues

#: The order where all messages have a time, or none has.
_ORDERED = "SELECT conversation, message FROM message ORDER BY conversation, time, rowid"

#: The order where only some messages have a time: what `in_time_order` does, for each conversation. `timed` counts the
#: messages with a time up to each one. It sorts all messages three times.
_IN_TIME_ORDER = """
    SELECT conversation, message FROM (
        SELECT conversation, message, place,
            FIRST_VALUE(time) OVER (PARTITION BY conversation, timed ORDER BY place) AS latest
        FROM (
            SELECT conversation, time, message, rowid AS place,
                COUNT(time) OVER (PARTITION BY conversation ORDER BY rowid) AS timed
            FROM message
        )
    ) ORDER BY conversation, latest, place
"""

#: Memory for the pages of a temporary table, and again for sorting it, in KiB.
_CACHE = 16_384

_Item = TypeVar("_Item")


class Message(NamedTuple):
    """A message of a log."""

    file: int  # the number of the file among those of the log
    line: int | None
    time: float | None  # in seconds since 1970, if it is known
    speaker: str
    text: Any  # a string; other values are rejected when the dialogue is built
    intent: str | None = None
    split: str | None = None
    #: What identifies the message within its conversation, and the key of the message that it replies to.
    key: str | None = None
    reply_to: str | None = None

    def dump(self) -> bytes:
        """Return the message as it is written to a temporary table."""
        return pickle.dumps(tuple(self), pickle.HIGHEST_PROTOCOL)

    @classmethod
    def load(cls, dumped: bytes) -> Self:
        """Return the message that `dump` wrote."""
        return cls._make(pickle.loads(dumped))


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
) -> Dialogues:
    """Yield the dialogue of messages in order, or its parts; None is the place of an unknown message."""
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


def _temporary_table(columns: str) -> sqlite3.Connection:
    """Return a database on disk with a table `message`."""
    database = sqlite3.connect("")  # an empty name: a private file that SQLite deletes by itself
    database.execute("PRAGMA temp_store = FILE")
    database.execute(f"PRAGMA cache_size = -{_CACHE}")
    database.execute(f"CREATE TABLE message ({columns})")
    return database


class MessageLog:
    """Messages added in any order, as dialogues.

    An external sort: the messages go into a temporary SQLite file and come back by conversation, in time order. The
    place of a message that cannot be read is a hole. If a row was rejected whose conversation is not known, there is a
    hole behind the message before it, and one before the message after it.
    """

    def __init__(self, source: CorpusSource, speakers: Speakers = None, *, has_roles: bool = False):
        """Start an empty log; `has_roles` says that the messages are added with roles instead of names."""
        self.source = source
        self.files: list[Path] = []
        self._place: tuple[Path, int | None] = source.root, None
        self._mapper = None if has_roles else SpeakerMapper(source, speakers)
        self._rejections = source.counts.rejected_rows
        self._last: tuple[str, float | None] | None = None
        self._timed: set[bool] = set()  # whether there are messages with a time, and without
        self._database = _temporary_table("conversation TEXT, time REAL, message BLOB")

    def at(self, path: Path, line: int | None) -> Self:
        """Set the place of the messages that are added next."""
        self._place = path, line
        return self

    def add(self, conversation: str, time: float | None, speaker: str, text: object, **fields: str | None) -> None:
        """Add a message; `fields` are others of `Message`. An invalid text is rejected later."""
        if self.source.counts.rejected_rows > self._rejections:
            if self._last is not None:
                self.add_hole(*self._last)
            self.add_hole(conversation, time)
        path, line = self._place
        if path not in self.files[-1:]:
            self.files.append(path)
        message = Message(len(self.files) - 1, line, time, speaker, text, **fields)
        self._insert(conversation, time, message.dump())
        self._last = (conversation, time)

    def add_text(
        self, conversation: str, time: float | None, speaker: str, text: str, what: str, key: str | None = None
    ) -> None:
        """Add a message; one without text counts as left out under `what`."""
        if text.strip():
            self.add(conversation, time, speaker, text, key=key)
        else:
            self.leave_out(conversation, time, what)

    def reject(self, conversation: str, time: float | None, reason: str, text: object = None) -> None:
        """Reject a message of a known conversation; its place is a hole."""
        path, line = self._place
        self.source.reject(path, line, "turn", reason, dialogue=conversation, text=text)
        self.add_hole(conversation, time)

    def leave_out(self, conversation: str, time: float | None, what: str) -> None:
        """Count a message that has no text, such as 'photos'; its place is a hole."""
        self.source.skipped[what] += 1
        self.add_hole(conversation, time)

    def add_hole(self, conversation: str, time: float | None = None) -> None:
        """Add the place of a message that cannot be read, and has been rejected or counted as left out."""
        self._insert(conversation, time, None)
        self.forget_rejections()

    def _insert(self, conversation: str, time: float | None, message: bytes | None) -> None:
        self.source.counts.messages += 1
        self._timed.add(time is not None)
        self._database.execute("INSERT INTO message VALUES (?, ?, ?)", (conversation, time, message))

    def forget_rejections(self) -> None:
        """Take the rejections so far for none of messages: they leave no holes."""
        self._rejections = self.source.counts.rejected_rows

    def dialogues(self) -> Dialogues:
        """Yield the dialogues, sorted by the names of their conversations."""
        if self._last is not None and self.source.counts.rejected_rows > self._rejections:
            self.add_hole(*self._last)
        rows = self._database.execute(_IN_TIME_ORDER if len(self._timed) == 2 else _ORDERED)
        for conversation, group in groupby(rows, key=itemgetter(0)):
            messages = (None if dumped is None else Message.load(dumped) for _, dumped in group)
            yield from self._build(conversation, messages)
        self._database.close()

    def _build(self, conversation: str, messages: Iterable[Message | None]) -> Dialogues:
        """Yield the dialogues in a conversation: here the whole conversation."""
        return self._build_part(conversation, list(messages))

    def _build_part(self, name: str, messages: Sequence[Message | None], conversation: str = "") -> Dialogues:
        files, mapper = self.files, self._mapper
        return build_dialogue(self.source, name, messages, files, mapper=mapper, conversation=conversation)


class ReplyTrees:
    """Groups messages, added in any order, by the first message that they reply to; in a temporary SQLite file."""

    def __init__(self) -> None:
        self._database = _temporary_table("number INTEGER PRIMARY KEY, id TEXT UNIQUE, reply_to TEXT, message")

    def add(self, message: Message) -> bool:
        """Add a message by its key; return whether the key is new."""
        row = (message.key, message.reply_to, message.dump())
        insert = "INSERT OR IGNORE INTO message (id, reply_to, message) VALUES (?, ?, ?)"
        return self._database.execute(insert, row).rowcount > 0

    def trees(self) -> Iterator[tuple[str, list[Message]]]:
        """Yield the key of the first message of each tree, and the messages in order of arrival."""
        self._database.execute("CREATE INDEX replies ON message (reply_to)")
        self._database.execute(
            """
            CREATE TABLE tree AS
            WITH RECURSIVE reached (number, id, root) AS (
                SELECT number, id, number FROM message AS first
                WHERE NOT EXISTS (SELECT 1 FROM message WHERE id = first.reply_to)
                UNION ALL
                SELECT message.number, message.id, reached.root
                FROM reached JOIN message ON message.reply_to = reached.id
            )
            SELECT number, root FROM reached
            """
        )
        rows = self._database.execute(
            """
            SELECT first.id, message.message
            FROM tree JOIN message USING (number) JOIN message AS first ON first.number = tree.root
            ORDER BY tree.root, tree.number
            """
        )
        for root, group in groupby(rows, key=itemgetter(0)):
            yield root, [Message.load(dumped) for _, dumped in group]

    def cycles(self) -> Iterator[Message]:
        """Yield the messages that reply, directly or indirectly, to themselves; after `trees`."""
        self._database.execute("CREATE UNIQUE INDEX reached ON tree (number)")
        outside = "SELECT message FROM message WHERE number NOT IN (SELECT number FROM tree) ORDER BY number"
        for (dumped,) in self._database.execute(outside):
            yield Message.load(dumped)


def reply_chains(messages: Sequence[Message]) -> Iterator[list[Message]]:
    """Yield every chain of replies from a first message to one without a reply."""
    by_key = {message.key: message for message in messages}
    answered = {message.reply_to for message in messages}
    for message in messages:
        if message.key in answered:
            continue
        chain: dict[str | None, Message] = {}
        link: Message | None = message
        while link is not None and link.key not in chain:  # a faulty file may contain a cycle
            chain[link.key] = link
            link = by_key.get(link.reply_to)
        yield list(chain.values())[::-1]


def sort_tree(messages: list[Message]) -> None:
    """Sort the messages of a tree by time; those without a time follow the message that they reply to."""
    by_key = {message.key: message for message in messages}

    def order(message: Message) -> tuple[float, bool]:
        link: Message | None = message
        while link is not None and link.time is None:
            link = by_key.get(link.reply_to)
        time = None if link is None else link.time
        return float("-inf") if time is None else time, message.time is None

    messages.sort(key=order)
