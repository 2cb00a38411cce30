"""The self-dialogue corpus: `corpus/TOPIC/*.csv`, a dialogue a row, both parts written by one person."""

from collections.abc import Iterator

from turnwise.core.dialogue import Dialogue, peer
from turnwise.corpus.intake import CorpusError, Intake

_SENTENCE = "Answer.sentence"


def read(intake: Intake, *, drop_blocked_workers: bool = False) -> Iterator[Dialogue]:
    """Reads the rows.

    Args:
        intake: where to read.
        drop_blocked_workers: leave out the rows of the workers that the authors name in `blocked_workers.txt`.
    """
    blocked: set[str] = set()
    if drop_blocked_workers:
        if intake.root.is_file():
            raise CorpusError(
                f"{intake.root} is a file: blocked_workers.txt lies beside it, so import the corpus' folder"
            )
        for path in intake.files("blocked_workers.txt"):
            blocked |= {line.strip() for _, line in intake.lines(path)} - {""}
    for path in intake.files("corpus/*/*.csv"):
        for line, row in intake.table(path):
            sentences = sorted(
                (int(column.removeprefix(_SENTENCE)), cell or "")
                for column, cell in row.items()
                if column.startswith(_SENTENCE) and column.removeprefix(_SENTENCE).isdecimal()
            )
            said = [(number, text) for number, text in sentences if text.strip()]
            intake.left_out["blank cells"] += len(sentences) - len(said)
            if row.get("WorkerId") in blocked:
                intake.left_out["dialogues of blocked workers"] += 1
                intake.left_out["utterances of blocked workers"] += len(said)
                intake.read.dialogues += 1
                intake.read.utterances += len(said)
                continue
            with intake.dialogue(path, line) as draft:
                draft.id = row["AssignmentId"] or ""
                for number, text in said:
                    draft.say(peer(2 - number % 2), text)
            yield from draft.done()
