"""ABCD, customer service with actions: `abcd_v1.1.json`, `{split: [{convo_id, original: [[speaker, text], …]}]}`."""

from collections.abc import Iterator

from turnwise.core.dialogue import SYSTEM, USER, Dialogue
from turnwise.corpus.readers.shared.annotations import split_of
from turnwise.corpus.source.corpus_source import CorpusSource

_SPEAKERS = {"customer": USER, "agent": SYSTEM}


def read(source: CorpusSource) -> Iterator[Dialogue]:
    """Read the file; a customer's turn has the conversation's subflow as intent.

    What the agent does in other systems ('action' rows) is not an utterance.
    """
    for path, line, (split, records) in source.records(source.json_object, "abcd_v*.json", "abcd_v*.json.gz"):
        with source.guard(path, line):
            for record in records:
                with source.dialogue(path, line, split_of(split)) as builder:
                    builder.id = str(record["convo_id"])
                    targets = [turn["targets"] for turn in record.get("delexed", ())]
                    for position, (speaker, text) in enumerate(record["original"]):
                        if speaker == "action":
                            source.skipped["action rows"] += 1
                            continue
                        labelled = speaker == "customer" and position < len(targets)
                        intent = targets[position][0] if labelled else None
                        builder.add_turn(_SPEAKERS.get(speaker, speaker), text, intent)
                yield from builder.result()
