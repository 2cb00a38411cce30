"""SMD / KVRET, the in-car assistant of Eric and Manning: `kvret_{train,dev,test}_public.json`."""

from collections.abc import Iterator
from typing import Any

from turnwise.core.dialogue import SYSTEM, USER, Dialogue
from turnwise.corpus.intake import Intake
from turnwise.corpus.readers.labels import act, spans_of, split_of

_SPEAKERS = {"driver": USER, "assistant": SYSTEM}


def read(intake: Intake) -> Iterator[Dialogue]:
    """Reads the files; the scenario's intent is the first driver turn's.

    What the driver informs and requests is written at the assistant's next turn in the source; here it stands with the
    driver.
    """
    for path in intake.files("kvret_*_public.json"):
        for line, record in intake.json_array(path):
            with intake.dialogue(path, line, split_of(path.stem)) as draft:
                draft.id = record["scenario"]["uuid"]
                intent: str | None = record["scenario"]["task"]["intent"]
                turns = record["dialogue"]
                for position, turn in enumerate(turns):
                    text = turn["data"]["utterance"]
                    if turn["turn"] != "driver":
                        draft.say(_SPEAKERS.get(turn["turn"], turn["turn"]), text)
                        continue
                    slots, requested = _labels(turns, position)
                    draft.say(
                        USER,
                        text,
                        intent,
                        [act("inform", slot) for slot in slots] + [act("request", slot) for slot in requested],
                        spans_of(text, slots.items()),
                    )
                    intent = None
            yield from draft.done()


def _labels(turns: list[dict[str, Any]], position: int) -> tuple[dict[str, str], list[str]]:
    after = turns[position + 1]["data"] if position + 1 < len(turns) else {}
    return after.get("slots", {}), [slot for slot, wanted in after.get("requested", {}).items() if wanted]
