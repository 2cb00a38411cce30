"""A job of several processes on this machine, as a launcher would start it, but forked from one that has imported everything."""

import itertools
import multiprocessing
import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from torch import nn

from turnwise.cli.output import quiet_transformers
from turnwise.core.errors import TurnwiseError
from turnwise.corpus.store import read_corpus
from turnwise.training import checkpoint, distributed
from turnwise.training.distributed import Processes
from turnwise.training.loop import train
from turnwise.training.recipe import load_recipe
from turnwise.training.step import BatchPass

#: Seconds after which a job that should have ended counts as hanging.
HANGS = 150

#: Seconds that processes wait for one another on a machine that has much else to do.
PATIENCE = 60


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


class Job:
    """Some processes, each of which calls `task(rank, *arguments)`; what they say to standard error is kept."""

    def __init__(self, world: int, place: Path, task: Callable[..., None], *arguments: Any):
        place.mkdir(parents=True, exist_ok=True)
        self._said = [place / f"said-{rank}.txt" for rank in range(world)]
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(["turnwise.training.loop", "transformers.models.bert.modeling_bert"])
        port = free_port()
        self.processes: list[BaseProcess] = [
            context.Process(target=_member, args=(rank, world, port, self._said[rank], task, *arguments))
            for rank in range(world)
        ]
        for process in self.processes:
            process.start()

    def wait(self, *without: int) -> list[str]:
        """What each process said, once all have ended (`without` some, which nobody waits for)."""
        end = time.monotonic() + HANGS
        for rank, process in enumerate(self.processes):
            if rank not in without:
                process.join(max(0.0, end - time.monotonic()))
        hanging = [rank for rank, process in enumerate(self.processes) if process.is_alive()]
        for rank in hanging:
            self.processes[rank].kill()
            self.processes[rank].join()
        said = [path.read_text() for path in self._said]
        assert set(hanging) <= set(without), f"{hanging} did not end: {said}"
        return said

    def expect_done(self) -> None:
        said = self.wait()
        assert [process.exitcode for process in self.processes] == [0] * len(said), said


def _member(rank: int, world: int, port: int, said: Path, task: Callable[..., None], *arguments: Any) -> None:
    numbers = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": world, "LOCAL_WORLD_SIZE": world, "MASTER_PORT": port}
    os.environ.update({name: str(number) for name, number in numbers.items()})
    os.environ.update({"MASTER_ADDR": "127.0.0.1", "OMP_NUM_THREADS": "1"})
    with said.open("w") as file:
        os.dup2(file.fileno(), 2)
    quiet_transformers()
    try:
        task(rank, *arguments)
    except TurnwiseError as error:
        os.write(2, f"error: {error}\n".encode())
        sys.exit(1)


# ---- what a process is given to do


def train_all(rank: int, recipes: Path, store: Path) -> None:
    """Every recipe of a folder in turn."""
    for wanted in sorted(recipes.glob("*.yaml")):
        train(load_recipe(wanted), read_corpus(store), wanted.with_suffix(""), resume=True)


@dataclass(frozen=True, slots=True)
class Signal:
    """A signal that one of the processes gets in the middle of a step, the first after its start being 1."""

    rank: int
    step: int
    number: signal.Signals


def train_one(
    rank: int, wanted: Path, store: Path, place: Path, struck: Signal | None = None, longest_wait: float = PATIENCE
) -> None:
    """Starts or goes on with a run."""
    real = Processes.average_gradients
    steps = itertools.count(1)

    def average(self: Processes, parameters: Iterable[nn.Parameter]) -> None:
        if struck is not None and (rank, next(steps)) == (struck.rank, struck.step):
            os.kill(os.getpid(), struck.number)
        real(self, parameters)

    Processes.average_gradients = average  # type: ignore[method-assign]
    distributed._GRACE_SECONDS = 0.5
    train(load_recipe(wanted), read_corpus(store), place, resume=True, longest_wait=longest_wait)


def train_apart(rank: int, wanted: list[Path], store: Path, places: list[Path]) -> None:
    """Each process a recipe and a folder of its own."""
    train(load_recipe(wanted[rank]), read_corpus(store), places[rank], resume=True, longest_wait=PATIENCE)


def fill_the_disk(rank: int, wanted: Path, store: Path, place: Path) -> None:
    real = checkpoint.save_file

    def full(tensors: Any, path: Path) -> None:
        if (place / "checkpoints" / "step-000000002").is_dir():
            raise OSError(28, "No space left on device")
        real(tensors, path)

    checkpoint.save_file = full
    train(load_recipe(wanted), read_corpus(store), place, longest_wait=PATIENCE)


def probe_badly(rank: int, wanted: Path, store: Path, place: Path) -> None:
    def probe(model: Any) -> dict[str, float]:
        raise ValueError("no such data")

    train(load_recipe(wanted), read_corpus(store), place, probe=probe, longest_wait=PATIENCE)


def probe_slowly(rank: int, wanted: Path, store: Path, place: Path) -> None:
    """Measures for longer than a process may be without a sign of life."""

    def probe(model: Any) -> dict[str, float]:
        if not (place / "checkpoints").exists():
            time.sleep(5)
        return {"score": 1.0}

    train(load_recipe(wanted), read_corpus(store), place, probe=probe, longest_wait=4)


def fail_alone(rank: int, wanted: Path, store: Path, place: Path) -> None:
    """The second process meets an error in the middle of the third step."""
    real = BatchPass.run
    steps = itertools.count(1)

    def run(self: BatchPass, *arguments: Any) -> bool:
        if rank == 1 and next(steps) == 3:
            raise TurnwiseError("the memory of this machine is full")
        return real(self, *arguments)

    BatchPass.run = run  # type: ignore[method-assign]
    train(load_recipe(wanted), read_corpus(store), place, longest_wait=PATIENCE)
