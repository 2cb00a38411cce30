"""Microsoft Teams: messages of the Graph API, and the data export of a personal Teams or Skype account."""

from typing import Any

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
from turnwise.corpus.readers.shared.speakers import Speakers
from turnwise.corpus.source.corpus_source import CorpusSource, Dialogues

#: Types of messages with text in a personal export; RichText/Media_Video and the like have none, others are events.
_WRITTEN = ("Text", "RichText", "RichText/Html")

_BOT_ID = "28:"  # the beginning of the ids of bots in a personal export; people have '8:'


def read(source: CorpusSource, *, pause: float = PAUSE, speakers: Speakers = None) -> Dialogues:
    """Read JSON files with `chatMessage` resources of Graph 1.0, or `messages.json` of a personal account.

    Graph: a file is a response (`{"value": […]}`) or an array of messages, with the replies as messages or inside
    their first message (`$expand=replies`). A post in a channel with its replies is a dialogue.

    Other chats are split into dialogues at pauses. HTML becomes plain text, without quotes of other messages. Members
    that join, calls and other events are left out; messages without text, such as files, and deleted ones are left out
    too, and a dialogue is split there. `speakers` maps display names; bots are the system.
    """
    return _TeamsExport(source, speakers, pause).read()


class _TeamsExport(ChatExport):
    opened = ("value", "conversations")
    known = ("", "value", "conversations", "@odata.*")
    expected = "neither 'value' nor 'conversations': expected a response of Microsoft Graph, or messages.json"

    def read_member(self, key: str, value: Any) -> None:
        if key == "conversations":
            record = require_object(value, "the conversation")
            self.chat = first_name([optional(record, "id", str)], "the conversation's id")
            self.read_each(require(record, "MessageList", list)[::-1], self._add_personal)  # the newest one comes first
        elif key in ("", "value"):
            message = require_object(value, "the message")
            self._add_message(message)
            self.read_each(require(message, "replies", list) if message.get("replies") else [], self._add_message)

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
        else:
            what = "attachments without text" if record.get("attachments") else NO_TEXT
            self.add_text(conversation, time, _sender(record), text, what, key=optional_id(record, "id") or None)

    def _conversation(self, record: dict[str, Any]) -> str:
        channel = optional(optional(record, "channelIdentity", dict), "channelId", str)
        if channel:
            root = first_name((optional_id(record, "replyToId"), optional_id(record, "id")), "'id'")
            return self.add_thread(f"{channel}/{root}")
        return first_name([optional(record, "chatId", str)], "'chatId' or 'channelIdentity'")

    def _add_personal(self, record: dict[str, Any]) -> None:
        """Add a message of a personal account."""
        kind, time = record["messagetype"], require_time(record, "originalarrivaltime")
        if kind in _WRITTEN:
            content = optional(record, "content", str)
            text = content if kind == "Text" else html_to_text(content)
            sender = optional(record, "from", str)
            names = (optional(record, "displayName", str), sender.partition(":")[2], sender)
            speaker = BOT if sender.startswith(_BOT_ID) else first_name(names, "the sender's name")
            what = "deleted messages" if "deletetime" in optional(record, "properties", dict) else NO_TEXT
            self.add_text(self.chat, time, speaker, text, what, key=optional_id(record, "id") or None)
        elif isinstance(kind, str) and kind.startswith(("RichText/", "EndToEndEncryption/")):
            self.leave_out(self.chat, time, f"{event_name(kind)} messages")
        else:
            self.skip_event(kind)


def _sender(record: dict[str, Any]) -> str:
    sender = optional(record, "from", dict)
    if optional(sender, "application", dict):
        return BOT
    user = optional(sender, "user", dict)
    return first_name((optional(user, "displayName", str), optional_id(user, "id")), "the sender's name")
