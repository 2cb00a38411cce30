"""WOZ 2.0: `woz_{train,validate,test}_en.json`; each turn has the system's utterance, then the user's."""

from collections.abc import Iterator
from typing import Any

from turnwise.core.dialogue import SYSTEM, USER, Dialogue
from turnwise.corpus.readers.annotations import act, find_spans, split_of
from turnwise.corpus.source import CorpusSource


def read(source: CorpusSource) -> Iterator[Dialogue]:
    """Read the files; the empty system transcript before the first user turn is not an utterance."""
    for path, line, record in source.records(source.json_array, "woz_*_en.json"):
        with source.dialogue(path, line, split_of(path.stem)) as builder:
            builder.id = f"{path.stem}/{record['dialogue_idx']}"
            for position, turn in enumerate(record["dialogue"]):
                if position or turn["system_transcript"].strip():
                    builder.add_turn(SYSTEM, turn["system_transcript"], acts=_system_acts(turn["system_acts"]))
                text, labels = turn["transcript"], turn["turn_label"]
                acts = [act("request", value) if slot == "request" else act("inform", slot) for slot, value in labels]
                values = [(slot, value) for slot, value in labels if slot != "request"]  # not in the text
                builder.add_turn(USER, text, acts=acts, spans=find_spans(text, values))
        yield from builder.result()


def _system_acts(acts: list[Any]) -> list[str]:
    # a bare slot is requested, a slot with a value is confirmed
    return [act("request", item) if isinstance(item, str) else act("confirm", item[0]) for item in acts]
