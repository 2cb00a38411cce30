"""Support tickets: exports of Zendesk, Intercom and Freshdesk as JSON or JSON Lines.

A file is JSON Lines with a ticket per line, an array of tickets, or an object with a list of them (a page of the API).
The messages of a ticket are sorted by time. A message that cannot be read is rejected alone.
"""

import re
from collections.abc import Callable, Container, Iterable, Sequence
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple

from turnwise.core.dialogue import SYSTEM, USER
from turnwise.corpus.readers.shared.chat_exports import event_name
from turnwise.corpus.readers.shared.fields import optional_id, optional_time, require, require_id, require_object
from turnwise.corpus.readers.shared.files import JSON_FILES, json_records
from turnwise.corpus.readers.shared.html_text import html_to_text
from turnwise.corpus.readers.shared.message_logs import Message, MessageLog, build_dialogue, in_time_order
from turnwise.corpus.source.corpus_source import CorpusSource, Dialogues

_ZENDESK_ROLES = {"end-user": USER, "agent": SYSTEM, "admin": SYSTEM}

_COMMENT_LISTS = ("comments", "audits", "ticket_comments", "ticket_audits")  # keys in files without tickets

_INTERCOM_AUTHORS = {
    **dict.fromkeys(("user", "lead", "contact"), USER),
    **dict.fromkeys(("admin", "bot", "team"), SYSTEM),
}
_INTERCOM_STATES = ("open", "close")  # a conversation may be opened and closed with a message or without one
_INTERCOM_MESSAGES = ("comment", "quick_reply", *_INTERCOM_STATES)  # parts whose body the contact sees
_FRESHDESK_OUTBOUND = 10  # Freshdesk's `source` of tickets that an agent started with an e-mail to the requester
_PRIVATE = "private notes"


def read_zendesk(source: CorpusSource, *, private: bool = False) -> Dialogues:
    """Read tickets `{id, requester_id, comments: [{author_id, body, public, created_at}]}`, or a list under `tickets`.

    These are the objects of Zendesk's API (v2) and of its JSON export. The text is a comment's `plain_body`, `body` or
    `html_body`. Instead of `comments`, a ticket may have `audits` with events of the type Comment.
    Comments and audits may also be in other files than the tickets: with a `ticket_id`, or as answers of the API
    (`{comments: […]}`) in files or folders named by the ticket, such as `comments/17.json`.

    The requester is the user. Others have the role of their entry in `users` (in the same object, or in a file with
    'users' in its name), and are the system without one. Private notes and calls are left out.
    """
    roles: dict[str, str] = {}
    files = source.files(*JSON_FILES)
    users = [path for path in files if path != source.root and "users" in path.name.lower()]
    for path in users:
        for line, value in json_records(source, path):
            listed = value["users"] if isinstance(value, dict) and "users" in value else [value]
            _add_roles(source, path, line, listed, roles)

    def parse(ticket: dict[str, Any], comment: Any) -> _Part:
        author, time = require_id(comment, "author_id"), optional_time(comment, "created_at")
        if not private and not require(comment, "public", bool):
            return _Part(by_design=_PRIVATE)
        if "type" in comment and (kind := require(comment, "type", str)) != "Comment":
            return _Part(time, left_out=f"comments of type {event_name(kind)}")
        speaker = USER if author == require_id(ticket, "requester_id") else roles.get(author, SYSTEM)
        return _Part(time, speaker, _message_text(comment, ("plain_body", "body"), "html_body"))

    def add_users(path: Path, line: int, value: Any) -> None:
        if isinstance(value, dict) and "users" in value:
            _add_roles(source, path, line, value["users"], roles)

    files = [path for path in files if path not in users]
    separate = [path for path in files if _is_zendesk_comments(source, path)]
    requesters: dict[str, Any] = {}  # of the tickets whose comments are in other files

    def comments(ticket: dict[str, Any]) -> list[Any] | None:
        if not separate or "comments" in ticket or "audits" in ticket:
            return _zendesk_comments(ticket)
        requesters[require_id(ticket, "id")] = {"requester_id": require_id(ticket, "requester_id")}
        return None

    yield from _read_tickets(source, [it for it in files if it not in separate], "tickets", comments, parse, add_users)
    log = MessageLog(source, has_roles=True)
    for path in separate:
        for line, value in json_records(source, path):
            add_users(path, line, value)
            with source.guard(path, line):
                for each in _separate_comments(path, require_object(value, "the record"), requesters):
                    with source.guard(path, line):
                        _add_comment(log.at(path, line), each, requesters, parse)
    yield from log.dialogues()


def _is_zendesk_comments(source: CorpusSource, path: Path) -> bool:
    """Return whether a file has comments or audits, and not tickets, which have requesters."""
    start = source.read_start(path)
    return '"author_id"' in start and '"requester_id"' not in start


def _separate_comments(path: Path, record: dict[str, Any], tickets: Container[str]) -> list[Any]:
    """Return the comments in a record of a file without tickets, each with the id of its ticket."""
    names = [name for part in (path.parent.name, path.stem) for name in re.findall(r"\d+", part)]
    own = next((name for name in reversed(names) if name in tickets), None)  # the ticket that the file is named by
    comments: list[Any] = []
    for each in next((require(record, key, list) for key in _COMMENT_LISTS if key in record), [record]):
        identity = {"ticket_id": own} | require_object(each, "the comment")
        inner = _audit_comments([identity]) if "events" in identity else [identity]
        comments += [{"ticket_id": identity["ticket_id"]} | comment for comment in inner]
    return comments


def _add_comment(
    log: MessageLog, comment: dict[str, Any], tickets: dict[str, Any], parse: Callable[[dict[str, Any], Any], "_Part"]
) -> None:
    if not (name := optional_id(comment, "ticket_id")):
        raise ValueError("'ticket_id' is missing, and the file is not named by a ticket")
    if name not in tickets:
        raise ValueError(f"the ticket {name} of the comment is missing, or has other comments itself")
    _add_part(log, name, parse(tickets[name], comment))


def _add_part(log: MessageLog, ticket: str, part: "_Part") -> None:
    if part.by_design:
        log.source.by_design[part.by_design] += 1
    elif not part.text.strip():
        log.source.skipped[part.left_out] += 1
    else:
        log.add(ticket, part.time, part.speaker, part.text)


def _add_roles(source: CorpusSource, path: Path, line: int, users: Any, roles: dict[str, str]) -> None:
    if not isinstance(users, list):
        source.reject(path, line, "file", "'users' must be a list of objects with 'id' and 'role'")
        return
    for user in users:
        try:
            roles[require_id(user, "id")] = _speaker(user, "role", _ZENDESK_ROLES)
        except ValueError as error:
            source.reject(path, line, "file", f"a user cannot be read: {error}")


def _zendesk_comments(ticket: dict[str, Any]) -> list[Any]:
    require_id(ticket, "requester_id")
    if "comments" in ticket:
        return require(ticket, "comments", list)
    if "audits" not in ticket:
        raise ValueError("'comments' is missing: export the tickets with their comments")
    return _audit_comments(require(ticket, "audits", list))


def _audit_comments(audits: list[Any]) -> list[Any]:
    comments = []
    for audit in audits:
        defaults = {key: audit[key] for key in ("author_id", "created_at") if key in audit}
        events = require(audit, "events", list)
        comments += [defaults | event for event in events if event.get("type") in ("Comment", "VoiceComment")]
    return comments


def read_intercom(source: CorpusSource, *, private: bool = False) -> Dialogues:
    """Read conversations `{id, created_at, source, conversation_parts: {conversation_parts: […]}}`.

    These are the objects of Intercom's API (version 2) for single conversations; they may be in a list under
    `conversations`. `source` is the first message. Authors of type user, lead and contact are the user; admin, bot and
    team are the system. Only parts of type comment, quick_reply, open and close with a body are messages.
    """

    def messages(conversation: dict[str, Any]) -> list[Any]:
        if "conversation_parts" not in conversation:
            raise ValueError("'conversation_parts' is missing: export each conversation, not the list of them")
        return [conversation, *require(require(conversation, "conversation_parts", dict), "conversation_parts", list)]

    def parse(conversation: dict[str, Any], part: Any) -> _Part:
        if part is conversation:
            opening = {"part_type": "comment", "created_at": conversation.get("created_at")}
            part = require(conversation, "source", dict) | opening
        kind, time = require(part, "part_type", str), optional_time(part, "created_at")
        is_note = kind.startswith("note")
        is_event = kind not in _INTERCOM_MESSAGES or (kind in _INTERCOM_STATES and not part.get("body"))
        if is_note and not private:
            return _Part(by_design=_PRIVATE)
        if is_event and not is_note:
            return _Part(by_design=f"parts of type {event_name(kind)}")
        speaker = _speaker(require(part, "author", dict), "type", _INTERCOM_AUTHORS)
        if part.get("redacted"):
            return _Part(time, left_out="redacted messages")
        return _Part(time, speaker, _message_text(part, (), "body"))

    return _read_tickets(source, source.files(*JSON_FILES), "conversations", messages, parse)


def read_freshdesk(source: CorpusSource, *, private: bool = False) -> Dialogues:
    """Read tickets `{id, description_text, created_at, conversations: [{body_text, incoming, private, created_at}]}`.

    These are the objects of Freshdesk's API (v2) with `include=conversations`; they may be in a list under `tickets`.
    Conversations may also be in other files than the tickets: the answers of `/tickets/ID/conversations`, whose
    elements have a `ticket_id`. Tickets of API v1 are `{helpdesk_ticket: {display_id, description, notes: [{note}]}}`.

    The description is the first message: of the user, or of the system in tickets that an agent started (`source` 10).
    Incoming messages are the user's, others the system's. Without a plain text, the HTML is read.
    """
    files = source.files(*JSON_FILES)
    separate = [path for path in files if _is_freshdesk_conversations(source, path)]
    log = MessageLog(source, has_roles=True)

    def messages(ticket: dict[str, Any]) -> list[Any] | None:
        if "notes" in ticket:
            return [ticket, *(require(note, "note", dict) for note in require(ticket, "notes", list))]
        if "conversations" in ticket:
            return [ticket, *require(ticket, "conversations", list)]
        if not separate:
            raise ValueError(
                "'conversations' is missing: export the tickets with include=conversations,"
                " or save the answers of /tickets/ID/conversations too"
            )
        _add_part(log, require_id(ticket, "id"), parse(ticket, ticket))
        return None

    def parse(ticket: dict[str, Any], message: Any) -> _Part:
        is_v1, time = "notes" in ticket, optional_time(message, "created_at")
        if message is ticket:
            speaker = SYSTEM if ticket.get("source") == _FRESHDESK_OUTBOUND else USER
            keys = ("description", "description_html") if is_v1 else ("description_text", "description")
            return _Part(time, speaker, _message_text(ticket, keys[:1], keys[1]))
        if require(message, "private", bool) and not private:
            return _Part(by_design=_PRIVATE)
        if message.get("deleted"):
            return _Part(time, left_out="deleted messages")
        speaker = USER if require(message, "incoming", bool) else SYSTEM
        keys = ("body", "body_html") if is_v1 else ("body_text", "body")
        return _Part(time, speaker, _message_text(message, keys[:1], keys[1]))

    def set_place(path: Path, line: int, page: Any) -> None:
        log.at(path, line)

    yield from _read_tickets(source, [it for it in files if it not in separate], "tickets", messages, parse, set_place)
    for path in separate:
        for line, value in json_records(source, path):
            with source.guard(path, line):
                page = require_object(value, "the record")
                for message in require(page, "conversations", list) if "conversations" in page else [page]:
                    with source.guard(path, line):
                        _add_part(log.at(path, line), require_id(message, "ticket_id"), parse({}, message))
    yield from log.dialogues()


def _is_freshdesk_conversations(source: CorpusSource, path: Path) -> bool:
    """Return whether a file has conversations without their tickets, which have requesters."""
    start = source.read_start(path)
    return '"ticket_id"' in start and not any(key in start for key in ('"requester_id"', '"description'))


class _Part(NamedTuple):
    """A message of a ticket, or what it counts as."""

    time: float | None = None
    speaker: str = ""
    text: str = ""
    left_out: str = "messages without text (attachments)"  # if its text is not known
    by_design: str = ""  # if it is no part of the conversation


def _read_tickets(
    source: CorpusSource,
    files: Iterable[Path],
    key: str,
    list_messages: Callable[[dict[str, Any]], list[Any] | None],
    parse: Callable[[dict[str, Any], Any], _Part],
    add_page: Callable[[Path, int, Any], None] = lambda path, line, page: None,
) -> Dialogues:
    """Read the tickets of the files, which are records or in lists under `key`; `add_page` gets each record first.

    `list_messages` may list the ticket itself: it stands for its first message. None leaves a ticket out.
    """
    for path in files:
        for line, value in json_records(source, path):
            add_page(path, line, value)
            tickets = value.get(key, [value]) if isinstance(value, dict) else [value]
            if not isinstance(tickets, list):
                source.reject(path, line, "file", f"{key!r} is a {type(tickets).__name__}, not a list")
                continue
            for ticket in tickets:
                with source.guard(path, line):
                    key_of_id = "id"
                    if isinstance(ticket, dict) and "helpdesk_ticket" in ticket:  # Freshdesk's API v1
                        ticket, key_of_id = ticket["helpdesk_ticket"], "display_id"
                    name = require_id(ticket, key_of_id)
                    messages: list[tuple[float | None, Message | None]] = []
                    if (listed := list_messages(ticket)) is None:
                        continue
                    for message in listed:
                        try:
                            part = parse(ticket, message)
                        except ValueError as error:
                            reason = f"not the expected layout: {error}"
                            source.reject(path, line, "turn", reason, dialogue=name)
                            messages.append((None, None))
                            continue
                        if part.by_design:
                            source.by_design[part.by_design] += 1
                        elif part.text.strip():
                            messages.append((part.time, Message(0, line, part.time, part.speaker, part.text)))
                        else:  # the turns around it are consecutive: conversations must stay whole
                            source.skipped[part.left_out] += 1
                    ordered = [message for _, message in in_time_order(messages, itemgetter(0))]
                    source.skipped["tickets without a message"] += not any(ordered)
                    yield from build_dialogue(source, name, ordered, [path])


def _speaker(record: Any, key: str, speakers: dict[str, str]) -> str:
    """Return the speaker that the value under a key stands for."""
    role = require(record, key, str)
    if role not in speakers:
        raise ValueError(f"unknown {key} {role!r}: expected {', '.join(speakers)}")
    return speakers[role]


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
