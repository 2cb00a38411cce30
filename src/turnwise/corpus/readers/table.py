"""Your own log as a table, a message per row: CSV, TSV, Excel or Parquet, in any order."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from turnwise.corpus.readers.shared.fields import parse_time
from turnwise.corpus.readers.shared.files import require_columns, table_rows
from turnwise.corpus.readers.shared.message_logs import MessageLog
from turnwise.corpus.readers.shared.speakers import Speakers
from turnwise.corpus.source.corpus_source import CorpusSource, Dialogues

_ADVICE = "Name the right ones, as in --set conversation=thread_id --set text=body"


def read(
    source: CorpusSource,
    *,
    conversation: str = "conversation",
    speaker: str = "speaker",
    text: str = "text",
    time: str = "",
    time_format: str | Sequence[str] = (),
    intent: str = "",
    split: str = "",
    speakers: Speakers = None,
) -> Dialogues:
    """Read the table; consecutive messages of one speaker stay separate turns (the step `merge-speakers` joins them).

    Options:
        conversation: the column of conversation ids.
        speaker: the column of speakers.
        text: the column of texts.
        time: the column to sort a conversation by (ISO 8601, or seconds or milliseconds since 1970); empty: order of
            rows.
        time_format: the format of that column if it is another one, as for Python's strptime: '%d/%m/%Y %H:%M'; may
            be given more than once, for a file with several.
        intent: a column of intents, if there is one.
        split: a column of splits, if there is one.
    """
    columns = [column for column in (conversation, speaker, text, time, intent, split) if column]
    formats = (time_format,) if isinstance(time_format, str) else tuple(time_format)
    log = MessageLog(source, speakers)  # over all files: logs that are split by day split conversations too
    for path in source.files("*.csv", "*.tsv", "*.tab", "*.csv.gz", "*.tsv.gz", "*.xlsx", "*.parquet"):
        for line, row in _read_rows(source, path, columns):
            name = (_name(row[conversation]) or "").strip()
            if not name:
                source.reject(path, line, "turn", f"no conversation in column {conversation!r}", text=row[text])
                continue
            try:
                seconds = parse_time(row[time], formats) if time else None
            except ValueError as error:
                log.at(path, line).reject(name, None, str(error), row[text])
                continue
            labels = {key: _name(row[column]) for key, column in (("intent", intent), ("split", split)) if column}
            log.at(path, line).add(name, seconds, _name(row[speaker]) or "", _text(row[text]), **labels)
    return log.dialogues()


def _read_rows(source: CorpusSource, path: Path, columns: list[str]) -> Iterator[tuple[int, Mapping[str, Any]]]:
    def check(present: Sequence[str]) -> list[str]:
        return require_columns(path, columns, present, _ADVICE)

    return table_rows(source, path, check, columns)


def _name(value: Any) -> str | None:
    return None if value is None else str(value)  # Parquet may have numbers; 0 is a valid name


def _text(value: Any) -> Any:
    """Return the text; other types become something that JSON can represent, to be rejected by its type."""
    if value is None:
        return ""
    return value if isinstance(value, str | int | float | list) else [str(value)]
