"""WhatsApp's text export of a chat, from Android or an iPhone: `[31.12.23, 21:41:05] Name: text`."""

import re
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal, NamedTuple

from turnwise.corpus.readers.shared.chat_exports import NO_TEXT, PAUSE, ChatExport
from turnwise.corpus.readers.shared.speakers import WORDS, Speakers
from turnwise.corpus.source.corpus_source import CorpusSource, Dialogues

DateOrder = Literal["", "day-first", "month-first"]

#: The date, the time, and what separates them from the message: '12/31/23, 9:41 PM - ' or '[31.12.23, 21:41:05] '.
_HEADER = re.compile(
    r"(\[)?(?P<first>\d{4}|\d{1,2})(?P<separator>[./-])\s?(?P<second>\d{1,2})(?P=separator)\s?"
    r"(?P<third>\d{4}|\d{1,2})\.?,?\s"
    r"(?:[^\W\d_]{1,5}\.?\s)?"  # a word such as 'klo' or 'kl.'
    r"(?P<hour>\d{1,2})[:.](?P<minute>\d{2})(?:[:.](?P<seconds>\d{2}))?(?:\s?(?P<half>[AaPp])\.?\s?[Mm]\.?)?"
    r"(?(1)\]|\s[-–])\s(?P<text>.*)"
)

#: A name and a text; lines such as 'Anna changed the subject to "Plan: B"' have no sender.
_SENDER = re.compile(r'([^:"“”„«]{1,80}):(?:\s(.*))?')

_MARK = "\u200e"  # WhatsApp begins texts that it writes itself, whatever the language, with a left-to-right mark
_LEADING_MARKS = "\u200e\u200f"
_MARKS = re.compile("[\u200e\u202a-\u202e\u2066-\u2069\ufeff]")  # direction marks around names, dates and mentions
_CLOCK_CHANGE = 2 * 3600  # clocks that are set back by up to this many seconds do not change the order of messages
_WORDS = {name: "|".join(words) for name, words in WORDS["whatsapp"].items()}
_MEDIA = re.compile(
    rf"<[^<>]{{1,100}}>|.{{1,200}}\((?:{_WORDS['attached']})\)"
    r"|(?:IMG|VID|AUD|PTT|STK|DOC)-\d{8}-WA\d+\.\w+.{0,40}"
    rf"|(?:{_WORDS['kinds']}) (?:{_WORDS['omitted']})",
    re.IGNORECASE,
)
_FILE_NAME = re.compile(r"\S.{0,200}\.\w{2,5}")
_DELETED = re.compile(_WORDS["deleted"], re.IGNORECASE)
#: Notes in angle brackets behind edited texts.
_EDITED = re.compile(_WORDS["edited"], re.IGNORECASE)

_EXPECTED = (
    "no line begins like '12/31/23, 9:41 PM - Name: text' or '[31.12.23, 21:41:05] Name: text':"
    " expected a chat exported from WhatsApp"
)


def read(source: CorpusSource, *, pause: float = PAUSE, dates: DateOrder = "", speakers: Speakers = None) -> Dialogues:
    """Read the .txt file of a chat, the .zip with it, or a folder with several, as exported by current versions.

    A chat is split into dialogues at pauses. Lines without a sender (joins, calls, notices) are left out; photos, voice
    messages and other media, and deleted messages, are left out too, and a dialogue is split there. Captions are kept.

    Dates are numbers with '/', '.' or '-' between them, in any order; times have 12 or 24 hours.

    Options:
        dates: 'day-first' or 'month-first'; by default a number above 12 decides. Without one, months come first if
            the dates are written with slashes and the times with capital AM and PM.
    """
    export = _WhatsAppExport(source, speakers, pause)
    export.dates = dates
    return export.read()


class _ChatLine(NamedTuple):
    """A line with a date, and its text with the lines without a date that follow it."""

    number: int
    header: re.Match[str]
    texts: list[str]

    @property
    def date(self) -> tuple[str, str, str]:
        """The three numbers of the date, as they are written."""
        return self.header["first"], self.header["second"], self.header["third"]


class _WhatsAppExport(ChatExport):
    patterns = ("*.txt",)

    dates: DateOrder = ""

    def read_file(self, path: Path) -> None:
        rejected = self.source.counts.rejected_rows
        lines = _chat_lines(self.source, path)
        if not any(lines):
            if self.source.counts.rejected_rows == rejected:
                self.source.reject(path, None, "file", _EXPECTED)
            return
        order = _date_order(self.source, [line for line in lines if line is not None], self.dates)
        last: float | None = None
        for line in lines:
            if line is None:
                self.add_hole(self.chat, last)
                continue
            self.at(path, line.number)
            try:
                time = _seconds(line, order)
            except ValueError:
                date = line.header["separator"].join(line.date)
                self.reject(self.chat, last, f"the date {date} is not {order} (--set dates=…)", line.texts[0])
                continue
            if last is not None and 0 < last - time <= _CLOCK_CHANGE:
                time = last
            last = time
            match = _SENDER.fullmatch(line.texts[0])
            if match is None:
                self.source.skipped["lines without a sender (joins, calls, notices)"] += 1
                continue
            name = " ".join(_MARKS.sub("", match[1]).split()).removeprefix("~").strip()
            text, what = _content("\n".join([match[2] or "", *line.texts[1:]]))
            self.add_text(self.chat, time, name, text, what)


def _chat_lines(source: CorpusSource, path: Path) -> list[_ChatLine | None]:
    """Return the lines with a date, each with those that continue it; None where a line was rejected."""
    lines: list[_ChatLine | None] = []
    orphans: list[tuple[int, str]] = []  # lines that continue a message whose beginning is not there
    rejected = source.counts.rejected_rows
    for number, text in source.lines(path):
        if source.counts.rejected_rows > rejected:
            lines.append(None)
            rejected = source.counts.rejected_rows
        match = _HEADER.match(text.lstrip(_LEADING_MARKS))
        if match is not None:
            lines.append(_ChatLine(number, match, [match["text"]]))
        elif lines and (last := lines[-1]) is not None:
            last.texts.append(text)
        elif text.strip():
            orphans.append((number, text))
    if source.counts.rejected_rows > rejected:
        lines.append(None)
    for number, text in orphans if any(lines) else ():
        source.reject(path, number, "turn", "no date and sender before this text", text=text)
    return lines


def _date_order(source: CorpusSource, lines: list[_ChatLine], dates: DateOrder) -> DateOrder:
    """Return the order of day and month, and record it as a fact, with how it was found."""
    ambiguous = [line for line in lines if len(line.date[0]) < 4]
    if not ambiguous:
        return "month-first"
    firsts = sum(int(line.date[0]) > 12 for line in ambiguous)
    seconds = sum(int(line.date[1]) > 12 for line in ambiguous)
    order: DateOrder
    if dates:
        order, found = dates, "as set"
    elif firsts != seconds:
        order, found = "day-first" if firsts > seconds else "month-first", "found in the dates"
    else:
        styles = Counter((line.header["separator"], (line.header["half"] or "").isupper()) for line in ambiguous)
        order = "month-first" if styles.most_common(1)[0][0] == ("/", True) else "day-first"
        other = "day-first" if order == "month-first" else "month-first"
        found = f"assumed, since the dates do not show it; if that is wrong: --set dates={other}"
    orders = source.facts.setdefault("dates", {})
    orders[f"{order} ({found})"] = orders.get(f"{order} ({found})", 0) + 1
    return order


def _seconds(line: _ChatLine, order: DateOrder) -> float:
    """Return the time of a line in seconds since 1970, as if it were UTC; raise a ValueError if it is not a time."""
    first, second, third = map(int, line.date)
    if len(line.date[0]) == 4:
        year, month, day = first, second, third
    else:
        month, day = (first, second) if order == "month-first" else (second, first)
        year = third if len(line.date[2]) == 4 else 2000 + third
    hour, minute, seconds = (int(line.header[part] or 0) for part in ("hour", "minute", "seconds"))
    if half := line.header["half"]:
        if hour > 12:
            raise ValueError(f"{hour} is not an hour of twelve")
        hour = hour % 12 + (12 if half in "Pp" else 0)
    moment = datetime(year, month, day, hour, minute, seconds, tzinfo=UTC)
    if moment.year < 1970:
        raise ValueError("before 1970")
    return moment.timestamp()


def _content(text: str) -> tuple[str, str]:
    """Return the words of a message, and what it is if it has none."""
    is_automatic = text.startswith(_MARK)
    text = _MARKS.sub("", _without_note(text)).strip()
    if _DELETED.fullmatch(text.rstrip(" .")):
        return "", "deleted messages"
    first, _, caption = text.partition("\n")
    if _MEDIA.fullmatch(first.strip()):
        caption = caption.strip()
        return ("", "media without text") if not caption or _FILE_NAME.fullmatch(caption) else (caption, "")
    if is_automatic:
        return "", "messages written by WhatsApp"
    return (text, "") if text else ("", NO_TEXT)


def _without_note(text: str) -> str:
    """Return the text without the note that it was edited, or which file is attached to it."""
    text = text.rstrip()
    before, bracket, note = text.rpartition("<")
    if not bracket or not note.endswith(">") or not before.strip(f"{_MARK} \n"):
        return text
    return before if before.endswith(_MARK) or _EDITED.fullmatch(note.rstrip(".>")) else text
