"""The chitchat data set: `dataset.json`, `{id: {messages: [[{text, sender, timestamp}, …]]}}`, an inner list per run of a sender."""

from collections.abc import Iterator

from turnwise.core.dialogue import Dialogue
from turnwise.corpus.source import CorpusSource


def read(source: CorpusSource) -> Iterator[Dialogue]:
    """Read the file, a turn per message; the step `merge-speakers` joins the runs."""
    for path, line, (key, record) in source.records(source.json_object, "dataset.json"):
        with source.dialogue(path, line) as builder:
            builder.id = key
            for run in record["messages"]:
                for message in run:
                    builder.add_turn(builder.peer(message["sender"]), message["text"])
        yield from builder.result()
