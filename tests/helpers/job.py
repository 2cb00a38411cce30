"""Jobs of several training processes, forked from one that has imported everything."""

import itertools
import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import nn

from tests.helpers import HANG_SECONDS
from tests.helpers.processes import redirect_stderr, start
from turnwise.core.errors import TurnwiseError
from turnwise.corpus.storage.corpus import read_corpus
from turnwise.training import checkpoint, distributed
from turnwise.training.distributed import Processes
from turnwise.training.loop import train
from turnwise.training.passes import BatchPass
from turnwise.training.recipe import load_recipe

#: Seconds that processes wait for each other on a busy machine.
PROCESS_TIMEOUT = 300


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


class Job:
    """Processes that each call `task(rank, *arguments)`; their standard error is recorded."""

    def __init__(self, world: int, place: Path, task: Callable[..., None], *arguments: Any):
        place.mkdir(parents=True, exist_ok=True)
        self._outputs = [place / f"outputs-{rank}.txt" for rank in range(world)]
        port = free_port()
        self.processes = [
            start(_member, rank, world, port, self._outputs[rank], task, *arguments) for rank in range(world)
        ]

    def wait(self, *without: int) -> list[str]:
        """Return the standard error of each process, once all but those of `without` have ended."""
        end = time.monotonic() + HANG_SECONDS
        for rank, process in enumerate(self.processes):
            if rank not in without:
                process.join(max(0.0, end - time.monotonic()))
        hanging = [rank for rank, process in enumerate(self.processes) if process.is_alive()]
        for rank in hanging:
            self.processes[rank].kill()
            self.processes[rank].join()
        outputs = [path.read_text() for path in self._outputs]
        assert set(hanging) <= set(without), f"{hanging} did not end: {outputs}"
        return outputs

    def expect_done(self) -> None:
        outputs = self.wait()
        assert [process.exitcode for process in self.processes] == [0] * len(outputs), outputs


def _member(rank: int, world: int, port: int, output: Path, task: Callable[..., None], *arguments: Any) -> None:
    numbers = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": world, "LOCAL_WORLD_SIZE": world, "MASTER_PORT": port}
    os.environ.update({name: str(number) for name, number in numbers.items()})
    os.environ.update({"MASTER_ADDR": "127.0.0.1", "OMP_NUM_THREADS": "1"})
    redirect_stderr(output)
    try:
        task(rank, *arguments)
    except TurnwiseError as error:
        os.write(2, f"error: {error}\n".encode())
        sys.exit(1)


# ---- tasks


def train_all(rank: int, recipes: Path, store: Path) -> None:
    """Train every recipe of a folder."""
    for recipe_file in sorted(recipes.glob("*.yaml")):
        train(load_recipe(recipe_file), read_corpus(store), recipe_file.with_suffix(""), resume=True)


@dataclass(frozen=True, slots=True)
class Signal:
    """A signal that a process receives in the middle of a step, counted from 1 after its start."""

    rank: int
    step: int
    number: signal.Signals


def train_one(
    rank: int,
    recipe_file: Path,
    store: Path,
    place: Path,
    sent: Signal | None = None,
    process_timeout: float = PROCESS_TIMEOUT,
) -> None:
    """Start or resume a run."""
    real = Processes.average_gradients
    steps = itertools.count(1)

    def average(self: Processes, parameters: Iterable[nn.Parameter]) -> None:
        if sent is not None and (rank, next(steps)) == (sent.rank, sent.step):
            os.kill(os.getpid(), sent.number)
        real(self, parameters)

    Processes.average_gradients = average  # type: ignore[method-assign]
    distributed._GRACE_SECONDS = 0.5
    train(load_recipe(recipe_file), read_corpus(store), place, resume=True, process_timeout=process_timeout)


def train_different(rank: int, recipe_files: list[Path], store: Path, places: list[Path]) -> None:
    """Train another recipe in another folder in each process."""
    train(
        load_recipe(recipe_files[rank]), read_corpus(store), places[rank], resume=True, process_timeout=PROCESS_TIMEOUT
    )


def train_on_full_disk(rank: int, recipe_file: Path, store: Path, place: Path) -> None:
    real = checkpoint.write_tensors

    def full(path: Path, tensors: Any) -> None:
        if (place / "checkpoints" / "step-000000002").is_dir():
            raise OSError(28, "No space left on device")
        real(path, tensors)

    checkpoint.write_tensors = full
    train(load_recipe(recipe_file), read_corpus(store), place, process_timeout=PROCESS_TIMEOUT)


def train_with_failing_probe(rank: int, recipe_file: Path, store: Path, place: Path) -> None:
    def probe(model: Any) -> dict[str, float]:
        raise ValueError("no such data")

    train(load_recipe(recipe_file), read_corpus(store), place, probe=probe, process_timeout=PROCESS_TIMEOUT)


def train_with_slow_probe(rank: int, recipe_file: Path, store: Path, place: Path) -> None:
    """Evaluate the probe for longer than the longest wait."""

    def probe(model: Any) -> dict[str, float]:
        if not (place / "checkpoints").exists():
            time.sleep(5)
        return {"score": 1.0}

    train(load_recipe(recipe_file), read_corpus(store), place, probe=probe, process_timeout=4)


def train_with_failing_process(rank: int, recipe_file: Path, store: Path, place: Path) -> None:
    """Raise an error in the second process in the middle of the third step."""
    real = BatchPass.run
    steps = itertools.count(1)

    def run(self: BatchPass, *arguments: Any) -> bool:
        if rank == 1 and next(steps) == 3:
            raise TurnwiseError("the memory of this machine is full")
        return real(self, *arguments)

    BatchPass.run = run  # type: ignore[method-assign]
    train(load_recipe(recipe_file), read_corpus(store), place, process_timeout=PROCESS_TIMEOUT)
