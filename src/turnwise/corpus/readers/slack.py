"""Slack's export of a workspace: a folder per channel with a file per day, and lists of users and channels."""

import re
from pathlib import Path
from typing import Any

from turnwise.corpus.readers.shared.chat_exports import BOT, NO_TEXT, PAUSE, Bots, ChatExport
from turnwise.corpus.readers.shared.fields import first_name, optional, require_object, require_time
from turnwise.corpus.readers.shared.speakers import Speakers
from turnwise.corpus.source.corpus_source import CorpusSource, Dialogues

_DAYS = "????-??-??.json"
_USERS = ("users.json", "org_users.json")
_CHANNELS = ("channels.json", "groups.json")

#: Subtypes of messages that people or bots wrote; the others are events, such as channel_join.
_WRITTEN = ("", "bot_message", "file_comment", "file_share", "me_message", "reply_broadcast", "thread_broadcast")

_DELETED = "tombstone"
_SLACKBOT = "USLACKBOT"
_MARKUP = re.compile(r"<([^<>|]*)(?:\|([^<>]*))?>")


def read(source: CorpusSource, *, pause: float = PAUSE, bots: Bots = "system", speakers: Speakers = None) -> Dialogues:
    """Read the export, a folder or the .zip: `CHANNEL/YYYY-MM-DD.json`, `users.json` and `channels.json`.

    A thread, its first message and the replies, is a dialogue. The other messages of a channel are split into
    dialogues at pauses. Mentions become names, and links their texts. Joins, topic changes and other events are left
    out; files without text and deleted messages are left out too, and a dialogue is split there. `speakers` maps
    display names.
    """
    return _SlackExport(source, speakers, pause, bots).read()


class _SlackExport(ChatExport):
    patterns = (_DAYS,)
    lists = (*_USERS, *_CHANNELS)

    def read_lists(self) -> None:
        self._users, self._channels = self._read_names(_USERS), self._read_names(_CHANNELS)

    def read_file(self, path: Path) -> None:
        is_channel = path.parent in (self.source.root, self.source.root.parent)  # rather than the whole export
        self.chat = path.parent.name if is_channel else self.source.relative_name(path.parent)
        for line, record in self.source.json_array(path):
            self.at(path, line).read_each([record], self._add_message)

    def _add_message(self, record: dict[str, Any]) -> None:
        is_bot = _is_bot(record)
        if is_bot and self.skip_bot():
            return
        kind, subtype, time = record["type"], record.get("subtype") or "", require_time(record, "ts")
        thread = optional(record, "thread_ts", str)
        conversation = self.add_thread(f"{self.chat}/{thread}") if thread else self.chat
        # with names in place of ids, and without the markup of links
        text = _MARKUP.sub(self._replace_markup, optional(record, "text", str))
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


def _profile_names(profile: dict[str, Any]) -> list[str]:
    return _texts(profile, "display_name", "real_name")


def _texts(record: dict[str, Any], *keys: str) -> list[str]:
    return [optional(record, key, str) for key in keys]


def _is_bot(record: dict[str, Any]) -> bool:
    if record.get("subtype") == _DELETED:  # Slackbot replaces a message of anybody
        return False
    return record.get("subtype") == "bot_message" or bool(record.get("bot_id")) or record.get("user") == _SLACKBOT
