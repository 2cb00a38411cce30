"""ConvLab's unified layout, in which several corpora are passed on: DailyDialog, DSTC2 and GSIM read through it.

`[{dialogue_id, original_id, data_split, turns: [{speaker, utterance, dialogue_act(s)}]}]`, acts as binary, categorical or
non-categorical.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from turnwise.core.dialogue import Dialogue
from turnwise.corpus.intake import Intake
from turnwise.corpus.readers.labels import act, split_of

Acts = Mapping[str, Mapping[int, Sequence[str]]]


def read_unified(intake: Intake, path: Path, acts: Acts | None = None) -> Iterator[Dialogue]:
    """Reads one file.

    Args:
        intake: where to read.
        path: the file.
        acts: acts that the file itself lacks, by the dialogue's original id and the utterance's index.
    """
    for line, record in intake.json_array(path):
        with intake.dialogue(path, line) as draft:
            draft.split = split_of(record.get("data_split", ""))
            draft.id = record.get("original_id") or record["dialogue_id"]
            more = (acts or {}).get(draft.id, {})
            for turn in record["turns"]:
                labels = turn.get("dialogue_act") or turn.get("dialogue_acts") or {}
                items = [item for kind in ("binary", "categorical", "non-categorical") for item in labels.get(kind, ())]
                spans = [(item["slot"], item["start"], item["end"]) for item in items if "start" in item]
                named = [act(item["intent"], item["slot"]) for item in items]
                draft.say(
                    turn["speaker"], turn["utterance"], acts=[*named, *more.get(turn["utt_idx"], ())], spans=spans
                )
        yield from draft.done()
