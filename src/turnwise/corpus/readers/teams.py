"""Microsoft Teams: messages of the Graph API, and the data export of a personal Teams or Skype account."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from turnwise.core.dialogue import Dialogue
from turnwise.corpus.readers.chat_sessions import BOT, NO_TEXT, PAUSE, ChatLog, event_name
from turnwise.corpus.readers.html_text import html_to_text
from turnwise.corpus.readers.json_fields import (
    optional_id,
    optional_object,
    optional_text,
    require_list,
    require_name,
    require_object,
    require_time,
)
from turnwise.corpus.readers.zip_exports import unpacked
from turnwise.corpus.source.corpus_source import CorpusSource

#: Types of messages with text in a personal export; RichText/Media_Video and the like have none, others are events.
_WRITTEN = ("Text", "RichText", "RichText/Html")

#: The beginning of the ids of bots in a personal export; people have '8:'.
_BOT_ID = "28:"


def read(
    source: CorpusSource, *, pause: float = PAUSE, speakers: Mapping[str, str] | None = None
) -> Iterator[Dialogue]:
    """Read JSON files with `chatMessage` resources of Graph 1.0, or `messages.json` of a personal account.

    Graph: a file is a response (`{"value": […]}`) or an array of messages, with the replies as messages or inside
    their first message (`$expand=replies`). A post in a channel with its replies is a dialogue.

    Other chats are split into dialogues at pauses. HTML becomes plain text, without quotes of other messages. Members
    that join, calls and other events are left out; messages without text, such as files, and deleted ones are left out
    too, and a dialogue is split there.

    Args:
        source: the files to read.
        pause: hours without a message that end a dialogue outside channels; 0: never.
        speakers: display names and their roles: 'Anna=system,*=user'; others are numbered. Bots are the system.
    """
    with unpacked(source, "*.json"):
        log = ChatLog(source, speakers, pause)
        for path in source.files("*.json"):
            _read_file(log, source, path)
        yield from log.dialogues()


def _read_file(log: ChatLog, source: CorpusSource, path: Path) -> None:
    is_export, rejected = False, source.rejected_rows
    for line, (key, value) in source.json_members(path, "value", "conversations"):
        is_export |= key in ("", "value", "conversations") or key.startswith("@odata.")
        with source.guard(path, line):
            if key == "conversations":
                _add_conversation(log, source, path, line, require_object(value, "the conversation"))
            elif key in ("", "value"):
                message = require_object(value, "the message")
                _add_message(log, source, path, line, message)
                _add_replies(log, source, path, line, message)
    if not is_export and source.rejected_rows == rejected:
        reason = "neither 'value' nor 'conversations': expected a response of Microsoft Graph, or messages.json"
        source.reject(path, None, "file", reason)


# ---- Graph


def _add_message(log: ChatLog, source: CorpusSource, path: Path, line: int, record: Mapping[str, Any]) -> None:
    """Add a message of Graph."""
    conversation = _conversation(log, record)
    kind, time = record["messageType"], require_time(record["createdDateTime"])
    body = optional_object(record, "body")
    content = optional_text(body, "content")
    text = content if body.get("contentType") == "text" else html_to_text(content)
    if kind != "message":
        source.skipped[f"{event_name(kind)} events"] += 1
    elif record.get("deletedDateTime"):
        log.leave_out(conversation, time, "deleted messages")
    elif not text.strip():
        log.leave_out(conversation, time, "attachments without text" if record.get("attachments") else NO_TEXT)
    else:
        key = optional_id(record, "id") or None
        log.add(conversation, time, _sender(record), text, path=path, line=line, key=key)


def _add_replies(log: ChatLog, source: CorpusSource, path: Path, line: int, record: Mapping[str, Any]) -> None:
    """Add the replies inside a message, which `$expand=replies` asks for."""
    for reply in require_list(record, "replies") if record.get("replies") else ():
        with source.guard(path, line):
            _add_message(log, source, path, line, require_object(reply, "the reply"))


def _conversation(log: ChatLog, record: Mapping[str, Any]) -> str:
    channel = optional_text(optional_object(record, "channelIdentity"), "channelId")
    if channel:
        root = require_name((optional_id(record, "replyToId"), optional_id(record, "id")), "'id'")
        return log.thread(f"{channel}/{root}")
    return require_name([optional_text(record, "chatId")], "'chatId' or 'channelIdentity'")


def _sender(record: Mapping[str, Any]) -> str:
    sender = optional_object(record, "from")
    if optional_object(sender, "application"):
        return BOT
    user = optional_object(sender, "user")
    return require_name((optional_text(user, "displayName"), optional_id(user, "id")), "the sender's name")


# ---- personal accounts


def _add_conversation(log: ChatLog, source: CorpusSource, path: Path, line: int, record: Mapping[str, Any]) -> None:
    conversation = require_name([optional_text(record, "id")], "the conversation's id")
    for message in reversed(require_list(record, "MessageList")):  # the newest one comes first
        with source.guard(path, line):
            _add_personal(log, source, conversation, path, line, require_object(message, "the message"))


def _add_personal(
    log: ChatLog, source: CorpusSource, conversation: str, path: Path, line: int, record: Mapping[str, Any]
) -> None:
    kind, time = record["messagetype"], require_time(record["originalarrivaltime"])
    if kind not in _WRITTEN:
        if isinstance(kind, str) and kind.startswith(("RichText/", "EndToEndEncryption/")):
            log.leave_out(conversation, time, f"{event_name(kind)} messages")
        else:
            source.skipped[f"{event_name(kind)} events"] += 1
        return
    content = optional_text(record, "content")
    text = content if kind == "Text" else html_to_text(content)
    if not text.strip():
        deleted = "deletetime" in optional_object(record, "properties")
        log.leave_out(conversation, time, "deleted messages" if deleted else NO_TEXT)
        return
    sender = optional_text(record, "from")
    names = (optional_text(record, "displayName"), sender.partition(":")[2], sender)
    speaker = BOT if sender.startswith(_BOT_ID) else require_name(names, "the sender's name")
    log.add(conversation, time, speaker, text, path=path, line=line, key=optional_id(record, "id") or None)
