"""STAR: `dialogues/N.json`, a log of events of which some are utterances."""

from collections.abc import Iterator

from turnwise.core.dialogue import SYSTEM, USER, Dialogue
from turnwise.corpus.intake import Intake

_UTTERANCES = {("User", "utter"): USER, ("Wizard", "pick_suggestion"): SYSTEM, ("Wizard", "utter"): SYSTEM}


def read(intake: Intake) -> Iterator[Dialogue]:
    """Reads the files; what the wizard picks carries its action label as act. Queries and instructions are no utterances."""
    for path in intake.files("dialogues/*.json"):
        text = intake.text(path)
        if text is None:
            continue
        with intake.dialogue(path, None) as draft:
            record = intake.json(text)
            draft.id = str(record["DialogueID"])
            for event in record["Events"]:
                speaker = _UTTERANCES.get((event["Agent"], event["Action"]))
                if speaker is None:
                    intake.left_out["events that are no utterances"] += 1
                    continue
                label = event.get("ActionLabel")
                draft.say(speaker, event["Text"], acts=[label] if label else ())
        yield from draft.done()
