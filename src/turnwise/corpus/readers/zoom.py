"""Chats of Zoom meetings: the text file that the app saves, and the one beside a recording in the cloud."""

import re
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

from turnwise.corpus.readers.shared.chat_exports import NO_TEXT, PAUSE, ChatExport
from turnwise.corpus.readers.shared.speakers import Speakers
from turnwise.corpus.source.corpus_source import CorpusSource, Dialogues

_CLOCK = r"(?P<hours>\d{1,2}):(?P<minutes>\d\d):(?P<seconds>\d\d)"
_HEADERS = (
    re.compile(
        rf"(?:(?P<date>\d{{4}}-\d\d-\d\d)\s)?{_CLOCK}\s{{1,3}}From\s{{1,2}}(?P<name>\S.{{0,100}}?)"
        r"(?:\s{1,2}to\s{1,2}(?P<recipient>\S.{0,100}?))?\s?:(?:\s(?P<text>.*))?",
        re.IGNORECASE,
    ),
    # of recordings, with times since their start
    re.compile(rf"(?P<date>(?!)|){_CLOCK}\t\s?(?P<name>[^\t]{{1,100}}?)\s?:\t(?P<recipient>(?!)|)(?P<text>.*)"),
)
_DIRECT = re.compile(r"(?P<name>.*?)\s?\((?:direct message|privately)\)", re.IGNORECASE)
_REACTION = re.compile(
    r"Reacted to [\"“].{1,300}[\"”] with .{1,60}|Removed an? .{1,60} reaction from [\"“].{1,300}[\"”]", re.DOTALL
)
_REPLYING = re.compile(r"Replying to [\"“].{0,300}?[\"”](?::|\s|\Z)\s*", re.DOTALL)
#: When a meeting began, in the name of its folder, and a recording, in that of its file.
_START = re.compile(r"(?:GMT)?(\d{4})-?(\d\d)-?(\d\d)[ -](\d\d)\.?(\d\d)\.?(\d\d)")

_EXPECTED = (
    "no line begins like '09:15:02 From Anna to Everyone:' or '00:15:02<tab>Anna:<tab>': expected the saved chat of a"
    " Zoom meeting in English"
)


def read(source: CorpusSource, *, speakers: Speakers = None) -> Dialogues:
    """Read the saved chat of a meeting, a folder with several, or the .zip with them, as written since 2020 in English.

    A meeting is a dialogue, and so are the direct messages between two people in it. Reactions are left out, and what a
    reply quotes is removed. Lines without a date get that of the folder (`2024-05-01 09.15.02 Meeting`) or file
    (`GMT20240501-091502`); otherwise, the times of messages are unknown and their order is the file's.
    """
    return _ZoomChat(source, speakers, PAUSE).read()


def find_messages(lines: Sequence[str]) -> list[bool | None]:
    """Return for each line whether it begins a message; None if it does not."""
    return [None if _parse(0, line) is None else True for line in lines]


class _ZoomMessage(NamedTuple):
    number: int
    date: str
    clock: timedelta
    name: str
    recipient: str
    texts: list[str]


class _ZoomChat(ChatExport):
    patterns = ("*.txt",)

    def read_file(self, path: Path) -> None:
        rejected = self.source.counts.rejected_rows
        start, last, day = _start_time(path), timedelta(0), timedelta(0)
        is_known = False
        for message in _read_messages(self.source, path):
            if message is None:
                self.add_hole(self.add_thread(self.chat))
                continue
            is_known = True
            if message.clock < last - timedelta(hours=12):  # midnight
                day += timedelta(days=1)
            last = message.clock
            with self.source.guard(path, message.number):
                self.at(path, message.number)._add_message(message, _time(message, start, day))
        if not is_known and self.source.counts.rejected_rows == rejected:
            self.source.reject(path, None, "file", _EXPECTED)

    def _add_message(self, message: _ZoomMessage, time: float | None) -> None:
        text = "\n".join(message.texts).strip()
        if _REACTION.fullmatch(text):
            self.skip_event("reaction")
            return
        chat = self.chat
        if direct := _DIRECT.fullmatch(message.recipient):
            chat = f"{chat}/{', '.join(sorted((message.name, direct['name'].strip())))}"
        self.add_text(self.add_thread(chat), time, message.name, _REPLYING.sub("", text, count=1), NO_TEXT)


def _read_messages(source: CorpusSource, path: Path) -> Iterator[_ZoomMessage | None]:
    """Yield the messages with the lines that continue them; None where a line was rejected."""
    last: _ZoomMessage | None = None
    orphans: list[tuple[int, str]] = []
    rejected, is_known = source.counts.rejected_rows, False
    for number, line in source.lines(path):
        if source.counts.rejected_rows > rejected:
            yield from (last, None) if last else (None,)
            last, rejected = None, source.counts.rejected_rows
        if (message := _parse(number, line)) is not None:
            if last is not None:
                yield last
            last, is_known = message, True
        elif last is not None:
            last.texts.append(line.removeprefix("\t"))
        elif line.strip():
            orphans.append((number, line))
    if last is not None:
        yield last
    if source.counts.rejected_rows > rejected:
        yield None
    for number, line in orphans if is_known else ():
        source.reject(path, number, "turn", "no time and sender before this text", text=line)


def _parse(number: int, line: str) -> _ZoomMessage | None:
    line = line.removeprefix("\ufeff")
    match = next((match for header in _HEADERS if (match := header.fullmatch(line)) is not None), None)
    if match is None:
        return None
    hours, minutes, seconds = map(int, match.group("hours", "minutes", "seconds"))
    clock = timedelta(hours=hours, minutes=minutes, seconds=seconds)
    name, recipient = (" ".join((match[key] or "").split()) for key in ("name", "recipient"))
    return _ZoomMessage(number, match["date"] or "", clock, name, recipient, [match["text"] or ""])


def _start_time(path: Path) -> datetime | None:
    """Return when a meeting began, by the name of its file or folder; None if that is unknown."""
    match = _START.match(path.name) or _START.match(path.parent.name)
    try:
        return datetime(*map(int, match.groups()), tzinfo=UTC) if match else None  # type: ignore[misc,arg-type]
    except ValueError:
        return None


def _time(message: _ZoomMessage, start: datetime | None, day: timedelta) -> float | None:
    """Return the time of a message in seconds since 1970, as if it were UTC."""
    if message.date:
        return (datetime.fromisoformat(message.date).replace(tzinfo=UTC) + message.clock).timestamp()
    if start is None:
        return None
    return (start.replace(hour=0, minute=0, second=0) + day + message.clock).timestamp()
