"""Chats of servers that teams run themselves: Mattermost's bulk export, and messages of Rocket.Chat."""

from pathlib import Path
from typing import Any

from turnwise.corpus.readers.shared.chat_exports import BOT, NO_TEXT, PAUSE, Bots, ChatExport
from turnwise.corpus.readers.shared.fields import (
    first_name,
    optional,
    optional_id,
    require,
    require_object,
    require_text,
    require_time,
)
from turnwise.corpus.readers.shared.files import JSON_FILES
from turnwise.corpus.readers.shared.speakers import Speakers
from turnwise.corpus.source.corpus_source import CorpusSource, Dialogues
from turnwise.corpus.source.json_text import parse_json

#: Types of lines in Mattermost's bulk export, those with messages first.
_KINDS = (
    "post",
    "direct_post",
    "version",
    "team",
    "channel",
    "direct_channel",
    "user",
    "bot",
    "role",
    "scheme",
    "emoji",
)

_FILES = "files without text"


def read_mattermost(
    source: CorpusSource, *, pause: float = PAUSE, bots: Bots = "system", speakers: Speakers = None
) -> Dialogues:
    """Read Mattermost's bulk export (version 1): JSON Lines `{type: post, post: {…}}` and `{type: direct_post, …}`.

    A post with replies is a dialogue. The other posts of a channel are split into dialogues at pauses. Members who join
    and other events are left out; files without text are left out too, and a dialogue is split there. `speakers` maps
    user names.
    """
    return _MattermostExport(source, speakers, pause, bots).read()


def read_rocketchat(
    source: CorpusSource, *, pause: float = PAUSE, bots: Bots = "system", speakers: Speakers = None
) -> Dialogues:
    """Read messages of Rocket.Chat (API 1 to 7): answers `{messages: […]}` of `channels.history`, lists, or JSON Lines.

    A thread, its first message and the replies, is a dialogue. The other messages of a room are split into dialogues at
    pauses. Members who join and other events are left out; deleted messages and files without text are left out too,
    and a dialogue is split there. `speakers` maps names.
    """
    return _RocketChatExport(source, speakers, pause, bots).read()


class _MattermostExport(ChatExport):
    patterns = JSON_FILES

    def read_file(self, path: Path) -> None:
        for line, value in self.source.json_lines(path):
            with self.source.guard(path, line):
                record = require_object(value, "the line")
                kind = require_text(record, "type")
                if kind not in _KINDS:
                    raise ValueError(f"unknown type {kind!r}: expected {', '.join(_KINDS)}")
                if kind in _KINDS[:2]:
                    self.at(path, line)._add_post(require(record, kind, dict))

    def _add_post(self, post: dict[str, Any]) -> None:
        if "channel_members" in post:
            chat = ", ".join(sorted(map(str, require(post, "channel_members", list))))
        else:
            chat = f"{require_text(post, 'team')}/{require_text(post, 'channel')}"
        replies = optional(post, "replies", list)
        if replies:
            chat = self.add_thread(f"{chat}/{optional_id(post, 'create_at')}")
        self.read_each([post, *replies], lambda message: self._add_message(chat, message))

    def _add_message(self, conversation: str, record: dict[str, Any]) -> None:
        kind, time, user = (
            optional(record, "type", str),
            require_time(record, "create_at"),
            require_text(record, "user"),
        )
        is_bot = any(str(optional(record, "props", dict).get(key)) == "true" for key in ("from_bot", "from_webhook"))
        if kind.startswith("system_"):
            self.skip_event(kind)
        elif not (is_bot and self.skip_bot()):
            text = require(record, "message", str)
            what = _FILES if record.get("attachments") else NO_TEXT
            self.add_text(conversation, time, BOT if is_bot else user, text, what, key=f"{time} {user} {text}")


class _RocketChatExport(ChatExport):
    patterns = JSON_FILES

    opened = ("messages",)
    known = ("messages", "")
    expected = "no messages: expected an answer of Rocket.Chat's API, or a list of messages"

    def read_file(self, path: Path) -> None:
        if not _is_message(self.source.first_line(path)):
            super().read_file(path)
            return
        for line, value in self.source.json_lines(path):
            with self.source.guard(path, line):
                self.at(path, line).read_member("", value)

    def read_member(self, key: str, value: Any) -> None:
        if key in self.known:
            self._add_message(require_object(value, "the message"))

    def _add_message(self, record: dict[str, Any]) -> None:
        room, identity, kind = require_text(record, "rid"), require_text(record, "_id"), optional(record, "t", str)
        thread = optional(record, "tmid", str) or (identity if record.get("tcount") else "")
        conversation = self.add_thread(f"{room}/{thread}") if thread else room
        value = record.get("ts")
        time = require_time(value if isinstance(value, dict) else record, "$date" if isinstance(value, dict) else "ts")
        if kind == "rm":
            self.leave_out(conversation, time, "deleted messages")
        elif kind:
            self.skip_event(kind)
        elif not ((is_bot := bool(record.get("bot"))) and self.skip_bot()):
            user = require(record, "u", dict)
            names = [optional(record, "alias", str), *(optional(user, key, str) for key in ("name", "username", "_id"))]
            attached = [require_object(each, "the attachment") for each in optional(record, "attachments", list)]
            texts = (optional(each, key, str) for each in attached for key in ("text", "description"))
            text = optional(record, "msg", str) or next(filter(None, texts), "")
            what = _FILES if record.get("file") or attached else NO_TEXT
            speaker = BOT if is_bot else first_name(names, "the sender's name")
            self.add_text(conversation, time, speaker, text, what, key=identity)


def _is_message(line: str) -> bool:
    """Return whether the first line of a file is a message, so that the others are too."""
    try:
        value = parse_json(line)
    except ValueError:
        return False
    return isinstance(value, dict) and "rid" in value
