"""The native format: JSON Lines, a dialogue a line, as `dialogue.schema.json` beside this file describes it."""

import json
from collections.abc import Iterator
from typing import Any

from turnwise.corpus.intake import Intake
from turnwise.corpus.readers.labels import Span
from turnwise.dialogue import Dialogue


def read(intake: Intake) -> Iterator[Dialogue]:
    """Reads the files; a dialogue keeps the `source` it names."""
    for path in intake.files("*.jsonl", "*.jsonl.gz"):
        for line, record in intake.json_lines(path):
            with intake.dialogue(path, line, record.get("split") if isinstance(record, dict) else None) as draft:
                draft.id = record["id"]
                draft.source = record.get("source") or intake.source
                for turn in record["turns"]:
                    acts = turn.get("acts", [])
                    if not isinstance(acts, list):
                        raise TypeError("'acts' is not a list")
                    draft.say(turn["speaker"], turn["text"], turn.get("intent"), acts, _spans(turn))
            yield from draft.done()


def _spans(turn: dict[str, Any]) -> list[Span]:
    spans = []
    for slot in turn.get("slots", ()):
        start, end, value = slot["start"], slot["end"], slot.get("value")
        if value is not None and turn["text"][start:end] != value:
            raise ValueError(f"slot {slot['name']!r}: offsets {start}:{end} do not hold {value!r}")
        spans.append((slot["name"], start, end))
    return spans


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
