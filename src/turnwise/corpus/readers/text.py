"""Plain text: `Speaker: what they said` a line, a blank line between dialogues."""

import re
from collections.abc import Iterator, Mapping

from turnwise.core.dialogue import Dialogue
from turnwise.corpus.intake import Intake
from turnwise.corpus.readers.roles import Roles

#: A name of up to 40 characters, a colon, and a space or nothing: '10:30' and 'http://' start no turn.
_TURN = re.compile(r"([^:\t]{1,40}?)\s*:(?:\s+(.*))?")


def read(intake: Intake, *, speakers: Mapping[str, str] | None = None) -> Iterator[Dialogue]:
    """Reads the files; a line that names no speaker goes on with the turn before it.

    Args:
        intake: where to read.
        speakers: names and who they are: 'bob=system,*=user'; role words are known, others are numbered.
    """
    roles = Roles(intake, speakers or {})
    for path in intake.files("*.txt"):
        for number, block in _blocks(intake.lines(path)):
            with intake.dialogue(path, number) as draft:
                draft.id = f"{intake.name(path)}/{number}"
                said: list[tuple[int, str, list[str]]] = []
                for line, text in block:
                    match = _TURN.fullmatch(text.strip())
                    if match:
                        said.append((line, match[1], [match[2] or ""]))
                    elif said:
                        said[-1][2].append(text.strip())
                        intake.left_out["line ends inside a turn (the lines are kept)"] += 1
                    else:
                        intake.read.utterances += 1
                        reason = "the dialogue's first line names no speaker; 'Speaker: text' is expected"
                        intake.reject(path, line, "turn", reason, text=text)
                for line, name, texts in said:
                    draft.say(roles.speaker(draft, name), "\n".join(texts), line=line)
            yield from draft.done()


def _blocks(lines: Iterator[tuple[int, str]]) -> Iterator[tuple[int, list[tuple[int, str]]]]:
    block: list[tuple[int, str]] = []
    for number, line in lines:
        if line.strip():
            block.append((number, line))
        elif block:
            yield block[0][0], block
            block = []
    if block:
        yield block[0][0], block
