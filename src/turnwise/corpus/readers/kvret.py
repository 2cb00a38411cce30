"""SMD / KVRET, the in-car assistant of Eric and Manning: `kvret_{train,dev,test}_public.json`."""

from collections.abc import Iterator
from typing import Any

from turnwise.core.dialogue import SYSTEM, USER, Dialogue
from turnwise.corpus.readers.annotations import act, find_spans, split_of
from turnwise.corpus.source import CorpusSource

_SPEAKERS = {"driver": USER, "assistant": SYSTEM}


def read(source: CorpusSource) -> Iterator[Dialogue]:
    """Read the files; the scenario's intent is that of the first driver turn.

    The source annotates what the driver informs and requests at the assistant's next turn; here the driver's turn has it.
    """
    for path, line, record in source.records(source.json_array, "kvret_*_public.json"):
        with source.dialogue(path, line, split_of(path.stem)) as builder:
            builder.id = record["scenario"]["uuid"]
            intent: str | None = record["scenario"]["task"]["intent"]
            turns = record["dialogue"]
            for position, turn in enumerate(turns):
                text = turn["data"]["utterance"]
                if turn["turn"] != "driver":
                    builder.add_turn(_SPEAKERS.get(turn["turn"], turn["turn"]), text)
                    continue
                slots, requested = _parse_labels(turns, position)
                acts = [act("inform", slot) for slot in slots] + [act("request", slot) for slot in requested]
                builder.add_turn(USER, text, intent, acts, find_spans(text, slots.items()))
                intent = None
        yield from builder.result()


def _parse_labels(turns: list[dict[str, Any]], position: int) -> tuple[dict[str, str], list[str]]:
    after = turns[position + 1]["data"] if position + 1 < len(turns) else {}
    return after.get("slots", {}), [slot for slot, is_requested in after.get("requested", {}).items() if is_requested]
