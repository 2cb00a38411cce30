"""Microsoft Teams: messages of the Graph API, and the data export of a personal Teams or Skype account."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from turnwise.core.dialogue import Dialogue
from turnwise.corpus.readers.shared.chat_exports import BOT, NO_TEXT, PAUSE, ChatExport, event_name
from turnwise.corpus.readers.shared.fields import (
    first_name,
    optional,
    optional_id,
    require,
    require_object,
    require_time,
)
from turnwise.corpus.readers.shared.html_text import html_to_text
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
    return _TeamsExport(source, speakers, pause).read()


class _TeamsExport(ChatExport):
    def read_file(self, path: Path) -> None:
        known = ("", "value", "conversations", "@odata.*")
        expected = "neither 'value' nor 'conversations': expected a response of Microsoft Graph, or messages.json"
        for line, key, value in self.members(path, ("value", "conversations"), known, expected):
            self.at(path, line)
            with self.source.guard(path, line):
                if key == "conversations":
                    record = require_object(value, "the conversation")
                    conversation = first_name([optional(record, "id", str)], "the conversation's id")
                    for message in reversed(require(record, "MessageList", list)):  # the newest one comes first
                        with self.source.guard(path, line):
                            self._add_personal(conversation, require_object(message, "the message"))
                elif key in ("", "value"):
                    message = require_object(value, "the message")
                    self._add_message(message)
                    for reply in require(message, "replies", list) if message.get("replies") else ():
                        with self.source.guard(path, line):
                            self._add_message(require_object(reply, "the reply"))

    def _add_message(self, record: dict[str, Any]) -> None:
        """Add a message of Graph."""
        conversation = self._conversation(record)
        kind, time = record["messageType"], require_time(record, "createdDateTime")
        body = optional(record, "body", dict)
        content = optional(body, "content", str)
        text = content if body.get("contentType") == "text" else html_to_text(content)
        if kind != "message":
            self.skip_event(kind)
        elif record.get("deletedDateTime"):
            self.leave_out(conversation, time, "deleted messages")
        elif not text.strip():
            self.leave_out(conversation, time, "attachments without text" if record.get("attachments") else NO_TEXT)
        else:
            self.add(conversation, time, _sender(record), text, key=optional_id(record, "id") or None)

    def _conversation(self, record: dict[str, Any]) -> str:
        channel = optional(optional(record, "channelIdentity", dict), "channelId", str)
        if channel:
            root = first_name((optional_id(record, "replyToId"), optional_id(record, "id")), "'id'")
            return self.add_thread(f"{channel}/{root}")
        return first_name([optional(record, "chatId", str)], "'chatId' or 'channelIdentity'")

    def _add_personal(self, conversation: str, record: dict[str, Any]) -> None:
        """Add a message of a personal account."""
        kind, time = record["messagetype"], require_time(record, "originalarrivaltime")
        if kind not in _WRITTEN:
            if isinstance(kind, str) and kind.startswith(("RichText/", "EndToEndEncryption/")):
                self.leave_out(conversation, time, f"{event_name(kind)} messages")
            else:
                self.skip_event(kind)
            return
        content = optional(record, "content", str)
        text = content if kind == "Text" else html_to_text(content)
        if not text.strip():
            deleted = "deletetime" in optional(record, "properties", dict)
            self.leave_out(conversation, time, "deleted messages" if deleted else NO_TEXT)
            return
        sender = optional(record, "from", str)
        names = (optional(record, "displayName", str), sender.partition(":")[2], sender)
        speaker = BOT if sender.startswith(_BOT_ID) else first_name(names, "the sender's name")
        self.add(conversation, time, speaker, text, key=optional_id(record, "id") or None)


def _sender(record: dict[str, Any]) -> str:
    sender = optional(record, "from", dict)
    if optional(sender, "application", dict):
        return BOT
    user = optional(sender, "user", dict)
    return first_name((optional(user, "displayName", str), optional_id(user, "id")), "the sender's name")
