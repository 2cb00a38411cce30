"""Bulk embedding by the workers of a Ray cluster: Parquet files in, a Lance table out, block by block.

Ray Data hands blocks to a pool of actors, each with its own encoder; it replaces a killed actor and repeats its block.
What a block is does not depend on Ray (see `parquet_blocks`), nor does when it is finished.

Workers write fragments: files of rows that belong to no table yet. A block is finished when a record of its fragments
lies in the table's folder under the block's number; if two workers have written a block, the later record counts. When
every block has a record, their fragments become the table in one commit, and files that no record names are removed. So
every row is in the table once, whichever process was killed and whenever. Records are written and read through Lance's
own storage layer, so a table on object storage has them beside it.
"""

import json
import logging
import os
import re
import shutil
import socket
import tempfile
import warnings
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from functools import cached_property
from pathlib import Path
from typing import Any

import pyarrow as pa

from turnwise.assist.search.embedding import EmbeddingResult, get_encoder
from turnwise.assist.search.parquet_blocks import BLOCK_ROWS, ROW, VECTOR, ParquetCorpus, open_corpus
from turnwise.assist.search.schema import vector_array
from turnwise.assist.search.table import local_folder
from turnwise.core.errors import SearchError, TurnwiseError
from turnwise.core.files import sync_to_disk
from turnwise.core.imports import explain_missing_packages
from turnwise.core.progress import Progress, silent
from turnwise.core.types import SupportsEncode
from turnwise.models.loading import load_model
from turnwise.models.vector_cache import encode_distinct
from turnwise.version import __version__

#: Environment variables that are set before Ray is imported: no usage statistics, no duplicate messages.
_RAY_ENVIRONMENT = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_DATA_LOG_LEVEL": "CRITICAL", "RAY_BACKEND_LOG_LEVEL": "fatal"}

#: Bytes of the object store of a local cluster: only block numbers go through it.
_OBJECT_STORE = 1 << 27

#: In the table's folder during a run.
_RECORDS = "_turnwise"
_RUN = f"{_RECORDS}/run.json"
_BLOCK = re.compile(rf"{_RECORDS}/block-(\d+)\.json")

#: Metadata of a finished table: the run that wrote it.
_METADATA = b"turnwise"

#: Records that are read concurrently.
_READERS = 32

#: Seconds in which a cluster must accept a connection.
_TIMEOUT = 10


@dataclass(frozen=True, slots=True)
class EmbeddingTask:
    """What a worker needs to know; `run` holds the settings that the vectors depend on."""

    model: str
    compressed: bool
    folder: str  # the command's working directory
    corpus: ParquetCorpus
    uri: str
    schema: pa.Schema
    run: Mapping[str, Any]


def embed_on_ray(
    model: str,
    source: str,
    out: str,
    *,
    column: str = "text",
    splits: Sequence[str] = (),
    speakers: Sequence[str] = (),
    normalise: bool | None = None,
    max_length: int | None = None,
    compressed: bool = False,
    workers: int | None = None,
    block_rows: int = BLOCK_ROWS,
    address: str | None = None,
    progress: Progress = silent,
) -> EmbeddingResult:
    """Write a Lance table with the columns of the input, `row` (the text's number, from 0) and `vector`.

    Repeating an interrupted call continues it. Every worker loads the model by its name, and every machine must reach
    `source` (see `open_corpus`) and `out`. `workers`: None for as many as there are GPUs, or else cores. `address`:
    None for RAY_ADDRESS, or else a temporary cluster on this machine.
    """
    os.environ.update(_RAY_ENVIRONMENT)
    with explain_missing_packages():
        import lance  # noqa: F401
        import ray.data  # noqa: F401
    folder = local_folder(out)
    uri = out if folder is None else str(folder)
    corpus = open_corpus(source, column, splits, speakers, block_rows)
    if not corpus.texts:
        raise SearchError("there are no texts to encode")
    loaded = load_model(model, compressed=compressed)
    size = int(encode_distinct(get_encoder(loaded), ["a"], normalise=normalise, max_length=max_length).shape[1])
    run = {
        "turnwise": __version__,
        "input": corpus.identity,
        "model": loaded.fingerprint,
        "normalise": normalise,
        "max_length": max_length,
        "block_rows": block_rows,
    }
    del loaded  # the workers load their own
    schema = corpus.reader.schema
    schema = schema.append(pa.field(ROW, pa.int64())).append(pa.field(VECTOR, pa.list_(pa.float32(), size)))
    task = EmbeddingTask(model, compressed, str(Path.cwd()), corpus, uri, schema, run)
    writer = LanceWriter(uri, schema, run)
    if writer.begin():
        rows = writer.dataset().count_rows()
        return EmbeddingResult(rows, size, rows)
    before = writer.finished_blocks()
    missing = [block for block in range(corpus.blocks) if block not in before]
    done = sum(corpus.count(block) for block in before)
    progress("encoding", done, corpus.texts)
    if missing:
        with _cluster(address, workers):
            for block in _encode_blocks(task, missing, workers):
                done += corpus.count(block)
                progress("encoding", done, corpus.texts)
    block_sizes = writer.commit(corpus.blocks)
    return EmbeddingResult(sum(block_sizes), size, sum(block_sizes[block] for block in before))


class _Worker:
    """An actor of the pool: encodes one block at a time."""

    def __init__(self, task: EmbeddingTask):
        self._task = task
        self._writer = LanceWriter(task.uri, task.schema, task.run)

    @cached_property
    def _encoder(self) -> SupportsEncode:
        """Loaded with the first block: Ray would not report an exception from the constructor."""
        if Path(self._task.folder).is_dir():  # relative model names refer to the command's working directory
            os.chdir(self._task.folder)
        model = load_model(self._task.model, compressed=self._task.compressed)
        if model.fingerprint != self._task.run["model"]:
            raise SearchError(
                f"{self._task.model} on {socket.gethostname()} is not the model of the machine where the command was "
                "started: copy it there"
            )
        return get_encoder(model)

    def __call__(self, batch: dict[str, Any]) -> dict[str, list[int]]:
        """Encode the block in a batch of one, unless a worker finished it and was killed before it could report."""
        block = int(batch["item"][0])
        if not self._writer.is_finished(block):
            self._writer.write(block, self._encode(block))
        return {"block": [block]}

    def _encode(self, block: int) -> Iterator[pa.RecordBatch]:
        task, run = self._task, self._task.run
        for items, table in task.corpus.read(block):
            vectors = encode_distinct(self._encoder, items, normalise=run["normalise"], max_length=run["max_length"])
            yield from table.append_column(VECTOR, vector_array(vectors)).cast(task.schema).to_batches()


def _encode_blocks(task: EmbeddingTask, blocks: list[int], workers: int | None) -> Iterator[int]:
    """Encode blocks on the cluster and yield each when it is finished."""
    import ray
    from ray.data import ActorPoolStrategy, DataContext

    context = DataContext.get_current().copy()
    context.enable_progress_bars = False
    context.print_on_execution_start = False
    context.execution_no_progress_timeout_s = -1  # a block may take long
    context.raise_original_map_exception = True
    resources: dict[str, float] = ray.cluster_resources()  # type: ignore[no-untyped-call]
    gpus = int(resources.get("GPU", 0))
    count = min(workers or gpus or int(resources.get("CPU", 1)), len(blocks))
    with DataContext.current(context):
        finished = ray.data.from_items(blocks, override_num_blocks=len(blocks)).map_batches(
            _Worker,
            batch_size=1,
            fn_constructor_args=(task,),
            # One in flight: another worker that is idle cannot take over a queued block.
            compute=ActorPoolStrategy(size=count, max_tasks_in_flight_per_actor=1),
            num_cpus=1,
            num_gpus=1 if gpus else 0,
        )
        try:
            for row in finished.iter_rows():
                yield int(row["block"])
        except ray.exceptions.RayTaskError as error:
            reason = (
                "" if isinstance(error.cause, TurnwiseError) else f"a worker failed: {type(error.cause).__name__}: "
            )
            raise SearchError(f"{reason}{error.cause}. Finished blocks are kept, repeat the command") from error
        except ray.exceptions.RayError as error:
            raise SearchError(f"the cluster failed ({error}): finished blocks are kept, repeat the command") from error


@contextmanager
def _cluster(address: str | None, workers: int | None) -> Iterator[None]:
    """Use the cluster that this process belongs to, else connect to the one at an address, else start one."""
    import ray

    if ray.is_initialized():
        if address is not None:
            raise SearchError(
                "this process already belongs to a Ray cluster: omit the address, or call `ray.shutdown()` first"
            )
        yield
        return
    address = address or os.environ.get("RAY_ADDRESS") or ""
    host, _, port = address.rpartition(":")
    local: dict[str, Any] = {"num_cpus": workers, "include_dashboard": False, "object_store_memory": _OBJECT_STORE}
    try:
        if host and port.isdigit() and "://" not in address:
            # fails at once if the machine does not answer: Ray would try for minutes
            socket.create_connection((host, int(port)), _TIMEOUT).close()
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "lance is not fork-safe")  # Ray's forks exec another program at once
            ray.init(address or "local", logging_level=logging.ERROR, log_to_driver=False, **({} if address else local))
    except (OSError, RuntimeError, ValueError) as error:
        raise SearchError(f"there is no Ray cluster at {address}: {error}") from error
    try:
        yield
    finally:
        ray.shutdown()


# ---- the table


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
            stored = (self.dataset().schema.metadata or {}).get(_METADATA)
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

        reader = pa.RecordBatchReader.from_batches(self.schema, watch())
        fragments = write_fragments(reader, self.uri, schema=self.schema, mode="create")
        if errors:  # the fragments have no record
            raise errors[0]
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

    def dataset(self) -> Any:
        """Return the finished table."""
        import lance

        return lance.dataset(self.uri)

    def _check_same_run(self, stored: Mapping[str, Any], state: str) -> None:
        """Raise `SearchError` if the settings of an earlier run differ."""
        changed = [f"{name} (before: {stored.get(name)})" for name in self.run if stored.get(name) != self.run[name]]
        if changed:
            raise SearchError(
                f"{self.uri} {state} with another {', '.join(changed)}: repeat the same command, choose another path,"
                " or remove it"
            )
        if self.run["model"] is None:
            raise SearchError(
                f"{self.uri} {state} of a Python function, which may have changed: choose another path, or remove it"
            )

    def _clean_up(self) -> None:
        """Remove rows that were written twice, the records of blocks, and then that of the run."""
        self.dataset().cleanup_old_versions(older_than=timedelta(0), delete_unverified=True)
        self._remove_records()

    def _remove_records(self) -> None:
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
