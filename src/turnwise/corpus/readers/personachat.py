"""PersonaChat in its release's text layout: lines `N said<TAB>answered<TAB><TAB>candidates`; 1 starts a dialogue."""

import re
from collections.abc import Iterator
from pathlib import Path

from turnwise.core.dialogue import Dialogue, peer
from turnwise.corpus.intake import Intake
from turnwise.corpus.readers.labels import split_of

_LINE = re.compile(r"(\d+) (.*)", re.DOTALL)
_PERSONA = ("your persona:", "partner's persona:")


def read(intake: Intake, *, variant: str = "none_original") -> Iterator[Dialogue]:
    """Reads `{train,valid,test}_VARIANT.txt`.

    Args:
        intake: where to read.
        variant: which of the release's files; they hold the same dialogues beside different personas, which are no turns.
    """
    for path in intake.files(f"*_{variant}.txt"):
        count = 0
        block: list[tuple[int, str]] = []
        for number, line in intake.lines(path):
            match = _LINE.fullmatch(line)
            if not match:
                if line.strip():
                    intake.reject(path, number, "turn", "expected a number, a space and a text", text=line)
                continue
            if match[1] == "1" and block:
                yield from _dialogue(intake, path, f"{path.stem}/{count}", block)
                count, block = count + 1, []
            block.append((number, match[2]))
        if block:
            yield from _dialogue(intake, path, f"{path.stem}/{count}", block)


def _dialogue(intake: Intake, path: Path, identity: str, block: list[tuple[int, str]]) -> Iterator[Dialogue]:
    with intake.dialogue(path, block[0][0], split_of(path.stem)) as draft:
        draft.id = identity
        for number, text in block:
            if text.startswith(_PERSONA):
                intake.left_out["persona lines"] += 1
                continue
            said, _, rest = text.partition("\t")
            answered, _, _candidates = rest.partition("\t")
            if said != "__SILENCE__":  # whoever answers speaks first
                draft.say(peer(1), said, line=number)
            draft.say(peer(2), answered, line=number)
    yield from draft.done()
