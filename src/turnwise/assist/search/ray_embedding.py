"""Bulk embedding by the workers of a Ray cluster: Parquet files in, a Lance table out, block by block.

Ray Data hands blocks to a pool of actors, each with its own encoder; it replaces a killed actor and repeats its block.
What a block is and when it is finished does not depend on Ray: see `parquet_blocks` and `lance_writer`.
"""

import logging
import os
import socket
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pyarrow as pa

from turnwise.assist.search.embedding import EmbeddingResult, get_encoder
from turnwise.assist.search.lance_writer import LanceWriter
from turnwise.assist.search.parquet_blocks import BLOCK_ROWS, ROW, VECTOR, ParquetCorpus, open_corpus
from turnwise.assist.search.schema import vector_array
from turnwise.assist.search.table import local_folder
from turnwise.core.errors import SearchError, TurnwiseError
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

    Repeating an interrupted call continues it without encoding finished blocks again. A finished table stays as it is.

    Every worker loads the model by its name, and every machine of the cluster must reach `source` (see `open_corpus`)
    and `out`: a folder that ends in .lance, or its URI on object storage. `workers` run on a GPU each if the cluster
    has GPUs, else on a core each; None: as many as there are. `address` is that of a running cluster; None:
    RAY_ADDRESS, else a temporary cluster on this machine. Other options are those of `embed` and `load_model`.
    """
    _check_installed()
    uri = _table_uri(out)
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
        rows = writer.count_rows()
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
        (block,) = (int(number) for number in batch["item"])
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
            if isinstance(error.cause, TurnwiseError):
                raise SearchError(f"{error.cause}. Finished blocks are kept") from None
            raise SearchError(
                f"a worker failed ({type(error.cause).__name__}: {error.cause}): finished blocks are kept, "
                "so fix the cause and repeat the command"
            ) from error
        except ray.exceptions.RayError as error:
            raise SearchError(
                f"the cluster failed ({error}): finished blocks are kept, so repeat the command"
            ) from error


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
    address = address or os.environ.get("RAY_ADDRESS")
    local: dict[str, Any] = {"num_cpus": workers, "include_dashboard": False, "object_store_memory": _OBJECT_STORE}
    try:
        if address:
            _check_reachable(address)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "lance is not fork-safe")  # Ray's forks exec another program at once
            ray.init(address or "local", logging_level=logging.ERROR, log_to_driver=False, **({} if address else local))
    except (OSError, RuntimeError, ValueError) as error:
        raise SearchError(f"there is no Ray cluster at {address}: {error}") from error
    try:
        yield
    finally:
        ray.shutdown()


def _check_reachable(address: str) -> None:
    """Fail at once if a machine does not answer: Ray would try for minutes."""
    host, _, port = address.rpartition(":")
    if host and port.isdigit() and "://" not in address:
        socket.create_connection((host, int(port)), _TIMEOUT).close()


def _check_installed() -> None:
    os.environ.update(_RAY_ENVIRONMENT)
    with explain_missing_packages():
        import lance  # noqa: F401
        import ray.data  # noqa: F401


def _table_uri(out: str) -> str:
    """Return the table's URI, absolute if it is on a disk."""
    folder = local_folder(out)
    if not out.rstrip("/").endswith(".lance"):
        raise SearchError(f"{out} does not end in .lance: Ray workers write only Lance tables")
    if folder is None:
        return out
    if not folder.parent.is_dir():
        raise SearchError(f"there is no folder {folder.parent} to write to")
    if folder.exists() and not folder.is_dir():
        raise SearchError(f"{out} is a file: a Lance table is a folder, choose another path")
    return str(folder)
