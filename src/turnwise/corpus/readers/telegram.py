"""Telegram Desktop's export in JSON: `result.json`, with one chat or all of them."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from turnwise.core.dialogue import Dialogue
from turnwise.corpus.readers.shared.chat_exports import NO_TEXT, PAUSE, ChatExport
from turnwise.corpus.readers.shared.fields import (
    first_name,
    optional,
    optional_id,
    require,
    require_object,
    require_time,
)
from turnwise.corpus.source.corpus_source import CorpusSource

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


def read(
    source: CorpusSource, *, pause: float = PAUSE, speakers: Mapping[str, str] | None = None
) -> Iterator[Dialogue]:
    """Read `result.json` of a chat or of all chats, as current versions of Telegram Desktop write it.

    A chat, or a topic of a group with topics, is split into dialogues at pauses. Service lines (joins, calls, pins)
    are left out; photos, stickers, voice messages and others without text are left out too, and a dialogue is split
    there. Captions are kept.

    Args:
        source: the files to read.
        pause: hours without a message that end a dialogue; 0: never.
        speakers: names and their roles: 'Anna=system,*=user'; others are numbered.
    """
    return _TelegramExport(source, speakers, pause).read()


@dataclass(slots=True)
class _Chat:
    name: str
    #: The topic of each message of a group with topics: a message replies to its topic, or to another message.
    topics: dict[str, str] = field(default_factory=dict)


class _TelegramExport(ChatExport):
    def read_file(self, path: Path) -> None:
        chat = _Chat(self.source.relative_name(path).removesuffix(".json"))
        opened = ("messages", "chats", "left_chats", "list")
        expected = "no messages: expected Telegram Desktop's export in JSON, result.json"
        for line, key, value in self.members(path, opened, ("messages", "list"), expected):
            self.at(path, line)
            with self.source.guard(path, line):
                if key == "id":
                    chat.name = optional_id({"id": value}, "id") or chat.name
                elif key == "messages":
                    self._add_message(chat, require_object(value, "the message"))
                elif key == "list":
                    self._add_chat(path, line, require_object(value, "the chat"))

    def _add_chat(self, path: Path, line: int, record: dict[str, Any]) -> None:
        chat = _Chat(first_name([optional_id(record, "id")], "the chat's id"))
        for message in require(record, "messages", list):
            with self.source.guard(path, line):
                self._add_message(chat, require_object(message, "the message"))

    def _add_message(self, chat: _Chat, record: dict[str, Any]) -> None:
        kind, identity = record["type"], optional_id(record, "id")
        if kind != "message":
            if record.get("action") == "topic_created" and identity:
                chat.topics[identity] = identity
            self.skip_event(record.get("action"))
            return
        time = require_time(record, "date_unixtime" if record.get("date_unixtime") else "date")
        topic = chat.topics.get(optional_id(record, "reply_to_message_id"))
        if topic is not None and identity:
            chat.topics[identity] = topic
        conversation = chat.name if topic is None else f"{chat.name}/{topic}"
        text = _text(record["text"])
        if not text.strip():
            self.leave_out(conversation, time, _content(record))
            return
        speaker = first_name((optional(record, "from", str), optional_id(record, "from_id")), "'from'")
        self.add(conversation, time, speaker, text, key=identity or None)


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
