"""HWU64's folds: `KFold_N/trainset/*.csv` and `KFold_N/testset/csv/*.csv`, slots marked as in 'play [song_name : yesterday]'."""

from collections.abc import Iterator

from turnwise.core.dialogue import USER, Dialogue
from turnwise.corpus.intake import CorpusError, Intake
from turnwise.corpus.readers.labels import required
from turnwise.corpus.readers.slot_marks import marked_pieces, slot_spans

_SPLITS = {"trainset": "train", "testset": "test"}


def read(intake: Intake, *, fold: str = "1") -> Iterator[Dialogue]:
    """Reads one fold; each utterance is a dialogue of one turn.

    The text is the one that the annotators saw; what users typed differs from it in numbers, case and punctuation. The intent is
    scenario and intent, joined by '_'. A fold has no split to choose by.

    Args:
        intake: where to read.
        fold: the number of the fold; the folds hold the same utterances in other splits.
    """
    if not fold.isdecimal():
        raise CorpusError(f"fold={fold!r}: choose a number, as in KFold_1")
    for path in intake.files(f"KFold_{fold}/trainset/*.csv", f"KFold_{fold}/testset/csv/*.csv"):
        split = next((_SPLITS[folder] for folder in reversed(path.parts) if folder in _SPLITS), None)
        for line, row in intake.table(path, ";"):
            with intake.dialogue(path, line, split) as draft:
                draft.id = f"{intake.name(path)}/{line}"
                columns = ("scenario", "intent", "answer_annotation", "answer_from_anno")
                scenario, intent, annotation, text = (required(row, column) for column in columns)
                draft.say(USER, text, f"{scenario}_{intent}", spans=slot_spans(marked_pieces(annotation), text))
            yield from draft.done()
