"""The native format: JSON Lines, a dialogue per line, as described by `dialogue.schema.json` in this folder."""

import json
from typing import Any

from turnwise.core.dialogue import Dialogue
from turnwise.corpus.readers.shared.annotations import Span
from turnwise.corpus.readers.shared.fields import require, require_object
from turnwise.corpus.source.corpus_source import CorpusSource, Dialogues


def read(source: CorpusSource) -> Dialogues:
    """Read the files; a dialogue keeps its own `source`, if it has one."""
    for path, line, record in source.records(source.json_lines, "*.jsonl", "*.jsonl.gz"):
        with source.dialogue(path, line) as builder:
            builder.id = record["id"]
            builder.source = _get_string(record, "source") or source.name
            builder.split = _get_string(record, "split")
            for turn in require(record, "turns", list):
                intent = None if turn.get("intent") is None else _get_string(turn, "intent")
                acts = require(turn, "acts", list) if "acts" in turn else []
                if not all(isinstance(act, str) for act in acts):
                    raise TypeError("'acts' contains something that is not a string")
                builder.add_turn(turn["speaker"], turn["text"], intent, acts, _parse_spans(turn))
        yield from builder.result()


def _parse_spans(turn: dict[str, Any]) -> list[Span]:
    spans = []
    for slot in require(turn, "slots", list) if "slots" in turn else ():
        name, value = _get_string(slot, "name"), _get_string(slot, "value")
        start, end = require(slot, "start", int), require(slot, "end", int)
        if value is not None and turn["text"][start:end] != value:
            raise ValueError(f"slot {name!r}: the text at {start}:{end} is not {value!r}")
        spans.append((name or "", start, end))
    return spans


def _get_string(record: Any, key: str) -> str | None:
    """Return the string under a key; None if it is missing, but null is none."""
    return require(record, key, str) if key in require_object(record, "the record") else None


def to_json(dialogue: Dialogue) -> str:
    """Return a dialogue as a line of the native format; what is empty is left out."""
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
    fields = {"id": dialogue.id, "source": dialogue.source, "split": dialogue.split, "turns": turns}
    return json.dumps({key: value for key, value in fields.items() if value is not None}, ensure_ascii=False)
