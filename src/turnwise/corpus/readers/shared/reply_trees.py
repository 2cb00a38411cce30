"""Messages that name what they reply to: trees of replies, and the chains in a tree."""

import json
import sqlite3
from collections.abc import Iterator, Sequence
from itertools import groupby
from operator import itemgetter

from turnwise.corpus.readers.shared.message_logs import Message


class ReplyTrees:
    """Groups messages, added in any order, by the first message that they reply to, directly or indirectly.

    They are kept in a temporary SQLite file, so a log may be larger than memory.
    """

    def __init__(self) -> None:
        self._database = sqlite3.connect("")  # an empty name: a private file that SQLite deletes by itself
        self._database.execute("PRAGMA temp_store = FILE")
        self._database.execute("PRAGMA cache_size = -65536")
        self._database.execute(
            "CREATE TABLE message (number INTEGER PRIMARY KEY, id TEXT UNIQUE, reply_to TEXT, message)"
        )

    def add(self, message: Message) -> bool:
        """Add a message by its key; return whether the key is new."""
        row = (message.key, message.reply_to, json.dumps(message))
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
            yield root, [Message._make(json.loads(text)) for _, text in group]

    def cycles(self) -> Iterator[Message]:
        """Yield the messages that reply, directly or indirectly, to themselves; after `trees`."""
        self._database.execute("CREATE UNIQUE INDEX reached ON tree (number)")
        outside = "SELECT message FROM message WHERE number NOT IN (SELECT number FROM tree) ORDER BY number"
        for (text,) in self._database.execute(outside):
            yield Message._make(json.loads(text))


def reply_chains(messages: Sequence[Message]) -> Iterator[list[Message]]:
    """Yield every chain of replies from a first message to one without a reply."""
    by_key = {message.key: message for message in messages}
    answered = {message.reply_to for message in messages}
    for message in messages:
        if message.key in answered:
            continue
        chain = []
        seen = set()
        link: Message | None = message
        while link is not None and link.key not in seen:  # a faulty file may contain a cycle
            seen.add(link.key)
            chain.append(link)
            link = by_key.get(link.reply_to)
        yield chain[::-1]


def sort_tree(messages: list[Message]) -> None:
    """Sort the messages of a tree by time; those without a time follow the message that they reply to."""
    by_key = {message.key: message for message in messages}

    def order(message: Message) -> tuple[float, bool]:
        link: Message | None = message
        while link is not None and link.time is None:
            link = by_key.get(link.reply_to)
        return float("-inf") if link is None or link.time is None else link.time, message.time is None

    messages.sort(key=order)
