"""Exports of chat tools, whose chats are split into sessions: parts without a long pause."""

import re
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, ClassVar, Literal

from turnwise.core.errors import CorpusError
from turnwise.corpus.readers.shared.fields import require_object
from turnwise.corpus.readers.shared.files import unpacked
from turnwise.corpus.readers.shared.message_logs import Message, MessageLog
from turnwise.corpus.readers.shared.speakers import Speakers
from turnwise.corpus.source.corpus_source import CorpusSource, Dialogues
from turnwise.corpus.source.dialogue_builder import empty_text_set

Bots = Literal["system", "skip"]  # what becomes of the messages of bots

#: Hours without a message after which a session ends: it survives a lunch break or a meeting, but not a night.
PAUSE = 6.0

#: Messages after which a session ends, since a chat may have no pause, as one with messages of a monitor.
_MAX_MESSAGES = 10_000
_LONG_SESSIONS = f"sessions divided after {_MAX_MESSAGES:,} messages"

#: Seconds within which copies of a message are recognised: their times may differ by the time zones of two exports.
_COPIES_WITHIN = 48 * 3600

#: The speaker of automatic messages; a role word, which becomes 'system' unless the speaker map says otherwise.
BOT = "bot"

NO_TEXT = "messages without text"  # what a message of no known kind counts as if it has no text
#: What text exports of chats contain besides messages with text.
MEDIA, DELETED, CALLS = "media without text", "deleted messages", "calls"
NOTICES = "lines without a sender (joins, calls, notices)"
_EVENT = re.compile(r"[A-Za-z0-9][\w/ -]{0,39}", re.ASCII)
_LAST_SECOND = datetime(9999, 12, 31, tzinfo=UTC).timestamp()


class ChatExport(MessageLog):
    """An export of a chat tool as dialogues: a thread is one, and so is each session of the other messages.

    A session's id is the name of its chat and the time of its first message (UTC), so that it stays the same when a
    later export has more messages. After 10,000 messages the next session begins. With a pause of 0 a chat is a single
    dialogue. Of several messages with the same key, as overlapping exports contain them, the first one counts.
    """

    #: The files with messages, and those with other lists.
    patterns: ClassVar[tuple[str, ...]] = ("*.json",)
    lists: ClassVar[tuple[str, ...]] = ()
    #: Keys whose elements or entries are members themselves, as for `CorpusSource.json_members`.
    opened: ClassVar[tuple[str, ...]] = ()
    #: Patterns of keys, one of which a file of this format has; another file is rejected with `expected`.
    known: ClassVar[tuple[str, ...]] = ()
    expected: ClassVar[str] = ""

    def __init__(self, source: CorpusSource, speakers: Speakers, pause: float, bots: Bots = "system"):
        if not pause >= 0:  # NaN is refused too
            raise CorpusError(f"pause must be a number of hours, or 0 for no pauses, got {pause}")
        super().__init__(source, speakers)
        self._pause = pause * 3600
        self._skips_bots = bots == "skip"
        self._threads = empty_text_set()
        self.chat = ""  # the name of the chat in the file, at first that of the file

    def read(self) -> Dialogues:
        """Read the files, or those in a zip file, and yield the dialogues."""
        with unpacked(self.source, *self.patterns, *self.lists) as self.source:
            self.read_lists()
            self.forget_rejections()
            for path in self.source.files(*self.patterns):
                self.chat = self.source.relative_name(path).removesuffix(path.suffix)
                self.read_file(path)
            yield from self.dialogues()

    def read_lists(self) -> None:
        """Read the files that are no messages."""

    def read_file(self, path: Path) -> None:
        """Add the messages of a JSON file."""
        is_known, rejected = False, self.source.counts.rejected_rows
        for line, (key, value) in self.source.json_members(path, self.opened):
            is_known = is_known or any(fnmatchcase(key, pattern) for pattern in self.known)
            with self.source.guard(path, line):
                self.at(path, line).read_member(key, value)
        if not is_known and self.source.counts.rejected_rows == rejected:
            self.source.reject(path, None, "file", self.expected)
            self._rejections += 1  # a file of another format leaves no hole

    def read_member(self, key: str, value: Any) -> None:
        """Add the messages in an entry of a JSON file, or in an element of an array, whose key is ''."""
        raise NotImplementedError

    def read_each(self, values: list[Any], read: Callable[[dict[str, Any]], None]) -> None:
        """Call `read` for each of the values, which are objects; reject those for which that fails."""
        path, line = self._place
        for value in values:
            with self.source.guard(path, line):
                read(require_object(value, "the message"))

    def add(self, conversation: str, time: float | None, speaker: str, text: object, **fields: str | None) -> None:
        """Add a message; raise a ValueError if its time cannot be part of an id; threads need no times."""
        is_timeless = time is None and conversation in self._threads
        if not is_timeless and (time is None or not 0 <= time < _LAST_SECOND):
            raise ValueError(f"the time {time} is not between 1970 and 9999")
        super().add(conversation, time, speaker, text, **fields)

    def add_thread(self, conversation: str) -> str:
        """Return the conversation, marked as a thread: it is not split into sessions."""
        self._threads.add(conversation)
        return conversation

    def skip_bot(self) -> bool:
        """Return whether the messages of bots are left out, and count one."""
        self.source.by_design["messages of bots"] += self._skips_bots
        return self._skips_bots

    def skip_event(self, kind: object) -> None:
        """Count an event, which is no message, by its kind, or as 'other' if that is not a short word."""
        self.source.by_design[f"{event_name(kind)} events"] += 1

    def _build(self, conversation: str, messages: Iterable[Message | None]) -> Dialogues:
        messages = self._without_copies(messages)
        if conversation in self._threads or not self._pause:
            yield from self._build_part(conversation, list(messages))
            return
        session: list[Message | None] = []
        start = last = None
        for message in messages:
            if message is not None and message.time is not None:
                has_paused = last is not None and message.time - last > self._pause
                if start is not None and (has_paused or len(session) >= _MAX_MESSAGES):
                    if not has_paused:
                        self.source.count_fact(_LONG_SESSIONS)
                    yield from self._build_session(conversation, start, session)
                    session, start = [], None
                start, last = message.time if start is None else start, message.time
            session.append(message)
        if start is not None:
            yield from self._build_session(conversation, start, session)

    def _build_session(self, conversation: str, start: float, messages: list[Message | None]) -> Dialogues:
        name = f"{conversation}/{datetime.fromtimestamp(start, UTC):%Y-%m-%dT%H:%M:%S}"
        return self._build_part(name, messages)

    def _without_copies(self, messages: Iterable[Message | None]) -> Iterator[Message | None]:
        seen: dict[str, float] = {}
        oldest = 0.0
        for message in messages:
            if message is not None and message.key is not None and message.time is not None:
                if message.key in seen:
                    self.source.by_design["copies of messages"] += 1
                    continue
                seen[message.key] = message.time
                if message.time - oldest > 2 * _COPIES_WITHIN:  # forget old keys, of which a chat may have millions
                    oldest = message.time - _COPIES_WITHIN
                    seen = {key: time for key, time in seen.items() if time >= oldest}
            yield message


def event_name(value: object) -> str:
    """Return the kind of an event, to be counted under that name; 'other' if it is not a short word."""
    return value if isinstance(value, str) and _EVENT.fullmatch(value) else "other"
