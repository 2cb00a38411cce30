"""Slack's export of a workspace: a folder per channel with a file per day, and lists of users and channels."""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

from turnwise.core.dialogue import Dialogue
from turnwise.corpus.readers.chat_sessions import BOT, NO_TEXT, PAUSE, ChatLog, event_name
from turnwise.corpus.readers.json_fields import (
    optional_object,
    optional_text,
    require_name,
    require_object,
    require_time,
)
from turnwise.corpus.readers.zip_exports import unpacked
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
    with unpacked(source, _DAYS, *_USERS, *_CHANNELS):
        names = _Names(source)
        log = ChatLog(source, speakers, pause)
        for path in source.files(_DAYS):
            channel = _channel(source, path)
            for line, record in source.json_array(path):
                with source.guard(path, line):
                    message = require_object(record, "the message")
                    if bots == "skip" and _is_bot(message):
                        source.skipped["messages of bots"] += 1
                    else:
                        _add(log, source, names, channel, path, line, message)
        yield from log.dialogues()


class _Names:
    """The names of users and channels by their ids."""

    def __init__(self, source: CorpusSource) -> None:
        self.users: dict[str, str] = {}
        self.channels: dict[str, str] = {}
        for path, line, record in _list_records(source, _USERS):
            with source.guard(path, line):
                user = require_object(record, "the user")
                self.users[user["id"]] = require_name(_user_names(user), "the user's name")
        for path, line, record in _list_records(source, _CHANNELS):
            with source.guard(path, line):
                channel = require_object(record, "the channel")
                self.channels[channel["id"]] = require_name([optional_text(channel, "name")], "the channel's name")

    def speaker(self, record: Mapping[str, Any]) -> str:
        user = optional_text(record, "user")
        profile = optional_object(record, "user_profile")
        names = [self.users.get(user, ""), *_profile_names(profile), user, optional_text(record, "username")]
        return require_name(names, "'user'")

    def plain_text(self, text: str) -> str:
        """Return a text with names in place of ids, and without the markup of links."""
        text = _MARKUP.sub(self._replace, text)
        return text.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")

    def _replace(self, match: re.Match[str]) -> str:
        target, label = match[1], match[2] or ""
        if target.startswith("@"):
            return "@" + (self.users.get(target[1:]) or label or target[1:]).removeprefix("@")
        if target.startswith("#"):
            return "#" + (label or self.channels.get(target[1:]) or target[1:])
        if target.startswith("!"):  # <!here>, <!subteam^S012|@team>, <!date^1704448980^{date}|5 January>
            return label or "@" + target[1:].partition("^")[0]
        return label or target


def _list_records(source: CorpusSource, names: tuple[str, ...]) -> Iterator[tuple[Path, int, Any]]:
    if source.root.is_dir():
        for path in sorted(path for name in names for path in source.root.rglob(name) if path.is_file()):
            for line, record in source.json_array(path):
                yield path, line, record


def _user_names(record: Mapping[str, Any]) -> Iterator[str]:
    yield from _profile_names(optional_object(record, "profile"))
    yield from (optional_text(record, key) for key in ("real_name", "name", "id"))


def _profile_names(profile: Mapping[str, Any]) -> Iterator[str]:
    return (optional_text(profile, key) for key in ("display_name", "real_name"))


def _channel(source: CorpusSource, path: Path) -> str:
    """Return the name of a file's folder, relative to the export."""
    return path.parent.name if path.parent in (source.root, source.root.parent) else source.relative_name(path.parent)


def _is_bot(record: Mapping[str, Any]) -> bool:
    if record.get("subtype") == _DELETED:  # Slackbot replaces a message of anybody
        return False
    return record.get("subtype") == "bot_message" or bool(record.get("bot_id")) or record.get("user") == _SLACKBOT


def _add(
    log: ChatLog,
    source: CorpusSource,
    names: _Names,
    channel: str,
    path: Path,
    line: int,
    record: Mapping[str, Any],
) -> None:
    kind, subtype, timestamp = record["type"], record.get("subtype") or "", record["ts"]
    time = require_time(timestamp)
    thread = optional_text(record, "thread_ts")
    conversation = log.thread(f"{channel}/{thread}") if thread else channel
    text = names.plain_text(optional_text(record, "text"))
    if subtype == _DELETED:
        log.leave_out(conversation, time, "deleted messages")
    elif kind != "message" or subtype not in _WRITTEN:
        source.skipped[f"{event_name(subtype or kind)} events"] += 1
    elif not text.strip():
        log.leave_out(conversation, time, "files without text" if record.get("files") else NO_TEXT)
    else:
        speaker = BOT if _is_bot(record) else names.speaker(record)
        log.add(conversation, time, speaker, text, path=path, line=line, key=str(timestamp))
