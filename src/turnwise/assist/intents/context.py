"""Utterances with context: "yes, please" has the intent of the turns before it.

Inside a classifier, an utterance with context is one string: its turns, the utterance last, with a separator between
them. An utterance without context is its text. So examples with and without context are stored, compared and listed in
the same way, and only encoding differs.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Any

from turnwise.core.dialogue import Conversation, Dialogue, EncoderInput, Turn, context_turns, turn_texts
from turnwise.core.errors import IntentError

#: A text, or a conversation whose last turn is the text.
Utterance = str | Conversation

#: Stands between turns: the record separator of ASCII.
SEPARATOR = "\x1e"

#: How many turns before an utterance are kept. On validation services of Schema-Guided, accuracy rises up to five.
MAX_CONTEXT = 5

#: The column of a table with the turns before a text.
CONTEXT_COLUMN = "context"


def join_turns(utterance: Any) -> Any:
    """Return a conversation as one string with separators; a text, and whatever is no conversation, as it is."""
    if not isinstance(utterance, Dialogue | list | tuple):
        return utterance
    try:
        *before, last = turn_texts(utterance)
    except (TypeError, ValueError) as error:
        raise IntentError(str(error)) from error
    kept = [text.replace(SEPARATOR, " ") for text in before if text.strip()][-MAX_CONTEXT:]
    return SEPARATOR.join([*kept, last.replace(SEPARATOR, " ")])


def split_turns(text: str) -> list[str]:
    """Return the turns of an utterance, oldest first; the text alone, if it has no context."""
    return text.split(SEPARATOR)


def last_turn(text: str) -> str:
    """Return the text of an utterance without its context."""
    return text.rpartition(SEPARATOR)[2]


def has_context(pairs: Iterable[tuple[str, str]]) -> bool:
    """Return whether one of some texts with intents has context."""
    return any(SEPARATOR in text for text, _ in pairs)


def show_turns(text: str) -> str:
    """Return an utterance for people to read, with the turn before it."""
    *before, last = split_turns(text)
    return f"{last} (after '{before[-1]}')" if before else last


def encoder_input(text: str) -> EncoderInput:
    """Return what the encoder reads: a text, or turns with alternating speakers."""
    return context_turns(split_turns(text)) if SEPARATOR in text else text


def turns_in_context(turns: Iterable[Turn]) -> Iterator[tuple[Turn, str]]:
    """Yield every turn of a dialogue with its text in context."""
    texts: list[str] = []
    for turn in turns:
        texts.append(turn.text)
        yield turn, join_turns(texts)


def read_utterance(values: Mapping[str, Any], text: str, where: str) -> str:
    """Return the text of a table's row after the turns in its column 'context': a list, as JSON, or one turn per line.

    A turn is a text, or an object with 'text' or 'content'. Raise IntentError, with `where`, for anything else.
    """
    context, last = values.get(CONTEXT_COLUMN) or [], values.get(text) or ""
    if isinstance(context, str):
        with suppress(ValueError):  # lines may start with a bracket, too
            context = json.loads(context) if context.lstrip().startswith("[") else context
    turns = context.splitlines() if isinstance(context, str) else context
    texts = [turn.get("text", turn.get("content")) if isinstance(turn, dict) else turn for turn in turns]
    if not all(isinstance(each, str) for each in texts):
        raise IntentError(f"{where}: {CONTEXT_COLUMN!r} must be a list of turns, each a text or an object with a text")
    return str(join_turns([*texts, last])) if last.strip() else ""
