"""CCPE-M, coached conversations about films: `data.json`, `[{conversationId, utterances: [{speaker, text, segments}]}]`."""

from collections.abc import Iterator

from turnwise.core.dialogue import SYSTEM, USER, Dialogue
from turnwise.corpus.intake import Intake

_SPEAKERS = {"USER": USER, "ASSISTANT": SYSTEM}


def read(intake: Intake) -> Iterator[Dialogue]:
    """Reads the file; annotated segments become slots under their entity type."""
    for path in intake.files("data.json"):
        for line, record in intake.json_array(path):
            with intake.dialogue(path, line) as draft:
                draft.id = record["conversationId"]
                for utterance in record["utterances"]:
                    spans = [
                        (annotation["entityType"], segment["startIndex"], segment["endIndex"])
                        for segment in utterance.get("segments", ())
                        for annotation in segment["annotations"]
                    ]
                    speaker = _SPEAKERS.get(utterance["speaker"], utterance["speaker"])
                    draft.say(speaker, utterance["text"], spans=spans)
            yield from draft.done()
