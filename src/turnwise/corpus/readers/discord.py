"""Discord channels as DiscordChatExporter writes them: a JSON file per channel or thread."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

from turnwise.core.dialogue import Dialogue
from turnwise.corpus.readers.chat_sessions import BOT, NO_TEXT, PAUSE, ChatLog, event_name
from turnwise.corpus.readers.json_fields import (
    optional_id,
    optional_object,
    optional_text,
    require_name,
    require_object,
    require_time,
)
from turnwise.corpus.readers.zip_exports import unpacked
from turnwise.corpus.source.corpus_source import CorpusSource

#: Types of messages that people or bots wrote: 20 and 23 answer commands. The others are events, such as Call.
_WRITTEN = ("Default", "Reply", "20", "23")

#: What a message without text consists of, by the key that is not empty.
_CONTENTS = {
    "attachments": "attachments without text",
    "stickers": "stickers",
    "embeds": "embeds without text",
    "forwardedMessage": "forwarded messages",
}


def read(
    source: CorpusSource,
    *,
    pause: float = PAUSE,
    bots: Literal["system", "skip"] = "system",
    speakers: Mapping[str, str] | None = None,
) -> Iterator[Dialogue]:
    """Read the JSON files that current versions of DiscordChatExporter write, one per channel or thread.

    A thread or forum post is a dialogue. The messages of other channels are split into dialogues at pauses; replies
    stay among the messages around them. Joins, pins, calls and other events are left out; messages without text, such
    as attachments, are left out too, and a dialogue is split there.

    Args:
        source: the files to read.
        pause: hours without a message that end a dialogue outside threads; 0: never.
        bots: messages of bots are the system's, or left out: 'skip'.
        speakers: user names and their roles: 'anna=system,*=user'; others are numbered.
    """
    with unpacked(source, "*.json"):
        log = ChatLog(source, speakers, pause)
        for path in source.files("*.json"):
            _read_channel(log, source, path, bots)
        yield from log.dialogues()


def _read_channel(log: ChatLog, source: CorpusSource, path: Path, bots: str) -> None:
    conversation = source.relative_name(path).removesuffix(".json")
    is_export, rejected = False, source.rejected_rows
    for line, (key, value) in source.json_members(path, "messages"):
        is_export |= key in ("channel", "messages")
        if key == "channel":
            with source.guard(path, line):
                channel = require_object(value, "the channel")
                name = require_name([optional_id(channel, "id")], "the channel's id")
                conversation = log.thread(name) if optional_text(channel, "type").endswith("Thread") else name
        elif key == "messages":
            with source.guard(path, line):
                _add(log, source, conversation, path, line, require_object(value, "the message"), bots)
    if not is_export and source.rejected_rows == rejected:
        source.reject(path, None, "file", "no messages: expected a JSON file of DiscordChatExporter")


def _add(
    log: ChatLog, source: CorpusSource, conversation: str, path: Path, line: int, record: Mapping[str, Any], bots: str
) -> None:
    if "content" not in record:
        raise KeyError("content")
    kind, time, text = record["type"], require_time(record["timestamp"]), optional_text(record, "content")
    author = optional_object(record, "author")
    if kind not in _WRITTEN:
        source.skipped[f"{event_name(kind)} events"] += 1
    elif author.get("isBot") is True and bots == "skip":
        source.skipped["messages of bots"] += 1
    elif not text.strip():
        what = next((name for key, name in _CONTENTS.items() if record.get(key)), NO_TEXT)
        log.leave_out(conversation, time, what)
    else:
        names = (optional_text(author, "name"), optional_id(author, "id"))
        speaker = BOT if author.get("isBot") is True else require_name(names, "the author's name")
        log.add(conversation, time, speaker, text, path=path, line=line, key=optional_id(record, "id") or None)
