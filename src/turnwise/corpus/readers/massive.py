"""MASSIVE: `LOCALE.jsonl`, a labelled utterance per line, its slots marked as in 'wake me up at [time : five am]'."""

import re
from collections.abc import Iterator

from turnwise.core.dialogue import USER, Dialogue
from turnwise.corpus.readers.annotations import parse_inline_slots, require_text, slot_spans, split_of
from turnwise.corpus.source import CorpusError, CorpusSource

_ALL_LOCALES = "all"


def read(source: CorpusSource, *, locale: str = "en-US") -> Iterator[Dialogue]:
    """Read one locale or all; each utterance is a dialogue of one turn.

    Args:
        source: the files to read.
        locale: the locale to read, such as 'de-DE', or 'all'.
    """
    if locale != _ALL_LOCALES and not re.fullmatch("[a-z]{2}-[A-Z]{2}", locale):
        raise CorpusError(f"locale must be one such as 'de-DE', or {_ALL_LOCALES!r}, got {locale!r}")
    pattern = "[a-z][a-z]-[A-Z][A-Z].jsonl" if locale == _ALL_LOCALES else f"{locale}.jsonl"
    for path, line, record in source.records(source.json_lines, pattern):
        with source.dialogue(path, line) as builder:
            record_locale = require_text(record, "locale")
            builder.id = f"{record_locale}/{require_text(record, 'id')}"
            if locale not in (_ALL_LOCALES, record_locale):
                raise ValueError(f"the locale is {record_locale!r}: set locale={record_locale} to read it")
            keys = ("partition", "intent", "utt", "annot_utt")
            partition, intent, text, annotation = (require_text(record, key) for key in keys)
            builder.split = split_of(partition)
            if builder.split is None:
                raise ValueError(f"the partition must be train, dev or test, got {partition!r}")
            builder.add_turn(USER, text, intent, spans=slot_spans(parse_inline_slots(annotation), text))
        yield from builder.result()
