"""Reddit (and anything like it) as context and response: JSON Lines `{context, response, "context/0", "context/1", …}`.

`context` is what the response replies to; `context/0` precedes it, `context/1` precedes that.
"""

from collections.abc import Iterator

from turnwise.core.dialogue import Dialogue, peer
from turnwise.corpus.source import CorpusSource


def read(source: CorpusSource) -> Iterator[Dialogue]:
    """Read the files; the source does not name the authors, so two speakers are assumed to alternate."""
    for path, line, record in source.records(source.json_lines, "*.json", "*.jsonl", "*.json.gz", "*.jsonl.gz"):
        with source.dialogue(path, line) as builder:
            # a thread has many responses: its id alone would not be unique
            builder.id = f"{source.relative_name(path)}/{line}"
            count = sum(key.startswith("context/") for key in record)
            earlier = [record[f"context/{number}"] for number in reversed(range(count))]
            for position, text in enumerate([*earlier, record["context"], record["response"]]):
                builder.add_turn(peer(1 + position % 2), text)
        yield from builder.result()
