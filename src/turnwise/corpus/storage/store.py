"""The store: dialogues in Parquet, written as a stream, read memory-mapped, and replaced completely or not at all.

A store is a folder:

- `manifest.json` says where the store comes from and which files belong to it. Its atomic rename is the commit:
  everything it lists is on disk by then. Files that it does not list are left over from an interrupted import and are
  ignored.
- `dialogues-GENERATION-NNNNN.parquet`: a row per dialogue, its turns in parallel lists. Slot values are not stored;
  they are the text between the slot's offsets. The generation is a hash of the contents: equal dialogues make equal
  stores.
- `rejected.jsonl`: what the import left out, with file, line and reason.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from turnwise.core.dialogue import Dialogue
from turnwise.core.errors import CorpusError, did_you_mean
from turnwise.core.files import explaining_damage, read_json
from turnwise.corpus.storage.rows import SCHEMA, dialogues_from_batch

FORMAT = 1
MANIFEST = "manifest.json"
REJECTED = "rejected.jsonl"


class Store:
    """A store on disk; iterating yields its dialogues in order, with one row group in memory at a time."""

    def __init__(self, folder: Path | str):
        self.folder = Path(folder)
        path = self.folder / MANIFEST
        if not is_store(self.folder):
            raise CorpusError(f"{folder} is not a store: it has no {MANIFEST} (make one: turnwise corpus import …)")
        with explaining_damage(path, CorpusError, "import the corpus again into another folder"):
            self.manifest: dict[str, Any] = read_json(path)
            self.manifest["format"], self.manifest["generation"], self.manifest["files"]
        if self.manifest["format"] != FORMAT:
            raise CorpusError(
                f"{self.folder} has store format {self.manifest['format']}, this turnwise reads format {FORMAT}:"
                " import the corpus again"
            )
        finish_commit(self.folder, self.manifest["generation"])

    def __len__(self) -> int:
        return int(self.manifest["dialogues"])

    def __iter__(self) -> Iterator[Dialogue]:
        for batch in self.batches():
            yield from dialogues_from_batch(batch)

    def describe(self) -> str:
        """Return the name of the store, what made it, and its generation."""
        return (
            f"{self.folder.name} ({self.manifest.get('reader', 'unknown')}, generation {self.manifest['generation']})"
        )

    def splits(self) -> set[str]:
        """Return the splits of the dialogues."""
        names = {name for batch in self.batches(["split"]) for name in batch.column("split").unique().to_pylist()}
        return names - {None}

    def speakers(self) -> set[str]:
        """Return the speakers of the turns."""
        batches = self.batches(["speakers"])
        return {name for batch in batches for name in batch.column("speakers").flatten().unique().to_pylist()}

    def batches(self, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
        """Yield the rows as Arrow record batches, with all columns or some: for counting without creating objects."""
        for file in self.manifest["files"]:
            path = self.folder / file["name"]
            with (
                explaining_damage(path, CorpusError, "import the corpus again into another folder"),
                # pre_buffer would keep all row groups in memory until the file is closed
                pq.ParquetFile(path, memory_map=True, pre_buffer=False, page_checksum_verification=True) as parquet,
            ):
                if path.parent != self.folder or parquet.schema_arrow.names != SCHEMA.names:
                    raise ValueError("it is no file of a store")
                for group in range(parquet.num_row_groups):
                    yield from parquet.read_row_group(group, columns=columns).to_batches()


def require_speakers(stores: Sequence[Store], speakers: Sequence[str]) -> None:
    """Raise a CorpusError if there is a speaker, such as a mistyped one, who has no turn in any of the stores."""
    known: set[str] = set().union(*(store.speakers() for store in stores)) if speakers else set()
    for name in speakers:
        if name not in known:
            names = ", ".join(sorted(known)) or "none: no store is given"
            raise CorpusError(f"no turn is of the speaker {name!r}: choose from {names}.{did_you_mean(name, known)}")


def is_store(folder: Path) -> bool:
    """Return whether a folder is a store."""
    return (folder / MANIFEST).is_file()


def finish_commit(folder: Path, generation: str) -> None:
    """Give the rejections of the committed import their name, in case it was killed right after the commit."""
    pending = folder / f"{REJECTED}.{generation}"
    if pending.exists():
        pending.replace(folder / REJECTED)
