"""The native format: JSON Lines, a dialogue a line, as `dialogue.schema.json` beside this file describes it."""

import json
from collections.abc import Iterator
from typing import Any

from turnwise.core.dialogue import Dialogue
from turnwise.corpus.intake import Intake
from turnwise.corpus.readers.labels import Span


def read(intake: Intake) -> Iterator[Dialogue]:
    """Reads the files; a dialogue keeps the `source` it names."""
    for path in intake.files("*.jsonl", "*.jsonl.gz"):
        for line, record in intake.json_lines(path):
            with intake.dialogue(path, line) as draft:
                draft.id = record["id"]
                draft.source = _string(record, "source") or intake.source
                draft.split = _string(record, "split")
                for turn in _list(record, "turns"):
                    intent = None if turn.get("intent") is None else _string(turn, "intent")
                    acts = _list(turn, "acts") if "acts" in turn else []
                    if not all(isinstance(act, str) for act in acts):
                        raise TypeError("'acts' holds something that is not a string")
                    draft.say(turn["speaker"], turn["text"], intent, acts, _spans(turn))
            yield from draft.done()


def _spans(turn: dict[str, Any]) -> list[Span]:
    spans = []
    for slot in _list(turn, "slots") if "slots" in turn else ():
        name, value = _string(slot, "name"), _string(slot, "value")
        start, end = slot["start"], slot["end"]
        if type(start) is not int or type(end) is not int:  # true and false are numbers to Python
            raise TypeError(f"slot {name!r}: 'start' and 'end' are whole numbers")
        if value is not None and turn["text"][start:end] != value:
            raise ValueError(f"slot {name!r}: offsets {start}:{end} do not hold {value!r}")
        spans.append((name or "", start, end))
    return spans


def _string(record: dict[str, Any], key: str) -> str | None:
    """The string under a key, None where there is no such key."""
    if not isinstance(record, dict):
        raise TypeError(f"expected an object with {key!r}, got a {type(record).__name__}")
    value = record.get(key)
    if key in record and not isinstance(value, str):
        raise TypeError(f"{key!r} is a {type(value).__name__}, not a string")
    return value


def _list(record: dict[str, Any], key: str) -> list[Any]:
    value = record[key]
    if not isinstance(value, list):
        raise TypeError(f"{key!r} is a {type(value).__name__}, not a list")
    return value


def to_json(dialogue: Dialogue) -> str:
    """A dialogue as a line of the native format."""
    turns = []
    for turn in dialogue.turns:
        record: dict[str, Any] = {"speaker": turn.speaker, "text": turn.text}
        if turn.intent:
            record["intent"] = turn.intent
        if turn.acts:
            record["acts"] = list(turn.acts)
        if turn.slots:
            record["slots"] = [
                {"name": slot.name, "value": slot.value, "start": slot.start, "end": slot.end} for slot in turn.slots
            ]
        turns.append(record)
    whole = {"id": dialogue.id, "source": dialogue.source, "split": dialogue.split, "turns": turns}
    return json.dumps({key: value for key, value in whole.items() if value is not None}, ensure_ascii=False)
