"""WhatsApp's text export of a chat, from Android or an iPhone: `[31.12.23, 21:41:05] Name: text`."""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Literal, NamedTuple

from turnwise.core.files import spool
from turnwise.corpus.readers.shared.chat_exports import CALLS, DELETED, MEDIA, NO_TEXT, NOTICES, PAUSE, ChatExport
from turnwise.corpus.readers.shared.speakers import WORDS, Speakers
from turnwise.corpus.readers.shared.written_times import MONTH_PREFIXES, hour_of, month_of
from turnwise.corpus.source.corpus_source import CorpusSource, Dialogues

DateOrder = Literal["", "day-first", "month-first"]

_LISTS = WORDS["whatsapp"]
_WORDS = {name: "|".join(words) for name, words in _LISTS.items()}

#: The first years of Japanese and Taiwanese eras, less one.
_ERAS = {"R": 2018, "令和": 2018, "H": 1988, "平成": 1988, "民國": 1911}
_BUDDHIST = 543  # years by which the Buddhist calendar is ahead
_FIRST_YEAR = 2009  # the year of the first WhatsApp messages

_MARK_SET = "\u200e\u200f\u202a-\u202e\u2066-\u2069\ufeff"
_M = f"[{_MARK_SET}]{{0,4}}"  # direction marks between the parts of a date
_YEAR = rf"(?:(?:{'|'.join(_ERAS)})\d{{1,3}}|\d{{4}}|\d{{1,2}})"
_NUMBERS = rf"{_YEAR}{_M}(?P<separator>[./-]){_M}\s?\d{{1,2}}{_M}(?P=separator){_M}\s?{_YEAR}\.?(?:\sBE)?"
_MONTH = rf"(?:{MONTH_PREFIXES})[^\W\d_]{{0,10}}\.?"
_IN_WORDS = rf"(?:\d{{1,2}}\.?\s(?:de\s)?{_MONTH}|{_MONTH}\s\d{{1,2}})(?:,?\s(?:de\s)?\d{{4}})?"
_COPIED = r"(?(open)\d{1,2}[./-]\d{1,2}\.?|(?!))"  # copied messages begin like '[12/31, 9:41 PM]'
_DATE = f"(?P<date>{_NUMBERS}|{_IN_WORDS}|{_COPIED})"
_TIME = (
    r"(?:(?P<before>[^\W\d_]{1,10}\.?(?:\s[^\W\d_]{1,5}\.?)?)\s?)?"
    rf"(?P<hour>\d{{1,2}}){_M}[:.]{_M}(?P<minute>\d{{2}})(?:{_M}[:.]{_M}(?P<seconds>\d{{2}}))?"
    r"(?:\s?(?P<after>[^\W\d_][^\d\[\]:,،\n–-]{0,24}?))?"
)
_COMMA = rf"{_M}(?:[,،]\s?|\s){_M}"
#: What ends the time: ']' if it began with '[', else a dash, or the colon that iPhones wrote until 2016.
_END = rf"{_M}(?(open)\]|(?:\s[-–]|(?(seconds):|(?!))))\s(?P<text>.*)"
_HEADERS = tuple(
    re.compile(f"(?P<mark>{_M})(?P<open>\\[)?{_M}{moment}{_END}", re.IGNORECASE)
    for moment in (_DATE + _COMMA + _TIME, _TIME + _COMMA + _DATE)
)

#: A name and a text.
_SENDER = re.compile(r"([^\n]{0,100}?\S):(?:\s(.*))?")
_QUOTES = re.compile('["“”„«»「」『』]')

_MARK = (
    "\u200e",
    "\u200f",
)  # WhatsApp begins texts that it writes itself, whatever the language, with a direction mark
_MARKS = re.compile("[\u200e\u202a-\u202e\u2066-\u2069\ufeff]")  # direction marks around names, dates and mentions
_INNER_BOM = re.compile("(?<=[^\\[\u200e\u200f\ufeff])\ufeff")
_CLOCK_CHANGE = 2 * 3600  # clocks that are set back by up to this many seconds do not change the order of messages
_NEW_YEAR = 30 * 24 * 3600  # where dates without a year go back by more seconds than this, the next year begins
_MEDIA = re.compile(
    rf"<[^<>]{{1,100}}>|.{{1,200}}\((?:{_WORDS['attached']})\)"
    r"|(?:IMG|VID|AUD|PTT|STK|DOC)-\d{8}-WA\d+\.\w+.{0,40}"
    r"|[^:]{0,200}: https://maps\.google\.\w{2,3}/\?q=[\d.,-]+"
    rf"|(?:.{{1,200}}(?:\.\w{{2,5}}| • .{{1,20}}) )?(?:{_WORDS['kinds']}) (?:{_WORDS['omitted']})",
    re.IGNORECASE,
)
_NAME_REPEATS = 3  # messages from which on 'Dr: Anna' is taken for a name
_FILE_NAME = re.compile(r"\S.{0,200}(?:\.\w{2,5}| • .{1,30})")
_DELETED = re.compile(_WORDS["deleted"], re.IGNORECASE)
_MISSED = re.compile(rf"(?:{_WORDS['missed']})(?:\. .{{1,60}}|.{{1,12}}\d.{{0,12}})?", re.IGNORECASE)
_WORDLESS = re.compile(rf"(?:{_WORDS['wordless']})(?:\. .{{1,60}})?", re.IGNORECASE)
#: Notes in angle brackets behind edited texts.
_EDITED = re.compile(_WORDS["edited"], re.IGNORECASE)

#: What is left out without a hole, as calls and notices are: no message is missing there.
_AUTOMATIC = "messages written by WhatsApp"

_EXPECTED = (
    "no line begins like '12/31/23, 9:41 PM - Name: text' or '[31.12.23, 21:41:05] Name: text':"
    " expected a chat exported from WhatsApp"
)


def read(
    source: CorpusSource,
    *,
    pause: float = PAUSE,
    dates: DateOrder = "",
    year: int = 2012,
    speakers: Speakers = None,
) -> Dialogues:
    """Read the .txt file of a chat, the .zip with it, or a folder with several, as exported since 2013.

    A chat is split into dialogues at pauses. Lines without a sender and other notices (joins, calls) are left out;
    photos, voice messages and other media, and deleted messages, are left out too, and a dialogue is split there.
    Captions are kept.

    Dates are numbers with '/', '.' or '-' between them, in any order, or have the month in words; years may be those of
    the Buddhist calendar or a Japanese era. Times have 12 or 24 hours, and may precede the date.

    Options:
        dates: 'day-first' or 'month-first'; by default a number above 12 decides. Without one, months come first if
            the dates are written with slashes and the times with capital AM and PM.
        year: the year of the first message of a file whose dates have no year.
    """
    export = _WhatsAppExport(source, speakers, pause)
    export.dates, export.year = dates, year
    return export.read()


def find_messages(lines: Sequence[str]) -> list[bool | None]:
    """Return for each line whether it has a date, a time and a sender; None if it has no date and time."""
    found = (_chat_line(0, line) for line in lines)
    return [None if line is None else _SENDER.fullmatch(line.texts[0]) is not None for line in found]


class _Date(NamedTuple):
    """The numbers of a date, in the order in which they are written or, if that is sure, month and day."""

    first: int
    second: int
    year: int | None
    is_sure: bool
    is_in_words: bool


@lru_cache(maxsize=4096)
def _parse_date(text: str) -> _Date:
    """Return what a date says; its text is one that a header has."""
    parts = re.findall(rf"(?:{'|'.join(_ERAS)})?\d+", text, re.IGNORECASE)
    if month := _month(text):
        year = next((int(part) for part in parts if len(part) == 4), None)
        return _Date(month, int(parts[0]), year, is_sure=True, is_in_words=True)
    if len(parts) == 2:
        return _Date(int(parts[0]), int(parts[1]), None, is_sure=False, is_in_words=False)
    is_year_first = not parts[0].isdecimal() or len(parts[0]) == 4
    first, second = parts[1:] if is_year_first else parts[:2]
    return _Date(int(first), int(second), _year(parts[0 if is_year_first else 2]), is_year_first, is_in_words=False)


def _month(text: str) -> int:
    """Return the number of the month that a date has in words, 0 if it has none."""
    return month_of(next(iter(re.findall(r"[^\W\d_]{3,}", re.sub(r"\bBE\b", "", text))), ""))


def _year(text: str) -> int:
    """Return the year of the Gregorian calendar, of two or four digits, or of an era."""
    for era, before in _ERAS.items():
        if text.upper().startswith(era):
            return before + int(text[len(era) :])
    year = int(text)
    if year < 100:
        year += 2000 if 2000 + year < _FIRST_YEAR + _BUDDHIST - 500 else 2500
    return year - _BUDDHIST if year >= _FIRST_YEAR + _BUDDHIST - 100 else year


class _ChatLine(NamedTuple):
    """A line with a date, and its text with the lines without a date that follow it."""

    number: int
    date: str
    clock: tuple[str, str, str, str, str]  # the word before the time, hour, minute, seconds, and the word behind it
    is_marked: bool  # iPhones begin the lines of media with a direction mark
    is_bracketed: bool  # the layout of iPhones
    texts: list[str]


class _Style:
    """How a file writes dates and names."""

    def __init__(self) -> None:
        self.lines = 0
        self.may_lack_years = False
        self.has_year = self.lacks_year = False  # whether there was one, and whether the first date has none
        self.firsts = self.seconds = 0  # dates whose first or second number is above 12
        self.layouts: Counter[bool] = Counter()  # whether a date has slashes, and a capital AM or PM
        self.senders: set[str] = set()
        self._messages: Counter[str] = Counter()  # by sender
        self._longer: dict[str, Counter[str]] = {}  # what comes before a further colon in the messages of a sender

    def accepts(self, line: _ChatLine) -> bool:
        """Count a line; return whether it begins a message: in a chat that has years, a date without one is text."""
        date = _parse_date(line.date)
        if not self.lines:
            self.may_lack_years = date.year is None or date.is_in_words
        if date.year is None and not self.may_lack_years:
            return False
        self.lines += 1
        self.has_year |= date.year is not None
        self.lacks_year |= not self.has_year
        if not date.is_sure:
            self.firsts += date.first > 12
            self.seconds += date.second > 12
            self.layouts["/" in line.date and line.clock[-1].isupper()] += 1
        match = _SENDER.fullmatch(line.texts[0])
        if match is not None and (_are_closed(match[1]) or not _are_closed(line.texts[0])):
            self.senders.add(match[1])
            self._messages[match[1]] += 1
            if longer := _SENDER.fullmatch(match[2] or ""):
                self._longer.setdefault(match[1], Counter())[longer[1]] += 1
        return True

    def split(self, text: str) -> tuple[str, str] | None:
        """Return the sender and the text of a line; None if it has no sender, as 'Anna set the topic to "Plan: B"'."""
        match = _SENDER.fullmatch(text)
        if match is None:
            name, colon, rest = text.partition(":")
            return (name, rest) if colon and name in self.senders else None
        if match[1] not in self.senders:
            return None
        if match[1] in self._beginnings and (longer := _SENDER.fullmatch(match[2] or "")):
            return f"{match[1]}: {longer[1]}", longer[2] or ""
        return match[1], match[2] or ""

    @cached_property
    def _beginnings(self) -> set[str]:
        """Senders that are the beginnings of longer names: all messages of 'Dr' begin like 'Dr: Anna: text'."""
        return {
            sender
            for sender, longer in self._longer.items()
            if longer.total() == self._messages[sender] and min(longer.values()) >= _NAME_REPEATS
        }


def _are_closed(text: str) -> bool:
    """Return whether every quotation mark has its counterpart."""
    return len(_QUOTES.findall(text)) % 2 == 0


class _WhatsAppExport(ChatExport):
    patterns = ("*.txt",)

    dates: DateOrder = ""
    year = 0

    def read_file(self, path: Path) -> None:
        rejected = self.source.counts.rejected_rows
        style = _Style()
        lines = spool(_chat_lines(self.source, path, style))
        if not style.lines:
            if self.source.counts.rejected_rows == rejected:
                self.source.reject(path, None, "file", _EXPECTED)
            return
        order = self._date_order(style)
        last: float | None = None
        year = self.year
        for line in lines:
            if line is None:
                self.add_hole(self.chat, last)
                continue
            self.at(path, line.number)
            try:
                time, year = _time(line, order, year, last)
            except ValueError as error:
                self.reject(self.chat, last, str(error), line.texts[0])
                continue
            if last is not None and 0 < last - time <= _CLOCK_CHANGE:
                time = last
            last = time
            parts = style.split(line.texts[0])
            if parts is None:
                self.source.skipped[NOTICES] += 1
                continue
            name = " ".join(_MARKS.sub("", parts[0]).split()).removeprefix("~").strip() or parts[0]
            text, what = _content("\n".join([parts[1], *line.texts[1:]]), line)
            if what in (_AUTOMATIC, CALLS):
                self.source.by_design[what] += 1
            else:
                self.add_text(self.chat, time, name, text, what)

    def _date_order(self, style: _Style) -> DateOrder:
        """Return the order of day and month, and record it as a fact, with how it was found."""
        facts = []
        order: DateOrder = "month-first"
        if style.layouts:
            if self.dates:
                order, found = self.dates, "as set"
            elif style.firsts != style.seconds:
                order, found = "day-first" if style.firsts > style.seconds else "month-first", "found in the dates"
            else:
                order = "month-first" if style.layouts.most_common(1)[0][0] else "day-first"
                other = "day-first" if order == "month-first" else "month-first"
                found = f"assumed, since the dates do not show it; if that is wrong: --set dates={other}"
            facts.append(f"{order} ({found})")
        if style.lacks_year:
            facts.append(f"without a year, the first one taken for {self.year} (--set year=…)")
        counts = self.source.facts.setdefault("dates", {}) if facts else {}
        for fact in facts:
            counts[fact] = counts.get(fact, 0) + 1
        return order


def _chat_lines(source: CorpusSource, path: Path, style: _Style) -> Iterator[_ChatLine | None]:
    """Yield the lines with a date, each with those that continue it; None where a line was rejected."""
    last: _ChatLine | None = None
    orphans: list[tuple[int, str]] = []  # lines that continue a message whose beginning is not there
    rejected = source.counts.rejected_rows
    for number, text in source.lines(path):
        if source.sample is not None and style.lines > source.sample:
            break
        if source.counts.rejected_rows > rejected:
            yield from (last, None) if last else (None,)
            last = None
            rejected = source.counts.rejected_rows
        # where a file was appended to another, its byte order mark may stand within a line
        for index, part in enumerate(_INNER_BOM.split(text) if "\ufeff" in text else (text,)):
            line = _chat_line(number, part)
            if line is not None and style.accepts(line):
                if last is not None:
                    yield last
                last = line
            elif last is not None and index:
                last.texts[-1] += part
            elif last is not None:
                last.texts.append(part)
            elif _MARKS.sub("", part).strip():
                orphans.append((number, part))
    if last is not None:
        yield last
    if source.counts.rejected_rows > rejected:
        yield None
    for number, text in orphans if style.lines else ():
        source.reject(path, number, "turn", "no date and sender before this text", text=text)


def _chat_line(number: int, text: str) -> _ChatLine | None:
    """Return a line that begins with a date and a time."""
    match = next((match for header in _HEADERS if (match := header.match(text)) is not None), None)
    if match is None:
        return None
    before, hour, minute, seconds, after = match.group("before", "hour", "minute", "seconds", "after")
    clock = (before or "", hour, minute, seconds or "0", after or "")
    date = match["date"] if match["date"].isascii() else re.sub(f"[{_MARK_SET}]", "", match["date"])
    return _ChatLine(
        number, date, clock, any(mark in match["mark"] for mark in _MARK), match["open"] is not None, [match["text"]]
    )


def _time(line: _ChatLine, order: DateOrder, year: int, last: float | None) -> tuple[float, int]:
    """Return the time of a line in seconds since 1970, as if it were UTC, and its year.

    Args:
        line: the line; a ValueError is raised if its date or its time does not exist.
        order: the order of day and month where a date does not show it.
        year: the year of the line before it, for dates without one.
        last: the time of the line before it.
    """
    date = _parse_date(line.date)
    month, day = (date.second, date.first) if order == "day-first" and not date.is_sure else (date.first, date.second)
    before, hour, minute, seconds, after = line.clock
    clock = hour_of(int(hour), before, after), int(minute), int(seconds)
    year = date.year or year
    try:
        moment = datetime(year, month, day, *clock, tzinfo=UTC)
        if date.year is None and last is not None and moment.timestamp() < last - _NEW_YEAR:
            year += 1
            moment = moment.replace(year=year)
        if moment.year < 1970:
            raise ValueError("before 1970")
    except ValueError:
        raise ValueError(f"the date {line.date} is not {order} (--set dates=…)") from None
    return moment.timestamp(), year


def _content(text: str, line: _ChatLine) -> tuple[str, str]:
    """Return the words of a message, and what it is if it has none."""
    text = _without_note(text)
    # a person's own text may begin with a mark too, but nothing that WhatsApp writes asks or exclaims
    is_automatic = line.is_bracketed and text.startswith(_MARK) and "\n" not in text and not text.endswith(("?", "!"))
    if (
        line.is_marked
        and line.is_bracketed
        and (place := max(map(text.rfind, _MARK))) >= 0
        and "\n" not in text[place:]
    ):
        caption = _MARKS.sub("", text[:place]).strip(" \n\u200f")
        return ("", MEDIA) if not caption or _FILE_NAME.fullmatch(caption) else (caption, "")
    text = _MARKS.sub("", text).strip()
    if _DELETED.fullmatch(text.strip(" .\u200f")):
        return "", DELETED
    if _MISSED.fullmatch(text):
        return "", CALLS
    if _WORDLESS.fullmatch(text):
        return "", NO_TEXT
    first, _, caption = text.partition("\n")
    if _MEDIA.fullmatch(first.strip()):
        caption = caption.strip()
        return ("", MEDIA) if not caption or _FILE_NAME.fullmatch(caption) else (caption, "")
    if is_automatic:
        return "", _AUTOMATIC
    return (text, "") if text else ("", NO_TEXT)


def _without_note(text: str) -> str:
    """Return the text without the note that it was edited, or which file is attached to it."""
    text = text.rstrip()
    before, bracket, note = text.rpartition("<")
    if not bracket or not note.endswith(">") or not before.strip("\u200e\u200f \n"):
        return text
    return before if before.endswith(_MARK) or _EDITED.fullmatch(note.rstrip(".>")) else text
