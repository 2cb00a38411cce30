"""Schema-Guided Dialogue: `{train,dev,test}/dialogues_NNN.json`."""

from collections.abc import Iterator

from turnwise.core.dialogue import SYSTEM, USER, Dialogue
from turnwise.corpus.intake import Intake
from turnwise.corpus.readers.labels import Span, act, split_of

_SPEAKERS = {"USER": USER, "SYSTEM": SYSTEM}


def read(intake: Intake) -> Iterator[Dialogue]:
    """Reads the files; a user turn's intent is the first active one of its frames.

    Ids repeat between splits, so the split's folder goes before them.
    """
    for path in intake.files("dialogues_*.json"):
        folder = path.parent.name
        split = split_of(folder)
        for line, record in intake.json_array(path):
            with intake.dialogue(path, line, split) as draft:
                draft.id = f"{folder}/{record['dialogue_id']}" if split else record["dialogue_id"]
                for turn in record["turns"]:
                    intent: str | None = None
                    acts: list[str] = []
                    spans: list[Span] = []
                    for frame in turn["frames"]:
                        acts += [act(action["act"], action["slot"]) for action in frame.get("actions", ())]
                        # values copied from another turn have no place in this text
                        spans += [
                            (slot["slot"], slot["start"], slot["exclusive_end"])
                            for slot in frame["slots"]
                            if "start" in slot
                        ]
                        active = frame.get("state", {}).get("active_intent", "NONE")
                        if not intent and active != "NONE":
                            intent = active
                    speaker = _SPEAKERS.get(turn["speaker"], turn["speaker"])
                    draft.say(speaker, turn["utterance"], intent, acts, spans)
            yield from draft.done()
