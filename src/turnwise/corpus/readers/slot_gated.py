"""The layout of the slot-gated releases, in which SNIPS and ATIS are passed on.

`NAME/{train,valid,test}/{seq.in,seq.out,label}`: an utterance a line, and in the same line of the other files a tag for each of its
words and its intent.
"""

from collections.abc import Iterator
from pathlib import Path

from turnwise.core.dialogue import USER, Dialogue
from turnwise.corpus.intake import Intake
from turnwise.corpus.readers.labels import split_of
from turnwise.corpus.readers.slot_marks import slot_spans, tagged_pieces


def read_slot_gated(intake: Intake, name: str) -> Iterator[Dialogue]:
    """Reads the splits of one data set; each utterance is a dialogue of one turn.

    Files of unequal length are left out together: past a line that is missing in one of them, utterances would have the labels of
    others.
    """
    for path in intake.files(f"{name}/*/seq.in"):
        split = path.parent.name
        texts, tags, labels = (_lines(intake, path.with_name(file)) for file in (path.name, "seq.out", "label"))
        ends = [max(lines, default=0) for lines in (texts, tags, labels)]
        if len(set(ends)) > 1:
            reason = f"{path.name}, seq.out and label end in lines {', '.join(map(str, ends))}: they need the same number of lines"
            intake.reject(path, min(ends) + 1, "file", reason)
            continue
        for line, text in texts.items():
            with intake.dialogue(path, line, split_of(split)) as draft:
                draft.id = f"{split}/{line}"
                if line not in tags or line not in labels:
                    raise ValueError("the same line of seq.out or label cannot be read")
                intent = labels[line].strip()
                if not text.strip() or not intent:
                    raise ValueError("an utterance and, in the same line of label, its intent are expected")
                draft.say(USER, text, intent, spans=slot_spans(tagged_pieces(text.split(), tags[line].split()), text))
            yield from draft.done()


def _lines(intake: Intake, path: Path) -> dict[int, str]:
    """The lines of a file by number, but for those that cannot be decoded; none where there is no such file."""
    return dict(intake.lines(path)) if path.is_file() else {}
