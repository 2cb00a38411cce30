"""Support tickets: exports of Zendesk, Intercom and Freshdesk as JSON or JSON Lines.

A file is JSON Lines with a ticket per line, an array of tickets, or an object with a list of them (a page of the API).
The messages of a ticket are sorted by time. A message that cannot be read is rejected alone.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from operator import itemgetter
from pathlib import Path
from typing import Any

from turnwise.core.dialogue import SYSTEM, USER, Dialogue
from turnwise.corpus.readers.shared.fields import optional_time, require, require_id
from turnwise.corpus.readers.shared.files import JSON_FILES, json_records
from turnwise.corpus.readers.shared.html_text import html_to_text
from turnwise.corpus.readers.shared.message_logs import Message, build_dialogue, in_time_order
from turnwise.corpus.source.corpus_source import CorpusSource

_ZENDESK_ROLES = {"end-user": USER, "agent": SYSTEM, "admin": SYSTEM}

_INTERCOM_AUTHORS = {
    **dict.fromkeys(("user", "lead", "contact"), USER),
    **dict.fromkeys(("admin", "bot", "team"), SYSTEM),
}
#: A conversation may be opened and closed with a message or without one.
_INTERCOM_STATES = ("open", "close")
#: Parts whose body the contact sees.
_INTERCOM_MESSAGES = ("comment", "quick_reply", *_INTERCOM_STATES)

#: Freshdesk's `source` of tickets that an agent started with an e-mail to the requester.
_FRESHDESK_OUTBOUND = 10

_WITHOUT_TEXT = "messages without text (attachments)"
_PRIVATE = "private notes"


def read_zendesk(source: CorpusSource, *, private: bool = False) -> Iterator[Dialogue]:
    """Read tickets `{id, requester_id, comments: [{author_id, body, public, created_at}]}`, or a list under `tickets`.

    These are the objects of Zendesk's API (v2) and of its JSON export. The text is a comment's `plain_body`, `body` or
    `html_body`. Instead of `comments`, a ticket may have `audits` with events of the type Comment. The description is
    the first comment, and is not read again.

    The requester is the user. Others have the role of their entry in `users` (in the same object, or in a file with
    'users' in its name), and are the system without one. Private notes and comments of other types (calls) are left
    out.

    Args:
        source: the files to read.
        private: true: keep private notes.
    """
    roles: dict[str, str] = {}
    files = source.files(*JSON_FILES)
    users = [path for path in files if path != source.root and "users" in path.name.lower()]
    for path in users:
        for line, value in json_records(source, path):
            listed = value["users"] if isinstance(value, dict) and "users" in value else [value]
            _add_roles(source, path, line, listed, roles)

    def add_comments(ticket: _Ticket, record: dict[str, Any]) -> None:
        requester = require_id(record, "requester_id")
        for comment in _zendesk_comments(record):
            with ticket.message():
                author = require_id(comment, "author_id")
                time = optional_time(comment, "created_at")
                if not private and not require(comment, "public", bool):
                    source.skipped[_PRIVATE] += 1
                elif "type" in comment and (kind := _require_kind(comment, "type")) != "Comment":
                    ticket.leave_out(time, f"comments of type {kind}")
                else:
                    speaker = USER if author == requester else roles.get(author, SYSTEM)
                    ticket.add(time, speaker, _message_text(comment, ("plain_body", "body"), "html_body"))

    def add_users(path: Path, line: int, value: Any) -> None:
        if isinstance(value, dict) and "users" in value:
            _add_roles(source, path, line, value["users"], roles)

    yield from _read_tickets(source, [path for path in files if path not in users], "tickets", add_comments, add_users)


def _add_roles(source: CorpusSource, path: Path, line: int, users: Any, roles: dict[str, str]) -> None:
    if not isinstance(users, list):
        source.reject(path, line, "file", "'users' must be a list of objects with 'id' and 'role'")
        return
    for user in users:
        try:
            identity, role = require_id(user, "id"), require(user, "role", str)
            if role not in _ZENDESK_ROLES:
                raise ValueError(f"unknown role {role!r}: expected {', '.join(_ZENDESK_ROLES)}")
            roles[identity] = _ZENDESK_ROLES[role]
        except ValueError as error:
            source.reject(path, line, "file", f"a user cannot be read: {error}")


def _zendesk_comments(ticket: dict[str, Any]) -> list[Any]:
    if "comments" in ticket:
        return require(ticket, "comments", list)
    if "audits" not in ticket:
        raise ValueError("'comments' is missing: export the tickets with their comments")
    comments = []
    for audit in require(ticket, "audits", list):
        defaults = {key: audit[key] for key in ("author_id", "created_at") if key in audit}
        events = require(audit, "events", list)
        comments += [defaults | event for event in events if event.get("type") in ("Comment", "VoiceComment")]
    return comments


def read_intercom(source: CorpusSource, *, private: bool = False) -> Iterator[Dialogue]:
    """Read conversations `{id, created_at, source, conversation_parts: {conversation_parts: […]}}`.

    These are the objects of Intercom's API (version 2) for single conversations; they may be in a list under
    `conversations`. The list that the API itself returns lacks the parts and is rejected. `source` is the first
    message. Authors of type user, lead and contact are the user; admin, bot and team are the system. Bodies are HTML.

    Only parts of type comment, quick_reply, open and close with a body are messages. Notes, assignments, other events
    and redacted messages are left out.

    Args:
        source: the files to read.
        private: true: keep notes.
    """

    def add_parts(conversation: _Ticket, record: dict[str, Any]) -> None:
        created = optional_time(record, "created_at")
        if "conversation_parts" not in record:
            raise ValueError("'conversation_parts' is missing: export each conversation, not the list of them")
        parts = require(require(record, "conversation_parts", dict), "conversation_parts", list)
        with conversation.message():
            _add_intercom_message(conversation, created, require(record, "source", dict))
        for part in parts:
            with conversation.message():
                kind = _require_kind(part, "part_type")
                time = optional_time(part, "created_at")
                is_note = kind.startswith("note")
                is_event = kind not in _INTERCOM_MESSAGES or (kind in _INTERCOM_STATES and not part.get("body"))
                if is_note and not private:
                    source.skipped[_PRIVATE] += 1
                elif is_event and not is_note:
                    source.skipped[f"parts of type {kind}"] += 1
                else:
                    _add_intercom_message(conversation, time, part)

    return _read_tickets(source, source.files(*JSON_FILES), "conversations", add_parts)


def _add_intercom_message(conversation: "_Ticket", time: float | None, message: dict[str, Any]) -> None:
    author = require(require(message, "author", dict), "type", str)
    if author not in _INTERCOM_AUTHORS:
        raise ValueError(f"unknown author type {author!r}: expected {', '.join(_INTERCOM_AUTHORS)}")
    if message.get("redacted"):
        conversation.leave_out(time, "redacted messages")
    else:
        conversation.add(time, _INTERCOM_AUTHORS[author], _message_text(message, (), "body"))


def read_freshdesk(source: CorpusSource, *, private: bool = False) -> Iterator[Dialogue]:
    """Read tickets `{id, description_text, created_at, conversations: [{body_text, incoming, private, created_at}]}`.

    These are the objects of Freshdesk's API (v2) with `include=conversations`; they may be in a list under `tickets`.
    The description is the first message: of the user, or of the system in tickets that an agent started (`source` 10).
    Incoming messages are the user's, others the system's. Without `body_text`, the HTML in `body` is read.

    Private notes are left out.

    Args:
        source: the files to read.
        private: true: keep private notes.
    """

    def add_messages(ticket: _Ticket, record: dict[str, Any]) -> None:
        created = optional_time(record, "created_at")
        if "conversations" not in record:
            raise ValueError("'conversations' is missing: export the tickets with include=conversations")
        messages = require(record, "conversations", list)
        with ticket.message():
            speaker = SYSTEM if record.get("source") == _FRESHDESK_OUTBOUND else USER
            ticket.add(created, speaker, _message_text(record, ("description_text",), "description"))
        for message in messages:
            with ticket.message():
                time = optional_time(message, "created_at")
                if require(message, "private", bool) and not private:
                    source.skipped[_PRIVATE] += 1
                else:
                    speaker = USER if require(message, "incoming", bool) else SYSTEM
                    ticket.add(time, speaker, _message_text(message, ("body_text",), "body"))

    return _read_tickets(source, source.files(*JSON_FILES), "tickets", add_messages)


class _Ticket:
    """The messages of a ticket, added in any order."""

    def __init__(self, source: CorpusSource, path: Path, line: int, identity: str):
        self._source = source
        self._path = path
        self._line = line
        self._id = identity
        self._messages: list[tuple[float | None, Message | None]] = []

    @contextmanager
    def message(self) -> Iterator[None]:
        """Reject a message, and only that one, if taking it apart fails."""
        try:
            yield
        except ValueError as error:
            self._source.counts.utterances += 1
            reason = f"not the expected layout: {error}"
            self._source.reject(self._path, self._line, "turn", reason, dialogue=self._id)
            self._messages.append((None, None))

    def add(self, time: float | None, speaker: str, text: str) -> None:
        """Add a message; one without text is left out."""
        if text.strip():
            self._messages.append((time, Message(0, self._line, time, speaker, text)))
        else:
            self.leave_out(time, _WITHOUT_TEXT)

    def leave_out(self, time: float | None, what: str) -> None:
        """Count a message whose text is not known; its place is a hole."""
        self._source.skipped[what] += 1
        self._messages.append((time, None))

    def dialogues(self) -> Iterator[Dialogue]:
        """Yield the dialogue, or its parts."""
        messages = [message for _, message in in_time_order(self._messages, itemgetter(0))]
        self._source.skipped["tickets without a message"] += not any(messages)
        yield from build_dialogue(self._source, self._id, messages, [self._path])


def _read_tickets(
    source: CorpusSource,
    files: Iterable[Path],
    key: str,
    add_messages: Callable[[_Ticket, dict[str, Any]], None],
    add_page: Callable[[Path, int, Any], None] = lambda path, line, page: None,
) -> Iterator[Dialogue]:
    """Read the tickets of the files, which are records or in lists under `key`; `add_page` gets each record first."""
    for path in files:
        for line, value in json_records(source, path):
            add_page(path, line, value)
            records = value.get(key, [value]) if isinstance(value, dict) else [value]
            if not isinstance(records, list):
                source.reject(path, line, "file", f"{key!r} is a {type(records).__name__}, not a list")
                continue
            for record in records:
                with source.guard(path, line):
                    ticket = _Ticket(source, path, line, require_id(record, "id"))
                    add_messages(ticket, record)
                    yield from ticket.dialogues()


def _require_kind(record: Any, key: str) -> str:
    """Return the name of a type, which may become part of what the manifest lists."""
    value = require(record, key, str)
    if not value.isidentifier():
        raise ValueError(f"{key!r} is not the name of a type: {value!r:.40}")
    return value


def _message_text(record: dict[str, Any], plain: Sequence[str], html: str) -> str:
    """Return the first text under the keys of plain texts, or that of the HTML; '' if all are empty."""
    keys = (*plain, html)
    if not any(key in record for key in keys):
        raise ValueError(f"{' or '.join(map(repr, keys))} is missing")
    for key in keys:
        if record.get(key) is None:
            continue
        value = require(record, key, str)
        # Zendesk's plain texts contain this entity
        text = html_to_text(value) if key == html else value.replace("&nbsp;", " ")
        if text.strip():
            return text
    return ""
