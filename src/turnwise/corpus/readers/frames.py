"""Frames: `frames.json`, `[{id, turns: [{author, text, labels: {acts: [{name, args: [{key, val}]}]}}]}]`."""

from collections.abc import Iterator
from typing import Any

from turnwise.core.dialogue import SYSTEM, USER, Dialogue
from turnwise.corpus.readers.annotations import act, find_spans
from turnwise.corpus.source import CorpusSource

_SPEAKERS = {"user": USER, "wizard": SYSTEM}


def read(source: CorpusSource) -> Iterator[Dialogue]:
    """Read the file; argument values that occur in the text become slots."""
    for path, line, record in source.records(source.json_array, "frames.json"):
        with source.dialogue(path, line) as builder:
            builder.id = record["id"]
            for turn in record["turns"]:
                acts, values = _parse_labels(turn.get("labels", {}).get("acts", ()))
                text = turn["text"]
                speaker = _SPEAKERS.get(turn["author"], turn["author"])
                builder.add_turn(speaker, text, acts=acts, spans=find_spans(text, values))
        yield from builder.result()


def _parse_labels(items: Any) -> tuple[list[str], list[tuple[str, str]]]:
    acts, values = [], []
    for item in items:
        pairs = [(argument["key"], argument.get("val")) for argument in item.get("args", ())]
        acts += [act(item["name"], key) for key, _ in pairs] or [act(item["name"])]
        values += [(key, value) for key, value in pairs if isinstance(value, str)]
    return list(dict.fromkeys(acts)), values
