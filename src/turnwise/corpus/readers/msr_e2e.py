"""MSR-E2E: `{movie,restaurant,taxi}_all.tsv`, a message a row, its acts in the columns after the text."""

import re
from collections.abc import Iterator

from turnwise.core.dialogue import SYSTEM, USER, Dialogue
from turnwise.corpus.intake import Intake
from turnwise.corpus.readers.labels import act, spans_of

_SPEAKERS = {"user": USER, "agent": SYSTEM}
_ACT = re.compile(r"\s*(\w+)\((.*)\)\s*", re.DOTALL)


def read(intake: Intake) -> Iterator[Dialogue]:
    """Reads the files; consecutive rows of one session are one dialogue."""
    for path in intake.files("*_all.tsv"):
        draft = None
        columns: list[str] = []
        for number, line in intake.lines(path):
            cells = line.removeprefix("\ufeff").split("\t")
            if not columns:
                columns = [cell.lower() for cell in cells[:5]]
                continue
            if len(cells) < 5:
                intake.reject(path, number, "turn", f"expected at least 5 cells, got {len(cells)}", text=line)
                continue
            row = dict(zip(columns, cells, strict=False))
            with intake.record(path, number):
                identity = f"{path.stem.removesuffix('_all')}/{row['session.id']}"
                if draft is None or draft.id != identity:
                    if draft is not None:
                        yield from draft.close()
                    draft = intake.dialogue(path, number).open()
                    draft.id = identity
                speaker, text = row["message.from"].strip(), row["message.text"]
                labels = [label for cell in cells[5:] for label in _labels(cell)]
                acts = list(dict.fromkeys(act(name, slot) for name, slot, _ in labels))
                values = [(slot, value) for _, slot, value in labels if slot and value]
                draft.say(_SPEAKERS.get(speaker, speaker), text, acts=acts, spans=spans_of(text, values), line=number)
        if draft is not None:
            yield from draft.close()


def _labels(cell: str) -> Iterator[tuple[str, str | None, str | None]]:
    """(act, slot, value) out of 'request(date;city)' or 'inform(date=today;numberofpeople=2)'."""
    match = _ACT.fullmatch(cell)
    if not match:
        return
    arguments = [argument for argument in match[2].split(";") if argument.strip()]
    if not arguments:
        yield match[1], None, None
    for argument in arguments:
        slot, equals, value = argument.partition("=")
        yield match[1], slot.strip(), value.strip(" {}") if equals else None
