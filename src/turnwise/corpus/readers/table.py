"""Your own log as a table, a message per row: CSV, TSV or Parquet, rows in any order, conversations interleaved."""

from collections.abc import Iterator, Mapping
from datetime import UTC, date, datetime
from math import isfinite
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from pyarrow import ArrowException

from turnwise.core.dialogue import Dialogue
from turnwise.core.files import sha256
from turnwise.corpus.readers.message_logs import MessageSorter, SpeakerMapper
from turnwise.corpus.source import CorpusError, CorpusSource


def read(
    source: CorpusSource,
    *,
    conversation: str = "conversation",
    speaker: str = "speaker",
    text: str = "text",
    time: str = "",
    time_format: str = "",
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
        time_format: the format of that column if it is another one, as for Python's strptime: '%d/%m/%Y %H:%M'.
        intent: a column of intents, if there is one.
        split: a column of splits, if there is one.
        speakers: names in the speaker column and their roles: 'bob=system,*=user'.
    """
    mapper = SpeakerMapper(source, speakers or {})
    columns = [column for column in (conversation, speaker, text, time, intent, split) if column]
    labels = [(key, column) for key, column in (("intent", intent), ("split", split)) if column]
    files = source.files("*.csv", "*.tsv", "*.tab", "*.csv.gz", "*.tsv.gz", "*.parquet")
    sorter = MessageSorter()  # over all files: logs that are split by day split conversations too
    for number, path in enumerate(files):
        for line, row in _read_rows(source, path, columns):
            name = (_name(row[conversation]) or "").strip()
            try:
                if not name:
                    raise ValueError(f"no conversation in column {conversation!r}")
                seconds = _parse_time(row[time], time_format) if time else 0.0
            except ValueError as error:
                source.counts.utterances += 1
                source.reject(path, line, "turn", str(error), dialogue=name or None, text=row[text])
                continue
            message = {"file": number, "line": line, "speaker": _name(row[speaker]) or "", "text": _text(row[text])}
            sorter.add(name, seconds, message | {key: _name(row[column]) for key, column in labels})
    for name, messages in sorter.conversations():
        with source.dialogue(files[messages[0]["file"]], messages[0]["line"]) as builder:
            builder.id = name
            builder.split = messages[0].get("split") or None
            for message in messages:
                builder.path = files[message["file"]]
                turn_speaker = mapper.speaker(builder, message["speaker"])
                builder.add_turn(turn_speaker, message["text"], message.get("intent"), line=message["line"])
        yield from builder.result()


def _read_rows(source: CorpusSource, path: Path, columns: list[str]) -> Iterator[tuple[int, Mapping[str, Any]]]:
    if path.suffix.lower() == ".parquet":
        yield from _read_parquet(source, path, columns)
        return
    checked = False
    for line, row in source.csv_rows(path):
        if not checked:
            _check_columns(path, columns, list(row))
            checked = True
        yield line, row


def _read_parquet(source: CorpusSource, path: Path, columns: list[str]) -> Iterator[tuple[int, Mapping[str, Any]]]:
    source.record_input(path, path.stat().st_size, sha256(path))
    try:
        with pq.ParquetFile(path) as parquet:
            _check_columns(path, columns, parquet.schema_arrow.names)
            batches = parquet.iter_batches(batch_size=8192, columns=columns)
            yield from enumerate((row for batch in batches for row in batch.to_pylist()), 1)
    except (ArrowException, OSError, UnicodeDecodeError) as error:
        source.reject(path, None, "file", f"not a complete Parquet file: {error}")


def _check_columns(path: Path, columns: list[str], present: list[str]) -> None:
    missing = [column for column in columns if column not in present]
    if missing:
        raise CorpusError(
            f"{path.name} has no column {missing[0]!r}; it has {', '.join(map(repr, present))}."
            f" Name the right ones, as in --set conversation=thread_id --set text=body"
        )


def _name(value: Any) -> str | None:
    return None if value is None else str(value)  # Parquet may have numbers; 0 is a valid name


def _text(value: Any) -> Any:
    """Return the text; other types become something that JSON can represent, to be rejected by its type."""
    if value is None:
        return ""
    return value if isinstance(value, str | int | float | list) else [str(value)]


def _parse_time(value: Any, time_format: str) -> float:
    """Return seconds since 1970; times without a zone count as UTC, which keeps the order within a conversation."""
    if isinstance(value, int | float):
        return float(value)
    if isinstance(value, datetime):
        moment = value
    elif isinstance(value, date):
        moment = datetime(value.year, value.month, value.day)  # noqa: DTZ001 (the zone is set below)
    else:
        text = str(value or "").strip()
        try:
            if time_format:
                moment = datetime.strptime(text, time_format)  # noqa: DTZ007 (the zone is set below)
            elif isfinite(seconds := float(text)):
                return seconds
            else:  # a spreadsheet's 'nan'
                moment = datetime.fromisoformat(text)
        except ValueError:
            try:
                moment = datetime.fromisoformat(text)
            except ValueError:
                hint = f"it does not match {time_format!r}" if time_format else "give its format by --set time_format=…"
                raise ValueError(f"cannot parse the time {text!r}: {hint}") from None
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
