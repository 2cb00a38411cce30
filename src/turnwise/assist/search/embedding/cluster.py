"""Vectors of a corpus by the workers of a Ray cluster: Parquet in, a Lance table out, a block at a time.

Ray Data hands blocks to a pool of actors, each with an encoder of its own; where an actor is killed, it starts another, and has the
block done again. What a block is and when it is finished is not Ray's affair: see `blocks` and `lance_table`.
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

from turnwise.assist.search.embedding.blocks import Blocks
from turnwise.assist.search.embedding.embedded import Embedded, EmbeddingError, encoded, encoder_of
from turnwise.assist.search.embedding.groups import ROW, VECTOR, Corpus, read_groups
from turnwise.assist.search.embedding.lance_table import LanceTable, local_folder
from turnwise.core.errors import TurnwiseError
from turnwise.core.progress import Progress, silent
from turnwise.core.types import SupportsEncode
from turnwise.models.loading import load_model
from turnwise.papers import baselines  # noqa: F401  registers models and post-processors
from turnwise.version import __version__

#: Texts of a block: what the loss of a worker can cost.
BLOCK_ROWS = 16_384

#: What Ray is told before it is imported: nothing leaves the machine, and it says only what we do not.
_QUIET = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_DATA_LOG_LEVEL": "CRITICAL", "RAY_BACKEND_LOG_LEVEL": "fatal"}

#: Bytes of Ray's store of objects, on a cluster of our own: only numbers of blocks go through it.
_OBJECTS = 1 << 27

#: Seconds in which a cluster has to answer.
_SECONDS = 10


@dataclass(frozen=True, slots=True)
class Task:
    """All that a worker has to know.

    Attributes:
        model: its name, as `evaluate` takes it.
        compressed: whether vectors are drawn towards those of templates.
        folder: in which the command was given.
        corpus: what is to be encoded.
        uri: of the table.
        schema: of its rows.
        run: what its vectors depend on.
    """

    model: str
    compressed: bool
    folder: str
    corpus: Corpus
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
) -> Embedded:
    """Writes a table of vectors: the columns of the input, `row` (which of all texts it is, from 0) and `vector`.

    Where a run was cut off, the same call goes on, and blocks that are finished are not encoded again. A table that is finished
    stays as it is.

    Args:
        model: its name, as `evaluate` takes it; every worker loads it.
        source: a store, a Parquet file, or a folder of Parquet files; where the cluster has several machines, all must reach it.
        out: the table, a folder that ends in .lance, on a disk that all reach, or the URI of one on object storage.
        column: the column of texts in Parquet files.
        splits: of a store, dialogues of these splits alone; none: all.
        speakers: of a store, turns by these speakers alone; none: all.
        normalise: scale vectors to length 1; None: as the model was saved.
        max_length: tokens of a text, at most the model's own; None: the model's own.
        compressed: draw vectors towards those of templates, as the model's folder says how.
        workers: how many encode at the same time, each on a GPU where the cluster has GPUs, else on a core; None: all.
        block_rows: texts of a block.
        address: of a running cluster; None: what RAY_ADDRESS names, else a cluster on this machine for as long as it takes.
        progress: told how many texts are encoded.

    Raises:
        EmbeddingError: if something is missing, cannot be read, or belongs to another run.
    """
    _expect_installed()
    uri = _uri(out)
    corpus = read_groups(source, column, splits, speakers)
    blocks = Blocks(corpus, block_rows)
    if not blocks.texts:
        raise EmbeddingError("there are no texts to encode")
    judged = load_model(model, compressed=compressed)
    size = int(encoded(encoder_of(judged), ["a"], normalise, max_length).shape[1])
    run = {
        "turnwise": __version__,
        "input": corpus.identity,
        "model": judged.fingerprint,
        "normalise": normalise,
        "max_length": max_length,
        "block_rows": block_rows,
    }
    del judged  # the workers load their own
    schema = corpus.records.schema.append(pa.field(ROW, pa.int64())).append(
        pa.field(VECTOR, pa.list_(pa.float32(), size))
    )
    task = Task(model, compressed, str(Path.cwd()), corpus, uri, schema, run)
    table = _table(task)
    if table.begin():
        rows = table.rows()
        return Embedded(rows, size, rows)
    before = table.finished()
    _encode(task, blocks, before, workers, address, progress)
    rows_of = table.commit(len(blocks))
    return Embedded(sum(rows_of), size, sum(rows_of[block] for block in before))


class _Worker:
    """An actor of the pool: encodes blocks, one after the other."""

    def __init__(self, task: Task):
        self._task = task
        self._blocks = Blocks(task.corpus, task.run["block_rows"])
        self._table = _table(task)

    @cached_property
    def _encoder(self) -> SupportsEncode:
        """Loaded with the first block: Ray would not tell what is wrong with a model that is loaded before."""
        if Path(self._task.folder).is_dir():  # so that the model's name means what it means to the user
            os.chdir(self._task.folder)
        judged = load_model(self._task.model, compressed=self._task.compressed)
        if judged.fingerprint != self._task.run["model"]:
            here = socket.gethostname()
            raise EmbeddingError(
                f"{self._task.model} is another model on {here} than where the command was given: put it there"
            )
        return encoder_of(judged)

    def __call__(self, batch: dict[str, Any]) -> dict[str, list[int]]:
        """Encodes the block that a batch of one names, unless that was finished by a worker that could no longer say so."""
        (block,) = (int(number) for number in batch["item"])
        if not self._table.holds(block):
            self._table.write(block, self._vectors(block))
        return {"block": [block]}

    def _vectors(self, block: int) -> Iterator[pa.RecordBatch]:
        run, size = self._task.run, self._task.schema.field(VECTOR).type.list_size
        for items, table in self._blocks.portions(block):
            vectors = encoded(self._encoder, items, run["normalise"], run["max_length"])
            column = pa.FixedSizeListArray.from_arrays(pa.array(vectors.ravel()), size)
            yield from table.append_column(VECTOR, column).cast(self._task.schema).to_batches()


def _encode(
    task: Task, blocks: Blocks, before: set[int], workers: int | None, address: str | None, progress: Progress
) -> None:
    """Has the blocks encoded that were not before."""
    todo = [block for block in range(len(blocks)) if block not in before]
    done = sum(blocks.count(block) for block in before)
    progress("encoding", done, blocks.texts)
    if not todo:
        return
    with _cluster(address, workers):
        for block in _finished(task, todo, workers):
            done += blocks.count(block)
            progress("encoding", done, blocks.texts)


def _finished(task: Task, todo: list[int], workers: int | None) -> Iterator[int]:
    """Blocks, as they are finished."""
    import ray
    from ray.data import ActorPoolStrategy, DataContext

    context = DataContext.get_current().copy()
    context.enable_progress_bars = False
    context.print_on_execution_start = False
    context.execution_no_progress_timeout_s = -1  # a block takes as long as it takes
    context.raise_original_map_exception = True
    there: dict[str, float] = ray.cluster_resources()  # type: ignore[no-untyped-call]
    gpus = int(there.get("GPU", 0))
    count = min(workers or gpus or int(there.get("CPU", 1)), len(todo))
    with DataContext.current(context):
        finished = ray.data.from_items(todo, override_num_blocks=len(todo)).map_batches(
            _Worker,
            batch_size=1,
            fn_constructor_args=(task,),
            # one at a time: what waits at a worker is not done by another that has nothing to do
            compute=ActorPoolStrategy(size=count, max_tasks_in_flight_per_actor=1),
            num_cpus=1,
            num_gpus=1 if gpus else 0,
        )
        try:
            for row in finished.iter_rows():
                yield int(row["block"])
        except ray.exceptions.RayTaskError as error:
            if isinstance(error.cause, TurnwiseError):
                raise EmbeddingError(f"{error.cause}. Blocks that are finished are kept") from None
            raise EmbeddingError(
                f"a worker failed ({type(error.cause).__name__}: {error.cause}): blocks that are finished are kept,"
                " so mend that and give the same command again"
            ) from error
        except ray.exceptions.RayError as error:
            raise EmbeddingError(
                f"the cluster gave up ({error}): blocks that are finished are kept, so give the same command again"
            ) from error


@contextmanager
def _cluster(address: str | None, workers: int | None) -> Iterator[None]:
    """The cluster at an address, or one on this machine, for a while; the one that this process is part of, if it is."""
    import ray

    if ray.is_initialized():
        if address is not None:
            raise EmbeddingError(
                "this process belongs to a Ray cluster already: leave the address out, or `ray.shutdown()` before"
            )
        yield
        return
    where = address or os.environ.get("RAY_ADDRESS")
    own: dict[str, Any] = (
        {} if where else {"num_cpus": workers, "include_dashboard": False, "object_store_memory": _OBJECTS}
    )
    try:
        if where:
            _expect_answer(where)
        with warnings.catch_warnings():
            warnings.filterwarnings(
                "ignore", "lance is not fork-safe"
            )  # what Ray forks becomes another program at once
            ray.init(where or "local", logging_level=logging.ERROR, log_to_driver=False, **own)
    except (OSError, RuntimeError, ValueError) as error:
        raise EmbeddingError(f"there is no Ray cluster at {where}: {error}") from error
    try:
        yield
    finally:
        ray.shutdown()


def _expect_answer(address: str) -> None:
    """Tells at once of a machine that does not answer: Ray would try for minutes."""
    host, _, port = address.rpartition(":")
    if host and port.isdigit() and "://" not in address:
        socket.create_connection((host, int(port)), _SECONDS).close()


def _table(task: Task) -> LanceTable:
    return LanceTable(task.uri, task.schema, task.run)


def _expect_installed() -> None:
    os.environ.update(_QUIET)
    try:
        import lance  # noqa: F401
        import ray.data  # noqa: F401
    except ImportError as error:
        raise EmbeddingError(f"{error.name} is not installed: pip install 'turnwise[scale]'") from None


def _uri(out: str) -> str:
    """Where a table is written, as a worker names it."""
    folder = local_folder(out)
    if not out.rstrip("/").endswith(".lance"):
        raise EmbeddingError(f"{out} does not end in .lance: Ray's workers write Lance tables alone")
    if folder is None:
        return out
    if not folder.parent.is_dir():
        raise EmbeddingError(f"there is no folder {folder.parent} to write to")
    if folder.exists() and not folder.is_dir():
        raise EmbeddingError(f"{out} is a file: a Lance table is a folder, name another one")
    return str(folder)
