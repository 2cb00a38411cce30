"""Response-selection files: contexts with candidate responses, of which some are right.

Two layouts are common. Ubuntu V1's, which Douban and E-commerce share: `label<TAB>turn…<TAB>response`, a candidate a line,
the candidates of one context on consecutive lines. Ubuntu V2's: CSV with `Context` and either `Utterance, Label` or
`Ground Truth Utterance, Distractor_0, …`; utterances end in `__eou__`, turns in `__eot__`.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from turnwise.corpus.intake import Intake


@dataclass(frozen=True, slots=True)
class Candidates:
    """A context, its candidate responses, and which of them are right."""

    context: tuple[str, ...]
    responses: tuple[str, ...]
    labels: tuple[bool, ...]

    @property
    def positives(self) -> tuple[str, ...]:
        """The right responses."""
        return tuple(response for response, right in zip(self.responses, self.labels, strict=True) if right)


def read_candidates(intake: Intake, path: Path) -> Iterator[tuple[int, Candidates]]:
    """Reads a file of either layout (`.csv`: Ubuntu V2's); gives the line of each context's first candidate."""
    rows = _csv_rows(intake, path) if path.suffix == ".csv" else _text_rows(intake, path)
    for context, group in groupby(rows, key=lambda row: row[1]):
        lines, _, responses, labels = zip(*group, strict=True)
        yield lines[0], Candidates(context, responses, labels)


_Row = tuple[int, tuple[str, ...], str, bool]


def _text_rows(intake: Intake, path: Path) -> Iterator[_Row]:
    for number, line in intake.lines(path):
        if not line:
            continue
        label, *turns = line.split("\t")
        if label not in ("0", "1") or len(turns) < 2:
            intake.reject(
                path, number, "dialogue", "expected 0 or 1, a turn or more, and a response, by tabs", text=line
            )
            continue
        yield number, tuple(turns[:-1]), turns[-1], label == "1"


def _csv_rows(intake: Intake, path: Path) -> Iterator[_Row]:
    for number, row in intake.table(path):
        with intake.record(path, number):
            context = tuple(_utterances(turn) for turn in (row["Context"] or "").split("__eot__") if turn.strip())
            if "Label" in row:
                yield number, context, _utterances(row["Utterance"] or ""), float(row["Label"] or 0) == 1
                continue
            yield number, context, _utterances(row["Ground Truth Utterance"] or ""), True
            for column, response in row.items():
                if column.startswith("Distractor_"):
                    yield number, context, _utterances(response or ""), False


def _utterances(turn: str) -> str:
    """The utterances of one turn as one text."""
    return " ".join(piece.strip() for piece in turn.split("__eou__") if piece.strip())
