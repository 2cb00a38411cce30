"""The files of a log whose format is to be recognised: their names, their beginnings, and their first records."""

from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import chain, islice
from pathlib import Path
from typing import Any

from turnwise.core.errors import CorpusError
from turnwise.corpus.readers.shared.files import json_records, table_rows
from turnwise.corpus.source.corpus_source import CorpusSource
from turnwise.corpus.source.encodings import DETECT
from turnwise.corpus.storage.rejections import Rejection

MAX_ROWS = 2_000  # rows of tables, and lines of chats, that are looked at
JSON = (".json", ".jsonl", ".ndjson")
TABLES = (".csv", ".tsv", ".tab", ".xlsx", ".parquet")


class LogSample:
    """The names and beginnings of the files of a log."""

    def __init__(self, path: Path, encoding: str | None, files: Sequence[Path]):
        self.path = path
        self.rejections: list[Rejection] = []
        self.source = CorpusSource(path, "sample", self.rejections.append, encoding=encoding or DETECT)
        self.files = list(files)

    def units(self, files: Sequence[Path]) -> Iterator[list[Path]]:
        """Yield the files one by one, but tables with the same columns together."""
        tables: dict[tuple[str, ...], list[Path]] = {}
        for file in files:
            if file in self.named(*TABLES):
                columns: list[str] = []
                next(self._rows(file, columns), None)
                if columns:
                    tables.setdefault(tuple(columns), []).append(file)
                    continue
            yield [file]
        yield from tables.values()

    def named(self, *suffixes: str) -> list[Path]:
        """Return the files whose names end in one of the suffixes; .gz behind it does not matter."""
        return [file for file in self.files if file.name.lower().removesuffix(".gz").endswith(suffixes)]

    def rows(self) -> list[dict[str, Any]]:
        """Return the first rows of the tables, which have the same columns; none if they cannot be read."""
        each = max(20, MAX_ROWS // len(self.files))
        return [row for _, row in chain.from_iterable(islice(self._rows(file, []), each) for file in self.files)]

    def _rows(self, file: Path, columns: list[str]) -> Iterator[tuple[int, Any]]:
        """Yield the rows of a table; append the names of its columns to `columns`."""

        def check(names: list[str]) -> list[str]:
            if columns and columns != names:
                raise CorpusError("a sheet has other columns than the first one")
            columns[:] = names
            return names

        return table_rows(self.source, file, check)

    @cached_property
    def records(self) -> list[tuple[Path, Any]]:
        """The first records of the JSON files: elements of a list, lines, or whole objects."""
        found: list[tuple[Path, Any]] = []
        for file in self.named(*JSON):
            found += [(file, value) for _, value in islice(json_records(self.source, file), 50)]
        return found

    def objects(self) -> Iterator[tuple[Path, dict[str, Any]]]:
        """Yield the records that are objects, and the elements of lists in the outermost objects."""
        for file, record in self.records:
            if isinstance(record, dict):
                yield file, record
                for value in record.values():
                    if isinstance(value, list):
                        yield from ((file, item) for item in value[:5] if isinstance(item, dict))
