"""Reddit (and anything like it) as context and response: JSON Lines `{context, response, "context/0", "context/1", …}`.

`context` is what the response answers; `context/0` came before it, `context/1` before that.
"""

from collections.abc import Iterator

from turnwise.core.dialogue import Dialogue, peer
from turnwise.corpus.intake import Intake


def read(intake: Intake) -> Iterator[Dialogue]:
    """Reads the files. Authors of earlier contexts are not in the source: two people are taken to alternate."""
    for path in intake.files("*.json", "*.jsonl", "*.json.gz", "*.jsonl.gz"):
        for line, record in intake.json_lines(path):
            with intake.dialogue(path, line) as draft:
                # a thread has many responses: its id alone would not be unique
                draft.id = f"{intake.name(path)}/{line}"
                count = sum(key.startswith("context/") for key in record)
                earlier = [record[f"context/{number}"] for number in reversed(range(count))]
                for position, text in enumerate([*earlier, record["context"], record["response"]]):
                    draft.say(peer(1 + position % 2), text)
            yield from draft.done()
