"""Exports of chat tools: splitting chats into dialogues.

A chat runs for months, with one conversation after another. A *session* is a part of it without a long pause.
"""

import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime

from turnwise.core.errors import CorpusError
from turnwise.corpus.readers.message_logs import Message, MessageLog
from turnwise.corpus.source.corpus_source import CorpusSource

#: Hours without a message after which a session ends: it survives a lunch break or a meeting, but not a night.
PAUSE = 6.0

#: The speaker of automatic messages; a role word, which becomes 'system' unless the speaker map says otherwise.
BOT = "bot"

#: What a message of no known kind counts as if it has no text.
NO_TEXT = "messages without text"

_EVENT = re.compile(r"[A-Za-z0-9][\w/ -]{0,39}", re.ASCII)


class ChatLog(MessageLog):
    """Messages of chats, added in any order, as dialogues: a thread is one, and so is each session of other messages.

    A session's id is the name of its chat and the time of its first message (UTC), so that it stays the same when a
    later export has more messages. With a pause of 0 a chat is a single dialogue. Of several messages with the same
    key, as overlapping exports contain them, the first one counts.
    """

    def __init__(self, source: CorpusSource, speakers: Mapping[str, str] | None, pause: float):
        if not pause >= 0:  # not a number is neither
            raise CorpusError(f"pause must be a number of hours, or 0 for no pauses, got {pause}")
        super().__init__(source, speakers)
        self._pause = pause * 3600
        self._threads: set[str] = set()

    def thread(self, conversation: str) -> str:
        """Return the conversation, marked as a thread: it is not split into sessions."""
        self._threads.add(conversation)
        return conversation

    def mark_hole(self, conversation: str, time: float | None) -> None:
        """Record that something after that time was rejected."""
        self._sorter.add_hole(conversation, time)

    def _split(self, conversation: str, messages: list[Message | None]) -> Iterator[tuple[str, list[Message | None]]]:
        messages = list(self._without_copies(messages))
        if conversation in self._threads or not self._pause:
            yield conversation, messages
            return
        session: list[Message | None] = []
        start = last = None
        for message in messages:
            if message is not None:
                if start is not None and last is not None and message["time"] - last > self._pause:
                    yield _session_id(conversation, start), session
                    session, start = [], None
                last = message["time"]
                start = last if start is None else start
            session.append(message)
        if start is not None:
            yield _session_id(conversation, start), session

    def _without_copies(self, messages: list[Message | None]) -> Iterator[Message | None]:
        seen = set()
        for message in messages:
            key = None if message is None else message["key"]
            if key is not None and key in seen:
                self._source.skipped["copies of messages"] += 1
                continue
            seen.add(key)
            yield message


def _session_id(chat: str, start: float) -> str:
    return f"{chat}/{datetime.fromtimestamp(start, UTC):%Y-%m-%dT%H:%M:%S}"


def event_name(value: object) -> str:
    """Return the kind of an event, to be counted under that name; 'other' if it is not a short word."""
    return value if isinstance(value, str) and _EVENT.fullmatch(value) else "other"
