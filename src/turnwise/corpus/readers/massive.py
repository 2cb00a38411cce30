"""MASSIVE: `LOCALE.jsonl`, a labelled utterance a line, its slots marked as in 'wake me up at [time : five am]'."""

import re
from collections.abc import Iterator

from turnwise.core.dialogue import USER, Dialogue
from turnwise.corpus.intake import CorpusError, Intake
from turnwise.corpus.readers.labels import required, split_of
from turnwise.corpus.readers.slot_marks import marked_pieces, slot_spans

_EVERY = "all"


def read(intake: Intake, *, locale: str = "en-US") -> Iterator[Dialogue]:
    """Reads one locale or all; each utterance is a dialogue of one turn.

    Args:
        intake: where to read.
        locale: the locale to read, such as 'de-DE', or 'all'.
    """
    if locale != _EVERY and not re.fullmatch("[a-z]{2}-[A-Z]{2}", locale):
        raise CorpusError(f"locale={locale!r}: choose one such as 'de-DE', or {_EVERY!r}")
    for path in intake.files("[a-z][a-z]-[A-Z][A-Z].jsonl" if locale == _EVERY else f"{locale}.jsonl"):
        for line, record in intake.json_lines(path):
            with intake.dialogue(path, line) as draft:
                spoken = required(record, "locale")
                draft.id = f"{spoken}/{required(record, 'id')}"
                if locale not in (_EVERY, spoken):
                    raise ValueError(f"the locale is {spoken!r}, not {locale!r}: say locale={spoken} to read it")
                partition, intent, text, annotation = (
                    required(record, key) for key in ("partition", "intent", "utt", "annot_utt")
                )
                draft.split = split_of(partition)
                if draft.split is None:
                    raise ValueError(f"the partition {partition!r} is none of train, dev, test")
                draft.say(USER, text, intent, spans=slot_spans(marked_pieces(annotation), text))
            yield from draft.done()
