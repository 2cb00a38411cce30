"""CamRest676: one JSON file of restaurant searches; each turn has the user's utterance, then the system's."""

from collections.abc import Iterator
from typing import Any

from turnwise.core.dialogue import SYSTEM, USER, Dialogue
from turnwise.corpus.readers.annotations import act, find_spans
from turnwise.corpus.source import CorpusSource


def read(source: CorpusSource) -> Iterator[Dialogue]:
    """Read the file; it has no splits, and its user acts are cumulative."""
    for path, line, record in source.records(source.json_array, "CamRest676.json"):
        with source.dialogue(path, line) as builder:
            builder.id = str(record["dialogue_id"])
            for turn in record["dial"]:
                user, system = turn["usr"], turn["sys"]
                values = [(slot, value) for item in user["slu"] for slot, value in item["slots"] if slot != "slot"]
                text = user["transcript"]
                builder.add_turn(USER, text, acts=_user_acts(user["slu"]), spans=find_spans(text, values))
                builder.add_turn(SYSTEM, system["sent"], acts=[act("request", slot) for slot in system["DA"]])
        yield from builder.result()


def _user_acts(items: list[dict[str, Any]]) -> list[str]:
    # in a request, the requested slot is the value of a slot called 'slot'
    return [act(item["act"], value if slot == "slot" else slot) for item in items for slot, value in item["slots"]]
