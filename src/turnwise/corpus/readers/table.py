"""People's own logs as a table, a message a row: CSV, TSV or Parquet, rows in any order, conversations interleaved."""

import hashlib
from collections.abc import Iterator, Mapping
from datetime import UTC, date, datetime
from math import isfinite
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from pyarrow import ArrowException

from turnwise.core.dialogue import Dialogue
from turnwise.corpus.intake import CorpusError, Intake
from turnwise.corpus.readers.gather import Gather
from turnwise.corpus.readers.roles import Roles

_DELIMITERS = {".csv": ",", ".tsv": "\t", ".tab": "\t"}


def read(
    intake: Intake,
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
    """Reads the table; several messages in a row by one speaker stay several turns (the step `merge-speakers` joins them).

    Args:
        intake: where to read.
        conversation: the column that tells which conversation a message belongs to.
        speaker: the column that tells who wrote it.
        text: the column of its text.
        time: the column to sort a conversation by (ISO 8601, or seconds or milliseconds since 1970); empty: order of rows.
        time_format: how to read that column if it is neither, as for Python's strptime: '%d/%m/%Y %H:%M'.
        intent: a column of intents, if there is one.
        split: a column of splits, if there is one.
        speakers: names in the speaker column and who they are: 'bob=system,*=user'.
    """
    roles = Roles(intake, speakers or {})
    needed = [column for column in (conversation, speaker, text, time, intent, split) if column]
    labels = [(key, column) for key, column in (("intent", intent), ("split", split)) if column]
    files = intake.files("*.csv", "*.tsv", "*.tab", "*.csv.gz", "*.tsv.gz", "*.parquet")
    gather = Gather()  # over all files: a log that is cut by the day cuts conversations too
    for number, path in enumerate(files):
        for line, row in _rows(intake, path, needed):
            name = (_word(row[conversation]) or "").strip()
            try:
                if not name:
                    raise ValueError(f"no conversation in column {conversation!r}")
                moment = _seconds(row[time], time_format) if time else 0.0
            except ValueError as error:
                intake.read.utterances += 1
                intake.reject(path, line, "turn", str(error), dialogue=name or None, text=row[text])
                continue
            message = {"file": number, "line": line, "speaker": _word(row[speaker]) or "", "text": _text(row[text])}
            gather.add(name, moment, message | {key: _word(row[column]) for key, column in labels})
    for name, messages in gather.conversations():
        with intake.dialogue(files[messages[0]["file"]], messages[0]["line"]) as draft:
            draft.id = name
            draft.split = messages[0].get("split") or None
            for message in messages:
                draft.path = files[message["file"]]
                who = roles.speaker(draft, message["speaker"])
                draft.say(who, message["text"], message.get("intent"), line=message["line"])
        yield from draft.done()


def _rows(intake: Intake, path: Path, needed: list[str]) -> Iterator[tuple[int, Mapping[str, Any]]]:
    if path.suffix.lower() == ".parquet":
        yield from _parquet_rows(intake, path, needed)
        return
    suffixes = [suffix.lower() for suffix in path.suffixes]
    delimiter = next((_DELIMITERS[suffix] for suffix in reversed(suffixes) if suffix in _DELIMITERS), ",")
    checked = False
    for line, row in intake.table(path, delimiter):
        if not checked:
            _check_columns(path, needed, list(row))
            checked = True
        yield line, row


def _parquet_rows(intake: Intake, path: Path, needed: list[str]) -> Iterator[tuple[int, Mapping[str, Any]]]:
    with path.open("rb") as file:
        intake.note(path, path.stat().st_size, hashlib.file_digest(file, "sha256").hexdigest())
    try:
        with pq.ParquetFile(path) as parquet:
            _check_columns(path, needed, parquet.schema_arrow.names)
            number = 0
            for batch in parquet.iter_batches(batch_size=8192, columns=needed):
                for row in batch.to_pylist():
                    number += 1
                    yield number, row
    except (ArrowException, OSError, UnicodeDecodeError) as error:
        intake.reject(path, None, "file", f"not a whole Parquet file: {error}")


def _check_columns(path: Path, needed: list[str], there: list[str]) -> None:
    missing = [column for column in needed if column not in there]
    if missing:
        raise CorpusError(
            f"{path.name} has no column {missing[0]!r}; it has {', '.join(map(repr, there))}."
            f" Name the right ones, as in --set conversation=thread_id --set text=body"
        )


def _word(value: Any) -> str | None:
    """A name or label; Parquet may hold numbers, of which 0 is as good as any."""
    return None if value is None else str(value)


def _text(value: Any) -> Any:
    """The text; what is none comes back as a number or a list, to be refused by its type."""
    if value is None:
        return ""
    return value if isinstance(value, str | int | float | list) else [str(value)]


def _seconds(value: Any, time_format: str) -> float:
    """Seconds since 1970; a time without a zone counts as UTC, which keeps the order within a conversation."""
    if isinstance(value, datetime):
        moment = value
    elif isinstance(value, date):
        moment = datetime(value.year, value.month, value.day, tzinfo=UTC)
    elif isinstance(value, int | float):
        return float(value)
    else:
        written = str(value or "").strip()
        try:
            if time_format:
                return _parsed(written, time_format).timestamp()
            if isfinite(seconds := float(written)):  # a spreadsheet's 'nan' is no time
                return seconds
        except ValueError:
            pass
        try:
            moment = datetime.fromisoformat(written)
        except ValueError:
            hint = "say how with --set time_format=…" if not time_format else f"it does not fit {time_format!r}"
            raise ValueError(f"cannot read the time {written!r}: {hint}") from None
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def _parsed(written: str, time_format: str) -> datetime:
    moment = datetime.strptime(written, time_format)  # noqa: DTZ007 (the zone comes in the next line)
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
