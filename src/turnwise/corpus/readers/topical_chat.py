"""Topical-Chat: `conversations/*.json`, `{id: {content: [{agent, message, sentiment, …}]}}`."""

from collections.abc import Iterator

from turnwise.core.dialogue import Dialogue
from turnwise.corpus.readers.annotations import split_of
from turnwise.corpus.source import CorpusSource


def read(source: CorpusSource) -> Iterator[Dialogue]:
    """Read the files; the two agents have no roles."""
    for path, line, (key, record) in source.records(source.json_object, "conversations/*.json"):
        with source.dialogue(path, line, split_of(path.stem)) as builder:
            builder.id = key
            for message in record["content"]:
                builder.add_turn(builder.peer(message["agent"]), message["message"])
        yield from builder.result()
