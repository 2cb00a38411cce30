"""KakaoTalk's exports of a chat: text files of the apps for phones and Windows, and the table of the Mac's."""

import re
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from turnwise.corpus.readers.shared.chat_exports import CALLS, DELETED, MEDIA, NO_TEXT, NOTICES, PAUSE, ChatExport
from turnwise.corpus.readers.shared.fields import parse_time
from turnwise.corpus.readers.shared.speakers import WORDS, Speakers
from turnwise.corpus.readers.shared.written_times import MONTH_PREFIXES, hour_of, month_of
from turnwise.corpus.source.corpus_source import CorpusSource, Dialogues

COLUMNS = ("Date", "User", "Message")  # of the Mac's export

_S = "[ \u00a0\u202f]"
_MONTH = rf"(?:{MONTH_PREFIXES})[a-z]{{0,9}}\.?"
_DATE = (
    rf"\d{{4}}년{_S}?\d{{1,2}}월{_S}?\d{{1,2}}일|\d{{4}}\.{_S}?\d{{1,2}}\.{_S}?\d{{1,2}}\.?"
    rf"|{_MONTH}{_S}\d{{1,2}},{_S}\d{{4}}|\d{{1,2}}{_S}{_MONTH},?{_S}\d{{4}}"
)
_HALF = r"오전|오후|[ap]\.?m\.?"
_CLOCK = rf"(?:(?P<before>{_HALF}){_S}?)?(?P<hour>\d{{1,2}}):(?P<minute>\d\d)(?:{_S}?(?P<after>{_HALF}))?"
#: Behind a time: a name and a text, or a notice.
_REST = rf"(?::{_S}(?P<notice>.*)|,{_S}(?P<rest>.*))?"
#: The lines of phones begin with the date and the time, or the other way round.
_DATED = tuple(
    re.compile(moment + _REST, re.IGNORECASE)
    for moment in (rf"(?P<date>{_DATE})(?:,|{_S}at)?{_S}{_CLOCK}", rf"{_CLOCK},{_S}(?P<date>{_DATE})")
)
#: The days on lines of their own: between dashes on Windows, which has no dates on other lines.
_WEEKDAY_BEFORE, _WEEKDAY_BEHIND = rf"(?:[^\W\d_]{{3,12}},{_S})?", rf"(?:{_S}[^\W\d_]{{3,12}})?"
_DAY = re.compile(
    rf"(?P<dashes>-{{5,}}{_S})?{_WEEKDAY_BEFORE}(?P<date>{_DATE}){_WEEKDAY_BEHIND}(?(dashes){_S}-{{5,}})", re.IGNORECASE
)
_BRACKETED = re.compile(rf"\[(?P<name>.{{1,100}}?)\]{_S}\[{_CLOCK}\](?:{_S}(?P<text>.*))?", re.IGNORECASE)
#: The second line of a file.
_SAVED = re.compile(rf"(?:저장한 날짜|date saved|saved date){_S}?:.*", re.IGNORECASE)

_NOTICE, _MEDIA, _DELETED, _CALL = (
    re.compile("|".join(WORDS["kakaotalk"][name]), re.IGNORECASE) for name in ("notices", "media", "deleted", "calls")
)
_EXPECTED = (
    "no line begins like '[Name] [오후 3:21] text', '2023년 5월 1일 오후 3:21, Name : text' or"
    " 'May 1, 2023, 3:21 PM, Name : text', and there are no columns Date, User and Message:"
    " expected a chat exported from KakaoTalk"
)


def read(source: CorpusSource, *, pause: float = PAUSE, speakers: Speakers = None) -> Dialogues:
    """Read the .txt or .csv file of a chat, the .zip with it, or a folder with several, in Korean or English.

    A chat is split into dialogues at pauses. Joins, invitations, calls and other notices are left out; photos,
    emoticons and other media, and deleted messages, are left out too, and a dialogue is split there.
    """
    return _KakaoTalkExport(source, speakers, pause).read()


def find_messages(lines: Sequence[str]) -> list[bool | None]:
    """Return for each line whether it begins a message; None if it begins nothing that KakaoTalk writes."""
    day, found = "", list[bool | None]()
    for line in lines:
        part = _parse(0, line, day)
        if isinstance(part, str):
            day = part or day
        found.append(None if part is None else not isinstance(part, str) and part.name is not None)
    return found


class _KakaoLine(NamedTuple):
    """A line with a time, and its text with the lines that follow it; a notice has no name."""

    number: int
    date: str
    clock: tuple[str, str, str, str]  # the word before the time, hour, minute, and the word behind it
    name: str | None
    texts: list[str]


class _KakaoTalkExport(ChatExport):
    patterns = ("*.txt", "*.csv")

    def read_file(self, path: Path) -> None:
        rejected = self.source.counts.rejected_rows
        read = self._read_table if path.suffix.lower() == ".csv" else self._read_lines
        if not read(path) and self.source.counts.rejected_rows == rejected:
            self.source.reject(path, None, "file", _EXPECTED)

    def _read_table(self, path: Path) -> bool:
        """Return whether there are messages in the table."""
        is_known = False
        for number, row in self.source.csv_rows(path):
            if not row.keys() >= {*COLUMNS}:
                break
            is_known = True
            with self.source.guard(path, number):
                name, text = (row["User"] or "").strip(), (row["Message"] or "").strip()
                time = parse_time(row["Date"])
                self.at(path, number)._add_message(time, name if name and not _NOTICE.fullmatch(text) else None, text)
        return is_known

    def _read_lines(self, path: Path) -> bool:
        """Return whether there are messages in the text."""
        last: float | None = None
        is_known = False
        for line in _read_messages(self.source, path):
            if line is None:
                self.add_hole(self.chat, last)
                continue
            is_known = True
            self.at(path, line.number)
            text = "\n".join(line.texts).strip()
            try:
                last = _time(line)
            except ValueError as error:
                self.reject(self.chat, last, str(error), text)
            else:
                self._add_message(last, line.name, text)
        return is_known

    def _add_message(self, time: float, name: str | None, text: str) -> None:
        if name is None:
            self.source.by_design[NOTICES] += 1
        elif _CALL.fullmatch(text):
            self.source.by_design[CALLS] += 1
        elif what := next(
            (what for what, known in ((DELETED, _DELETED), (MEDIA, _MEDIA)) if known.fullmatch(text)), ""
        ):
            self.leave_out(self.chat, time, what)
        else:
            self.add_text(self.chat, time, name, text, NO_TEXT)


def _read_messages(source: CorpusSource, path: Path) -> Iterator[_KakaoLine | None]:
    """Yield the lines with a time, each with those that continue it; None where a line was rejected."""
    day, last, is_head = "", None, True
    rejected = source.counts.rejected_rows
    orphans: list[tuple[int, str]] = []
    for number, text in source.lines(path):
        if source.counts.rejected_rows > rejected:
            yield from (last, None) if last else (None,)
            last, rejected = None, source.counts.rejected_rows
        part = _parse(number, text, day)
        if part is not None:
            if last is not None:
                yield last
            last = None if isinstance(part, str) else part
            day = part if isinstance(part, str) and part else day
            is_head = False
        elif last is not None:
            last.texts.append(text)
        elif text.strip() and number > 1 and not _SAVED.fullmatch(text.strip()):
            orphans.append((number, text))
    if last is not None:
        yield last
    if source.counts.rejected_rows > rejected:
        yield None
    for number, text in () if is_head else orphans:
        source.reject(path, number, "turn", "no date and sender before this text", text=text)


def _parse(number: int, text: str, day: str) -> _KakaoLine | str | None:
    """Return a message or notice, a day on a line of its own, or None for a line that continues another.

    A day is '' if the lines below it have their own dates. `day` is that of messages without a date.
    """
    text = text.strip("\ufeff\u200e\u200f \t")
    if match := _DAY.fullmatch(text):
        return match["date"] if match["dashes"] else ""
    if day and (match := _BRACKETED.fullmatch(text)):
        return _KakaoLine(number, day, _clock(match), match["name"].strip(), [match["text"] or ""])
    if day and _NOTICE.fullmatch(text):
        return _KakaoLine(number, day, ("", "0", "00", ""), None, [text])
    match = next((match for pattern in _DATED if (match := pattern.fullmatch(text)) is not None), None)
    if match is None or day:
        return None
    if match["rest"] is None and match["notice"] is None:
        return ""
    name, colon, content = (match["rest"] or "").partition(" : ")
    if not colon and name.endswith(" :"):
        name, colon = name.removesuffix(" :"), ":"
    if not colon:
        return _KakaoLine(number, match["date"], _clock(match), None, [match["notice"] or name])
    return _KakaoLine(number, match["date"], _clock(match), name.strip(), [content])


def _clock(match: re.Match[str]) -> tuple[str, str, str, str]:
    return match["before"] or "", match["hour"], match["minute"], match["after"] or ""


def _time(line: _KakaoLine) -> float:
    """Return the time of a line in seconds since 1970, as if it were UTC; a ValueError if it does not exist."""
    before, hour, minute, after = line.clock
    numbers = [int(number) for number in re.findall(r"\d+", line.date)]
    if word := re.search(r"[A-Za-z]{3,}", line.date):
        year, month, day = numbers[1], month_of(word[0]), numbers[0]
    else:
        year, month, day = numbers
    return datetime(year, month, day, hour_of(int(hour), before, after), int(minute), tzinfo=UTC).timestamp()
