"""Taskmaster-1, -2 and -4, and the full release of -3: `[{conversation_id, utterances: [{speaker, text, segments}]}]`."""

from collections.abc import Iterator

from turnwise.core.dialogue import SYSTEM, USER, Dialogue
from turnwise.corpus.intake import Intake
from turnwise.corpus.readers.labels import Span

_SPEAKERS = {"user": USER, "assistant": SYSTEM}


def read(intake: Intake) -> Iterator[Dialogue]:
    """Reads the data files, not samples, ontologies or rewards; segments become slots under their annotation's name."""
    for path in intake.files("data/*.json", "self-dialogs.json", "woz-dialogs.json"):
        for line, record in intake.json_array(path):
            with intake.dialogue(path, line) as draft:
                draft.id = record["conversation_id"]
                for utterance in record["utterances"]:
                    speaker = utterance["speaker"].lower()
                    spans: list[Span] = [
                        (annotation["name"], _offset(segment["start_index"]), _offset(segment["end_index"]))
                        for segment in utterance.get("segments", ())
                        for annotation in segment["annotations"]
                    ]
                    draft.say(_SPEAKERS.get(speaker, speaker), utterance["text"], spans=spans)
            yield from draft.done()


def _offset(value: int | str) -> int:
    """Releases write offsets as numbers or as strings of digits."""
    return int(value) if isinstance(value, str) else value
