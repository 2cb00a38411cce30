"""Chat-completion logs: JSON Lines `{"messages": [{"role", "content"}]}`, with content as text or as parts."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from turnwise.core.dialogue import SYSTEM, USER, Dialogue
from turnwise.corpus.source import CorpusSource

_ROLES = {"user": USER, "assistant": SYSTEM}
#: Instructions to the model and tool results are not utterances.
_SKIPPED_ROLES = ("system", "developer", "tool", "function")


def read(source: CorpusSource) -> Iterator[Dialogue]:
    """Read the files; a conversation's id is its `id` or `conversation_id`, else its file and line.

    Images and other parts that are not text are left out, and so are messages that only call a tool.
    """

    def read_records(path: Path) -> Iterator[tuple[int, Any]]:
        return source.json_array(path) if ".json" in path.suffixes else source.json_lines(path)

    for path, line, record in source.records(read_records, "*.jsonl", "*.jsonl.gz", "*.json"):
        with source.dialogue(path, line) as builder:
            ids = (record.get("id"), record.get("conversation_id"), f"{source.relative_name(path)}/{line}")
            builder.id = str(next(value for value in ids if value not in (None, "")))  # 0 is a valid id
            for message in record["messages"]:
                role = message["role"]
                if role in _SKIPPED_ROLES:
                    source.skipped[f"{role} messages"] += 1
                elif not message.get("content") and (message.get("tool_calls") or message.get("function_call")):
                    source.skipped["messages that only call a tool"] += 1
                else:
                    builder.add_turn(_ROLES.get(role, role), _text(source, message["content"]))
        yield from builder.result()


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
