"""Your own log as a table, a message per row: CSV, TSV or Parquet, rows in any order, conversations interleaved."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from turnwise.core.dialogue import Dialogue
from turnwise.core.errors import CorpusError
from turnwise.corpus.readers.shared.files import parquet_rows
from turnwise.corpus.readers.shared.message_logs import MessageLog
from turnwise.corpus.readers.shared.times import parse_time
from turnwise.corpus.source.corpus_source import CorpusSource


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
    speakers: Mapping[str, str] | None = None,
) -> Iterator[Dialogue]:
    """Read the table; consecutive messages of one speaker stay separate turns (the step `merge-speakers` joins them).

    Args:
        source: the files to read.
        conversation: the column of conversation ids.
        speaker: the column of speakers.
        text: the column of texts.
        time: the column to sort a conversation by (ISO 8601, or seconds or milliseconds since 1970); empty: order of
            rows.
        time_format: the format of that column if it is another one, as for Python's strptime: '%d/%m/%Y %H:%M'; may
            be given more than once, for a file with several.
        intent: a column of intents, if there is one.
        split: a column of splits, if there is one.
        speakers: names in the speaker column and their roles: 'bob=system,*=user'.
    """
    columns = [column for column in (conversation, speaker, text, time, intent, split) if column]
    formats = (time_format,) if isinstance(time_format, str) else tuple(time_format)
    log = MessageLog(source, speakers)  # over all files: logs that are split by day split conversations too
    for path in source.files("*.csv", "*.tsv", "*.tab", "*.csv.gz", "*.tsv.gz", "*.parquet"):
        for line, row in _read_rows(source, path, columns):
            name = (_name(row[conversation]) or "").strip()
            if not name:
                source.counts.utterances += 1
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
    if path.suffix.lower() == ".parquet":
        yield from parquet_rows(source, path, lambda present: _check_columns(path, columns, present))
        return
    checked = False
    for line, row in source.csv_rows(path, source.detect_dialect(path, columns)):
        if not checked:
            _check_columns(path, columns, list(row))
            checked = True
        yield line, row


def _check_columns(path: Path, columns: list[str], present: list[str]) -> list[str]:
    missing = [column for column in columns if column not in present]
    if missing:
        raise CorpusError(
            f"{path.name} has no column {missing[0]!r}; it has {', '.join(map(repr, present))}."
            f" Name the right ones, as in --set conversation=thread_id --set text=body"
        )
    return columns


def _name(value: Any) -> str | None:
    return None if value is None else str(value)  # Parquet may have numbers; 0 is a valid name


def _text(value: Any) -> Any:
    """Return the text; other types become something that JSON can represent, to be rejected by its type."""
    if value is None:
        return ""
    return value if isinstance(value, str | int | float | list) else [str(value)]
