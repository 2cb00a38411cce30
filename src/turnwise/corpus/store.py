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

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from itertools import repeat
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from filelock import FileLock, Timeout

from turnwise.core.dialogue import Dialogue
from turnwise.core.errors import CorpusError, did_you_mean
from turnwise.core.files import read_json, sha256, sync_to_disk
from turnwise.corpus.hygiene import merge_speakers
from turnwise.corpus.rows import SCHEMA, RowGroupBuilder, dialogues_from_batch
from turnwise.corpus.source import CorpusCounts, Rejection
from turnwise.version import __version__

FORMAT = 1
MANIFEST = "manifest.json"
REJECTED = "rejected.jsonl"
_LOCK = ".lock"
_WRITING = ".writing-"

#: Row groups per file.
FILE_GROUPS = 64


class StoreWriter:
    """Writes a store as a stream; nothing of it is visible before `commit`.

    Use it as a context manager: without a commit, the previous store stays as it was.
    """

    def __init__(self, folder: Path):
        if folder.exists() and not folder.is_dir():
            raise CorpusError(f"{folder} is a file: a store is a folder, choose another --out")
        if folder.is_dir() and not is_store(folder) and not all(_is_store_file(path.name) for path in folder.iterdir()):
            raise CorpusError(f"{folder} holds other files: choose an empty or new folder, or a store to be replaced")
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        # the system releases it even if this process is killed
        self._lock = FileLock(folder / _LOCK, thread_local=False)
        try:
            self._lock.acquire(timeout=0)
        except Timeout:
            raise CorpusError(f"another import is writing to {folder}: wait for it, or choose another --out") from None
        self._remove_unfinished()
        self._group = RowGroupBuilder()
        self._writer: pq.ParquetWriter | None = None
        self._groups = 0
        self._parts: list[tuple[Path, int]] = []
        self._rejected = (folder / f"{_WRITING}{REJECTED}").open("w", encoding="utf-8")
        self.counts = CorpusCounts()
        self.rejections = 0

    def write(self, dialogue: Dialogue) -> None:
        """Append a dialogue."""
        self._group.add(dialogue)
        self.counts.dialogues += 1
        self.counts.utterances += len(dialogue.turns)
        if self._group.full:
            self._flush()

    def reject(self, rejection: Rejection) -> None:
        """Append a line to `rejected.jsonl`."""
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
        self._group = RowGroupBuilder()
        if self._groups % FILE_GROUPS == 0:
            self._close_part()

    def _close_part(self) -> None:
        if self._writer is not None:
            self._writer.close()
            self._writer = None

    def commit(self, provenance: Mapping[str, Any]) -> None:
        """Publish the store, with `provenance` in its manifest, and remove the one it replaces."""
        self._flush()
        self._close_part()
        self._rejected.close()
        digests = [sha256(path) for path, _ in self._parts]
        generation = hashlib.sha256("".join(digests).encode()).hexdigest()[:12]
        files = []
        for number, ((path, dialogues), digest) in enumerate(zip(self._parts, digests, strict=True)):
            name = f"dialogues-{generation}-{number:05d}.parquet"
            _sync_and_rename(path, self._folder / name)
            files.append({"name": name, "dialogues": dialogues, "sha256": digest})
        _sync_and_rename(self._folder / f"{_WRITING}{REJECTED}", self._folder / f"{REJECTED}.{generation}")
        manifest = {
            "format": FORMAT,
            "generation": generation,
            "dialogues": self.counts.dialogues,
            "utterances": self.counts.utterances,
            "rejected": self.rejections,
            **provenance,
            "files": files,
        }
        new_manifest = self._folder / f"{_WRITING}{MANIFEST}"
        new_manifest.write_text(json.dumps(manifest, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
        sync_to_disk(self._folder)
        _sync_and_rename(new_manifest, self._folder / MANIFEST)
        _finish_commit(self._folder, generation)
        sync_to_disk(self._folder)
        current = {MANIFEST, REJECTED, _LOCK, *(file["name"] for file in files)}
        for path in self._folder.iterdir():
            if path.name not in current and _is_store_file(path.name):
                path.unlink()

    def _remove_unfinished(self) -> None:
        for path in self._folder.glob(f"{_WRITING}*"):
            path.unlink()

    def __enter__(self) -> "StoreWriter":
        return self

    def __exit__(self, *_: object) -> None:
        self._close_part()
        self._rejected.close()
        self._remove_unfinished()
        (self._folder / _LOCK).unlink(missing_ok=True)
        self._lock.release()
        if not any(self._folder.iterdir()):
            self._folder.rmdir()


class Store:
    """A store on disk; iterating yields its dialogues in order, with one row group in memory at a time."""

    def __init__(self, folder: Path | str):
        self.folder = Path(folder)
        path = self.folder / MANIFEST
        if not is_store(self.folder):
            raise CorpusError(
                f"{self.folder} is not a store: it has no {MANIFEST} (make one: turnwise corpus import …)"
            )
        try:
            self.manifest: dict[str, Any] = read_json(path)
            self.manifest["format"], self.manifest["generation"], self.manifest["files"]
        except (ValueError, KeyError, TypeError) as error:
            raise CorpusError(f"{path} is damaged ({error!r}): import the corpus again into another folder") from None
        if self.manifest["format"] != FORMAT:
            raise CorpusError(
                f"{self.folder} has store format {self.manifest['format']}, this turnwise reads format {FORMAT}:"
                " import the corpus again"
            )
        _finish_commit(self.folder, self.manifest["generation"])

    def __len__(self) -> int:
        return int(self.manifest["dialogues"])

    def __iter__(self) -> Iterator[Dialogue]:
        for batch in self.batches():
            yield from dialogues_from_batch(batch)

    def splits(self) -> set[str]:
        """Return the splits of the dialogues."""
        names = {name for batch in self.batches(["split"]) for name in batch.column("split").unique().to_pylist()}
        return names - {None}

    def speakers(self) -> set[str]:
        """Return the speakers of the turns."""
        columns = (batch.column("speakers").flatten() for batch in self.batches(["speakers"]))
        return {name for column in columns for name in column.unique().to_pylist()}

    def batches(self, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
        """Yield the rows as Arrow record batches, with all columns or some: for counting without creating objects."""
        for file in self.manifest["files"]:
            path = self.folder / file["name"]
            try:
                # pre_buffer would keep all row groups in memory until the file is closed
                with pq.ParquetFile(path, memory_map=True, pre_buffer=False) as parquet:
                    for group in range(parquet.num_row_groups):
                        yield from parquet.read_row_group(group, columns=columns).to_batches()
            except FileNotFoundError:
                raise CorpusError(f"{path} is missing, though the manifest lists it: import the corpus again") from None
            except pa.ArrowInvalid as error:
                raise CorpusError(f"{path} is damaged ({error}): import the corpus again") from None


def _describe_splits(found: Sequence[set[str]]) -> str:
    names = sorted(set().union(*found))
    return f"choose from {', '.join(names)}" if names else "the stores have no splits; leave the split out"


class Corpus:
    """One or several stores, read as one, in the given order; ids are unique within a store.

    Args:
        stores: the stores.
        splits: the splits to read; None: all dialogues. Stores without splits are read completely if another one has
            these splits.
        fraction: the fraction of those dialogues to read, selected by a hash of their ids: a smaller one is a subset of
            a larger one.
        combine_turns: whether consecutive turns of one speaker are read as one turn.
        min_turns: dialogues of fewer turns are left out; counted after turns are combined.
    """

    def __init__(
        self,
        stores: Sequence[Store],
        splits: Sequence[str] | None = None,
        fraction: float = 1.0,
        combine_turns: bool = False,
        min_turns: int = 1,
    ):
        if not stores:
            raise CorpusError("name at least one store")
        self.stores = tuple(stores)
        self.splits = None if splits is None else tuple(splits)
        self.fraction = fraction
        self.combine_turns = combine_turns
        self.min_turns = min_turns
        if splits is not None:
            found = [store.splits() for store in self.stores]
            if not any(names & set(splits) for names in found):
                raise CorpusError(f"no dialogue is in split {' or '.join(splits)}: {_describe_splits(found)}")
            self._unsplit = {store.folder for store, names in zip(self.stores, found, strict=True) if not names}
        else:
            self._unsplit = set()

    def __len__(self) -> int:
        if self.splits is None and self.fraction == 1 and self.min_turns == 1:
            return sum(len(store) for store in self.stores)
        columns = ["id", "split"] if self.min_turns == 1 else ["id", "split", "speakers"]
        return sum(self._count(store, batch) for store in self.stores for batch in store.batches(columns))

    def _count(self, store: Store, batch: pa.RecordBatch) -> int:
        """Return how many dialogues of a batch are read."""
        ids, splits = (batch.column(name).to_pylist() for name in ("id", "split"))
        selected = map(self._selects, repeat(store), ids, splits)
        if self.min_turns == 1:
            return sum(selected)
        speakers = batch.column("speakers")
        starts = speakers.offsets.to_numpy()[:-1]
        counted = np.ones(len(speakers.values), np.int64)  # 0 for a turn that is combined with the one before
        if self.combine_turns:
            codes = speakers.values.indices.to_numpy()
            counted[1:] = codes[1:] != codes[:-1]
            counted[starts] = 1
        long_enough = np.add.reduceat(counted, starts) >= self.min_turns
        return sum(is_long and is_selected for is_long, is_selected in zip(long_enough.tolist(), selected, strict=True))

    def __iter__(self) -> Iterator[Dialogue]:
        for store in self.stores:
            yield from self.read(store)

    def read(self, store: Store) -> Iterator[Dialogue]:
        """Iterate over the dialogues of one of the stores."""
        for dialogue in store:
            if self._selects(store, dialogue.id, dialogue.split):
                combined = merge_speakers(dialogue) if self.combine_turns else dialogue
                if len(combined.turns) >= self.min_turns:
                    yield combined

    def _selects(self, store: Store, dialogue_id: str, split: str | None) -> bool:
        if self.splits is not None and split not in self.splits and store.folder not in self._unsplit:
            return False
        if self.fraction == 1:
            return True
        return int.from_bytes(hashlib.blake2b(dialogue_id.encode(), digest_size=8).digest()) < self.fraction * (1 << 64)

    def sample(self, fraction: float) -> "Corpus":
        """Return a view of a fraction of the dialogues; raise a CorpusError if none is left."""
        if fraction == 1:
            return self
        view = Corpus(self.stores, self.splits, self.fraction * fraction, self.combine_turns, self.min_turns)
        if not len(view):
            raise CorpusError(f"a fraction of {fraction:g} of {len(self)} dialogues is none: use a larger one")
        return view

    def prepare(self, combine_turns: bool = False, min_turns: int = 1) -> "Corpus":
        """Return a view with consecutive turns of one speaker combined, and without dialogues of few turns.

        Texts are joined by a space, slots move with them, acts are kept without duplicates, and the first intent stays.
        The conditions of this corpus still hold; turns are counted after they are combined, whichever was requested
        first. Raise a CorpusError if no dialogue is left.
        """
        conditions = (self.combine_turns or combine_turns, max(self.min_turns, min_turns))
        if conditions == (self.combine_turns, self.min_turns):
            return self
        view = Corpus(self.stores, self.splits, self.fraction, *conditions)
        if not len(view):
            combined = ", once consecutive turns of one speaker are combined" if view.combine_turns else ""
            raise CorpusError(
                f"none of {len(self)} dialogues has {view.min_turns} turns or more{combined}: require fewer"
            )
        return view


def read_corpus(*stores: Path | str, splits: Sequence[str] | None = None) -> Corpus:
    """Open one or several stores as one corpus of dialogues, all of them or those of some splits.

    Example:
        >>> corpus = read_corpus("stores/multiwoz", "stores/our-logs")  # doctest: +SKIP
        >>> for dialogue in corpus:  # doctest: +SKIP
        ...     ...
    """
    return Corpus([Store(store) for store in stores], splits)


def write_store(
    dialogues: Iterable[Dialogue],
    folder: Path | str,
    *,
    licence: str = "",
    home: str = "",
    facts: Mapping[str, Any] | None = None,
) -> Store:
    """Write dialogues to a folder as a store and return it; a previous store there is replaced at the very end.

    Args:
        dialogues: at least one; ids must be unique. They are written as a stream, so a generator will do.
        folder: a new or empty folder, or a store.
        licence: of the dialogues, for the manifest.
        home: where they come from, such as a URL, for the manifest.
        facts: anything else that the manifest should record, as a dictionary that JSON can hold.

    Raises:
        CorpusError: if there is no dialogue, an item is not a `Dialogue`, or an id occurs twice. Nothing is changed.

    Example:
        >>> write_store([Dialogue("1", (Turn("user", "Is my parcel here?"),))], "stores/mine")  # doctest: +SKIP
    """
    ids: set[str] = set()
    with StoreWriter(Path(folder)) as writer:
        for number, dialogue in enumerate(dialogues):
            if not isinstance(dialogue, Dialogue):
                raise CorpusError(f"item {number} is of type {type(dialogue).__name__}: expected a Dialogue")
            if dialogue.id in ids:
                raise CorpusError(f"item {number}: the id {dialogue.id!r} was there before; ids must be unique")
            ids.add(dialogue.id)
            writer.write(dialogue)
        if not ids:
            raise CorpusError(f"there is no dialogue to write; {folder} is unchanged")
        writer.commit(
            provenance("write_store", {}, asdict(writer.counts), licence=licence, home=home, facts=dict(facts or {}))
        )
    return Store(folder)


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


def provenance(reader: str, options: Mapping[str, Any], read: Mapping[str, int], **values: Any) -> dict[str, Any]:
    """Return what a manifest says about the origin of a store: the reader or command, its options, what it read."""
    defaults = {
        "turnwise": __version__,
        "reader": reader,
        "options": dict(options),
        "licence": "",
        "home": "",
        "read": dict(read),
        "left_out": {},
        "reasons": {},
        "facts": {},
        "steps": [],
        "inputs": [],
    }
    return defaults | values


def derived_provenance(
    store: Store, command: str, options: Mapping[str, Any], read: Mapping[str, int], facts: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the provenance of a store that a command made from another one: its licence, and its files as inputs."""
    original = store.manifest
    name = f"{store.folder.name} ({original.get('reader', 'unknown')}, generation {original['generation']})"
    return provenance(
        command,
        options,
        read,
        licence=original.get("licence", ""),
        home=original.get("home", ""),
        facts={**facts, "made_of": name},
        inputs=[
            {"name": file["name"], "bytes": (store.folder / file["name"]).stat().st_size, "sha256": file["sha256"]}
            for file in original["files"]
        ],
    )


def _finish_commit(folder: Path, generation: str) -> None:
    """Give the rejections of the committed import their name, in case it was killed right after the commit."""
    pending = folder / f"{REJECTED}.{generation}"
    if pending.exists():
        pending.replace(folder / REJECTED)


def _is_store_file(name: str) -> bool:
    return name == _LOCK or name.startswith((_WRITING, "dialogues-", f"{REJECTED}."))


def _sync_and_rename(path: Path, name: Path) -> None:
    sync_to_disk(path)
    path.replace(name)
