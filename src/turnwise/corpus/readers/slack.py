"""Slack's export of a workspace: a folder per channel with a file per day, and lists of users and channels."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

from turnwise.core.dialogue import Dialogue
from turnwise.corpus.readers.shared.chat_exports import BOT, NO_TEXT, PAUSE, ChatExport
from turnwise.corpus.readers.shared.fields import first_name, optional, require_object, require_time
from turnwise.corpus.source.corpus_source import CorpusSource

_DAYS = "????-??-??.json"
_USERS = ("users.json", "org_users.json")
_CHANNELS = ("channels.json", "groups.json")

#: Subtypes of messages that people or bots wrote; the others are events, such as channel_join.
_WRITTEN = ("", "bot_message", "file_comment", "file_share", "me_message", "reply_broadcast", "thread_broadcast")

_DELETED = "tombstone"
_SLACKBOT = "USLACKBOT"
_MARKUP = re.compile(r"<([^<>|]*)(?:\|([^<>]*))?>")


def read(
    source: CorpusSource,
    *,
    pause: float = PAUSE,
    bots: Literal["system", "skip"] = "system",
    speakers: Mapping[str, str] | None = None,
) -> Iterator[Dialogue]:
    """Read the export, a folder or the .zip: `CHANNEL/YYYY-MM-DD.json`, `users.json` and `channels.json`.

    A thread, its first message and the replies, is a dialogue. The other messages of a channel are split into
    dialogues at pauses. Mentions become names, and links their texts. Joins, topic changes and other events are left
    out; files without text and deleted messages are left out too, and a dialogue is split there.

    Args:
        source: the files to read.
        pause: hours without a message that end a dialogue outside threads; 0: never.
        bots: messages of bots are the system's, or left out: 'skip'.
        speakers: display names and their roles: 'Anna=system,*=user'; others are numbered.
    """
    return _SlackExport(source, speakers, pause, bots).read()


class _SlackExport(ChatExport):
    patterns = (_DAYS,)
    lists = (*_USERS, *_CHANNELS)

    def read_lists(self) -> None:
        self._users = self._read_names(_USERS, "the user", _user_names)
        self._channels = self._read_names(_CHANNELS, "the channel", lambda record: [optional(record, "name", str)])

    def read_file(self, path: Path) -> None:
        is_channel = path.parent in (self.source.root, self.source.root.parent)  # rather than the whole export
        channel = path.parent.name if is_channel else self.source.relative_name(path.parent)
        for line, record in self.source.json_array(path):
            with self.source.guard(path, line):
                message = require_object(record, "the message")
                if not (_is_bot(message) and self.skip_bot()):
                    self.at(path, line)._add_message(channel, message)

    def _add_message(self, channel: str, record: dict[str, Any]) -> None:
        kind, subtype, time = record["type"], record.get("subtype") or "", require_time(record, "ts")
        thread = optional(record, "thread_ts", str)
        conversation = self.add_thread(f"{channel}/{thread}") if thread else channel
        text = self._plain_text(optional(record, "text", str))
        if subtype == _DELETED:
            self.leave_out(conversation, time, "deleted messages")
        elif kind != "message" or subtype not in _WRITTEN:
            self.skip_event(subtype or kind)
        elif not text.strip():
            self.leave_out(conversation, time, "files without text" if record.get("files") else NO_TEXT)
        else:
            speaker = BOT if _is_bot(record) else self._speaker(record)
            self.add(conversation, time, speaker, text, key=str(record["ts"]))

    def _speaker(self, record: dict[str, Any]) -> str:
        user = optional(record, "user", str)
        profile = optional(record, "user_profile", dict)
        names = [self._users.get(user, ""), *_profile_names(profile), user, optional(record, "username", str)]
        return first_name(names, "'user'")

    def _read_names(
        self, files: tuple[str, ...], what: str, names: Callable[[dict[str, Any]], Iterable[str]]
    ) -> dict[str, str]:
        """Return the names in a list of the export by their ids."""
        found: dict[str, str] = {}
        root = self.source.root
        for path in sorted(path for name in files for path in root.rglob(name) if path.is_file()):
            for line, record in self.source.json_array(path):
                with self.source.guard(path, line):
                    entry = require_object(record, what)
                    found[entry["id"]] = first_name(names(entry), f"{what}'s name")
        return found

    def _plain_text(self, text: str) -> str:
        """Return a text with names in place of ids, and without the markup of links."""
        text = _MARKUP.sub(self._replace_markup, text)
        return text.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")

    def _replace_markup(self, match: re.Match[str]) -> str:
        target, label = match[1], match[2] or ""
        if target.startswith("@"):
            return "@" + (self._users.get(target[1:]) or label or target[1:]).removeprefix("@")
        if target.startswith("#"):
            return "#" + (label or self._channels.get(target[1:]) or target[1:])
        if target.startswith("!"):  # <!here>, <!subteam^S012|@team>, <!date^1704448980^{date}|5 January>
            return label or "@" + target[1:].partition("^")[0]
        return label or target


def _user_names(record: dict[str, Any]) -> Iterator[str]:
    yield from _profile_names(optional(record, "profile", dict))
    yield from (optional(record, key, str) for key in ("real_name", "name", "id"))


def _profile_names(profile: dict[str, Any]) -> Iterator[str]:
    return (optional(profile, key, str) for key in ("display_name", "real_name"))


def _is_bot(record: dict[str, Any]) -> bool:
    if record.get("subtype") == _DELETED:  # Slackbot replaces a message of anybody
        return False
    return record.get("subtype") == "bot_message" or bool(record.get("bot_id")) or record.get("user") == _SLACKBOT
