"""Slack: the export of a workspace, with a file per channel and day, and messages of its API or of slackdump."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from turnwise.corpus.readers.shared.chat_exports import BOT, NO_TEXT, PAUSE, Bots, ChatExport
from turnwise.corpus.readers.shared.fields import first_name, optional, require_object, require_time
from turnwise.corpus.readers.shared.speakers import Speakers
from turnwise.corpus.source.corpus_source import CorpusSource, Dialogues

_DAYS = "????-??-??.json"

#: Files of an export beside those with messages.
LISTS = re.compile(
    r"(?:org_)?users\.json|(?:channels|groups|dms|mpims|integration_logs|canvases|lists|file_conversations"
    r"|huddle_transcripts)\.json"
)
_USERS = ("users.json", "org_users.json")
_CHANNELS = ("channels.json", "groups.json")

#: Subtypes of messages that people or bots wrote; the others are events, such as channel_join.
_WRITTEN = ("", "bot_message", "file_comment", "file_share", "me_message", "reply_broadcast", "thread_broadcast")

_DELETED = "tombstone"
_SLACKBOT = "USLACKBOT"
_REPLIES = "slackdump_thread_replies"
_NO_PREVIEW = "[no preview available]"
_MARKUP = re.compile(r"<([^<>|]*)(?:\|([^<>]*))?>")


def read(source: CorpusSource, *, pause: float = PAUSE, bots: Bots = "system", speakers: Speakers = None) -> Dialogues:
    """Read the export, a folder or the .zip: `CHANNEL/YYYY-MM-DD.json`, `users.json` and `channels.json`.

    Without such files, each .json file is a channel: an answer of the API (`conversations.history` or `.replies`), a
    dump of slackdump, or a list of messages. A message without a text has that of its blocks or attachments.

    A thread, its first message and the replies, is a dialogue. The other messages of a channel are split into
    dialogues at pauses. Mentions become names, and links their texts. Joins, topic changes and other events are left
    out; files without text and deleted messages are left out too, and a dialogue is split there. `speakers` maps
    display names.
    """
    return _SlackExport(source, speakers, pause, bots).read()


class _SlackExport(ChatExport):
    opened = ("messages",)
    known = ("messages", "")
    expected = "no messages: expected a day of Slack's export, an answer of its API, or a dump of slackdump"

    def read_lists(self) -> None:
        self._users, self._channels = self._read_names(_USERS), self._read_names(_CHANNELS)
        self._only_days = self.source.selected is None and next(self.source.root.rglob(_DAYS), None) is not None

    def read_file(self, path: Path) -> None:
        if not path.match(_DAYS):
            if path == self.source.root or not (self._only_days or LISTS.fullmatch(path.name)):
                super().read_file(path)
            return
        is_channel = path.parent in (self.source.root, self.source.root.parent)  # rather than the whole export
        self.chat = path.parent.name if is_channel else self.source.relative_name(path.parent)
        for line, record in self.source.json_array(path):
            self.at(path, line).read_each([record], self._add_message)

    def read_member(self, key: str, value: Any) -> None:
        if key in self.known:
            record = require_object(value, "the message")
            self.read_each([record, *optional(record, _REPLIES, list)], self._add_message)

    def _add_message(self, record: dict[str, Any]) -> None:
        is_bot = _is_bot(record)
        if is_bot and self.skip_bot():
            return
        kind, subtype, time = record["type"], record.get("subtype") or "", require_time(record, "ts")
        thread = optional(record, "thread_ts", str)
        conversation = self.add_thread(f"{self.chat}/{thread}") if thread else self.chat
        # with names in place of ids, and without the markup of links
        text = _MARKUP.sub(self._replace_markup, _message_text(record))
        text = text.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")
        if subtype == _DELETED:
            self.leave_out(conversation, time, "deleted messages")
        elif kind != "message" or subtype not in _WRITTEN:
            self.skip_event(subtype or kind)
        else:
            speaker = BOT if is_bot else self._speaker(record)
            what = "files without text" if record.get("files") else NO_TEXT
            self.add_text(conversation, time, speaker, text, what, key=str(record["ts"]))

    def _speaker(self, record: dict[str, Any]) -> str:
        profile = _profile_names(optional(record, "user_profile", dict))
        user, name = _texts(record, "user", "username")
        return first_name([self._users.get(user, ""), *profile, user, name], "'user'")

    def _read_names(self, files: tuple[str, ...]) -> dict[str, str]:
        """Return the names of users or channels by their ids."""
        found: dict[str, str] = {}
        root = self.source.root
        for path in sorted(path for name in files for path in root.rglob(name) if path.is_file()):
            for line, record in self.source.json_array(path):
                with self.source.guard(path, line):
                    entry = require_object(record, "the entry")
                    names = [
                        *_profile_names(optional(entry, "profile", dict)),
                        *_texts(entry, "real_name", "name", "id"),
                    ]
                    found[entry["id"]] = first_name(names, "the name")
        return found

    def _replace_markup(self, match: re.Match[str]) -> str:
        target, label = match[1], match[2] or ""
        if target.startswith("@"):
            return "@" + (self._users.get(target[1:]) or label or target[1:]).removeprefix("@")
        if target.startswith("#"):
            return "#" + (label or self._channels.get(target[1:]) or target[1:])
        if target.startswith("!"):  # <!here>, <!subteam^S012|@team>, <!date^1704448980^{date}|5 January>
            return label or "@" + target[1:].partition("^")[0]
        return label or target


def _message_text(record: dict[str, Any]) -> str:
    """Return the text of a message, or that of its blocks or attachments, as bots have it."""
    text = optional(record, "text", str)
    if text.strip():
        return text
    parts = [*_block_texts(optional(record, "blocks", list))]
    for item in () if parts else optional(record, "attachments", list):
        attachment = require_object(item, "the attachment")
        pretext, title, text, fallback = _texts(attachment, "pretext", "title", "text", "fallback")
        blocks = "\n".join(_block_texts(optional(attachment, "blocks", list)))
        own = text or blocks or (fallback if fallback != _NO_PREVIEW else "") or title
        parts += [part for part in (pretext, own) if part.strip()]
    return "\n".join(parts)


def _block_texts(blocks: list[Any]) -> Iterator[str]:
    """Yield the texts of layout blocks that are not blank, without buttons and other inputs."""
    for item in blocks:
        block = require_object(item, "the block")
        kind = optional(block, "type", str)
        if kind == "rich_text":
            text = "\n".join(_rich_text(part) for part in optional(block, "elements", list))
        elif kind == "context":
            text = " ".join(_texts_of(optional(block, "elements", list)))
        else:
            text = "\n".join(_texts_of([block.get("text"), *optional(block, "fields", list)]))
        if text.strip():
            yield text


def _texts_of(items: list[Any]) -> Iterator[str]:
    for item in items:
        if isinstance(item, dict) and isinstance(item.get("text"), str):
            yield item["text"]


def _rich_text(element: Any, depth: int = 10) -> str:
    """Return an element of a rich text with the markup of messages; those of a list are its lines."""
    if not depth:
        raise ValueError("a rich text is nested too deeply")
    record = require_object(element, "the element")
    kind = optional(record, "type", str)
    if kind in _RICH:
        key, mark = _RICH[kind]
        return mark.format(optional(record, key, str), optional(record, "text", str))
    inner = [_rich_text(part, depth - 1) for part in optional(record, "elements", list)]
    return ("\n" if kind == "rich_text_list" else "").join(inner)


#: Elements of rich texts: the key with what they name, and how messages mark it.
_RICH = {
    "text": ("text", "{0}"),
    "emoji": ("name", ":{0}:"),
    "user": ("user_id", "<@{0}>"),
    "channel": ("channel_id", "<#{0}>"),
    "broadcast": ("range", "<!{0}>"),
    "link": ("url", "<{0}|{1}>"),
}


def _profile_names(profile: dict[str, Any]) -> list[str]:
    return _texts(profile, "display_name", "real_name")


def _texts(record: dict[str, Any], *keys: str) -> list[str]:
    return [optional(record, key, str) for key in keys]


def _is_bot(record: dict[str, Any]) -> bool:
    if record.get("subtype") == _DELETED:  # Slackbot replaces a message of anybody
        return False
    return record.get("subtype") == "bot_message" or bool(record.get("bot_id")) or record.get("user") == _SLACKBOT
