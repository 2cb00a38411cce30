"""A Lance table that many workers write and that takes its rows at once.

Workers write fragments: files of rows that belong to no table yet. A block is finished when a note of its fragments lies in the
table's folder, under the block's number. A block that two workers have written has one note, the later one. When there is a note
for every block, the fragments of the notes become the table in one commit; files that no note names are removed. So every row is in
the table once, whatever was killed and whenever.

Notes are written and read by Lance's own access to storage, so a table on object storage has them beside it.
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

from turnwise.assist.search.embedding.embedded import EmbeddingError
from turnwise.core.files import sync

#: In a table's folder while it is under way.
_NOTES = "_turnwise"
_RUN = f"{_NOTES}/run.json"
_BLOCK = re.compile(rf"{_NOTES}/block-(\d+)\.json")

#: In a finished table's metadata: the run that it came of.
_KEY = b"turnwise"

#: What does not matter once a table is finished.
_PASSING = {"block_rows"}

#: Notes that are read at the same time.
_READERS = 32

#: What a run is known by, in words.
_WORDS = {
    "turnwise": "version of turnwise",
    "input": "input",
    "model": "model",
    "normalise": "--normalise",
    "max_length": "--max-length",
    "block_rows": "--block-rows",
}


class LanceTable:
    """A table on its way.

    Attributes:
        uri: where it lies: a folder that ends in .lance, on a disk or on object storage.
        schema: of its rows.
        run: what its vectors depend on; a run goes on only if that is the same.
    """

    def __init__(self, uri: str, schema: pa.Schema, run: Mapping[str, Any]):
        from lance.file import LanceFileSession

        self.uri = uri
        self.schema = schema
        self.run = run
        self._session = LanceFileSession(uri)
        self._folder = local_folder(uri)

    def begin(self) -> bool:
        """Notes that this run has begun, unless it has before.

        Returns:
            Whether the table is finished.

        Raises:
            EmbeddingError: if something else lies there, or a table or the beginnings of one with another model or other texts.
        """
        inside = self._session.list_with_delimiter()
        names = {path.rstrip("/").rpartition("/")[2] for path in (*inside.common_prefixes, *inside.objects)}
        if "_versions" in names:
            known = (self._dataset().schema.metadata or {}).get(_KEY)
            if known is None:
                raise EmbeddingError(f"{self.uri} is a table that `embed` has not written: name another one")
            self._expect_same(json.loads(known), _PASSING, "is a table")
            if _NOTES in names:  # killed after the commit
                self._tidy()
            return True
        if self._session.contains(_RUN):
            self._expect_same(json.loads(self._read(_RUN)), set(), "holds the beginnings of a table")
        elif names - {_NOTES}:
            raise EmbeddingError(f"{self.uri} holds other files: name another one, or remove it")
        else:
            self._write(_RUN, self.run)
        return False

    def finished(self) -> set[int]:
        """The numbers of the blocks that are finished."""
        found = (_BLOCK.fullmatch(path) for path in self._session.list(_NOTES))
        return {int(match[1]) for match in found if match is not None}

    def holds(self, block: int) -> bool:
        """Whether a block is finished."""
        return bool(self._session.contains(_note_of(block)))

    def write(self, block: int, batches: Iterator[pa.RecordBatch]) -> int:
        """Writes a block; gives back how many rows it has. What goes wrong while its rows are made is raised as it is."""
        from lance.fragment import write_fragments

        failed: list[Exception] = []  # Lance would make an OSError of it

        def watched() -> Iterator[pa.RecordBatch]:
            try:
                yield from batches
            except Exception as error:
                failed.append(error)
                raise

        reader = pa.RecordBatchReader.from_batches(self.schema, watched())
        try:
            fragments = write_fragments(reader, self.uri, schema=self.schema, mode="create")
        except OSError:
            if failed:
                raise failed[0] from None
            raise
        if self._folder is not None:  # a note may not overtake what it notes
            for file in (file for fragment in fragments for file in fragment.files):
                sync(self._folder / "data" / file.path)
        rows = sum(fragment.num_rows for fragment in fragments)
        self._write(_note_of(block), {"rows": rows, "fragments": [fragment.to_json() for fragment in fragments]})
        return rows

    def commit(self, blocks: int) -> list[int]:
        """Makes all blocks a table, in their order, and removes what is not part of it.

        Returns:
            How many rows each block has.

        Raises:
            EmbeddingError: if there are no rows.
        """
        from lance import LanceDataset, LanceOperation
        from lance.fragment import FragmentMetadata

        with ThreadPoolExecutor(_READERS) as pool:
            notes = list(pool.map(lambda block: json.loads(self._read(_note_of(block))), range(blocks)))
        if not any(note["rows"] for note in notes):
            self._forget()
            raise EmbeddingError("there are no texts to encode: no turn is by these speakers")
        fragments = [
            FragmentMetadata.from_json(json.dumps(fragment)) for note in notes for fragment in note["fragments"]
        ]
        schema = self.schema.with_metadata({_KEY: json.dumps(self.run).encode()})
        LanceDataset.commit(self.uri, LanceOperation.Overwrite(schema, fragments))
        self._tidy()
        return [int(note["rows"]) for note in notes]

    def rows(self) -> int:
        """How many rows the finished table has."""
        return int(self._dataset().count_rows())

    def _dataset(self) -> Any:
        import lance

        return lance.dataset(self.uri)

    def _expect_same(self, known: Mapping[str, Any], passing: set[str], what: str) -> None:
        """Refuses to go on with what another run has begun."""
        others = [words for key, words in _WORDS.items() if key not in passing and known.get(key) != self.run[key]]
        if others:
            before = (
                f" (--block-rows {known['block_rows']} before)"
                if "block_rows" in known and _WORDS["block_rows"] in others
                else ""
            )
            raise EmbeddingError(
                f"{self.uri} {what} with another {', '.join(others)}{before}: give the same command as before, name another table,"
                " or remove this one"
            )
        if self.run["model"] is None:
            raise EmbeddingError(
                f"{self.uri} {what} by a function, which may be another one by now: name another table, or remove this one"
            )

    def _tidy(self) -> None:
        """Removes what is not part of the finished table: rows that were written twice, and the notes."""
        self._dataset().cleanup_old_versions(older_than=timedelta(0), delete_unverified=True)
        self._forget()

    def _forget(self) -> None:
        """Removes the notes, that of the run last."""
        for path in sorted(self._session.list(_NOTES)):
            self._session.delete_file(path)
        if self._folder is not None:
            # a worker of a command that was killed may still write a note: it does no harm, and goes with the next command
            shutil.rmtree(self._folder / _NOTES, ignore_errors=True)

    def _write(self, name: str, value: Mapping[str, Any]) -> None:
        """Writes a note, which is there as a whole or not at all."""
        with tempfile.TemporaryDirectory() as folder:
            place = Path(folder, "note.json")
            place.write_text(json.dumps(value), encoding="utf-8")
            self._session.upload_file(place, name)

    def _read(self, name: str) -> str:
        with tempfile.TemporaryDirectory() as folder:
            place = Path(folder, "note.json")
            self._session.download_file(name, place)
            return place.read_text(encoding="utf-8")


def _note_of(block: int) -> str:
    return f"{_NOTES}/block-{block:08d}.json"


def local_folder(uri: str) -> Path | None:
    """Where a table's files are; None: not on a disk of this machine."""
    scheme, mark, rest = uri.partition("://")
    if mark and scheme != "file":
        return None
    return Path(rest if mark else uri).absolute()
