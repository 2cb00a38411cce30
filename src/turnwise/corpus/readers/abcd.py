"""ABCD, customer service with actions: `abcd_v1.1.json`, `{split: [{convo_id, original: [[speaker, text], …]}]}`."""

from collections.abc import Iterator

from turnwise.core.dialogue import SYSTEM, USER, Dialogue
from turnwise.corpus.intake import Intake
from turnwise.corpus.readers.labels import split_of

_SPEAKERS = {"customer": USER, "agent": SYSTEM}


def read(intake: Intake) -> Iterator[Dialogue]:
    """Reads the file; a customer's turn has the conversation's subflow as intent.

    What the agent does in other systems ('action' rows) is no utterance.
    """
    for path in intake.files("abcd_v*.json", "abcd_v*.json.gz"):
        for line, split, records in intake.json_object(path):
            with intake.record(path, line):
                for record in records:
                    with intake.dialogue(path, line, split_of(split)) as draft:
                        draft.id = str(record["convo_id"])
                        targets = [turn["targets"] for turn in record.get("delexed", ())]
                        for position, (speaker, text) in enumerate(record["original"]):
                            if speaker == "action":
                                intake.left_out["action rows"] += 1
                                continue
                            labelled = speaker == "customer" and position < len(targets)
                            draft.say(_SPEAKERS.get(speaker, speaker), text, targets[position][0] if labelled else None)
                    yield from draft.done()
