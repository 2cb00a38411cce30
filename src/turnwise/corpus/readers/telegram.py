"""Telegram Desktop's export in JSON: `result.json`, with one chat or all of them."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from turnwise.core.dialogue import Dialogue
from turnwise.corpus.readers.chat_sessions import NO_TEXT, PAUSE, ChatLog, event_name
from turnwise.corpus.readers.json_fields import (
    optional_id,
    optional_text,
    require_list,
    require_name,
    require_object,
    require_time,
)
from turnwise.corpus.readers.zip_exports import unpacked
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
    with unpacked(source, "*.json"):
        log = ChatLog(source, speakers, pause)
        for path in source.files("*.json"):
            _read_file(log, source, path)
        yield from log.dialogues()


def _read_file(log: ChatLog, source: CorpusSource, path: Path) -> None:
    is_export, rejected = False, source.rejected_rows
    chat = _Chat(log, source, path, source.relative_name(path).removesuffix(".json"))
    for line, (key, value) in source.json_members(path, "messages", "chats", "left_chats", "list"):
        is_export |= key in ("messages", "list")
        with source.guard(path, line):
            if key == "id":
                chat.name = optional_id({"id": value}, "id") or chat.name
            elif key == "messages":
                chat.add(line, require_object(value, "the message"))
            elif key == "list":
                _read_chat(log, source, path, line, require_object(value, "the chat"))
    if not is_export and source.rejected_rows == rejected:
        source.reject(path, None, "file", "no messages: expected Telegram Desktop's export in JSON, result.json")


def _read_chat(log: ChatLog, source: CorpusSource, path: Path, line: int, record: Mapping[str, Any]) -> None:
    chat = _Chat(log, source, path, require_name([optional_id(record, "id")], "the chat's id"))
    for message in require_list(record, "messages"):
        with source.guard(path, line):
            chat.add(line, require_object(message, "the message"))


class _Chat:
    """A chat whose messages are added to a log."""

    def __init__(self, log: ChatLog, source: CorpusSource, path: Path, name: str):
        self._log = log
        self._source = source
        self._path = path
        self.name = name
        #: The topic of each message of a group with topics: a message replies to its topic, or to another message.
        self._topics: dict[str, str] = {}

    def add(self, line: int, record: Mapping[str, Any]) -> None:
        """Add a message, or count it as left out."""
        kind, identity = record["type"], optional_id(record, "id")
        if kind != "message":
            if record.get("action") == "topic_created" and identity:
                self._topics[identity] = identity
            self._source.skipped[f"{event_name(record.get('action'))} events"] += 1
            return
        time = require_time(record.get("date_unixtime") or record["date"])
        topic = self._topics.get(optional_id(record, "reply_to_message_id"))
        if topic is not None and identity:
            self._topics[identity] = topic
        conversation = self.name if topic is None else f"{self.name}/{topic}"
        text = _text(record["text"])
        if not text.strip():
            self._log.leave_out(conversation, time, _content(record))
            return
        names = (optional_text(record, "from"), optional_id(record, "from_id"))
        speaker = require_name(names, "'from'")
        self._log.add(conversation, time, speaker, text, path=self._path, line=line, key=identity or None)


def _text(value: Any) -> str:
    """Return the text of a message: a string, or a list of strings and of parts such as links."""
    parts = value if isinstance(value, list) else [value]
    texts = [part["text"] if isinstance(part, dict) else part for part in parts]
    if not all(isinstance(text, str) for text in texts):
        raise ValueError("'text' is neither a string nor a list of texts")
    return "".join(texts)


def _content(record: Mapping[str, Any]) -> str:
    media = record.get("media_type")
    if isinstance(media, str) and media in _MEDIA_TYPES:
        return _MEDIA_TYPES[media]
    return next((name for key, name in _CONTENTS.items() if key in record), NO_TEXT)
