"""Writing stores as a stream."""

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from filelock import FileLock, Timeout

from turnwise.core.dialogue import Dialogue
from turnwise.core.errors import CorpusError
from turnwise.core.files import sha256, sync_to_disk
from turnwise.corpus.storage.rejections import CorpusCounts, Rejection
from turnwise.corpus.storage.rows import SCHEMA, RowGroupBuilder
from turnwise.corpus.storage.store import FORMAT, MANIFEST, REJECTED, Store, finish_commit, is_store
from turnwise.version import __version__

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
        finish_commit(self._folder, generation)
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


def _is_store_file(name: str) -> bool:
    return name == _LOCK or name.startswith((_WRITING, "dialogues-", f"{REJECTED}."))


def _sync_and_rename(path: Path, name: Path) -> None:
    sync_to_disk(path)
    path.replace(name)
