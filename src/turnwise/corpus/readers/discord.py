"""Discord channels as DiscordChatExporter writes them: a JSON file per channel or thread."""

from typing import Any

from turnwise.corpus.readers.shared.chat_exports import BOT, NO_TEXT, PAUSE, Bots, ChatExport
from turnwise.corpus.readers.shared.fields import first_name, optional, optional_id, require_object, require_time
from turnwise.corpus.readers.shared.speakers import Speakers
from turnwise.corpus.source.corpus_source import CorpusSource, Dialogues

#: Types of messages that people or bots wrote: 20 and 23 answer commands. The others are events, such as Call.
_WRITTEN = ("Default", "Reply", "20", "23")

#: What a message without text consists of, by the key that is not empty.
_CONTENTS = {
    "attachments": "attachments without text",
    "stickers": "stickers",
    "embeds": "embeds without text",
    "forwardedMessage": "forwarded messages",
}


def read(source: CorpusSource, *, pause: float = PAUSE, bots: Bots = "system", speakers: Speakers = None) -> Dialogues:
    """Read the JSON files that current versions of DiscordChatExporter write, one per channel or thread.

    A thread or forum post is a dialogue. The messages of other channels are split into dialogues at pauses; replies
    stay among the messages around them. Joins, pins, calls and other events are left out; messages without text, such
    as attachments, are left out too, and a dialogue is split there. `speakers` maps user names.
    """
    return _DiscordExport(source, speakers, pause, bots).read()


class _DiscordExport(ChatExport):
    opened = ("messages",)
    known = ("channel", "messages")
    expected = "no messages: expected a JSON file of DiscordChatExporter"

    def read_member(self, key: str, value: Any) -> None:
        if key == "channel":
            channel = require_object(value, "the channel")
            name = first_name([optional_id(channel, "id")], "the channel's id")
            self.chat = self.add_thread(name) if optional(channel, "type", str).endswith("Thread") else name
        elif key == "messages":
            self._add_message(require_object(value, "the message"))

    def _add_message(self, record: dict[str, Any]) -> None:
        if "content" not in record:
            raise KeyError("content")
        kind, time, text = record["type"], require_time(record, "timestamp"), optional(record, "content", str)
        author = optional(record, "author", dict)
        is_bot = author.get("isBot") is True
        if kind not in _WRITTEN:
            self.skip_event(kind)
        elif not (is_bot and self.skip_bot()):
            names = (optional(author, "name", str), optional_id(author, "id"))
            speaker = BOT if is_bot else first_name(names, "the author's name")
            what = next((name for key, name in _CONTENTS.items() if record.get(key)), NO_TEXT)
            self.add_text(self.chat, time, speaker, text, what, key=optional_id(record, "id") or None)
