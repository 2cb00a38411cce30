"""Support tickets: exports of Zendesk, Intercom and Freshdesk as JSON or JSON Lines.

A file is JSON Lines with a ticket per line, an array of tickets, or an object with a list of them (a page of the API).
The messages of a ticket are sorted by time. A message that cannot be read is rejected alone.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from turnwise.core.dialogue import SYSTEM, USER, Dialogue
from turnwise.corpus.readers.html_text import html_to_text
from turnwise.corpus.readers.times import parse_time
from turnwise.corpus.source.corpus_source import CorpusSource
from turnwise.corpus.source.json_text import parse_json

_PATTERNS = ("*.json", "*.jsonl", "*.ndjson", "*.json.gz", "*.jsonl.gz", "*.ndjson.gz")

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
    users, tickets = _split_off_users(source)
    for path in users:
        for line, value in _read_values(source, path):
            listed = value["users"] if isinstance(value, dict) and "users" in value else [value]
            _add_roles(source, path, line, listed, roles)
    for path in tickets:
        for line, value in _read_values(source, path):
            if isinstance(value, dict) and "users" in value:
                _add_roles(source, path, line, value["users"], roles)
            for record in _unpack(source, path, line, value, "tickets"):
                with source.guard(path, line):
                    ticket = _Ticket(source, path, line, _get_id(record, "id"))
                    requester = _get_id(record, "requester_id")
                    for comment in _zendesk_comments(record):
                        with ticket.message():
                            author = _get_id(comment, "author_id")
                            time = _get_time(comment, "created_at")
                            if not private and not _get(comment, "public", bool):
                                source.skipped[_PRIVATE] += 1
                            elif "type" in comment and (kind := _get_kind(comment, "type")) != "Comment":
                                ticket.leave_out(time, f"comments of type {kind}")
                            else:
                                speaker = USER if author == requester else roles.get(author, SYSTEM)
                                ticket.add(time, speaker, _get_text(comment, ("plain_body", "body"), "html_body"))
                    yield from ticket.dialogues()


def _split_off_users(source: CorpusSource) -> tuple[list[Path], list[Path]]:
    """Return the files of users and those of tickets; a single file is one of tickets."""
    files = source.files(*_PATTERNS)
    users = [path for path in files if path != source.root and "users" in path.name.lower()]
    return users, [path for path in files if path not in users]


def _add_roles(source: CorpusSource, path: Path, line: int, users: Any, roles: dict[str, str]) -> None:
    if not isinstance(users, list):
        source.reject(path, line, "file", "'users' must be a list of objects with 'id' and 'role'")
        return
    for user in users:
        try:
            identity, role = _get_id(user, "id"), _get(user, "role", str)
            if role not in _ZENDESK_ROLES:
                raise ValueError(f"unknown role {role!r}: expected {', '.join(_ZENDESK_ROLES)}")
            roles[identity] = _ZENDESK_ROLES[role]
        except ValueError as error:
            source.reject(path, line, "file", f"a user cannot be read: {error}")


def _zendesk_comments(ticket: dict[str, Any]) -> list[Any]:
    if "comments" in ticket:
        comments: list[Any] = _get(ticket, "comments", list)
        return comments
    if "audits" not in ticket:
        raise ValueError("'comments' is missing: export the tickets with their comments")
    comments = []
    for audit in _get(ticket, "audits", list):
        defaults = {key: audit[key] for key in ("author_id", "created_at") if key in audit}
        events = _get(audit, "events", list)
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
    for path, line, value in source.records(lambda path: _read_values(source, path), *_PATTERNS):
        for record in _unpack(source, path, line, value, "conversations"):
            with source.guard(path, line):
                conversation = _Ticket(source, path, line, _get_id(record, "id"))
                created = _get_time(record, "created_at")
                if "conversation_parts" not in record:
                    raise ValueError("'conversation_parts' is missing: export each conversation, not the list of them")
                parts = _get(_get(record, "conversation_parts", dict), "conversation_parts", list)
                with conversation.message():
                    opening = _get(record, "source", dict)
                    _add_intercom_message(conversation, created, opening)
                for part in parts:
                    with conversation.message():
                        kind = _get_kind(part, "part_type")
                        time = _get_time(part, "created_at")
                        is_note = kind.startswith("note")
                        is_event = kind not in _INTERCOM_MESSAGES or (kind in _INTERCOM_STATES and not part.get("body"))
                        if is_note and not private:
                            source.skipped[_PRIVATE] += 1
                        elif is_event and not is_note:
                            source.skipped[f"parts of type {kind}"] += 1
                        else:
                            _add_intercom_message(conversation, time, part)
                yield from conversation.dialogues()


def _add_intercom_message(conversation: "_Ticket", time: float | None, message: dict[str, Any]) -> None:
    author = _get(_get(message, "author", dict), "type", str)
    if author not in _INTERCOM_AUTHORS:
        raise ValueError(f"unknown author type {author!r}: expected {', '.join(_INTERCOM_AUTHORS)}")
    if message.get("redacted"):
        conversation.leave_out(time, "redacted messages")
    else:
        conversation.add(time, _INTERCOM_AUTHORS[author], _get_text(message, (), "body"))


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
    for path, line, value in source.records(lambda path: _read_values(source, path), *_PATTERNS):
        for record in _unpack(source, path, line, value, "tickets"):
            with source.guard(path, line):
                ticket = _Ticket(source, path, line, _get_id(record, "id"))
                created = _get_time(record, "created_at")
                if "conversations" not in record:
                    raise ValueError("'conversations' is missing: export the tickets with include=conversations")
                messages = _get(record, "conversations", list)
                with ticket.message():
                    speaker = SYSTEM if record.get("source") == _FRESHDESK_OUTBOUND else USER
                    ticket.add(created, speaker, _get_text(record, ("description_text",), "description"))
                for message in messages:
                    with ticket.message():
                        time = _get_time(message, "created_at")
                        if _get(message, "private", bool) and not private:
                            source.skipped[_PRIVATE] += 1
                            continue
                        speaker = USER if _get(message, "incoming", bool) else SYSTEM
                        ticket.add(time, speaker, _get_text(message, ("body_text",), "body"))
                yield from ticket.dialogues()


class _Ticket:
    """The messages of a ticket, added in any order."""

    def __init__(self, source: CorpusSource, path: Path, line: int, identity: str):
        self._source = source
        self._path = path
        self._line = line
        self._id = identity
        self._messages: list[tuple[float | None, str, str]] = []  # time, speaker and text; without a text: a hole

    @contextmanager
    def message(self) -> Iterator[None]:
        """Reject a message, and only that one, if taking it apart fails."""
        try:
            yield
        except ValueError as error:
            self._source.counts.utterances += 1
            reason = f"not the expected layout: {error}"
            self._source.reject(self._path, self._line, "turn", reason, dialogue=self._id)
            self._messages.append((None, "", ""))

    def add(self, time: float | None, speaker: str, text: str) -> None:
        """Add a message; one without text is left out."""
        if text.strip():
            self._messages.append((time, speaker, text))
        else:
            self.leave_out(time, _WITHOUT_TEXT)

    def leave_out(self, time: float | None, what: str) -> None:
        """Count a message whose text is not known; its place is a hole."""
        self._source.skipped[what] += 1
        self._messages.append((time, "", ""))

    def dialogues(self) -> Iterator[Dialogue]:
        """Yield the dialogue, or its parts; a message without a time stays behind the one before it."""
        if not any(text for _, _, text in self._messages):
            self._source.skipped["tickets without a message"] += 1
            return
        latest, timed = float("-inf"), []
        for time, speaker, text in self._messages:
            latest = latest if time is None else time
            timed.append((latest, time, speaker, text))
        timed.sort(key=lambda message: message[0])
        with self._source.dialogue(self._path, self._line) as builder:
            builder.id = self._id
            builder.time = next(time for _, time, _, text in timed if text)
            for _, _, speaker, text in timed:
                if text:
                    builder.add_turn(speaker, text)
                else:
                    builder.mark_hole()
        yield from builder.result()


# ---- files


def _read_values(source: CorpusSource, path: Path) -> Iterator[tuple[int, Any]]:
    """Yield the values of a file with their lines: of JSON Lines, of an array, or one object.

    The contents decide, because exports of JSON Lines are often named `.json`.
    """
    first_line = source.first_line(path)
    if first_line.startswith("["):
        yield from source.json_array(path)
    elif ".json" not in path.suffixes or _is_json(first_line):
        yield from source.json_lines(path)
    else:
        entries = dict(entry for _, entry in source.json_object(path))
        if entries:
            yield 1, entries


def _is_json(text: str) -> bool:
    try:
        parse_json(text)
    except ValueError:
        return False
    return True


def _unpack(source: CorpusSource, path: Path, line: int, value: Any, key: str) -> list[Any]:
    """Return the records of a page, `{key: [records]}`, or the record itself."""
    if not isinstance(value, dict) or key not in value:
        return [value]
    records = value[key]
    if isinstance(records, list):
        return records
    source.reject(path, line, "file", f"{key!r} is a {type(records).__name__}, not a list")
    return []


# ---- values


def _get(record: Any, key: str, kind: type) -> Any:
    """Return a value of a record; raise a ValueError if it is missing or of another type."""
    if not isinstance(record, dict):
        raise ValueError(f"expected an object with {key!r}, got a {type(record).__name__}")
    if key not in record:
        raise ValueError(f"{key!r} is missing")
    value = record[key]
    if not isinstance(value, kind):
        raise ValueError(f"{key!r} is a {type(value).__name__}, not a {kind.__name__}")
    return value


def _get_kind(record: Any, key: str) -> str:
    """Return the name of a type, which may become part of what the manifest lists."""
    value: str = _get(record, key, str)
    if not value.isidentifier():
        raise ValueError(f"{key!r} is not the name of a type: {value!r:.40}")
    return value


def _get_id(record: Any, key: str) -> str:
    value = _get(record, key, object)
    if isinstance(value, bool) or not isinstance(value, int | str) or value == "":
        raise ValueError(f"{key!r} must be a number or a text, got {value!r:.40}")
    return str(value)


def _get_time(record: Any, key: str) -> float | None:
    """Return a time in seconds since 1970; None if there is none."""
    if not isinstance(record, dict):
        raise ValueError(f"expected an object with {key!r}, got a {type(record).__name__}")
    value = record.get(key)
    if value is None:
        return None
    try:
        return parse_time(value)
    except (ValueError, OverflowError):
        raise ValueError(f"{key!r} is not a time: {value!r:.40}") from None


def _get_text(record: dict[str, Any], plain: Sequence[str], html: str) -> str:
    """Return the first text under the keys of plain texts, or that of the HTML; '' if all are empty."""
    keys = (*plain, html)
    if not any(key in record for key in keys):
        raise ValueError(f"{' or '.join(map(repr, keys))} is missing")
    for key in keys:
        value = record.get(key)
        if value is None:
            continue
        if not isinstance(value, str):
            raise ValueError(f"{key!r} is a {type(value).__name__}, not a string")
        # Zendesk's plain texts contain this entity
        text = html_to_text(value) if key == html else value.replace("&nbsp;", " ")
        if text.strip():
            return text
    return ""
