"""HWU64's folds: `KFold_N/{trainset,testset/csv}/*.csv`, with slots marked as in 'play [song_name : yesterday]'."""

from collections.abc import Iterator

from turnwise.core.dialogue import USER, Dialogue
from turnwise.corpus.readers.annotations import parse_inline_slots, require_text, slot_spans
from turnwise.corpus.source import CorpusError, CorpusSource

_SPLITS = {"trainset": "train", "testset": "test"}


def read(source: CorpusSource, *, fold: str = "1") -> Iterator[Dialogue]:
    """Read one fold; each utterance is a dialogue of one turn.

    The text is the one shown to the annotators; what users typed differs in numbers, case and punctuation. The intent is
    scenario and intent, joined by '_'. A fold has no validation split.

    Args:
        source: the files to read.
        fold: the number of the fold; the folds contain the same utterances in other splits.
    """
    if not fold.isdecimal():
        raise CorpusError(f"fold must be a number, as in KFold_1, got {fold!r}")
    for path in source.files(f"KFold_{fold}/trainset/*.csv", f"KFold_{fold}/testset/csv/*.csv"):
        split = next((_SPLITS[folder] for folder in reversed(path.parts) if folder in _SPLITS), None)
        for line, row in source.csv_rows(path, ";"):
            with source.dialogue(path, line, split) as builder:
                builder.id = f"{source.relative_name(path)}/{line}"
                columns = ("scenario", "intent", "answer_annotation", "answer_from_anno")
                scenario, intent, annotation, text = (require_text(row, column) for column in columns)
                spans = slot_spans(parse_inline_slots(annotation), text)
                builder.add_turn(USER, text, f"{scenario}_{intent}", spans=spans)
            yield from builder.result()
