"""Messages of many conversations, in any order, brought together by conversation without holding them in memory."""

import json
import sqlite3
from collections.abc import Iterator
from itertools import groupby
from typing import Any

_BATCH = 10_000


class Gather:
    """An external sort: messages go into a temporary SQLite file and come back conversation by conversation.

    Within a conversation they come by time, and by order of arrival where times are equal or missing.
    """

    def __init__(self) -> None:
        self._messages = sqlite3.connect("")  # an empty name: a private file that SQLite deletes by itself
        self._messages.execute("PRAGMA temp_store = FILE")
        self._messages.execute("PRAGMA cache_size = -65536")
        self._messages.execute("CREATE TABLE message (conversation TEXT, time REAL, message TEXT)")
        self._waiting: list[tuple[str, float, str]] = []

    def add(self, conversation: str, time: float, message: dict[str, Any]) -> None:
        """Takes a message in."""
        conversation.encode()  # a name that no file could hold is refused here, not with ten thousand others below
        self._waiting.append((conversation, time, json.dumps(message)))
        if len(self._waiting) >= _BATCH:
            self._flush()

    def _flush(self) -> None:
        self._messages.executemany("INSERT INTO message VALUES (?, ?, ?)", self._waiting)
        self._waiting.clear()

    def conversations(self) -> Iterator[tuple[str, list[dict[str, Any]]]]:
        """The conversations, in the order of their names, each with its messages in order."""
        self._flush()
        rows = self._messages.execute("SELECT conversation, message FROM message ORDER BY conversation, time, rowid")
        for conversation, group in groupby(rows, key=lambda row: row[0]):
            yield conversation, [json.loads(message) for _, message in group]
        self._messages.close()
