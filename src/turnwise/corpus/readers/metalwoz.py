"""MetaLWOZ: `dialogues/DOMAIN.txt`, JSON Lines `{id, domain, turns: [str, …]}`; the bot speaks first."""

from collections.abc import Iterator

from turnwise.core.dialogue import SYSTEM, USER, Dialogue
from turnwise.corpus.intake import Intake


def read(intake: Intake) -> Iterator[Dialogue]:
    """Reads the files."""
    for path in intake.files("dialogues/*.txt"):
        for line, record in intake.json_lines(path):
            with intake.dialogue(path, line) as draft:
                draft.id = record["id"]
                if not isinstance(record["turns"], list):  # the letters of a string are no turns
                    raise TypeError("'turns' is not a list")
                for position, text in enumerate(record["turns"]):
                    draft.say((SYSTEM, USER)[position % 2], text)
            yield from draft.done()
