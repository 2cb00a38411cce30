"""WhatsApp's text export of a chat, from Android or an iPhone: `[31.12.23, 21:41:05] Name: text`."""

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

from turnwise.core.dialogue import Dialogue
from turnwise.corpus.readers.shared.chat_exports import NO_TEXT, PAUSE, ChatExport
from turnwise.corpus.source.corpus_source import CorpusSource

DateOrder = Literal["", "day-first", "month-first"]

#: The date, the time, and what separates them from the message: '12/31/23, 9:41 PM - ' or '[31.12.23, 21:41:05] '.
_HEADER = re.compile(
    r"(\[)?(\d{4}|\d{1,2})([./-])\s?(\d{1,2})\3\s?(\d{4}|\d{1,2})\.?,?\s"
    r"(?:[^\W\d_]{1,5}\.?\s)?"  # a word such as 'klo' or 'kl.'
    r"(\d{1,2})[:.](\d{2})(?:[:.](\d{2}))?(?:\s?([AaPp])\.?\s?([Mm])\.?)?"
    r"(?(1)\]|\s[-–])\s(.*)"
)

#: A name and a text; lines such as 'Anna changed the subject to "Plan: B"' have no sender.
_SENDER = re.compile(r'([^:"“”„«]{1,80}):(?:\s(.*))?')

#: WhatsApp begins texts that it writes itself, whatever the language, with a left-to-right mark.
_MARK = "\u200e"
_LEADING_MARKS = "\u200e\u200f"
#: Direction marks around names, dates and mentions.
_MARKS = re.compile("[\u200e\u202a-\u202e\u2066-\u2069\ufeff]")

_ATTACHED = (
    "file attached|Datei angehängt|archivo adjunto|fichier joint|file allegato|arquivo anexado|ficheiro anexado|"
    "bestand bijgevoegd"
)
_KINDS = (
    "image|photo|video|video note|audio|sticker|GIF|document|contact card|Bild|Foto|Videonachricht|Dokument|"
    "Kontaktkarte|imagen|documento|tarjeta de contacto|vidéo|immagine|imagem|vídeo|figurinha|áudio|afbeelding|"
    "contact|autocollant"
)
_OMITTED = "omitted|weggelassen|omitida|omitido|absente|absent|omis|omise|omesso|omessa|ocultado|ocultada|weggelaten"
_MEDIA = re.compile(
    rf"<[^<>]{{1,100}}>|.{{1,200}}\((?:{_ATTACHED})\)|(?:IMG|VID|AUD|PTT|STK|DOC)-\d{{8}}-WA\d+\.\w+.{{0,40}}"
    rf"|(?:{_KINDS}) (?:{_OMITTED})",
    re.IGNORECASE,
)
_FILE_NAME = re.compile(r"\S.{0,200}\.\w{2,5}")
_DELETED = re.compile(
    "this message was deleted|you deleted this message|diese nachricht wurde gelöscht|"
    "du hast diese nachricht gelöscht|se eliminó este mensaje|eliminaste este mensaje|ce message a été supprimé|"
    "vous avez supprimé ce message|questo messaggio è stato eliminato|hai eliminato questo messaggio|"
    "mensagem apagada|essa mensagem foi apagada|esta mensagem foi apagada|esta mensagem foi eliminada|"
    "você apagou esta mensagem|dit bericht is verwijderd|je hebt dit bericht verwijderd|"
    "u hebt dit bericht verwijderd|bu mesaj silindi|ta wiadomość została usunięta|данное сообщение удалено",
    re.IGNORECASE,
)
#: Notes in angle brackets behind edited texts.
_EDITED = re.compile(
    "This message was edited|Diese Nachricht wurde bearbeitet|Se editó este mensaje|Ce message a été modifié|"
    "Questo messaggio è stato modificato|Mensagem editada|Dit bericht is bewerkt",
    re.IGNORECASE,
)

#: Clocks that are set back, by up to this many seconds, do not change the order of messages.
_CLOCK_CHANGE = 2 * 3600

_EXPECTED = (
    "no line begins like '12/31/23, 9:41 PM - Name: text' or '[31.12.23, 21:41:05] Name: text':"
    " expected a chat exported from WhatsApp"
)


def read(
    source: CorpusSource,
    *,
    pause: float = PAUSE,
    dates: DateOrder = "",
    speakers: Mapping[str, str] | None = None,
) -> Iterator[Dialogue]:
    """Read the .txt file of a chat, the .zip with it, or a folder with several, as exported by current versions.

    A chat is split into dialogues at pauses. Lines without a sender (joins, calls, notices) are left out; photos, voice
    messages and other media, and deleted messages, are left out too, and a dialogue is split there. Captions are kept.

    Dates are numbers with '/', '.' or '-' between them, in any order; times have 12 or 24 hours.

    Args:
        source: the files to read.
        pause: hours without a message that end a dialogue; 0: never.
        dates: 'day-first' or 'month-first'; by default a number above 12 decides. Without one, months come first if
            the dates are written with slashes and the times with capital AM and PM.
        speakers: names and their roles: 'Anna=system,*=user'; others are numbered.
    """
    return _WhatsAppExport(source, speakers, pause, dates).read()


@dataclass(slots=True)
class _ChatLine:
    """A line with a date, and the lines without one that follow it."""

    number: int
    date: tuple[str, str, str]
    separator: str
    clock: tuple[str, str, str]
    #: 'AM', 'pm', or '' for 24 hours.
    half: str
    texts: list[str]

    @classmethod
    def from_match(cls, number: int, match: re.Match[str]) -> "_ChatLine":
        """Return the line that a header begins."""
        _, first, separator, second, third, hour, minute, seconds, half, meridiem, text = match.groups("")
        return cls(number, (first, second, third), separator, (hour, minute, seconds), half + meridiem, [text])


class _WhatsAppExport(ChatExport):
    patterns = ("*.txt",)

    def __init__(
        self, source: CorpusSource, speakers: Mapping[str, str] | None, pause: float, dates: DateOrder
    ) -> None:
        super().__init__(source, speakers, pause)
        self._dates = dates

    def read_file(self, path: Path) -> None:
        chat = self.source.relative_name(path).removesuffix(".txt")
        rejected = self.source.rejected_rows
        lines = list(_chat_lines(self.source, path))
        if not any(lines):
            if self.source.rejected_rows == rejected:
                self.source.reject(path, None, "file", _EXPECTED)
            return
        order = _date_order(self.source, [line for line in lines if line is not None], self._dates)
        last: float | None = None
        for line in lines:
            if line is None:
                self.add_hole(chat, last)
                continue
            self.at(path, line.number)
            try:
                time = _seconds(line, order)
            except ValueError:
                moment = f"{line.separator.join(line.date)} {':'.join(filter(None, line.clock))}"
                self.reject(chat, last, f"the date {moment} is not {order} (--set dates=…)", line.texts[0])
                continue
            if last is not None and 0 < last - time <= _CLOCK_CHANGE:
                time = last
            last = time
            self._add_line(chat, time, line)

    def _add_line(self, chat: str, time: float, line: _ChatLine) -> None:
        match = _SENDER.fullmatch(line.texts[0])
        if match is None:
            self.source.skipped["lines without a sender (joins, calls, notices)"] += 1
            return
        name = _MARKS.sub("", match[1]).replace("\u202f", " ").replace("\xa0", " ").strip().removeprefix("~").strip()
        text, what = _content("\n".join([match[2] or "", *line.texts[1:]]))
        if what:
            self.leave_out(chat, time, what)
        else:
            self.add(chat, time, name, text)


def _chat_lines(source: CorpusSource, path: Path) -> Iterator[_ChatLine | None]:
    """Yield the lines with a date, each with those that continue it; None where a line was rejected."""
    current: _ChatLine | None = None
    is_chat = False
    orphans: list[tuple[int, str]] = []  # lines that continue a message whose beginning is not there
    rejected = source.rejected_rows
    for number, text in source.lines(path):
        if source.rejected_rows > rejected:
            yield from _finished(current)
            yield None
            current, rejected = None, source.rejected_rows
        match = _HEADER.match(text.lstrip(_LEADING_MARKS))
        if match is not None:
            yield from _finished(current)
            current, is_chat = _ChatLine.from_match(number, match), True
        elif current is not None:
            current.texts.append(text)
        elif text.strip():
            orphans.append((number, text))
    yield from _finished(current)
    if source.rejected_rows > rejected:
        yield None
    for number, text in orphans if is_chat else ():
        source.counts.utterances += 1
        source.reject(path, number, "turn", "no date and sender before this text", text=text)


def _finished(line: _ChatLine | None) -> Iterator[_ChatLine]:
    if line is not None:
        yield line


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
        styles = Counter((line.separator, line.half.isupper()) for line in ambiguous)
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
    hour, minute, seconds = (int(part or 0) for part in line.clock)
    if line.half:
        if hour > 12:
            raise ValueError(f"{hour} is not an hour of twelve")
        hour = hour % 12 + (12 if line.half[0] in "Pp" else 0)
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
