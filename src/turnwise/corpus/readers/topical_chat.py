"""Topical-Chat: `conversations/*.json`, `{id: {content: [{agent, message, sentiment, …}]}}`."""

from collections.abc import Iterator

from turnwise.core.dialogue import Dialogue
from turnwise.corpus.intake import Intake
from turnwise.corpus.readers.labels import split_of


def read(intake: Intake) -> Iterator[Dialogue]:
    """Reads the files; the two agents are equals."""
    for path in intake.files("conversations/*.json"):
        for line, key, record in intake.json_object(path):
            with intake.dialogue(path, line, split_of(path.stem)) as draft:
                draft.id = key
                for message in record["content"]:
                    draft.say(draft.peer(message["agent"]), message["message"])
            yield from draft.done()
