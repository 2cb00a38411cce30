"""Schema-Guided Dialogue: `{train,dev,test}/dialogues_NNN.json`."""

from collections.abc import Iterator

from turnwise.core.dialogue import SYSTEM, USER, Dialogue
from turnwise.corpus.readers.shared.annotations import act, split_of
from turnwise.corpus.source.corpus_source import CorpusSource

_SPEAKERS = {"USER": USER, "SYSTEM": SYSTEM}


def read(source: CorpusSource) -> Iterator[Dialogue]:
    """Read the files; a user turn's intent is the first active one of its frames.

    Ids repeat between splits, so they are prefixed with the split's folder.
    """
    for path, line, record in source.records(source.json_array, "dialogues_*.json"):
        folder = path.parent.name
        split = split_of(folder)
        with source.dialogue(path, line, split) as builder:
            builder.id = f"{folder}/{record['dialogue_id']}" if split else record["dialogue_id"]
            for turn in record["turns"]:
                frames = turn["frames"]
                acts = [act(action["act"], action["slot"]) for frame in frames for action in frame.get("actions", ())]
                # values copied from another turn have no offsets
                spans = [
                    (slot["slot"], slot["start"], slot["exclusive_end"])
                    for frame in frames
                    for slot in frame["slots"]
                    if "start" in slot
                ]
                intents = (frame.get("state", {}).get("active_intent", "NONE") for frame in frames)
                intent = next((intent for intent in intents if intent and intent != "NONE"), None)
                speaker = _SPEAKERS.get(turn["speaker"], turn["speaker"])
                builder.add_turn(speaker, turn["utterance"], intent, acts, spans)
        yield from builder.result()
