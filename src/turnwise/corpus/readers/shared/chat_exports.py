"""Exports of chat tools: reading their files, and splitting chats into dialogues.

A chat runs for months, with one conversation after another. A *session* is a part of it without a long pause.
"""

import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, ClassVar, Literal

from turnwise.core.dialogue import Dialogue
from turnwise.core.errors import CorpusError
from turnwise.corpus.readers.shared.files import unpacked
from turnwise.corpus.readers.shared.message_logs import Message, MessageLog
from turnwise.corpus.source.corpus_source import CorpusSource

#: Hours without a message after which a session ends: it survives a lunch break or a meeting, but not a night.
PAUSE = 6.0

#: The speaker of automatic messages; a role word, which becomes 'system' unless the speaker map says otherwise.
BOT = "bot"

#: What a message of no known kind counts as if it has no text.
NO_TEXT = "messages without text"

_EVENT = re.compile(r"[A-Za-z0-9][\w/ -]{0,39}", re.ASCII)
_LAST_SECOND = datetime(9999, 12, 31, tzinfo=UTC).timestamp()


class ChatExport(MessageLog):
    """An export of a chat tool as dialogues: a thread is one, and so is each session of the other messages.

    A subclass names the files and adds the messages of one. A session's id is the name of its chat and the time of its
    first message (UTC), so that it stays the same when a later export has more messages. With a pause of 0 a chat is a
    single dialogue. Of several messages with the same key, as overlapping exports contain them, the first one counts.
    """

    #: The files with messages, and those with other lists.
    patterns: ClassVar[tuple[str, ...]] = ("*.json",)
    lists: ClassVar[tuple[str, ...]] = ()

    def __init__(
        self,
        source: CorpusSource,
        speakers: Mapping[str, str] | None,
        pause: float,
        bots: Literal["system", "skip"] = "system",
    ):
        if not pause >= 0:  # not a number is neither
            raise CorpusError(f"pause must be a number of hours, or 0 for no pauses, got {pause}")
        super().__init__(source, speakers)
        self._pause = pause * 3600
        self._skips_bots = bots == "skip"
        self._threads: set[str] = set()

    def read(self) -> Iterator[Dialogue]:
        """Read the files, or those in a zip file, and yield the dialogues."""
        with unpacked(self.source, *self.patterns, *self.lists) as self.source:
            self.read_lists()
            self.forget_rejections()
            for path in self.source.files(*self.patterns):
                self.read_file(path)
            yield from self.dialogues()

    def read_lists(self) -> None:
        """Read the files that are no messages."""

    def read_file(self, path: Path) -> None:
        """Add the messages of a file."""
        raise NotImplementedError

    def members(
        self, path: Path, opened: tuple[str, ...], known: tuple[str, ...], expected: str
    ) -> Iterator[tuple[int, str, Any]]:
        """Yield the entries of a JSON file, each with its line and key, and with '' in an array.

        Args:
            path: the file.
            opened: keys whose elements or entries are yielded instead, as by `CorpusSource.json_members`.
            known: patterns of keys, one of which a file of this format has; another file is rejected.
            expected: what the file should be, for the message.
        """
        is_known, rejected = False, self.source.rejected_rows
        for line, (key, value) in self.source.json_members(path, *opened):
            is_known = is_known or any(fnmatchcase(key, pattern) for pattern in known)
            yield line, key, value
        if not is_known and self.source.rejected_rows == rejected:
            self.source.reject(path, None, "file", expected)

    def add(self, conversation: str, time: float | None, speaker: str, text: object, **fields: str | None) -> None:
        """Add a message; raise a ValueError if its time cannot be part of an id."""
        if time is None or not 0 <= time < _LAST_SECOND:
            raise ValueError(f"the time {time} is not between 1970 and 9999")
        super().add(conversation, time, speaker, text, **fields)

    def add_thread(self, conversation: str) -> str:
        """Return the conversation, marked as a thread: it is not split into sessions."""
        self._threads.add(conversation)
        return conversation

    def skip_bot(self) -> bool:
        """Return whether the messages of bots are left out, and count one."""
        self.source.skipped["messages of bots"] += self._skips_bots
        return self._skips_bots

    def skip_event(self, kind: object) -> None:
        """Count an event, which is no message, by its kind, or as 'other' if that is not a short word."""
        self.source.skipped[f"{event_name(kind)} events"] += 1

    def _build(self, conversation: str, messages: list[Message | None]) -> Iterator[Dialogue]:
        messages = list(self._without_copies(messages))
        if conversation in self._threads or not self._pause:
            yield from self._build_part(conversation, messages)
            return
        session: list[Message | None] = []
        start = last = None
        for message in messages:
            if message is not None and message.time is not None:
                if start is not None and last is not None and message.time - last > self._pause:
                    yield from self._build_part(_session_id(conversation, start), session)
                    session, start = [], None
                last = message.time
                start = last if start is None else start
            session.append(message)
        if start is not None:
            yield from self._build_part(_session_id(conversation, start), session)

    def _without_copies(self, messages: list[Message | None]) -> Iterator[Message | None]:
        seen = set()
        for message in messages:
            if message is not None and message.key is not None:
                if message.key in seen:
                    self.source.skipped["copies of messages"] += 1
                    continue
                seen.add(message.key)
            yield message


def _session_id(chat: str, start: float) -> str:
    return f"{chat}/{datetime.fromtimestamp(start, UTC):%Y-%m-%dT%H:%M:%S}"


def event_name(value: object) -> str:
    """Return the kind of an event, to be counted under that name; 'other' if it is not a short word."""
    return value if isinstance(value, str) and _EVENT.fullmatch(value) else "other"
