"""Frames: `frames.json`, `[{id, turns: [{author, text, labels: {acts: [{name, args: [{key, val}]}]}}]}]`."""

from collections.abc import Iterator
from typing import Any

from turnwise.core.dialogue import SYSTEM, USER, Dialogue
from turnwise.corpus.intake import Intake
from turnwise.corpus.readers.labels import act, spans_of

_SPEAKERS = {"user": USER, "wizard": SYSTEM}


def read(intake: Intake) -> Iterator[Dialogue]:
    """Reads the file; argument values that stand in the text become slots."""
    for path in intake.files("frames.json"):
        for line, record in intake.json_array(path):
            with intake.dialogue(path, line) as draft:
                draft.id = record["id"]
                for turn in record["turns"]:
                    acts, values = _labels(turn.get("labels", {}).get("acts", ()))
                    text = turn["text"]
                    draft.say(
                        _SPEAKERS.get(turn["author"], turn["author"]), text, acts=acts, spans=spans_of(text, values)
                    )
            yield from draft.done()


def _labels(items: Any) -> tuple[list[str], list[tuple[str, str]]]:
    acts, values = [], []
    for item in items:
        pairs = [(argument["key"], argument.get("val")) for argument in item.get("args", ())]
        acts += [act(item["name"], key) for key, _ in pairs] or [act(item["name"])]
        values += [(key, value) for key, value in pairs if isinstance(value, str)]
    return list(dict.fromkeys(acts)), values
