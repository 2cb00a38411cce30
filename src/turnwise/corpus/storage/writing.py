"""Writing stores as a stream."""

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, Self

import pyarrow.parquet as pq
from filelock import FileLock, Timeout

from turnwise.core.dialogue import Dialogue
from turnwise.core.errors import CorpusError
from turnwise.core.files import remove_leftovers, sha256, sync_to_disk
from turnwise.corpus.storage.rejections import CorpusCounts, Rejection
from turnwise.corpus.storage.rows import SCHEMA, RowGroupBuilder
from turnwise.corpus.storage.store import FORMAT, MANIFEST, REJECTED, Store, finish_commit, is_store
from turnwise.version import __version__

_LOCK = ".lock"
_WRITING = ".writing-"

FILE_GROUPS = 64  # row groups per file


class StoreWriter:
    """Writes a store as a stream; nothing of it is visible before `commit`, without which the previous store stays."""

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
        self._parts: dict[Path, int] = {}  # the number of dialogues in each file
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
        path = self._folder / f"{_WRITING}{self._groups // FILE_GROUPS:05d}.parquet"
        if self._writer is None:
            self._writer = pq.ParquetWriter(
                path, SCHEMA, compression="zstd", compression_level=1, write_page_checksum=True
            )
        self._writer.write_table(self._group.table())
        self._parts[path] = self._parts.get(path, 0) + len(self._group.ids)
        self._group = RowGroupBuilder()
        self._groups += 1
        if self._groups % FILE_GROUPS == 0:
            self._close_part()

    def _close_part(self) -> None:
        if self._writer is not None:
            self._writer.close()
            self._writer = None

    def commit(self, provenance: Mapping[str, Any]) -> Store:
        """Publish the store, with `provenance` in its manifest, and remove the one it replaces."""
        self._flush()
        self._close_part()
        self._rejected.close()
        digests = list(map(sha256, self._parts))
        generation = hashlib.sha256("".join(digests).encode()).hexdigest()[:12]
        files = []
        for number, ((path, dialogues), digest) in enumerate(zip(self._parts.items(), digests, strict=True)):
            name = f"dialogues-{generation}-{number:05d}.parquet"
            self._publish(path, name)
            files.append({"name": name, "dialogues": dialogues, "sha256": digest})
        self._publish(self._folder / f"{_WRITING}{REJECTED}", f"{REJECTED}.{generation}")
        manifest = {
            "format": FORMAT,
            "generation": generation,
            **asdict(self.counts),
            "rejected": self.rejections,
            **provenance,
            "files": files,
        }
        new_manifest = self._folder / f"{_WRITING}{MANIFEST}"
        new_manifest.write_text(json.dumps(manifest, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
        sync_to_disk(self._folder)
        self._publish(new_manifest, MANIFEST)
        finish_commit(self._folder, generation)
        sync_to_disk(self._folder)
        current = {MANIFEST, REJECTED, _LOCK, *(file["name"] for file in files)}
        for path in self._folder.iterdir():
            if path.name not in current and _is_store_file(path.name) and path.is_file():
                path.unlink()
        return Store(self._folder)

    def _publish(self, path: Path, name: str) -> None:
        sync_to_disk(path)
        path.replace(self._folder / name)

    def _remove_unfinished(self) -> None:
        for path in self._folder.glob(f"{_WRITING}*"):
            if path.is_file():
                path.unlink()
        remove_leftovers(self._folder)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._close_part()
        self._rejected.close()
        self._remove_unfinished()
        (self._folder / _LOCK).unlink(missing_ok=True)
        self._lock.release()
        if not any(self._folder.iterdir()):
            self._folder.rmdir()


def _is_store_file(name: str) -> bool:
    return name == _LOCK or name.startswith((_WRITING, "dialogues-", f"{REJECTED}."))


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
        values = {"licence": licence, "home": home, "facts": dict(facts or {})}
        return writer.commit(provenance("write_store", {}, asdict(writer.counts), **values))


def provenance(reader: str, options: Mapping[str, Any], read: Mapping[str, int], **values: Any) -> dict[str, Any]:
    """Return what a manifest says about the origin of a store: the reader or command, its options, what it read."""
    defaults: dict[str, Any] = {
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
        "masking": None,
        "inputs": [],
    }
    return defaults | values


def open_for_copy(store: Path | str, out: Path | str) -> Store:
    """Open a store of which another one is made; raise a CorpusError if both are the same folder."""
    opened = Store(store)
    if Path(out).exists() and Path(out).samefile(store):
        raise CorpusError(f"{out} is the store to read: choose another --out")
    return opened


def derived_provenance(
    store: Store, command: str, options: Mapping[str, Any], read: Mapping[str, int], facts: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the provenance of a store that a command made from another one: its licence, and its files as inputs."""
    original = store.manifest
    return provenance(
        command,
        options,
        read,
        licence=original.get("licence", ""),
        home=original.get("home", ""),
        facts={**facts, "made_of": store.describe()},
        inputs=[
            {"name": file["name"], "bytes": (store.folder / file["name"]).stat().st_size, "sha256": file["sha256"]}
            for file in original["files"]
        ],
    )
