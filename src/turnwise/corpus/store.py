"""The store: dialogues in Parquet, written in a stream, read memory-mapped, replaced as a whole or not at all.

A store is a folder:

- `manifest.json` says what the store is made of and which files belong to it. It is the commit: it takes its name by one
  atomic rename, after everything it names is on disk. Files that it does not name are leftovers of a cut-off import and do
  not exist for a reader.
- `dialogues-GENERATION-NNNNN.parquet`: a row a dialogue, its turns in parallel lists. Slot values are not stored: they are
  what the text holds between their offsets. The generation is a hash of the contents: equal dialogues make equal stores.
- `rejected.jsonl`: what the import left out, with file, line and reason.
"""

import fcntl
import hashlib
import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from turnwise.core.dialogue import Dialogue
from turnwise.core.files import sha256, sync
from turnwise.corpus.hygiene import MergeSpeakers
from turnwise.corpus.intake import CorpusError, Counts, Rejection
from turnwise.corpus.rows import SCHEMA, RowGroup, dialogues_of

FORMAT = 1
MANIFEST = "manifest.json"
REJECTED = "rejected.jsonl"
_WRITING = ".writing-"

#: A file is closed at so many row groups.
FILE_GROUPS = 64


class StoreWriter:
    """Writes a store in a stream; nothing of it can be seen before `commit`.

    Use it as a context manager: without a commit, what was there before stays untouched.
    """

    def __init__(self, folder: Path):
        if folder.exists() and not folder.is_dir():
            raise CorpusError(f"{folder} is a file: a store is a folder, choose another --out")
        if folder.is_dir() and not is_store(folder) and not all(_ours(path.name) for path in folder.iterdir()):
            raise CorpusError(f"{folder} holds other files: choose an empty or new folder, or a store to be replaced")
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._lock = _lock(folder)
        for leftover in folder.glob(f"{_WRITING}*"):
            leftover.unlink()
        self._group = RowGroup()
        self._writer: pq.ParquetWriter | None = None
        self._groups = 0
        self._parts: list[tuple[Path, int]] = []
        self._rejected = (folder / f"{_WRITING}{REJECTED}").open("w", encoding="utf-8")
        self.kept = Counts()
        self.rejections = 0

    def write(self, dialogue: Dialogue) -> None:
        """Adds a dialogue."""
        self._group.add(dialogue)
        self.kept.dialogues += 1
        self.kept.utterances += len(dialogue.turns)
        if self._group.full:
            self._flush()

    def reject(self, rejection: Rejection) -> None:
        """Adds a line to `rejected.jsonl`."""
        self._rejected.write(json.dumps(asdict(rejection), ensure_ascii=False) + "\n")
        self.rejections += 1

    def _flush(self) -> None:
        if not self._group.ids:
            return
        if self._writer is None:
            path = self._folder / f"{_WRITING}{len(self._parts):05d}.parquet"
            self._writer = pq.ParquetWriter(path, SCHEMA, compression="zstd", compression_level=1)
            self._parts.append((path, 0))
        self._writer.write_table(self._group.table())
        path, dialogues = self._parts[-1]
        self._parts[-1] = (path, dialogues + len(self._group.ids))
        self._groups += 1
        self._group = RowGroup()
        if self._groups % FILE_GROUPS == 0:
            self._close_part()

    def _close_part(self) -> None:
        if self._writer is not None:
            self._writer.close()
            self._writer = None

    def commit(self, provenance: dict[str, Any]) -> None:
        """Makes the store visible, with `provenance` in its manifest, and removes the one it replaces."""
        self._flush()
        self._close_part()
        self._rejected.close()
        sums = [sha256(path) for path, _ in self._parts]
        generation = hashlib.sha256("".join(sums).encode()).hexdigest()[:12]
        files = []
        for number, ((path, dialogues), digest) in enumerate(zip(self._parts, sums, strict=True)):
            name = f"dialogues-{generation}-{number:05d}.parquet"
            _rename(path, self._folder / name)
            files.append({"name": name, "dialogues": dialogues, "sha256": digest})
        _rename(self._folder / f"{_WRITING}{REJECTED}", self._folder / f"{REJECTED}.{generation}")
        manifest = {
            "format": FORMAT,
            "generation": generation,
            "dialogues": self.kept.dialogues,
            "utterances": self.kept.utterances,
            "rejected": self.rejections,
            **provenance,
            "files": files,
        }
        fresh = self._folder / f"{_WRITING}{MANIFEST}"
        fresh.write_text(json.dumps(manifest, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
        sync(self._folder)
        _rename(fresh, self._folder / MANIFEST)
        _finish(self._folder, generation)
        sync(self._folder)
        named = {MANIFEST, REJECTED, *(file["name"] for file in files)}
        for path in self._folder.iterdir():
            if path.name not in named and _ours(path.name):
                path.unlink()

    def __enter__(self) -> "StoreWriter":
        return self

    def __exit__(self, *_: object) -> None:
        self._close_part()
        self._rejected.close()
        for leftover in self._folder.glob(f"{_WRITING}*"):
            leftover.unlink()
        os.close(self._lock)
        if not any(self._folder.iterdir()):
            self._folder.rmdir()


class Store:
    """A store that is there, to be read.

    Iterating gives its dialogues in order, one row group in memory at a time.
    """

    def __init__(self, folder: Path | str):
        self.folder = Path(folder)
        self.manifest = _load_manifest(self.folder)
        if not self.manifest:
            raise CorpusError(
                f"{self.folder} is not a store: it has no {MANIFEST} (make one: turnwise corpus import …)"
            )
        if self.manifest["format"] != FORMAT:
            raise CorpusError(
                f"{self.folder} has store format {self.manifest['format']}, this turnwise reads format {FORMAT}:"
                " import the corpus anew"
            )
        _finish(self.folder, self.manifest["generation"])

    def __len__(self) -> int:
        return int(self.manifest["dialogues"])

    def __iter__(self) -> Iterator[Dialogue]:
        for batch in self.batches():
            yield from dialogues_of(batch)

    def batches(self, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
        """The rows as Arrow record batches, of all columns or those named: for counting without making objects."""
        for file in self.manifest["files"]:
            path = self.folder / file["name"]
            try:
                # pre_buffer would hold every row group that was read until the file is closed
                with pq.ParquetFile(path, memory_map=True, pre_buffer=False) as parquet:
                    for group in range(parquet.num_row_groups):
                        yield from parquet.read_row_group(group, columns=columns).to_batches()
            except FileNotFoundError:
                raise CorpusError(f"{path} is missing, though the manifest names it: import the corpus anew") from None
            except pa.ArrowInvalid as error:
                raise CorpusError(f"{path} is damaged ({error}): import the corpus anew") from None


class Corpus:
    """One or several stores, read as one, in the order given; an id is unique within its store.

    Attributes:
        stores: the stores.
        splits: the splits whose dialogues are read; None: all dialogues.
        share: of those, how many are read, by a hash of their ids: a smaller share is part of a larger one.
        combine_turns: whether consecutive turns of one speaker are read as one turn.
        least_turns: dialogues of fewer turns are not read; counted after turns are combined.
    """

    def __init__(
        self,
        stores: Sequence[Store],
        splits: Sequence[str] | None = None,
        share: float = 1.0,
        combine_turns: bool = False,
        least_turns: int = 1,
    ):
        if not stores:
            raise CorpusError("name at least one store")
        self.stores = tuple(stores)
        self.splits = None if splits is None else tuple(splits)
        self.share = share
        self.combine_turns = combine_turns
        self.least_turns = least_turns
        if splits is not None and share == 1 and least_turns == 1 and not len(self):
            raise CorpusError(f"no dialogue is in split {' or '.join(splits)}: leave the split out, or name another")

    def __len__(self) -> int:
        if self.splits is None and self.share == 1 and self.least_turns == 1:
            return sum(len(store) for store in self.stores)
        columns = ["id", "split"] if self.least_turns == 1 else ["id", "split", "speakers"]
        return sum(self._count(batch) for store in self.stores for batch in store.batches(columns))

    def _count(self, batch: pa.RecordBatch) -> int:
        """How many dialogues of a batch are read."""
        chosen = map(self._reads, *(batch.column(name).to_pylist() for name in ("id", "split")))
        if self.least_turns == 1:
            return sum(chosen)
        speakers = batch.column("speakers")
        starts = speakers.offsets.to_numpy()[:-1]
        opens = np.ones(len(speakers.values), np.int64)  # 1 for a turn that is counted
        if self.combine_turns:
            said_by = speakers.values.indices.to_numpy()
            opens[1:] = said_by[1:] != said_by[:-1]
            opens[starts] = 1
        enough = np.add.reduceat(opens, starts) >= self.least_turns
        return sum(long and wanted for long, wanted in zip(enough.tolist(), chosen, strict=True))

    def __iter__(self) -> Iterator[Dialogue]:
        combine = MergeSpeakers()
        for store in self.stores:
            for dialogue in store:
                if not self._reads(dialogue.id, dialogue.split):
                    continue
                found = combine(dialogue) if self.combine_turns else dialogue
                if found is not None and len(found.turns) >= self.least_turns:
                    yield found

    def _reads(self, identity: str, split: str | None) -> bool:
        if self.splits is not None and split not in self.splits:
            return False
        if self.share == 1:
            return True
        return int.from_bytes(hashlib.blake2b(identity.encode(), digest_size=8).digest()) < self.share * (1 << 64)

    def sampled(self, share: float) -> "Corpus":
        """The same with a share of the dialogues that this one reads.

        Raises:
            CorpusError: if none is left.
        """
        if share == 1:
            return self
        found = Corpus(self.stores, self.splits, self.share * share, self.combine_turns, self.least_turns)
        if not len(found):
            raise CorpusError(f"a share of {share:g} of {len(self)} dialogues is none: take a larger one")
        return found

    def prepared(self, combine_turns: bool = False, least_turns: int = 1) -> "Corpus":
        """The same with consecutive turns of one speaker combined, and without dialogues of few turns.

        Texts are joined by a space, slots move with them, acts are kept without doubles, and the first intent stays. What this
        corpus leaves out or combines already stays so; turns are counted after they are combined, whichever was asked first.

        Args:
            combine_turns: whether to combine.
            least_turns: dialogues of fewer turns are left out.

        Raises:
            CorpusError: if no dialogue is left.
        """
        wanted = (self.combine_turns or combine_turns, max(self.least_turns, least_turns))
        if wanted == (self.combine_turns, self.least_turns):
            return self
        found = Corpus(self.stores, self.splits, self.share, *wanted)
        if not len(found):
            combined = ", once those of one speaker in a row are combined" if found.combine_turns else ""
            raise CorpusError(
                f"none of {len(self)} dialogues has {found.least_turns} turns or more{combined}: ask for fewer"
            )
        return found


def read_corpus(*stores: Path | str, splits: Sequence[str] | None = None) -> Corpus:
    """Opens one or several stores as one corpus of dialogues, all of them or those of some splits.

    Example:
        >>> corpus = read_corpus("stores/multiwoz", "stores/our-logs")  # doctest: +SKIP
        >>> for dialogue in corpus:  # doctest: +SKIP
        ...     ...
    """
    return Corpus([Store(store) for store in stores], splits)


def is_store(folder: Path) -> bool:
    """Whether a folder holds a store."""
    return (folder / MANIFEST).is_file()


def _load_manifest(folder: Path) -> dict[str, Any]:
    path = folder / MANIFEST
    if not path.is_file():
        return {}
    try:
        manifest: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        manifest["format"], manifest["generation"], manifest["files"]
    except (ValueError, KeyError, TypeError) as error:
        raise CorpusError(f"{path} is damaged ({error!r}): import the corpus anew into another folder") from None
    return manifest


def _finish(folder: Path, generation: str) -> None:
    """Gives the rejections of the committed import their name, even if it was cut off right after its commit."""
    pending = folder / f"{REJECTED}.{generation}"
    if pending.exists():
        pending.replace(folder / REJECTED)


def _ours(name: str) -> bool:
    """Whether a file is one that the writer makes: all others are somebody else's and stay."""
    return name.startswith((_WRITING, "dialogues-", f"{REJECTED}."))


def _lock(folder: Path) -> int:
    """Holds the folder against a second import; the system lets go of it even when this process is killed."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(handle)
        raise CorpusError(f"another import is writing to {folder}: wait for it, or choose another --out") from None
    return handle


def _rename(path: Path, name: Path) -> None:
    """Gives a finished file its name once its contents are on disk."""
    sync(path)
    path.replace(name)
