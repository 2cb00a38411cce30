"""E-mail: mbox files and .eml files, with the messages of a thread as a dialogue."""

import codecs
import email
import email.errors
import email.header
import email.utils
import gzip
import re
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from email.message import Message
from email.parser import BytesHeaderParser
from itertools import chain
from pathlib import Path

from turnwise.core.files import sha256
from turnwise.corpus.readers.shared.fields import parse_time
from turnwise.corpus.readers.shared.html_text import html_to_text
from turnwise.corpus.readers.shared.message_logs import MessageLog
from turnwise.corpus.readers.shared.speakers import Speakers
from turnwise.corpus.source.corpus_source import CorpusSource, Dialogues
from turnwise.corpus.source.encodings import DETECT

_FROM_LINE = re.compile(rb"From \S+ .*\d\d:\d\d")  # the line before each message of an mbox file: a sender and a date
_ESCAPED_FROM_LINE = re.compile(rb"^>(>*From )", re.MULTILINE)  # such a line inside a message, which mbox files mark
_MESSAGE_ID = re.compile(r"<([^<>\s]+)>")
#: A header with parameters of implausible length, which the standard library reads in quadratic time.
_LONG_PARAMETERS = re.compile(rb"^content-(?:type|disposition):(?:.|\n[ \t]){2000}", re.IGNORECASE | re.MULTILINE)
#: The keyword of a program's message (RFC 3834).
_AUTOMATIC = re.compile(r"(?!\s*no\s*(?:[;(]|$))\s*[^\s;(]", re.IGNORECASE)
#: What mail programs in several languages put before the subject of an answer or a forwarded message.
_SUBJECT_PREFIX = re.compile(
    r"\s*(?:re|aw|antw|sv|vs|vb|fwd?|wg|tr|rv|rif|odp|ynt|回复|答复|转发)\s*(?:\[\d+\]|\(\d+\))?\s*[:：]", re.IGNORECASE
)

_FILE_ERRORS = (OSError, EOFError, zlib.error)

#: What the standard library raises for malformed messages.
_MAIL_ERRORS = (ValueError, LookupError, TypeError, AttributeError, RecursionError, email.errors.MessageError)

#: Names of encodings that mail programs use for larger ones; '' is the encoding of the import.
_CHARSETS = {"us-ascii": "", "ascii": "", "iso-8859-1": "cp1252", "gb2312": "gb18030"}


def read(source: CorpusSource, *, speakers: Speakers = None, automatic: bool = False) -> Dialogues:
    """Read the messages of all files; threads may be spread over them.

    Messages belong to a thread if they name each other, or the same message, in References or In-Reply-To. A reply
    without these headers joins the last message between the same two addresses whose subject is the same apart from
    'Re:', 'AW:', 'Fwd:' and the like. A thread's id is the Message-ID of its first message in the files. The text is
    the first text/plain part, otherwise the first text/html part.

    Options:
        speakers: addresses or domains and their roles: 'help@example.com=system,@example.org=system,*=user'; senders
            that are not listed are numbered.
        automatic: true: keep automatic messages.
    """
    roles = {name.casefold(): speaker for name, speaker in (speakers or {}).items()}
    paths = source.files("*.mbox", "mbox", "*.mbox.gz", "*.eml")
    threads = _Threads()
    for path in paths:
        with suppress(*_FILE_ERRORS):  # reported below
            for line, content in _read_messages(path):
                threads.add(f"{source.relative_name(path)}/{line}", BytesHeaderParser().parsebytes(content))
    names = threads.names()
    log = MessageLog(source, speakers)
    seen: set[str] = set()
    for path in paths:
        source.record_input(path, path.stat().st_size, sha256(path))
        try:
            for line, content in _read_messages(path):
                headers = BytesHeaderParser().parsebytes(content)
                message_id = _get_id(headers)
                if message_id in seen:
                    source.by_design["copies of a message (same Message-ID)"] += 1
                    continue
                if message_id:
                    seen.add(message_id)
                thread = names[message_id or f"{source.relative_name(path)}/{line}"]
                if not automatic and _AUTOMATIC.match(_get_header(headers, "Auto-Submitted")):
                    source.by_design["automatic messages"] += 1
                else:
                    _add_message(log.at(path, line), thread, content, roles)
        except _FILE_ERRORS as error:
            source.reject(path, None, "file", f"cannot be read to its end: {error}")
    yield from log.dialogues()


def _add_message(log: MessageLog, thread: str, content: bytes, roles: Mapping[str, str]) -> None:
    source, time = log.source, None
    try:
        if _LONG_PARAMETERS.search(content):
            raise ValueError("a header 'Content-Type' or 'Content-Disposition' has 2,000 or more characters")
        message = email.message_from_bytes(content)
        time = _get_time(message)
        if time is None:
            source.count_fact("messages without a valid date (they follow the one before them in the file)")
        senders = _get_addresses(message, "From")
        if not senders:
            raise ValueError("the header 'From' with an address is missing")
        text = _get_text(message, "utf-8" if source.encoding == DETECT else source.encoding)
    except _MAIL_ERRORS as error:
        log.reject(thread, time, f"the message cannot be read: {error}")
        return
    domain = senders[0][senders[0].rfind("@") :]
    speaker = domain if senders[0] not in roles and domain in roles else senders[0]
    log.add_text(thread, time, speaker, text, "messages without text (attachments)")


# ---- files


def _read_messages(path: Path) -> Iterator[tuple[int, bytes]]:
    """Yield the messages of a file with the numbers of their first lines."""
    with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
        if file.read(3) != codecs.BOM_UTF8:
            file.seek(0)
        if path.suffix.lower() == ".eml":
            yield 1, file.read()
        else:
            yield from _split_mbox(file)


def _split_mbox(lines: Iterable[bytes]) -> Iterator[tuple[int, bytes]]:
    start, message, after_blank = 0, [b""], True
    for number, content in enumerate(lines, 1):
        if after_blank and _FROM_LINE.match(content):
            if start:
                yield start, _ESCAPED_FROM_LINE.sub(rb"\1", b"".join(message))
            start, message = number, []
        elif start:
            message.append(content)
        elif content.strip():
            raise OSError("not an mbox file, which starts with a line 'From ADDRESS DATE'")
        after_blank = not content.strip()
    if start:
        yield start, _ESCAPED_FROM_LINE.sub(rb"\1", b"".join(message))


# ---- headers


def _get_header(message: Message, name: str) -> str:
    """Return a header with its encoded words decoded; '' if it is missing."""
    value = message.get(name)
    if value is None:
        return ""
    try:
        text = str(email.header.make_header(email.header.decode_header(value)))
    except _MAIL_ERRORS:  # an encoded word that cannot be decoded stays as it is
        text = str(value)
    return text.encode("utf-8", "replace").decode()  # some encodings allow half characters


def _get_id(message: Message) -> str:
    value = _get_header(message, "Message-ID")
    match = _MESSAGE_ID.search(value)
    return match[1] if match else value.strip()


def _get_addresses(message: Message, *names: str) -> list[str]:
    # not decoded: an encoded name may contain commas
    headers = [str(value) for name in names for value in message.get_all(name, ())]
    return [address.strip().casefold() for _, address in email.utils.getaddresses(headers) if address.strip()]


def _get_time(message: Message) -> float | None:
    try:
        return parse_time(email.utils.parsedate_to_datetime(_get_header(message, "Date")))
    except (*_MAIL_ERRORS, OverflowError):
        return None


def _split_subject(subject: str) -> tuple[str, bool]:
    """Return a subject without prefixes such as 'Re:', and whether it had one."""
    start = 0
    while match := _SUBJECT_PREFIX.match(subject, start):
        start = match.end()
    return " ".join(subject[start:].casefold().split()), start > 0


# ---- threads


class _Threads:
    """Groups messages by what their headers refer to."""

    def __init__(self) -> None:
        from scipy.cluster.hierarchy import DisjointSet

        self._threads = DisjointSet()
        self._keys: list[str] = []
        # the last message with a subject between two addresses
        self._last: dict[tuple[str, frozenset[str]], str] = {}
        self._replies: list[tuple[str, list[tuple[str, frozenset[str]]]]] = []

    def add(self, place: str, headers: Message) -> None:
        """Add a message; `place` identifies it if it has no Message-ID."""
        key = _get_id(headers) or place
        self._keys.append(key)
        self._threads.add(key)
        names = ("References", "In-Reply-To")
        links = [link for name in names for link in _MESSAGE_ID.findall(_get_header(headers, name))]
        for link in links:
            self._threads.add(link)
            self._threads.merge(key, link)
        subject, is_reply = _split_subject(_get_header(headers, "Subject"))
        if not subject:
            return
        senders, others = _get_addresses(headers, "From"), _get_addresses(headers, "To", "Cc")
        pairs = [(subject, frozenset((senders[0], other))) for other in others] if senders else []
        if is_reply and not links:
            earlier = next((self._last[pair] for pair in pairs if pair in self._last), None)
            if earlier is None:
                self._replies.append((key, pairs))
            else:
                self._threads.merge(key, earlier)
        for pair in pairs:
            self._last[pair] = key

    def names(self) -> dict[str, str]:
        """Return the name of the thread of each message: the key of its first message."""
        for key, pairs in self._replies:  # the message that they answer comes after them
            for pair in pairs:
                self._threads.merge(key, self._last[pair])
        names: dict[str, str] = {}
        return {key: names.setdefault(self._threads[key], key) for key in self._keys}


# ---- texts


def _get_text(message: Message, encoding: str) -> str:
    """Return the text of a message, '' if it has none; raise one of `_MAIL_ERRORS` if it cannot be decoded."""
    parts = [(part.get_content_type(), part) for part in _find_text_parts(message)]
    plain = (_decode(part, encoding) for kind, part in parts if kind == "text/plain")
    html = (html_to_text(_decode(part, encoding)) for kind, part in parts if kind == "text/html")
    return next((text for text in chain(plain, html) if text.strip()), "")


def _find_text_parts(message: Message) -> Iterator[Message]:
    """Yield the parts in order, without attachments and attached messages."""
    pending = [message]
    while pending:
        part = pending.pop()
        payload = part.get_payload()
        if part.get_content_maintype() == "multipart" and isinstance(payload, list):
            pending += reversed([child for child in payload if isinstance(child, Message)])
        elif part.get_content_disposition() != "attachment" and not part.get_filename():
            yield part


def _decode(part: Message, encoding: str) -> str:
    content = part.get_payload(decode=True)
    if not isinstance(content, bytes):
        return ""
    stated = (part.get_content_charset() or "us-ascii").lower()
    charset = _CHARSETS.get(stated, stated) or encoding
    try:
        return content.decode(charset).replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        advice = "name the encoding of the import (--encoding latin-1)" if stated == "us-ascii" else "it is damaged"
        raise ValueError(f"byte 0x{content[error.start]:02x} of the text is not {charset}: {advice}") from None
