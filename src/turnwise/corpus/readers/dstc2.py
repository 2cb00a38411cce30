"""DSTC2: transcripts in ConvLab's unified layout, with the system's acts from a file beside them."""

from collections.abc import Iterator

from turnwise.core.dialogue import Dialogue
from turnwise.corpus.intake import Intake
from turnwise.corpus.readers.unified import read_unified


def read(intake: Intake) -> Iterator[Dialogue]:
    """Reads `data.json`; where `*system_acts.jsonl` lies under the same root, its acts are joined by session and index."""
    acts: dict[str, dict[int, list[str]]] = {}
    if intake.root.is_dir() and any(intake.root.rglob("*system_acts.jsonl")):
        for path in intake.files("*system_acts.jsonl"):
            for line, record in intake.json_lines(path):
                with intake.record(path, line):
                    turns = record["system_turns"]
                    if not all(isinstance(turn["acts"], list) for turn in turns):  # the letters of a string are no acts
                        raise TypeError("'acts' is not a list")
                    acts[record["original_id"]] = {turn["utt_idx"]: turn["acts"] for turn in turns}
    for path in intake.files("data.json"):
        yield from read_unified(intake, path, acts)
