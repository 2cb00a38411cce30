"""CLINC150: `data_{full,small,imbalanced,oos_plus}.json`, lists of text and intent by split."""

from collections.abc import Iterator

from turnwise.core.dialogue import USER, Dialogue
from turnwise.corpus.intake import CorpusError, Intake

_FORMS = ("full", "small", "imbalanced", "oos_plus")
_SPLITS = {
    f"{scope}{key}": split
    for scope in ("", "oos_")
    for key, split in (("train", "train"), ("val", "valid"), ("test", "test"))
}


def read(intake: Intake, *, form: str = "full") -> Iterator[Dialogue]:
    """Reads one form; each utterance is a dialogue of one turn, and out-of-scope ones have the intent 'oos'.

    The line of a rejection is its list's, and its dialogue is the list's key and the utterance's number in it.

    Args:
        intake: where to read.
        form: 'full', 'small', 'imbalanced' or 'oos_plus'; they share utterances.
    """
    if form not in _FORMS:
        raise CorpusError(f"form={form!r}: choose {', '.join(map(repr, _FORMS))}")
    for path in intake.files(f"data_{form}.json"):
        for line, key, rows in intake.json_object(path):
            if key not in _SPLITS or not isinstance(rows, list):
                intake.reject(
                    path,
                    line,
                    "file",
                    f"a list of utterances under one of {', '.join(_SPLITS)} is expected, not {key!r}",
                )
                continue
            for number, row in enumerate(rows, 1):
                with intake.dialogue(path, line, _SPLITS[key]) as draft:
                    draft.id = f"{key}/{number}"
                    match row:
                        case [str(text), str(intent)] if text.strip() and intent.strip():
                            draft.say(USER, text, intent)
                        case _:
                            raise ValueError("[text, intent] is expected, both of them texts that are not blank")
                yield from draft.done()
