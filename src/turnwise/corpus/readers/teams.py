"""Microsoft Teams: messages of the Graph API or of PowerShell, and the data export of a personal account."""

from pathlib import Path
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

#: What the content of an event is; PnP PowerShell tells events by nothing else.
_EVENT_CONTENT = "<systemEventMessage/>"

_BOT_ID = "28:"  # the beginning of the ids of bots in a personal export; people have '8:'


def read(source: CorpusSource, *, pause: float = PAUSE, speakers: Speakers = None) -> Dialogues:
    """Read JSON files with `chatMessage` resources of Graph 1.0, or `messages.json` of a personal account.

    Graph: a file is a response (`{"value": […]}`), an array of messages or a single one, with the replies as messages
    or inside their first message (`$expand=replies`). A post in a channel with its replies is a dialogue.

    PowerShell: the messages of `Get-MgChatMessage`, `Get-MgTeamChannelMessage` or `Get-PnPTeamsChannelMessage`, written
    by `ConvertTo-Json -Depth 5`, whose keys begin with capitals. PnP's messages name no channel: it is the file.

    Other chats are split into dialogues at pauses. HTML becomes plain text, without quotes of other messages. Members
    that join, calls and other events are left out; messages without text, such as files, and deleted ones are left out
    too, and a dialogue is split there. `speakers` maps display names; bots are the system.
    """
    return _TeamsExport(source, speakers, pause).read()


class _TeamsExport(ChatExport):
    opened = ("value", "conversations")
    known = ("", "value", "conversations", "@odata.*", "createdDateTime", "CreatedDateTime")
    expected = "neither 'value' nor 'conversations': expected a response of Microsoft Graph, or messages.json"

    def read_file(self, path: Path) -> None:
        self._single: dict[str, Any] = {}
        super().read_file(path)
        if "createdDateTime" in (message := _with_small_initials(self._single)):
            with self.source.guard(path, 1):
                self.at(path, 1).read_member("", message)

    def read_member(self, key: str, value: Any) -> None:
        if key == "conversations":
            record = require_object(value, "the conversation")
            self.chat = first_name([optional(record, "id", str)], "the conversation's id")
            self.read_each(require(record, "MessageList", list)[::-1], self._add_personal)  # the newest one comes first
        elif key in ("", "value"):
            message = require_object(value, "the message")
            if "CreatedDateTime" in message:
                message = _with_small_initials(message)
            self._add_message(message)
            self.read_each(require(message, "replies", list) if message.get("replies") else [], self._add_message)

        else:
            self._single[key] = value

    def _add_message(self, record: dict[str, Any]) -> None:
        """Add a message of Graph."""
        conversation = self._conversation(record)
        body = _nested(record, "body")
        content = optional(body, "content", str)
        kind, time = _kind(record, content), require_time(record, "createdDateTime")
        text = content if body.get("contentType") == "text" else html_to_text(content)
        if kind != "message":
            self.skip_event(kind)
        elif record.get("deletedDateTime"):
            self.leave_out(conversation, time, "deleted messages")
        else:
            what = "attachments without text" if record.get("attachments") else NO_TEXT
            self.add_text(conversation, time, _sender(record), text, what, key=optional_id(record, "id") or None)

    def _conversation(self, record: dict[str, Any]) -> str:
        channel = optional(_nested(record, "channelIdentity"), "channelId", str)
        if not channel and _is_of_pnp(record):
            channel = self.chat
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


def _with_small_initials(value: Any) -> Any:
    """Return a JSON value whose keys begin with small letters, as those of Graph do."""
    if isinstance(value, list):
        return [_with_small_initials(item) for item in value]
    if not isinstance(value, dict):
        return value
    return {key[:1].lower() + key[1:]: _with_small_initials(inner) for key, inner in value.items()}


def _nested(record: dict[str, Any], key: str) -> dict[str, Any]:
    """Return the object under a key; PowerShell writes the name of its type instead if it is nested too deeply."""
    if isinstance(record.get(key), str):
        raise ValueError(f"{key!r} is not written out: use ConvertTo-Json -Depth 5")
    return optional(record, key, dict)


def _is_of_pnp(record: dict[str, Any]) -> bool:
    return not any(key in record for key in ("messageType", "chatId", "channelIdentity"))


def _kind(record: dict[str, Any], content: str) -> Any:
    if _is_of_pnp(record):
        return "systemEventMessage" if content.strip() == _EVENT_CONTENT else "message"
    return record["messageType"]


def _sender(record: dict[str, Any]) -> str:
    sender = _nested(record, "from")
    if any(_nested(sender, "application").get(key) for key in ("displayName", "id")):
        return BOT
    user = _nested(sender, "user")
    return first_name((optional(user, "displayName", str), optional_id(user, "id")), "the sender's name")
