"""A Lance table that several workers write and that receives all its rows in one commit.

Workers write fragments: files of rows that belong to no table yet. A block is finished when a record of its fragments
lies in the table's folder under the block's number; if two workers have written a block, the later record counts. When
every block has a record, their fragments become the table in one commit, and files that no record names are removed. So
every row is in the table once, whichever process was killed and whenever.

Records are written and read through Lance's own storage layer, so a table on object storage has them beside it.
"""

import json
import re
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa

from turnwise.assist.search.table import local_folder
from turnwise.core.errors import SearchError
from turnwise.core.files import sync_to_disk

#: In the table's folder during a run.
_RECORDS = "_turnwise"
_RUN = f"{_RECORDS}/run.json"
_BLOCK = re.compile(rf"{_RECORDS}/block-(\d+)\.json")

#: Metadata of a finished table: the run that wrote it.
_METADATA = b"turnwise"

#: Records that are read concurrently.
_READERS = 32

#: The settings that identify a run, as the user knows them; a finished table does not depend on --block-rows.
_SETTINGS = {
    "turnwise": "version of turnwise",
    "input": "input",
    "model": "model",
    "normalise": "--normalise",
    "max_length": "--max-length",
    "block_rows": "--block-rows",
}


class LanceWriter:
    """Writes a Lance table block by block; only a run with the same settings (`run`) is continued."""

    def __init__(self, uri: str, schema: pa.Schema, run: Mapping[str, Any]):
        from lance.file import LanceFileSession

        self.uri = uri
        self.schema = schema
        self.run = run
        self._session = LanceFileSession(uri)
        self._folder = local_folder(uri)

    def begin(self) -> bool:
        """Record the start of this run unless it is being continued; return whether the table is already finished."""
        entries = self._session.list_with_delimiter()
        names = {path.rstrip("/").rpartition("/")[2] for path in (*entries.common_prefixes, *entries.objects)}
        if "_versions" in names:
            stored = (self._dataset().schema.metadata or {}).get(_METADATA)
            if stored is None:
                raise SearchError(f"{self.uri} is a table that `embed` has not written: choose another path")
            self._check_same_run({**json.loads(stored), "block_rows": self.run["block_rows"]}, "is a table")
            if _RECORDS in names:  # killed after the commit
                self._clean_up()
            return True
        if self._session.contains(_RUN):
            self._check_same_run(json.loads(self._read(_RUN)), "is an unfinished table")
        elif names - {_RECORDS}:
            raise SearchError(f"{self.uri} has other files: choose another path, or remove it")
        else:
            self._write(_RUN, self.run)
        return False

    def finished_blocks(self) -> set[int]:
        """Return the numbers of the finished blocks."""
        matches = (_BLOCK.fullmatch(path) for path in self._session.list(_RECORDS))
        return {int(match[1]) for match in matches if match is not None}

    def is_finished(self, block: int) -> bool:
        """Return whether a block is finished."""
        return bool(self._session.contains(_record_path(block)))

    def write(self, block: int, batches: Iterator[pa.RecordBatch]) -> int:
        """Write a block and return its number of rows; an exception from `batches` is raised unchanged."""
        from lance.fragment import write_fragments

        errors: list[Exception] = []  # Lance would turn it into an OSError

        def watch() -> Iterator[pa.RecordBatch]:
            try:
                yield from batches
            except Exception as error:
                errors.append(error)
                raise

        reader = pa.RecordBatchReader.from_batches(self.schema, watch())
        try:
            fragments = write_fragments(reader, self.uri, schema=self.schema, mode="create")
        except OSError:
            if errors:
                raise errors[0] from None
            raise
        if self._folder is not None:  # the record must not reach the disk before the rows
            for file in (file for fragment in fragments for file in fragment.files):
                sync_to_disk(self._folder / "data" / file.path)
        rows = sum(fragment.num_rows for fragment in fragments)
        self._write(_record_path(block), {"rows": rows, "fragments": [fragment.to_json() for fragment in fragments]})
        return rows

    def commit(self, blocks: int) -> list[int]:
        """Commit all blocks as a table, in order, remove everything else, and return the rows per block."""
        from lance import LanceDataset, LanceOperation
        from lance.fragment import FragmentMetadata

        with ThreadPoolExecutor(_READERS) as pool:
            records = list(pool.map(lambda block: json.loads(self._read(_record_path(block))), range(blocks)))
        if not any(record["rows"] for record in records):
            self._remove_records()
            raise SearchError("there are no texts to encode: no turn is by these speakers")
        fragments = [
            FragmentMetadata.from_json(json.dumps(fragment)) for record in records for fragment in record["fragments"]
        ]
        schema = self.schema.with_metadata({_METADATA: json.dumps(self.run).encode()})
        LanceDataset.commit(self.uri, LanceOperation.Overwrite(schema, fragments))
        self._clean_up()
        return [int(record["rows"]) for record in records]

    def count_rows(self) -> int:
        """Return the number of rows of the finished table."""
        return int(self._dataset().count_rows())

    def _dataset(self) -> Any:
        import lance

        return lance.dataset(self.uri)

    def _check_same_run(self, stored: Mapping[str, Any], state: str) -> None:
        """Raise `SearchError` if the settings of an earlier run differ."""
        changed = [label for name, label in _SETTINGS.items() if stored.get(name) != self.run[name]]
        if changed:
            before = f" (before: --block-rows {stored.get('block_rows')})" if _SETTINGS["block_rows"] in changed else ""
            raise SearchError(
                f"{self.uri} {state} with another {', '.join(changed)}{before}: repeat the same command, "
                "choose another path, or remove it"
            )
        if self.run["model"] is None:
            raise SearchError(
                f"{self.uri} {state} of a Python function, which may have changed: choose another path, or remove it"
            )

    def _clean_up(self) -> None:
        """Remove rows that were written twice, and the records."""
        self._dataset().cleanup_old_versions(older_than=timedelta(0), delete_unverified=True)
        self._remove_records()

    def _remove_records(self) -> None:
        """Remove the records of blocks, then that of the run."""
        for path in sorted(self._session.list(_RECORDS)):
            self._session.delete_file(path)
        if self._folder is not None:
            # A worker of a killed command may still write a record, which the next command removes.
            shutil.rmtree(self._folder / _RECORDS, ignore_errors=True)

    def _write(self, name: str, value: Mapping[str, Any]) -> None:
        """Write a JSON file atomically."""
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "record.json")
            path.write_text(json.dumps(value), encoding="utf-8")
            self._session.upload_file(path, name)

    def _read(self, name: str) -> str:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "record.json")
            self._session.download_file(name, path)
            return path.read_text(encoding="utf-8")


def _record_path(block: int) -> str:
    return f"{_RECORDS}/block-{block:08d}.json"
