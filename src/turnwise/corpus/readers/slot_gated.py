"""SNIPS and ATIS in the layout of the slot-gated release: `NAME/{train,valid,test}/{seq.in,seq.out,label}`.

`seq.in` has an utterance per line; the same line of the other files has a tag per word and the intent.
"""

from collections.abc import Iterator
from pathlib import Path

from turnwise.core.dialogue import USER, Dialogue
from turnwise.corpus.readers.annotations import parse_slot_tags, slot_spans, split_of
from turnwise.corpus.source import CorpusSource


def read_snips(source: CorpusSource) -> Iterator[Dialogue]:
    """Read the splits; each utterance is a dialogue of one turn."""
    return _read_data_set(source, "snips")


def read_atis(source: CorpusSource) -> Iterator[Dialogue]:
    """Read the splits; each utterance is a dialogue of one turn. An intent that combines two has a # between them."""
    return _read_data_set(source, "atis")


def _read_data_set(source: CorpusSource, name: str) -> Iterator[Dialogue]:
    for path in source.files(f"{name}/*/seq.in"):
        split = path.parent.name
        texts, tags, labels = (_read_lines(source, path.with_name(file)) for file in (path.name, "seq.out", "label"))
        ends = [max(lines, default=0) for lines in (texts, tags, labels)]
        if len(set(ends)) > 1:  # after a missing line, utterances would get the labels of others
            numbers = ", ".join(map(str, ends))
            reason = f"{path.name}, seq.out and label end in lines {numbers}: they need the same number of lines"
            source.reject(path, min(ends) + 1, "file", reason)
            continue
        for line, text in texts.items():
            with source.dialogue(path, line, split_of(split)) as builder:
                builder.id = f"{split}/{line}"
                if line not in tags or line not in labels:
                    raise ValueError("the same line of seq.out or label cannot be read")
                intent = labels[line].strip()
                if not text.strip() or not intent:
                    raise ValueError("an utterance and, in the same line of label, its intent are expected")
                pieces = parse_slot_tags(text.split(), tags[line].split())
                builder.add_turn(USER, text, intent, spans=slot_spans(pieces, text))
            yield from builder.result()


def _read_lines(source: CorpusSource, path: Path) -> dict[int, str]:
    return dict(source.lines(path)) if path.is_file() else {}
