"""The chitchat data set: `dataset.json`, `{id: {messages: [[{text, sender, timestamp}, …] a run of one sender]}}`."""

from collections.abc import Iterator

from turnwise.core.dialogue import Dialogue
from turnwise.corpus.intake import Intake


def read(intake: Intake) -> Iterator[Dialogue]:
    """Reads the file, a turn a message; the step `merge-speakers` joins the runs."""
    for path in intake.files("dataset.json"):
        for line, key, record in intake.json_object(path):
            with intake.dialogue(path, line) as draft:
                draft.id = key
                for run in record["messages"]:
                    for message in run:
                        draft.say(draft.peer(message["sender"]), message["text"])
            yield from draft.done()
