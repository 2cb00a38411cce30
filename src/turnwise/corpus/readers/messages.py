"""Chat-completion logs, chat data sets, and the exports of ChatGPT, Claude, Grok and Gemini."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from turnwise.core.dialogue import SYSTEM, USER, peer
from turnwise.core.errors import CorpusError
from turnwise.corpus.readers.shared.annotations import split_of
from turnwise.corpus.readers.shared.chat_exports import event_name
from turnwise.corpus.readers.shared.fields import optional, optional_time, require, require_object, require_text
from turnwise.corpus.readers.shared.files import JSON_FILES, json_records, parquet_rows
from turnwise.corpus.readers.shared.html_text import html_to_text
from turnwise.corpus.readers.shared.message_logs import in_time_order
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
#: Further messages of ChatGPT's exports that are no utterances.
_UNSAID = (
    *("hidden messages", "messages that only call a tool", "thoughts messages"),
    *(f"{role} messages" for role in _SKIPPED_ROLES),
)

_GEMINI_VERB = re.compile(r"(?:Prompted|Asked|Said)(?: with:| Gemini:| Bard:)?\s+")


def read(source: CorpusSource, *, messages: str = "") -> Dialogues:
    """Read JSON Lines, JSON arrays or Parquet files; an id is the `id` or `conversation_id`, else the file and line.

    The list of messages is under `messages`, `conversations`, `conversation`, `dialog`, `dialogue` or `utterances`. A
    message is `{role, content}`, or `{from, value}` as in ShareGPT's data. In a list of texts, two speakers alternate.

    The exports of ChatGPT (`conversations.json`; the branch that was open last), Claude (`conversations.json`), Grok
    (`prod-grok-backend.json`) and Gemini (Takeout's `MyActivity.json`; each prompt with its answer) are read too.

    Images and other parts that are not text are left out, and so are instructions, tool calls and tool results.
    Parquet files get the split in their name or that of their folder, as in `train-00000-of-00001.parquet`.

    Options:
        messages: the key or column with the list of messages, if it is another one.
    """
    keys = (messages,) if messages else _LISTS

    def read_records(path: Path) -> Iterator[tuple[int, Any]]:
        if path.suffix.lower() == ".parquet":
            return parquet_rows(source, path, lambda columns: _select_columns(path, columns, keys))
        return _unwrapped(source, json_records(source, path))

    for path, line, record in source.records(read_records, *JSON_FILES, "*.parquet"):
        with source.dialogue(path, line) as builder:
            if path.suffix.lower() == ".parquet":
                builder.split = split_of(path.stem) or (split_of(path.parent.name) if path != source.root else None)
            ids = (*(record.get(key) for key in _IDS), f"{source.relative_name(path)}/{line}")
            builder.id = str(next(value for value in ids if value not in (None, "")))  # 0 is a valid id
            listed: list[Any] | None = None if messages else _exported(source, builder, record)
            if listed is None:
                key = next((key for key in keys if record.get(key) is not None), keys[0])
                listed = require(record, key, list)
            if listed and all(isinstance(message, str) for message in listed):
                for position, text in enumerate(listed):
                    builder.add_turn(peer(position % 2 + 1), text)
            else:
                for message in listed:
                    _add_message(source, builder, message)
        yield from builder.result()


def _unwrapped(source: CorpusSource, records: Iterator[tuple[int, Any]]) -> Iterator[tuple[int, Any]]:
    """Yield the records: of Grok's file, which is one object, the conversations, and of Gemini's the prompts."""
    for line, record in records:
        listed = record.get("conversations") if isinstance(record, dict) else None
        if isinstance(listed, list) and listed and all(isinstance(it, dict) and "responses" in it for it in listed):
            yield from ((line, each) for each in listed)
        elif isinstance(record, dict) and "products" in record and not _is_prompt(record):
            source.by_design["activities that are no prompts"] += 1
        else:
            yield line, record


def _is_prompt(record: dict[str, Any]) -> bool:
    return "safeHtmlItem" in record or _GEMINI_VERB.match(str(record.get("title"))) is not None


def _exported(source: CorpusSource, builder: DialogueBuilder, record: dict[str, Any]) -> list[dict[str, Any]] | None:
    """Return the messages of an assistant's export, as a chat-completion log has them; None for another record."""
    if "mapping" in record:
        return list(_chatgpt_messages(source, builder, record))
    if "chat_messages" in record:
        builder.id = str(record.get("uuid") or builder.id)
        return [_claude_message(message) for message in require(record, "chat_messages", list)]
    if "responses" in record and "conversation" in record:
        builder.id = require_text(require(record, "conversation", dict), "id")
        responses = [require(each, "response", dict) for each in require(record, "responses", list)]
        ordered = in_time_order(responses, _grok_time)
        return [{"role": require_text(it, "sender").lower(), "content": it["message"]} for it in ordered]
    if "title" in record and "products" in record:
        answers = [html_to_text(require_text(each, "html")) for each in optional(record, "safeHtmlItem", list)]
        prompt = _GEMINI_VERB.sub("", require_text(record, "title"), count=1)
        return [{"role": "user", "content": prompt}, *({"role": "assistant", "content": it} for it in answers)]
    return None


def _chatgpt_messages(
    source: CorpusSource, builder: DialogueBuilder, record: dict[str, Any]
) -> Iterator[dict[str, Any]]:
    """Yield the messages between the root of the tree and the node that was open last."""
    nodes = require(record, "mapping", dict)
    parents = {optional(node, "parent", str) for node in nodes.values()}
    leaves = [name for name in nodes if name not in parents]
    name = optional(record, "current_node", str) or (leaves[-1] if leaves else "")
    branch: dict[str, Any] = {}
    while name in nodes and name not in branch:
        branch[name] = nodes[name].get("message")
        name = optional(nodes[name], "parent", str)
    source.by_design["messages of other branches"] += sum(
        _chatgpt_kind(node.get("message")) == "" for name, node in nodes.items() if name not in branch
    )
    for message in reversed(branch.values()):
        if kind := _chatgpt_kind(message):
            counts = source.by_design if kind in _UNSAID else source.skipped
            counts[kind] += message is not None
            continue
        builder.time = builder.time or optional_time(record, "create_time")
        parts = message["content"]["parts"]
        yield {
            "role": message["author"]["role"],
            "content": [it for it in parts if not isinstance(it, dict) or "text" in it],
            "images": [it for it in parts if isinstance(it, dict) and "text" not in it],
        }


def _chatgpt_kind(message: Any) -> str:
    """Return what a message that is not an utterance is counted as; '' for an utterance."""
    if message is None:
        return "empty nodes"
    role, content = message["author"]["role"], message.get("content") or {}
    if role in _SKIPPED_ROLES:
        return f"{role} messages"
    if (message.get("metadata") or {}).get("is_visually_hidden_from_conversation"):
        return "hidden messages"
    if message.get("recipient") not in (None, "all"):
        return "messages that only call a tool"
    kind = content.get("content_type")
    return "" if kind in ("text", "multimodal_text") else f"{event_name(kind)} messages"


def _claude_message(message: dict[str, Any]) -> dict[str, Any]:
    blocks = [
        it for it in optional(message, "content", list) if require_object(it, "the content").get("type") == "text"
    ]
    text = optional(message, "text", str)
    return {"role": message["sender"], "content": blocks or text}


def _grok_time(response: dict[str, Any]) -> float | None:
    """Return the time of a response: a text, or a date as MongoDB writes it."""
    value = response.get("create_time")
    for key in ("$date", "$numberLong"):
        value = value.get(key) if isinstance(value, dict) else value
    return optional_time({"create_time": value}, "create_time")


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
        source.by_design[f"{role} messages"] += 1
    elif not message.get(text_key) and (message.get("tool_calls") or message.get("function_call")):
        source.by_design["messages that only call a tool"] += 1
    elif message.get(text_key) in ("", []) and "images" in message:  # an upload
        source.skipped["messages without text"] += 1
        builder.mark_hole()
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
