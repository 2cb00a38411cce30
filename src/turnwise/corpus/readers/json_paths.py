"""Your own log as JSON of any layout: paths say where conversations, messages, speakers, texts and times are."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from turnwise.core.errors import CorpusError
from turnwise.corpus.readers.shared.fields import parse_time
from turnwise.corpus.readers.shared.files import JSON_FILES, is_json_array, json_records
from turnwise.corpus.readers.shared.message_logs import MessageLog
from turnwise.corpus.readers.shared.speakers import Speakers
from turnwise.corpus.source.corpus_source import CorpusSource, Dialogues


def read(
    source: CorpusSource,
    *,
    conversations: str = "",
    id: str = "id",
    messages: str = "messages[]",
    speaker: str = "speaker",
    text: str = "text",
    time: str = "",
    time_format: str | Sequence[str] = (),
    where: str | Sequence[str] = (),
    intent: str = "",
    split: str = "",
    speakers: Speakers = None,
) -> Dialogues:
    """Read JSON or JSON Lines. A path names keys from the outside in; `[]` stands for every element of a list.

    The key `*` stands for every value of an object, as in `tickets.*.comments[]` where the keys are ids.

    Example: `{"ticket": {"no": 7, "comments": [{"author": {"role": "agent"}, "body": "Hello"}]}}` is read with
    `id=ticket.no messages=ticket.comments[] speaker=author.role text=body`.

    Options:
        conversations: the path of the conversations in a file, such as 'data.tickets[]'; empty: each element of the
            file's list, each line of JSON Lines, or the whole file is a conversation.
        id: the path of the conversation's id; empty: its file and number, or its file alone if messages is empty.
        messages: the path of the messages in a conversation; empty: what would be a conversation is a single message,
            and messages with the same id form a conversation.
        speaker: the path of the speaker in a message.
        text: the path of the text in a message.
        time: the path of the time in a message (ISO 8601, or since 1970); empty: the order in the file.
        time_format: the format of the time if it is another one, as for Python's strptime; may be given more than once.
        where: a path and the value that a message must have there, such as 'type=message'; may be given more than once.
        intent: the path of the intent in a message, if there is one.
        split: the path of the split in a conversation, if there is one.
    """
    log = MessageLog(source, speakers)
    if not time:
        source.facts["order"] = "that of the files: no times are read (option time)"
    formats = (time_format,) if isinstance(time_format, str) else tuple(time_format)
    conditions = [each.partition("=") for each in ((where,) if isinstance(where, str) and where else where)]
    if wrong := ["".join(each) for each in conditions if not each[0] or not each[1]]:
        raise CorpusError(f"where={wrong[0]}: expected a path and a value, as in --set where=type=message")
    names: set[str] = set()
    matched, first_keys = False, ""

    for number, (path, line, record) in enumerate(_conversations(source, conversations), 1):
        found = select(record, messages)
        first_keys = first_keys or _keys(record)
        matched = matched or bool(found)
        own_id = _label(record, id)
        file = source.relative_name(path)
        name = own_id or (file if not (messages or id) else f"{file}/{number}")
        problem = "" if found else f"nothing is at {messages!r}"
        if messages and name in names:
            problem = f"the id {name!r} was there before"
        if problem:
            source.reject(path, line, "dialogue", problem, dialogue=name)
            continue
        names.add(name)
        dialogue_split = _label(record, split)
        with source.guard(path, line):  # its id may be invalid
            log.at(path, line)
            for message in found:
                if any((_label(message, key) or "") != value for key, _, value in conditions):
                    source.by_design["messages that `where` excludes"] += 1
                    continue
                seconds = None
                try:
                    seconds = parse_time(first(message, time), formats) if time else None
                    if (content := first(message, text)) is None:
                        raise ValueError(f"a message has no {text!r}; it has {_keys(message)}")
                except ValueError as error:
                    log.reject(name, seconds, str(error), first(message, text))
                    continue
                role = _label(message, speaker) or ""
                log.add(name, seconds, role, content, intent=_label(message, intent), split=dialogue_split)
    if not matched:
        raise CorpusError(
            f"nothing is at {messages or conversations!r}; the first record has {first_keys or 'no keys'}."
            f" Name the path of the messages, as in --set messages=ticket.comments[]"
        )
    return log.dialogues()


def _conversations(source: CorpusSource, conversations: str) -> Iterator[tuple[Path, int, Any]]:
    """Yield the conversations of the files, or what holds them, with their lines."""
    for path in source.files(*JSON_FILES):
        inner = conversations.removeprefix("[]").removeprefix(".") if is_json_array(source, path) else conversations
        for line, record in json_records(source, path):
            yield from ((path, line, found) for found in select(record, inner))


def select(value: Any, path: str) -> list[Any]:
    """Return what is at a path, such as 'ticket.comments[]'; nothing where a key is missing."""
    values = [value]
    for part in path.split(".") if path else ():
        key = part.removesuffix("[]")
        if key == "*":
            values = [inner for item in values if isinstance(item, dict) for inner in item.values()]
        elif key:
            values = [item[key] for item in values if isinstance(item, dict) and key in item]
        if part.endswith("[]"):
            values = [element for item in values if isinstance(item, list) for element in item]
    return values


def first(value: Any, path: str) -> Any:
    """Return the first value at a path; None if there is none."""
    return next((item for item in select(value, path) if item is not None), None)


def _label(value: Any, path: str) -> str | None:
    found = first(value, path) if path else None
    return None if found is None else str(found)


def _keys(value: Any) -> str:
    """Return the keys of an object, for messages."""
    return ", ".join(map(str, value)) if isinstance(value, dict) and value else "no keys"
