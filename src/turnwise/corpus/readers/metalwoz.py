"""MetaLWOZ: `dialogues/DOMAIN.txt`, JSON Lines `{id, domain, turns: [str, …]}`; the bot speaks first."""

from collections.abc import Iterator

from turnwise.core.dialogue import SYSTEM, USER, Dialogue
from turnwise.corpus.source import CorpusSource


def read(source: CorpusSource) -> Iterator[Dialogue]:
    """Read the files."""
    for path, line, record in source.records(source.json_lines, "dialogues/*.txt"):
        with source.dialogue(path, line) as builder:
            builder.id = record["id"]
            if not isinstance(record["turns"], list):  # not the letters of a string
                raise TypeError("'turns' is not a list")
            for position, text in enumerate(record["turns"]):
                builder.add_turn((SYSTEM, USER)[position % 2], text)
        yield from builder.result()
