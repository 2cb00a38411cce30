"""CamRest676: one JSON file of restaurant searches; a turn holds the user's words and then the system's."""

from collections.abc import Iterator
from typing import Any

from turnwise.core.dialogue import SYSTEM, USER, Dialogue
from turnwise.corpus.intake import Intake
from turnwise.corpus.readers.labels import act, spans_of


def read(intake: Intake) -> Iterator[Dialogue]:
    """Reads the file; the source has no splits, and its user acts are cumulative."""
    for path in intake.files("CamRest676.json"):
        for line, record in intake.json_array(path):
            with intake.dialogue(path, line) as draft:
                draft.id = str(record["dialogue_id"])
                for turn in record["dial"]:
                    user, system = turn["usr"], turn["sys"]
                    values = [(slot, value) for item in user["slu"] for slot, value in item["slots"] if slot != "slot"]
                    text = user["transcript"]
                    draft.say(USER, text, acts=_user_acts(user["slu"]), spans=spans_of(text, values))
                    draft.say(SYSTEM, system["sent"], acts=[act("request", slot) for slot in system["DA"]])
            yield from draft.done()


def _user_acts(items: list[dict[str, Any]]) -> list[str]:
    """In a request, the slot asked for stands as the value of a slot called 'slot'."""
    return [act(item["act"], value if slot == "slot" else slot) for item in items for slot, value in item["slots"]]
