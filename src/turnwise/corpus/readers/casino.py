"""CaSiNo, campsite negotiations: `split/casino_{train,valid,test}.json`."""

from collections.abc import Iterator

from turnwise.core.dialogue import Dialogue
from turnwise.corpus.intake import Intake
from turnwise.corpus.readers.labels import split_of


def read(intake: Intake) -> Iterator[Dialogue]:
    """Reads the files; annotated strategies become acts. Moves such as 'Submit-Deal' are turns, as in the source."""
    for path in intake.files("casino_*.json"):
        for line, record in intake.json_array(path):
            with intake.dialogue(path, line, split_of(path.stem)) as draft:
                draft.id = str(record["dialogue_id"])
                # annotations are pairs (utterance, strategies) that skip the moves
                annotations = iter(record.get("annotations", ()))
                following = next(annotations, None)
                for message in record["chat_logs"]:
                    acts: list[str] = []
                    if following and following[0] == message["text"]:
                        acts = following[1].split(",")
                        following = next(annotations, None)
                    draft.say(draft.peer(message["id"]), message["text"], acts=acts)
            yield from draft.done()
