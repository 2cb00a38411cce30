"""Chat-completion logs: JSON Lines `{"messages": [{"role", "content"}]}`, content as text or as parts."""

from collections.abc import Iterator
from typing import Any

from turnwise.core.dialogue import SYSTEM, USER, Dialogue
from turnwise.corpus.intake import Intake

_ROLES = {"user": USER, "assistant": SYSTEM}
#: Instructions to the model and what tools returned are not said by anybody in the conversation.
_NOT_SAID = ("system", "developer", "tool", "function")


def read(intake: Intake) -> Iterator[Dialogue]:
    """Reads the files; a conversation's id is its `id` or `conversation_id`, else its file and line.

    Images and other parts that are not text are left out, and so are messages that only call a tool.
    """
    for path in intake.files("*.jsonl", "*.jsonl.gz", "*.json"):
        for line, record in intake.json_records(path):
            with intake.dialogue(path, line) as draft:
                named = (record.get("id"), record.get("conversation_id"))  # 0 is an id, nothing and '' are none
                identity = next((name for name in named if name not in (None, "")), f"{intake.name(path)}/{line}")
                draft.id = str(identity)
                for message in record["messages"]:
                    role = message["role"]
                    if role in _NOT_SAID:
                        intake.left_out[f"{role} messages"] += 1
                    elif not message.get("content") and (message.get("tool_calls") or message.get("function_call")):
                        intake.left_out["messages that only call a tool"] += 1
                    else:
                        draft.say(_ROLES.get(role, role), _text(intake, message["content"]))
            yield from draft.done()


def _text(intake: Intake, content: Any) -> Any:
    """The text of a message; whatever is neither text nor parts comes back as it is, to be refused."""
    if not isinstance(content, list):
        return content
    texts = []
    for part in content:
        if isinstance(part, str):
            texts.append(part)
        elif "text" in part:
            texts.append(part["text"])
        else:
            intake.left_out[f"{part.get('type', 'unknown')} parts"] += 1
    return "\n".join(texts)
