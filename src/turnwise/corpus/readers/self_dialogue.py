"""The self-dialogue corpus: `corpus/TOPIC/*.csv`, a dialogue per row, both parts written by one person."""

from collections.abc import Iterator

from turnwise.core.dialogue import Dialogue, peer
from turnwise.corpus.source import CorpusError, CorpusSource

_SENTENCE = "Answer.sentence"


def read(source: CorpusSource, *, drop_blocked_workers: bool = False) -> Iterator[Dialogue]:
    """Read the rows.

    Args:
        source: the files to read.
        drop_blocked_workers: leave out the rows of the workers that the authors list in `blocked_workers.txt`.
    """
    blocked: set[str] = set()
    if drop_blocked_workers:
        if source.root.is_file():
            raise CorpusError(f"{source.root} is a file: import the corpus' folder, which has blocked_workers.txt")
        blocked = {line.strip() for _, _, line in source.records(source.lines, "blocked_workers.txt")} - {""}
    for path, line, row in source.records(source.csv_rows, "corpus/*/*.csv"):
        cells = sorted(
            (int(column.removeprefix(_SENTENCE)), cell or "")
            for column, cell in row.items()
            if column.startswith(_SENTENCE) and column.removeprefix(_SENTENCE).isdecimal()
        )
        sentences = [(number, text) for number, text in cells if text.strip()]
        source.skipped["blank cells"] += len(cells) - len(sentences)
        if row.get("WorkerId") in blocked:
            source.skipped["dialogues of blocked workers"] += 1
            source.skipped["utterances of blocked workers"] += len(sentences)
            source.counts.dialogues += 1
            source.counts.utterances += len(sentences)
            continue
        with source.dialogue(path, line) as builder:
            builder.id = row["AssignmentId"] or ""
            for number, text in sentences:
                builder.add_turn(peer(2 - number % 2), text)
        yield from builder.result()
