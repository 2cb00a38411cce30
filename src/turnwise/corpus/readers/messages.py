"""Chat-completion logs and chat data sets: lists of messages with a role and a content, or a speaker and a value."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from turnwise.core.dialogue import SYSTEM, USER, peer
from turnwise.core.errors import CorpusError
from turnwise.corpus.readers.shared.annotations import split_of
from turnwise.corpus.readers.shared.fields import require
from turnwise.corpus.readers.shared.files import JSON_FILES, json_records, parquet_rows
from turnwise.corpus.source.corpus_source import CorpusSource, Dialogues
from turnwise.corpus.source.dialogue_builder import DialogueBuilder

#: Where the list of messages is, unless it is named; the first one that a record has.
_LISTS = ("messages", "conversations", "conversation", "dialog", "dialogue", "utterances")
_IDS = ("id", "conversation_id")

_ROLES = {
    **dict.fromkeys(("user", "human"), USER),
    **dict.fromkeys(("assistant", "gpt", "chatgpt", "bing", "bard", "model"), SYSTEM),
}
#: Instructions to the model, tool calls and tool results are not utterances.
_SKIPPED_ROLES = ("system", "developer", "tool", "function", "function_call", "observation")


def read(source: CorpusSource, *, messages: str = "") -> Dialogues:
    """Read JSON Lines, JSON arrays or Parquet files; an id is the `id` or `conversation_id`, else the file and line.

    The list of messages is under `messages`, `conversations`, `conversation`, `dialog`, `dialogue` or `utterances`. A
    message is `{role, content}`, or `{from, value}` as in ShareGPT's data. In a list of texts, two speakers alternate.

    Images and other parts that are not text are left out, and so are instructions, tool calls and tool results.
    Parquet files get the split in their name or that of their folder, as in `train-00000-of-00001.parquet`.

    Options:
        messages: the key or column with the list of messages, if it is another one.
    """
    keys = (messages,) if messages else _LISTS

    def read_records(path: Path) -> Iterator[tuple[int, Any]]:
        if path.suffix.lower() == ".parquet":
            return parquet_rows(source, path, lambda columns: _select_columns(path, columns, keys))
        return json_records(source, path)

    for path, line, record in source.records(read_records, *JSON_FILES, "*.parquet"):
        with source.dialogue(path, line) as builder:
            if path.suffix.lower() == ".parquet":
                builder.split = split_of(path.stem) or (split_of(path.parent.name) if path != source.root else None)
            ids = (*(record.get(key) for key in _IDS), f"{source.relative_name(path)}/{line}")
            builder.id = str(next(value for value in ids if value not in (None, "")))  # 0 is a valid id
            key = next((key for key in keys if record.get(key) is not None), keys[0])
            listed = require(record, key, list)
            if listed and all(isinstance(message, str) for message in listed):
                for position, text in enumerate(listed):
                    builder.add_turn(peer(position % 2 + 1), text)
            else:
                for message in listed:
                    _add_message(source, builder, message)
        yield from builder.result()


def _select_columns(path: Path, columns: list[str], keys: tuple[str, ...]) -> list[str]:
    if not any(key in columns for key in keys):
        raise CorpusError(
            f"{path.name} has no column {' or '.join(map(repr, keys))}; it has {', '.join(map(repr, columns))}."
            " Name the column with the list of messages, as in --set messages=chat."
            " The reader `table` reads one message per row"
        )
    return [column for column in columns if column in keys or column in _IDS]


def _add_message(source: CorpusSource, builder: DialogueBuilder, message: dict[str, Any]) -> None:
    role_key, text_key = ("from", "value") if "from" in message and "role" not in message else ("role", "content")
    role = message[role_key]
    if role in _SKIPPED_ROLES:
        source.skipped[f"{role} messages"] += 1
    elif not message.get(text_key) and (message.get("tool_calls") or message.get("function_call")):
        source.skipped["messages that only call a tool"] += 1
    else:
        builder.add_turn(_ROLES.get(role, role), _text(source, message[text_key]))


def _text(source: CorpusSource, content: Any) -> Any:
    """Return the text of a message; what is neither text nor parts is returned as it is, to be rejected."""
    if not isinstance(content, list):
        return content
    texts = []
    for part in content:
        if isinstance(part, str):
            texts.append(part)
        elif "text" in part:
            texts.append(part["text"])
        else:
            source.skipped[f"{part.get('type', 'unknown')} parts"] += 1
    return "\n".join(texts)
