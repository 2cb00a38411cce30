"""Recognising the format of files of one kind: which reader fits them, with which options, and why."""

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from pathlib import Path
from textwrap import shorten
from typing import Any

from turnwise.core.errors import CorpusError
from turnwise.core.text import UNSPACED
from turnwise.corpus.importing.log_sample import JSON, MAX_ROWS, TABLES, LogSample
from turnwise.corpus.readers import kakaotalk, whatsapp, zoom
from turnwise.corpus.readers.json_paths import select
from turnwise.corpus.readers.shared.fields import parse_time
from turnwise.corpus.readers.shared.speakers import ROLE_WORDS, WORDS

UNKNOWN = "has a format that is not recognised"

#: Times that are neither ISO 8601 nor numbers.
_DAYS = ["%d/%m/%Y", "%m/%d/%Y", "%d.%m.%Y", "%d-%m-%Y", "%d/%m/%y", "%m/%d/%y", "%d.%m.%y", "%Y/%m/%d"]
_CLOCKS = ("%H:%M", "%H:%M:%S", "%I:%M %p", "%I:%M:%S %p")
_TIME_FORMATS = (
    *(f"{day}{separator}{clock}" for day in (*_DAYS, "%d %b %Y") for separator in (" ", ", ") for clock in _CLOCKS),
    "%a %b %d %H:%M:%S %z %Y",
    "%a, %d %b %Y %H:%M:%S %z",
)

_YEARS = 631_152_000, 4_102_444_800  # times of logs are between 1990 and 2100
_TIME_NAME = re.compile(r"[Tt]ime|[Dd]ate|[Ss]tamp|[Ee]poch|(?:_at|[a-z]At|ts|_on)(?:$|_|Ms)")
_LATER = re.compile(r"edit|updat|modif|read|deliver|expir|birth", re.IGNORECASE)  # not when a message was sent
#: What texts have and ids have not: spaces, or letters of Chinese, Japanese, Thai, Lao, Burmese or Khmer.
_SENTENCE = re.compile(f" |[{UNSPACED}\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff]")
SPEAKER_LINE = re.compile(r"([^:\t]{1,40}?)\s*:\s+\S")


@dataclass(frozen=True, slots=True)
class Detection:
    """The reader that fits a log."""

    reader: str
    why: str  # the evidence, to be shown to the user
    options: Mapping[str, Any] = field(default_factory=dict)


def detect_files(path: Path, encoding: str | None, files: Sequence[Path]) -> Detection:
    """Return the reader of files of one kind; raise a CorpusError with the reason alone if none fits."""
    sample = LogSample(path, encoding, files)
    detection = next((found for check in _CHECKS if (found := check(sample)) is not None), None)
    if detection is None:
        raise CorpusError(_explain(sample, files[0]))
    return detection


# ---- formats that are recognised by their names or keys


def _check_names(log: LogSample) -> Detection | None:
    """Recognise files by their suffix."""
    if found := log.named(".mbox", ".eml"):
        return Detection("mbox", f"{found[0].name} is e-mail")
    if found := log.named(".srt", ".vtt"):
        return Detection("transcript", f"{found[0].name} is a transcript with times")
    return None


#: Readers of JSON by keys that an object has, checked in this order.
_KEYS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("discord", ("guild", "channel", "messages")),
    ("messenger", ("sender_name", "timestamp_ms")),
    ("messenger", ("senderName", "isUnsent")),
    ("slack", ("channel_id", "messages")),
    ("slack", ("type", "user", "text", "ts")),
    ("slack", ("type", "bot_id", "text", "ts")),
    ("rocketchat", ("rid", "msg", "ts")),
    ("teams", ("MessageList",)),
    ("teams", ("createdDateTime", "body", "messageType")),
    ("teams", ("CreatedDateTime", "Body", "From")),
    ("discourse", ("post_stream",)),
    ("discourse", ("cooked", "post_number", "topic_id")),
    ("gitter", ("fromUser", "sent", "text")),
    ("intercom", ("conversation_parts",)),
    ("zendesk", ("comments", "requester_id")),
    ("zendesk", ("requester_id", "submitter_id")),
    ("zendesk", ("author_id", "public", "body")),
    ("zendesk", ("ticket_id", "events", "author_id")),
    ("freshdesk", ("conversations", "requester_id")),
    ("freshdesk", ("conversations", "description_text")),
    ("freshdesk", ("requester_id", "fr_escalated")),
    ("freshdesk", ("ticket_id", "incoming", "private")),
    ("freshdesk", ("helpdesk_ticket",)),
    ("luis", ("luis_schema_version", "utterances")),
    ("luis", ("projectFileVersion", "assets")),
    ("lex", ("resource", "metadata")),
    ("rasa", ("rasa_nlu_data",)),
    ("rasa", ("sender_id", "events")),
    ("rasa", ("sender_id", "event", "timestamp")),
    ("telegram", ("about", "chats")),
    ("telegram", ("messages", "name", "type", "id")),
    ("jsonl", ("id", "turns")),
    ("question_answers", ("question", "answer")),
    ("messages", ("mapping", "title")),
    ("messages", ("chat_messages", "uuid")),
    ("messages", ("conversation", "responses")),
    ("messages", ("products", "safeHtmlItem")),
    ("messages", ("messages",)),
    ("messages", ("conversations",)),
)


_MATTERMOST = ("team", "channel", "post", "direct_post")  # types of lines in a bulk export


def _check_keys(log: LogSample) -> Detection | None:
    """Recognise JSON by its keys."""
    for reader, keys in _KEYS:
        file = next((file for file, record in log.objects() if all(key in record for key in keys)), None)
        if file is not None and (reader != "messages" or len(keys) > 1 or _is_chat(log, keys[0])):
            return Detection(reader, f"{file.name} has the keys {', '.join(keys)}")
    return None


def _check_mattermost(log: LogSample) -> Detection | None:
    """Recognise lines whose `type` names their other key."""
    for file, record in log.records:
        if isinstance(record, dict) and record.get("type") in _MATTERMOST and record["type"] in record:
            return Detection("mattermost", f"{file.name} has lines of type {record['type']!r} with that key")
    return None


def _is_chat(log: LogSample, key: str) -> bool:
    """Return whether the objects under a key are messages of a chat completion."""
    messages = [message for _, record in log.objects() for message in record.get(key) or ()]
    known = ({"role", "content"}, {"from", "value"})
    return bool(messages) and all(isinstance(it, dict) and any(keys <= it.keys() for keys in known) for it in messages)


#: Readers of chats in text files, checked in this order, each with a function that says of every line whether it begins
#: a message: None if it does not begin with a time.
_TEXT_CHATS: dict[str, Callable[[Sequence[str]], list[bool | None]]] = {
    "kakaotalk": kakaotalk.find_messages,
    "zoom": zoom.find_messages,
    "whatsapp": whatsapp.find_messages,
}


def _check_text_chats(log: LogSample) -> Detection | None:
    """Recognise chats: the first line begins with a time, or many lines; messages may be long."""
    for file in log.named(".txt"):
        lines = [line for line in log.source.read_start(file).splitlines() if line.strip()][:MAX_ROWS]
        for reader, find_messages in _TEXT_CHATS.items():
            found = find_messages(lines)
            timed, messages = sum(each is not None for each in found), found.count(True)
            if messages and (
                timed * 2 >= len(lines) or (messages > 1 and (found[0] is not None or timed * 5 >= len(lines)))
            ):
                return Detection(
                    reader, f"{timed:,} of the first {len(lines):,} lines of {file.name} begin with a time"
                )
    return None


def _check_text(log: LogSample) -> Detection | None:
    """Recognise 'Speaker: text' lines: most lines have a speaker, and speakers recur."""
    for file in log.named(".txt"):
        lines = [line.strip() for line in log.source.read_start(file).splitlines() if line.strip()][:500]
        speakers = Counter(match[1].casefold() for line in lines if (match := SPEAKER_LINE.match(line)))
        known = sum(count for name, count in speakers.items() if count > 1 or name in ROLE_WORDS)
        if len(speakers) > 1 and known >= 0.5 * len(lines):
            return Detection("text", f"lines of {file.name} have the form 'Speaker: text'")
    return None


# ---- tables


def _check_table(log: LogSample) -> Detection | None:
    if not (files := log.named(*TABLES)) or not (rows := log.rows()):
        return None
    name = files[0].name
    if rows[0].keys() == {*kakaotalk.COLUMNS}:
        return Detection("kakaotalk", f"{name} has the columns of a chat in KakaoTalk")
    if {"tweet_id", "inbound", "in_response_to_tweet_id"} <= rows[0].keys():
        return Detection("twitter_support", f"{name} has the columns of customer support on Twitter")
    if {"question", "answer"} <= rows[0].keys():
        return Detection("question_answers", f"{name} has the columns 'question' and 'answer'")
    lists = [column for column, value in rows[0].items() if isinstance(value, list)]
    if files[0].suffix == ".parquet" and lists:
        return Detection("messages", f"{name} has a list of messages in column {lists[0]!r}")
    columns = _guess_columns(files[0], rows)
    why = f"{name} is a table: {', '.join(f'{role} is {column!r}' for role, column in columns.items())}"
    options: dict[str, Any] = dict(columns)
    if "time" in columns and (formats := _guess_time_formats([row[columns["time"]] for row in rows])):
        options["time_format"] = formats
    return Detection("table", why, options)


def _guess_columns(file: Path, rows: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Return the columns of a table by what they hold; raise a CorpusError if a necessary one is not recognised."""
    columns: dict[str, str] = {}
    for role, names in WORDS["columns"].items():
        known = {_normalise(column): column for column in rows[0] if column not in columns.values()}
        candidates = [known[name] for name in names if name in known]
        for column in candidates:
            if _HOLDS[role]([str(row[column]).strip() for row in rows if row.get(column) not in (None, "")]):
                columns[role] = column
                break
    missing = [role for role in ("conversation", "speaker", "text") if role not in columns]
    if missing:
        found = ", ".join(map(repr, rows[0]))
        raise CorpusError(
            f"is a table, but its column of the {missing[0]} is not recognised among {found}. Name it:"
            f" turnwise corpus import table {file} --set {missing[0]}=COLUMN …"
        )
    return columns


def _normalise(name: object) -> str:
    return re.sub(r"[\s_.-]+", "", str(name).casefold())


def _recurs(values: Sequence[str]) -> bool:
    """Return whether values occur repeatedly; a few values say nothing."""
    return len(values) < 20 or len(set(values)) <= 0.7 * len(values)


def _parses(value: str | None, formats: Sequence[str]) -> bool:
    try:
        parse_time(value, formats)
    except ValueError:
        return False
    return True


#: Whether values can be those of a column with that meaning.
_HOLDS: dict[str, Callable[[Sequence[str]], bool]] = {
    "conversation": _recurs,
    "speaker": _recurs,
    "text": lambda values: len(values) < 20 or sum(bool(_SENTENCE.search(it)) for it in values) >= 0.2 * len(values),
    "time": lambda values: sum(_parses(value, _TIME_FORMATS) for value in values) >= max(1, 0.5 * len(values)),
    "intent": _recurs,
    "split": lambda values: {value.casefold() for value in values} <= {"train", "valid", "validation", "dev", "test"},
}


def _guess_time_formats(values: Sequence[str | None]) -> list[str]:
    """Return the formats that the times need besides ISO 8601 and numbers, the most frequent first."""
    formats: list[str] = []
    remaining = [value for value in values if value and not _parses(value, ())]
    while remaining:
        best = max(_TIME_FORMATS, key=lambda name: sum(_parses(value, [name]) for value in remaining))
        unparsed = [value for value in remaining if not _parses(value, [best])]
        if len(unparsed) == len(remaining):
            break
        formats.append(best)
        remaining = unparsed
    return formats


# ---- JSON of any layout


def _check_json(log: LogSample) -> Detection | None:
    """Recognise messages in JSON by the usual names of their keys, and times by their values too."""
    for file, record in log.records:
        alone = [record for _, record in log.records if isinstance(record, dict)]
        for path, messages in (*_lists(record), *[("", alone)] * (len(alone) > 1)):
            values = _values(messages[:20])
            keys = {_normalise(key): key for key in values}
            found = {role: _first_known(keys, WORDS["columns"][role]) for role in ("speaker", "text")}
            if not found["speaker"] or not found["text"]:
                continue
            found["time"] = _time_key(values)
            options: dict[str, Any] = {role: key for role, key in found.items() if key}
            if found["time"] and (formats := _guess_time_formats([str(it) for it in values[found["time"]]])):
                options["time_format"] = formats
            outer = re.fullmatch(r"(.*(?:\[\]|\*))\.?(.*\[\])", path)
            options |= {"messages": outer[2] if outer else path, "conversations": outer[1] if outer else ""}
            parent: Any = next(iter(select(record, options["conversations"])), {})
            own = {_normalise(key.rpartition(".")[2]): key for key in _flatten(parent)}
            names = WORDS["columns"]["conversation"]
            options["id"] = _first_known(own, ("id", "no", "number", *names) if path else names)
            kept = {k: v for k, v in options.items() if v or (k in ("messages", "id") and not path)}
            return Detection("json", _explain_paths(file, path, kept, parent, values), kept)
    return None


def _values(messages: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    """Return the values in messages by their paths, without those that are missing."""
    found: dict[str, list[Any]] = {}
    for message in messages:
        for key in _flatten(message):
            if (value := select(message, key)[0]) not in (None, ""):
                found.setdefault(key, []).append(value)
    return found


def _time_key(values: Mapping[str, Sequence[Any]]) -> str:
    """Return the path of the times: one with a usual name, or one whose name and values are those of times."""
    times = [key for key in values if sum(_is_time(key, it) for it in values[key]) > 0.5 * len(values[key])]
    known = _first_known({_normalise(key): key for key in times}, WORDS["columns"]["time"])
    return known or next((key for key in times if not _LATER.search(key)), "")


def _is_time(key: str, value: Any) -> bool:
    """Return whether a value is a plausible time of a message; a number only if its key has the name of a time."""
    if isinstance(value, bool) or not _parses(value, _TIME_FORMATS):
        return False
    if _normalise(key) in WORDS["columns"]["time"]:
        return True
    formats = [name for name in _TIME_FORMATS if _parses(value, [name])]
    is_number = re.fullmatch(r"[\d.]+", str(value)) is not None
    return _YEARS[0] < parse_time(value, formats) < _YEARS[1] and bool(not is_number or _TIME_NAME.search(key))


def _explain_paths(
    file: Path, path: str, options: Mapping[str, Any], parent: Any, values: Mapping[str, Sequence[Any]]
) -> str:
    """Return which path each part of a message has, with an example of its value."""
    examples = {role: values[options[role]][0] for role in ("speaker", "text", "time") if role in options}
    if identity := options.get("id"):
        examples = {"id": next(iter(select(parent, identity)), values.get(identity, [""])[0]), **examples}
    parts = [f"{role} is {options[role]!r} ({shorten(str(it), 40, placeholder='…')})" for role, it in examples.items()]
    if not identity:
        parts.append(f"each {'record' if path else 'file'} is a conversation")
    parts += ["no times: the order in the file"] * ("time" not in options)
    return f"{file.name} has messages {f'at {path}' if path else 'as its records'}: {'; '.join(parts)}"


def _first_known(keys: Mapping[str, str], names: Sequence[str]) -> str:
    return next((keys[name] for name in names if name in keys), "")


def _flatten(value: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    """Yield the paths of the values in nested objects, without those in lists."""
    for key, inner in value.items():
        if isinstance(inner, dict):
            yield from _flatten(inner, f"{prefix}{key}.")
        elif not isinstance(inner, list):
            yield f"{prefix}{key}"


def _lists(value: Any, path: str = "", depth: int = 6) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """Yield the lists of objects within a value, with their paths, the innermost first."""
    if isinstance(value, list) and value and depth and all(isinstance(item, dict) for item in value):
        yield from _lists(value[0], f"{path}[]", depth - 1)
        yield f"{path}[]", value
    elif isinstance(value, dict) and depth:
        if len(value) > 1 and all(any(map(str.isdigit, key)) for key in value):  # objects or lists under their ids
            value = {"*": next(iter(value.values()))}
        for key, inner in value.items():
            yield from _lists(inner, f"{path}.{key}" if path else str(key), depth - 1)


# ---- files that nothing fits


def _explain(log: LogSample, file: Path) -> str:
    """Return why a file is not recognised, as the rest of a sentence about it."""
    if not file.stat().st_size or (not log.rejections and not log.source.read_start(file).strip()):
        return "is empty"
    if file in log.named(*TABLES) and not log.rejections:
        return "is a table without rows"
    rejected = [each for each in log.rejections if each.kind == "file" or not log.records]
    if rejected:
        line = f" in line {rejected[0].line:,}" if rejected[0].line else ""
        return f"is damaged{line}: {rejected[0].reason}"
    if file in log.named(*JSON) and not log.records:
        return "has no records"
    return UNKNOWN + (f" ({'; '.join(nearest)})" if (nearest := list(_explain_nearest(log, file))) else "")


def _explain_nearest(log: LogSample, file: Path) -> Iterator[str]:
    """Yield the readers that come nearest, and what each of them misses."""
    if file in log.named(".txt"):
        yield "`text` needs lines 'Speaker: text' in which speakers recur"
        yield f"{', '.join(f'`{reader}`' for reader in _TEXT_CHATS)} need lines that begin with a time"
        return
    records = [record for _, record in log.objects()]
    present = {key for record in records for key in record}
    near = [(len(present.intersection(keys)) / len(keys), reader, keys) for reader, keys in _KEYS if len(keys) > 1]
    for share, reader, keys in sorted(near, key=itemgetter(0), reverse=True)[:2]:
        if share >= 0.5:
            missing = ", ".join(key for key in keys if key not in present)
            what = f"{missing} is missing" if missing else "no object has all of them"
            yield f"`{reader}` needs the keys {', '.join(keys)}: {what}"
    lists = [(path, messages) for _, record in log.records for path, messages in _lists(record)] or [("", records)]
    path, messages = lists[0]
    found = {_normalise(key): key for message in messages[:20] for key in _flatten(message)}
    unknown = [role for role in ("speaker", "text") if not _first_known(found, WORDS["columns"][role])]
    if found and unknown:
        names = ", ".join(list(found.values())[:10])
        what = f"no {' and no '.join(unknown)} at {path or 'the records'}"
        yield f"`json` finds {what}, which have {names}: name the paths"


_CHECKS = (_check_names, _check_mattermost, _check_keys, _check_text_chats, _check_table, _check_text, _check_json)
