"""CLINC150: `data_{full,small,imbalanced,oos_plus}.json`, lists of text and intent by split."""

from collections.abc import Iterator

from turnwise.core.dialogue import USER, Dialogue
from turnwise.corpus.source import CorpusError, CorpusSource

_FORMS = ("full", "small", "imbalanced", "oos_plus")
_SPLITS = {
    f"{scope}{key}": split
    for scope in ("", "oos_")
    for key, split in (("train", "train"), ("val", "valid"), ("test", "test"))
}


def read(source: CorpusSource, *, form: str = "full") -> Iterator[Dialogue]:
    """Read one form; each utterance is a dialogue of one turn, and out-of-scope ones have the intent 'oos'.

    A rejection has the line of its list; its dialogue is named by the list's key and the utterance's number in it.

    Args:
        source: the files to read.
        form: 'full', 'small', 'imbalanced' or 'oos_plus'; they share utterances.
    """
    if form not in _FORMS:
        raise CorpusError(f"form must be one of {', '.join(map(repr, _FORMS))}, got {form!r}")
    for path, line, (key, rows) in source.records(source.json_object, f"data_{form}.json"):
        if key not in _SPLITS or not isinstance(rows, list):
            reason = f"expected a list of utterances under one of {', '.join(_SPLITS)}, got {key!r}"
            source.reject(path, line, "file", reason)
            continue
        for number, row in enumerate(rows, 1):
            with source.dialogue(path, line, _SPLITS[key]) as builder:
                builder.id = f"{key}/{number}"
                match row:
                    case [str(text), str(intent)] if text.strip() and intent.strip():
                        builder.add_turn(USER, text, intent)
                    case _:
                        raise ValueError("[text, intent] is expected, both non-blank strings")
            yield from builder.result()
