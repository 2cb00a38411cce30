"""STAR: `dialogues/N.json`, a log of events of which some are utterances."""

from collections.abc import Iterator

from turnwise.core.dialogue import SYSTEM, USER, Dialogue
from turnwise.corpus.source import CorpusSource

_UTTERANCES = {("User", "utter"): USER, ("Wizard", "pick_suggestion"): SYSTEM, ("Wizard", "utter"): SYSTEM}


def read(source: CorpusSource) -> Iterator[Dialogue]:
    """Read the files; a turn that the wizard picks has its action label as act. Other events are not utterances."""
    for path in source.files("dialogues/*.json"):
        text = source.read_text(path)
        if text is None:
            continue
        with source.dialogue(path, None) as builder:
            record = source.parse_json(text)
            builder.id = str(record["DialogueID"])
            for event in record["Events"]:
                speaker = _UTTERANCES.get((event["Agent"], event["Action"]))
                if speaker is None:
                    source.skipped["events that are no utterances"] += 1
                    continue
                label = event.get("ActionLabel")
                builder.add_turn(speaker, event["Text"], acts=[label] if label else ())
        yield from builder.result()
