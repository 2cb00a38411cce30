"""WOZ 2.0: `woz_{train,validate,test}_en.json`; a turn holds the system's words and then the user's."""

from collections.abc import Iterator
from typing import Any

from turnwise.core.dialogue import SYSTEM, USER, Dialogue
from turnwise.corpus.intake import Intake
from turnwise.corpus.readers.labels import act, spans_of, split_of


def read(intake: Intake) -> Iterator[Dialogue]:
    """Reads the files; the empty system transcript before the first user turn is no utterance."""
    for path in intake.files("woz_*_en.json"):
        for line, record in intake.json_array(path):
            with intake.dialogue(path, line, split_of(path.stem)) as draft:
                draft.id = f"{path.stem}/{record['dialogue_idx']}"
                for position, turn in enumerate(record["dialogue"]):
                    if position or turn["system_transcript"].strip():
                        draft.say(SYSTEM, turn["system_transcript"], acts=_system_acts(turn["system_acts"]))
                    text, labels = turn["transcript"], turn["turn_label"]
                    acts = [
                        act("request", value) if slot == "request" else act("inform", slot) for slot, value in labels
                    ]
                    values = [(slot, value) for slot, value in labels if slot != "request"]  # asked for, not said
                    draft.say(USER, text, acts=acts, spans=spans_of(text, values))
            yield from draft.done()


def _system_acts(acts: list[Any]) -> list[str]:
    """A bare slot is one the system asks for; a slot with a value is one it confirms."""
    return [act("request", item) if isinstance(item, str) else act("confirm", item[0]) for item in acts]
