"""Messenger's and Instagram's chats, as downloaded from Meta's account centre in JSON: `message_1.json`."""

import re
from pathlib import Path
from typing import Any

from turnwise.corpus.readers.shared.chat_exports import NO_TEXT, PAUSE, ChatExport
from turnwise.corpus.readers.shared.fields import first_name, optional, require_object, require_time
from turnwise.corpus.readers.shared.speakers import Speakers
from turnwise.corpus.source.corpus_source import CorpusSource, Dialogues

_PART = re.compile(r"message_\d+\.json")  # the parts of a chat, which has a folder of its own
_EVENTS = ("Call", "Subscribe", "Unsubscribe")  # types of messages that nobody wrote

#: What a message without text consists of, by the key that is not empty.
_CONTENTS = {
    "photos": "photos",
    "videos": "videos",
    "audio_files": "voice messages",
    "gifs": "animations",
    "sticker": "stickers",
    "files": "files without text",
    "share": "shared links",
    "media": "media",
}
_REACTION = re.compile(r"(?:Reacted \S{1,12} to your message|Liked a message)\s*")
_ATTACHMENT = re.compile(r".{1,80} sent an attachment\.\s*")


def read(source: CorpusSource, *, pause: float = PAUSE, speakers: Speakers = None) -> Dialogues:
    """Read the chats of Facebook Messenger and Instagram: `inbox/CHAT/message_1.json` and so on.

    Both layouts are read: `{participants, messages: [{sender_name, timestamp_ms, content}]}`, and that of chats with
    end-to-end encryption, `{participants, threadName, messages: [{senderName, timestamp, text}]}`.

    Texts whose UTF-8 was written as Latin-1 are decoded. A chat is split into dialogues at pauses. Calls, reactions and
    people who join or leave are events, and left out; photos and other messages without text are left out too, and a
    dialogue is split there.
    """
    return _MessengerExport(source, speakers, pause).read()


class _MessengerExport(ChatExport):
    opened = ("messages",)
    known = ("messages",)
    expected = "no messages: expected message_1.json of Messenger or Instagram"

    def read_file(self, path: Path) -> None:
        if _PART.fullmatch(path.name):
            is_chat = path.parent in (self.source.root, self.source.root.parent)  # rather than the whole export
            self.chat = path.parent.name if is_chat else self.source.relative_name(path.parent)
        super().read_file(path)

    def read_member(self, key: str, value: Any) -> None:
        if key == "messages":
            self._add_message(require_object(value, "the message"))

    def _add_message(self, record: dict[str, Any]) -> None:
        time = require_time(record, "timestamp_ms" if "timestamp_ms" in record else "timestamp")
        speaker = decode(
            first_name([optional(record, key, str) for key in ("sender_name", "senderName")], "the sender")
        )
        text = decode(optional(record, "content", str) or optional(record, "text", str))
        kind = optional(record, "type", str)
        if record.get("is_unsent") or record.get("isUnsent"):
            self.leave_out(self.chat, time, "deleted messages")
        elif kind in _EVENTS or "call_duration" in record:
            self.skip_event(kind if kind in _EVENTS else "Call")
        elif _REACTION.fullmatch(text):
            self.skip_event("reaction")
        else:
            text = "" if _ATTACHMENT.fullmatch(text) else text
            what = next((name for key, name in _CONTENTS.items() if record.get(key)), NO_TEXT)
            self.add_text(self.chat, time, speaker, text, what, key=f"{time} {speaker} {text}")  # there are no ids


def decode(text: str) -> str:
    """Return a text whose UTF-8 may have been written as Latin-1: 'CafÃ©' is 'Café'."""
    try:
        return text if text.isascii() else text.encode("latin-1").decode()
    except UnicodeError:
        return text
