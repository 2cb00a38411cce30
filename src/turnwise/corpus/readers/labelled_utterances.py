"""Labelled utterances, each a dialogue of one turn: CLINC150, MASSIVE, HWU64, SNIPS, ATIS."""

import re
from typing import Literal

from turnwise.core.dialogue import USER
from turnwise.core.errors import CorpusError
from turnwise.corpus.readers.shared.annotations import parse_inline_slots, parse_slot_tags, slot_spans, split_of
from turnwise.corpus.readers.shared.fields import require_text
from turnwise.corpus.source.corpus_source import CorpusSource, Dialogues

_HWU_SPLITS = {"trainset": "train", "testset": "test"}
_ALL_LOCALES = "all"
_CLINC_LISTS = ("train", "val", "test", "oos_train", "oos_val", "oos_test")


def read_clinc150(
    source: CorpusSource, *, form: Literal["full", "small", "imbalanced", "oos_plus"] = "full"
) -> Dialogues:
    """Read `data_FORM.json`, lists of text and intent by split; out-of-scope utterances have the intent 'oos'.

    Options:
        form: 'full', 'small', 'imbalanced' or 'oos_plus'; they share utterances.
    """
    for path, line, (key, rows) in source.records(source.json_object, f"data_{form}.json"):
        if key not in _CLINC_LISTS or not isinstance(rows, list):
            reason = f"expected a list of utterances under one of {', '.join(_CLINC_LISTS)}, got {key!r}"
            source.reject(path, line, "file", reason)
            continue
        for number, row in enumerate(rows, 1):
            with source.dialogue(path, line, split_of(key)) as builder:
                builder.id = f"{key}/{number}"
                match row:
                    case [str(text), str(intent)] if text.strip() and intent.strip():
                        builder.add_turn(USER, text, intent)
                    case _:
                        raise ValueError("[text, intent] is expected, both non-blank strings")
            yield from builder.result()


def read_massive(source: CorpusSource, *, locale: str = "en-US") -> Dialogues:
    """Read `LOCALE.jsonl`, an utterance per line, its slots marked as in 'wake me up at [time : five am]'.

    Options:
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


def read_hwu64_kfold(source: CorpusSource, *, fold: str = "1") -> Dialogues:
    """Read `KFold_N/{trainset,testset/csv}/*.csv`, with slots marked as in 'play [song_name : yesterday]'.

    The text is the one shown to the annotators; what users typed differs in numbers, case and punctuation. The intent
    is scenario and intent, joined by '_'. A fold has no validation split.

    Options:
        fold: the number of the fold; the folds contain the same utterances in other splits.
    """
    if not fold.isdecimal():
        raise CorpusError(f"fold must be a number, as in KFold_1, got {fold!r}")
    for path in source.files(f"KFold_{fold}/trainset/*.csv", f"KFold_{fold}/testset/csv/*.csv"):
        split = next((_HWU_SPLITS[folder] for folder in reversed(path.parts) if folder in _HWU_SPLITS), None)
        for line, row in source.csv_rows(path, ";"):
            with source.dialogue(path, line, split) as builder:
                builder.id = f"{source.relative_name(path)}/{line}"
                columns = ("scenario", "intent", "answer_annotation", "answer_from_anno")
                scenario, intent, annotation, text = (require_text(row, column) for column in columns)
                spans = slot_spans(parse_inline_slots(annotation), text)
                builder.add_turn(USER, text, f"{scenario}_{intent}", spans=spans)
            yield from builder.result()


def read_snips(source: CorpusSource) -> Dialogues:
    """Read the slot-gated release: `snips/{train,valid,test}/{seq.in,seq.out,label}`."""
    return _read_slot_gated(source, "snips")


def read_atis(source: CorpusSource) -> Dialogues:
    """Read the slot-gated release: `atis/{train,valid,test}/{seq.in,seq.out,label}`; '#' combines two intents."""
    return _read_slot_gated(source, "atis")


def _read_slot_gated(source: CorpusSource, name: str) -> Dialogues:
    """Read utterances (`seq.in`), and from the same lines of the other files a tag per word and the intent."""
    for path in source.files(f"{name}/*/seq.in"):
        split = path.parent.name
        files = [path.with_name(name) for name in (path.name, "seq.out", "label")]
        texts, tags, labels = (dict(source.lines(file)) if file.is_file() else {} for file in files)
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
