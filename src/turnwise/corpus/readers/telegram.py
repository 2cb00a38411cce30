"""Telegram Desktop's export in JSON: `result.json`, with one chat or all of them."""

from typing import Any

from turnwise.corpus.readers.shared.chat_exports import NO_TEXT, PAUSE, ChatExport
from turnwise.corpus.readers.shared.fields import (
    first_name,
    optional,
    optional_id,
    require,
    require_object,
    require_time,
)
from turnwise.corpus.readers.shared.speakers import Speakers
from turnwise.corpus.source.corpus_source import CorpusSource, Dialogues

#: What a message without text consists of, by its `media_type`, then by the key that is present.
_MEDIA_TYPES = {
    "sticker": "stickers",
    "voice_message": "voice messages",
    "video_message": "video messages",
    "video_file": "videos",
    "animation": "animations",
    "audio_file": "audio files",
}
_CONTENTS = {
    "photo": "photos",
    "poll": "polls",
    "location_information": "locations",
    "contact_information": "contacts",
    "file": "files without text",
}


def read(source: CorpusSource, *, pause: float = PAUSE, speakers: Speakers = None) -> Dialogues:
    """Read `result.json` of a chat or of all chats, as current versions of Telegram Desktop write it.

    A chat, or a topic of a group with topics, is split into dialogues at pauses. Service lines (joins, calls, pins)
    are left out; photos, stickers, voice messages and others without text are left out too, and a dialogue is split
    there. Captions are kept.
    """
    return _TelegramExport(source, speakers, pause).read()


class _TelegramExport(ChatExport):
    opened = ("messages", "chats", "left_chats", "list")
    known = ("messages", "list")
    expected = "no messages: expected Telegram Desktop's export in JSON, result.json"

    def read_lists(self) -> None:
        # the topic of each message of a group with topics, by chat and id
        self._topics: dict[tuple[str, str], str] = {}

    def read_member(self, key: str, value: Any) -> None:
        if key == "id":
            self.chat = optional_id({"id": value}, "id") or self.chat
        elif key == "messages":
            self._add_message(require_object(value, "the message"))
        elif key == "list":
            record = require_object(value, "the chat")
            self.chat = first_name([optional_id(record, "id")], "the chat's id")
            self.read_each(require(record, "messages", list), self._add_message)

    def _add_message(self, record: dict[str, Any]) -> None:
        kind, identity = record["type"], optional_id(record, "id")
        if kind != "message":
            if record.get("action") == "topic_created" and identity:
                self._topics[self.chat, identity] = identity
            self.skip_event(record.get("action"))
            return
        time = require_time(record, "date_unixtime" if record.get("date_unixtime") else "date")
        # a message replies to its topic, or to another message
        topic = self._topics.get((self.chat, optional_id(record, "reply_to_message_id")))
        if topic is not None and identity:
            self._topics[self.chat, identity] = topic
        conversation = self.chat if topic is None else f"{self.chat}/{topic}"
        speaker = first_name((optional(record, "from", str), optional_id(record, "from_id")), "'from'")
        self.add_text(conversation, time, speaker, _text(record["text"]), _content(record), key=identity or None)


def _text(value: Any) -> str:
    """Return the text of a message: a string, or a list of strings and of parts such as links."""
    parts = value if isinstance(value, list) else [value]
    texts = [part["text"] if isinstance(part, dict) else part for part in parts]
    if not all(isinstance(text, str) for text in texts):
        raise ValueError("'text' is neither a string nor a list of texts")
    return "".join(texts)


def _content(record: dict[str, Any]) -> str:
    media = record.get("media_type")
    if isinstance(media, str) and media in _MEDIA_TYPES:
        return _MEDIA_TYPES[media]
    return next((name for key, name in _CONTENTS.items() if key in record), NO_TEXT)
