"""Several processes have the losses and weights of one, divide every batch exactly, and end together."""

import functools
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from tests.helpers import HANG_SECONDS, job
from tests.helpers.job import Job, Signal
from tests.helpers.tiny import backbone, corpus, expect_close, expect_identical, folder, recipe, set_up_run
from turnwise.core.errors import TrainingError
from turnwise.models.backbone.ragged import RaggedTokens
from turnwise.objectives.objective import PreparedBatch
from turnwise.objectives.registry import make_objective
from turnwise.training.batches import BatchLoader, LoaderConfig
from turnwise.training.checkpoint import latest_checkpoint
from turnwise.training.distributed import Processes
from turnwise.training.loop import train
from turnwise.training.passes import RowLayout, Rows, sorted_chunks
from turnwise.training.recipe import Recipe

#: Recipes and tokens per forward pass: with 40 every process uses chunks, with 90 sometimes only one of them.
SHARED = {
    2: [("masked-language", 100000), ("wmdc", 90), ("dialoguecse", 100000), ("combined", 90), ("ums", 300)],
    3: [("dse", 40), ("masked-language", 40), ("dialoguecse", 60), ("mixture", 90), ("last-batch", 100000)],
}


def store() -> Path:
    return corpus().stores[0].folder


def losses(place: Path) -> list[float]:
    return [
        line["loss"] for line in map(json.loads, (place / "metrics.jsonl").read_text().splitlines()) if "loss" in line
    ]


def steps(place: Path) -> int:
    """Count the steps that a run has logged."""
    try:
        return len((place / "metrics.jsonl").read_text().splitlines())
    except OSError:
        return 0


def expect_close_runs(one: Path, other: Path) -> None:
    """Check that the weights and losses of two runs are equal up to rounding."""
    expect_close(one, other)
    assert losses(one) == pytest.approx(losses(other), rel=1e-4, abs=1e-6)


def expect_identical_runs(one: Path, other: Path) -> None:
    """Check that the weights and losses of two runs are equal to the last bit."""
    expect_identical(one, other)
    assert losses(one) == losses(other)


def saved(run_recipe: Recipe, place: Path) -> Path:
    place.mkdir(parents=True, exist_ok=True)
    (place / "recipe.yaml").write_text(run_recipe.to_yaml())
    return place / "recipe.yaml"


# ---- equal results


@functools.cache
def shared(name: str, budget: int) -> Recipe:
    """Return a recipe of two steps whose batches neither two nor three processes divide evenly."""
    size = 7
    if name == "last-batch":  # the second batch is what an epoch leaves: two examples for three processes
        name, size = "dse", examples() - 2
    # the first gradient of an anchor is rounding alone, which Adam turns into steps of the whole learning rate
    rate = 1e-5 if name == "mixture" else 1e-3
    changes = [f"tokens_per_forward={budget}", "steps=2", f"batch_size={size}", "optimizer=adam"]
    changes.append(f"learning_rate={rate}")
    return recipe(name, *changes, dropout=0.0)


@functools.cache
def examples() -> int:
    """Count DSE's examples in the tiny corpus."""
    return len(set_up_run(recipe("dse", "steps=1")).loaders[0].examples)


@functools.cache
def alone(name: str, budget: int) -> Path:
    """Train a recipe in one process."""
    place = folder() / "alone" / f"{name}-{budget}"
    train(shared(name, budget), corpus(), place, cache=folder() / "cache")
    return place


@pytest.fixture(scope="module")
def several(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Train all recipes of `SHARED` in several processes, which are started once."""

    @functools.cache
    def trained(world: int) -> Path:
        place = tmp_path_factory.mktemp(f"world-{world}")
        for name, budget in SHARED[world]:
            (place / f"{name}-{budget}.yaml").write_text(shared(name, budget).to_yaml())
        Job(world, place, job.train_all, place, store()).expect_done()
        return place

    return trained


@pytest.mark.parametrize(
    ("world", "name", "budget"), [(world, *each) for world, actual in SHARED.items() for each in actual]
)
def test_several_processes_equal_one(world: int, name: str, budget: int, several: Any) -> None:
    """The losses and weights after two steps are equal up to rounding."""
    expect_close_runs(alone(name, budget), several(world) / f"{name}-{budget}")


def test_with_90_tokens_one_process_uses_chunks_and_the_other_does_not() -> None:
    batch = set_up_run(shared("wmdc", 90)).loaders[0].prepare(0)
    passes = [len(sorted_chunks(batch, share, 90)) for share in RowLayout.of([batch], "vectors", 2).members]
    assert min(passes) == 1 < max(passes)


def test_the_last_batch_of_an_epoch_has_fewer_examples_than_processes() -> None:
    (loader,) = set_up_run(shared("last-batch", 100000)).loaders
    assert [len(loader.rows(step)) for step in range(2)] == [examples() - 2, 2]
    assert [len(share) for share in RowLayout.of([loader.prepare(1)], "vectors", 3).members] == [2, 2, 0]


@pytest.mark.full
def test_a_process_without_an_example_takes_part(tmp_path: Path) -> None:
    """Three processes divide batches of two examples: the third has nothing to encode."""
    small = ["batch_size=2", "steps=2", "optimizer=adam"]
    recipes = {
        f"{name}-{budget}": recipe(name, *small, f"tokens_per_forward={budget}", dropout=0.0)
        for name, budget in (("wmdc", 100000), ("wmdc", 20), ("masked-language", 100000))
    }
    for name, run_recipe in recipes.items():
        (tmp_path / f"{name}.yaml").write_text(run_recipe.to_yaml())
    Job(3, tmp_path, job.train_all, tmp_path, store()).expect_done()
    for name, run_recipe in recipes.items():
        train(run_recipe, corpus(), tmp_path / "alone" / name)
        expect_close_runs(tmp_path / "alone" / name, tmp_path / name)


# ---- division of batches


@given(st.integers(2, 60), st.integers(2, 20), st.integers(1, 9), st.sampled_from(["vectors", "states"]), st.data())
def test_an_epoch_is_divided_without_overlap_or_loss(
    size: int, batch_size: int, world: int, rows: Rows, data: st.DataObject
) -> None:
    """Every example of an epoch is encoded by one process, with all of its sequences."""
    columns = data.draw(st.integers(1, 3), "columns")
    texts = data.draw(st.lists(st.integers(1, 5), min_size=size, max_size=size), "tokens")
    seen: list[int] = []
    for numbers in epoch_rows(size, batch_size):
        # the example and the column that a sequence is of are written into it
        sequences = [
            np.full(texts[number], number * columns + column, np.int32)
            for column in range(columns)
            for number in numbers
        ]
        layout = RowLayout.of([PreparedBatch(RaggedTokens.of(sequences), len(numbers))], rows, world)
        divided = [sorted(int(sequences[member][0]) for member in share) for share in layout.members]
        for share in divided:
            owned = {text // columns for text in share}
            assert share == sorted(number * columns + column for number in owned for column in range(columns))
            seen.extend(owned)
        # nobody has more than one example more than another
        assert max(map(len, divided)) - min(map(len, divided)) <= columns
        places = np.concatenate([layout.rows_of(share) for share in layout.members])
        assert sorted(places) == list(range(sum(map(len, sequences)) if rows == "states" else len(sequences)))
    left_out = 1 if size % batch_size == 1 and size > batch_size else 0
    assert len(seen) == len(set(seen)) == size - left_out
    assert set(seen) <= set(range(size))


def epoch_rows(size: int, batch_size: int) -> list[list[int]]:
    """Return the examples of the steps of an epoch."""
    # of examples without labels, only how many there are is asked
    feed = BatchLoader("dse", make_objective("dse", {}), range(size), None, None, LoaderConfig(batch_size, 24, 128, 1))  # type: ignore[arg-type]
    return [feed.rows(step).tolist() for step in range(feed.steps_per_epoch)]


# ---- resuming


def test_a_run_resumes_with_another_number_of_processes(tmp_path: Path) -> None:
    """Two processes, then one, then three equal one process without interruption."""
    run_recipe = recipe(
        "wmdc", "steps=6", "batch_size=7", "optimizer=adamw", "start_fraction=0.2", "checkpoint_every=100", dropout=0.0
    )
    file = saved(run_recipe, tmp_path)
    train(run_recipe, corpus(), tmp_path / "alone", cache=folder() / "cache")
    for world, stop in ((2, 2), (1, 4)):
        running = Job(world, tmp_path, job.train_one, file, store(), tmp_path / "run", Signal(0, 2, signal.SIGTERM))
        outputs = running.wait()
        assert all(f"interrupted at step {stop} of 6; the state is saved" in each for each in outputs), outputs
        newest = latest_checkpoint(tmp_path / "run" / "checkpoints")
        assert newest is not None
        assert newest.name == f"step-{stop:09d}"
    Job(3, tmp_path, job.train_one, file, store(), tmp_path / "run").expect_done()
    expect_close_runs(tmp_path / "alone", tmp_path / "run")


#: Some steps with dropout, and a checkpoint every third.
LONG = ["steps=8", "checkpoint_every=3", "optimizer=adamw", "start_fraction=0.2"]


@functools.cache
def uninterrupted(world: int) -> Path:
    place = folder() / f"uninterrupted-{world}"
    Job(world, place, job.train_one, saved(recipe("dse", *LONG), place), store(), place / "run").expect_done()
    return place / "run"


@pytest.mark.parametrize(
    ("world", "rank"),
    [(2, 1), *(pytest.param(*case, marks=pytest.mark.full) for case in ((2, 0), (3, 0), (3, 1), (3, 2)))],
)
def test_a_killed_process_ends_the_job_and_it_resumes(world: int, rank: int, tmp_path: Path) -> None:
    file, place = saved(recipe("dse", *LONG), tmp_path), tmp_path / "run"
    running = Job(world, tmp_path, job.train_one, file, store(), place, Signal(rank, 5, signal.SIGKILL))
    outputs = running.wait()
    assert running.processes[rank].exitcode == -signal.SIGKILL
    for survivor in set(range(world)) - {rank}:
        assert running.processes[survivor].exitcode == 1
        assert outputs[survivor].startswith(
            "error: a process was lost at step 4 of 8; the last good checkpoint is"
            f" {place}/checkpoints/step-000000003. Resume with the same command and --resume."
        ), outputs
    Job(world, tmp_path, job.train_one, file, store(), place).expect_done()
    expect_identical_runs(uninterrupted(world), place)


@pytest.mark.parametrize("rank", [1, pytest.param(0, marks=pytest.mark.full)])
def test_terminating_one_process_ends_all_at_one_step(rank: int, tmp_path: Path) -> None:
    file, place = saved(recipe("dse", *LONG), tmp_path), tmp_path / "run"
    outputs = Job(2, tmp_path, job.train_one, file, store(), place, Signal(rank, 5, signal.SIGTERM)).wait()
    assert (
        outputs
        == ["error: interrupted at step 5 of 8; the state is saved. Resume with the same command and --resume\n"] * 2
    )
    newest = latest_checkpoint(place / "checkpoints")
    assert newest is not None
    assert newest.name == "step-000000005"
    assert steps(place) == 5
    Job(2, tmp_path, job.train_one, file, store(), place).expect_done()
    expect_identical_runs(uninterrupted(2), place)


@pytest.mark.full
def test_a_stuck_process_is_awaited_for_the_timeout(tmp_path: Path) -> None:
    file, place = saved(recipe("dse", *LONG), tmp_path), tmp_path / "run"
    running = Job(2, tmp_path, job.train_one, file, store(), place, Signal(1, 3, signal.SIGSTOP), 4)
    outputs = running.wait(1)
    assert running.processes[0].exitcode == 1
    assert re.search(
        "a process was lost at step 2 of 8; there is no checkpoint yet.*no heartbeat for 4 seconds", outputs[0]
    ), outputs


# ---- errors


def test_a_full_disk_of_the_main_process_ends_all(tmp_path: Path) -> None:
    file = saved(recipe("dse", "checkpoint_every=2"), tmp_path)
    running = Job(2, tmp_path, job.train_on_full_disk, file, store(), tmp_path / "run")
    outputs = running.wait()
    assert [process.exitcode for process in running.processes] == [1, 1]
    message = (
        r"the checkpoint at step 4 could not be written \(.*No space left on device\);"
        r" the last good one is .*step-000000002"
    )
    assert re.match(f"error: {message}", outputs[0]), outputs
    assert re.match(f"error: process 0 stopped: {message}", outputs[1]), outputs


def test_a_failing_probe_ends_all(tmp_path: Path) -> None:
    running = Job(2, tmp_path, job.train_with_failing_probe, saved(recipe(), tmp_path), store(), tmp_path / "run")
    outputs = running.wait()
    assert [process.exitcode for process in running.processes] == [1, 1]
    assert outputs[0].endswith("ValueError: no such data\n")
    assert outputs[1] == "error: process 0 stopped: ValueError: no such data\n"


def test_an_error_of_one_process_in_a_step_ends_all(tmp_path: Path) -> None:
    running = Job(
        2,
        tmp_path,
        job.train_with_failing_process,
        saved(recipe("dse", "steps=5"), tmp_path),
        store(),
        tmp_path / "run",
    )
    outputs = running.wait()
    assert [process.exitcode for process in running.processes] == [1, 1]
    assert outputs[1] == "error: the memory of this machine is full\n"
    assert outputs[0].startswith("error: a process was lost at step 2 of 5; there is no checkpoint yet."), outputs


@pytest.mark.full
def test_the_main_process_may_work_longer_than_the_timeout(tmp_path: Path) -> None:
    Job(
        2, tmp_path, job.train_with_slow_probe, saved(recipe("dse", "steps=2"), tmp_path), store(), tmp_path / "run"
    ).expect_done()
    assert steps(tmp_path / "run") == 4  # two steps, and the probe before and after


def test_processes_with_different_arguments_are_rejected(tmp_path: Path) -> None:
    """Another recipe, or a folder without the checkpoint of the first process."""
    one, other = (
        saved(recipe("dse", "steps=2"), tmp_path / "one"),
        saved(recipe("dse", "steps=2", "seed=9"), tmp_path / "other"),
    )
    outputs = Job(2, tmp_path, job.train_different, [one, other], store(), [tmp_path / "run"] * 2).wait()
    assert all(
        each.startswith("error: process 1 has a recipe other than process 0: use the same command") for each in outputs
    ), outputs
    train(recipe("dse", "steps=2"), corpus(), tmp_path / "first", cache=folder() / "cache")
    places = [tmp_path / "first", tmp_path / "not-shared"]
    outputs = Job(2, tmp_path, job.train_different, [one, one], store(), places).wait()
    assert all(each.startswith("error: process 1 has a first step other than process 0") for each in outputs), outputs
    assert all("where all machines find the same files" in each for each in outputs)


def test_the_process_timeout_must_be_positive(tmp_path: Path) -> None:
    with pytest.raises(TrainingError, match="process_timeout must be positive, got 0"):
        train(recipe(), corpus(), tmp_path / "run", process_timeout=0)


# ---- agreements


def agreements(rank: int, place: Path) -> None:
    """Check agreements in one of three processes."""
    with Processes(30) as processes:
        assert (processes.rank, processes.world, processes.main) == (rank, 3, rank == 0)
        assert [processes.any(rank == outputs) for outputs in (0, 1, 2, 3)] == [True, True, True, False]
        used, partly, unused = (nn.Parameter(torch.zeros(2)) for _ in range(3))
        used.grad = torch.tensor([rank, 10.0 * rank])
        if rank == 2:
            partly.grad = torch.ones(2)
        processes.average_gradients([used, partly, unused])
        assert used.grad.tolist() == [1, 10]
        assert partly.grad is not None
        assert torch.allclose(partly.grad, torch.full((2,), 1 / 3))
        assert unused.grad is None
        with processes.main_first():
            if rank == 0:
                (place / "made").write_text("by the first")
            assert (place / "made").read_text() == "by the first"
        with processes.together():
            (place / f"done-{rank}").touch()
        assert all((place / f"done-{other}").exists() for other in range(3))
        processes.expect_equal({"a thing": b"same"})
        with pytest.raises(TrainingError, match="process 2 has a thing other than process 0"):
            processes.expect_equal({"a thing": b"same" if rank < 2 else b"other"})
        for block in (processes.together, processes.main_first):
            with pytest.raises(KeyError if rank == 1 else TrainingError) as caught, block():
                if rank == 1:
                    raise KeyError("ä" * 3000)
            assert rank == 1 or re.fullmatch("process 1 stopped: KeyError: 'ä{3000}'", str(caught.value))
        with pytest.raises(OSError if rank == 0 else TrainingError, match="full"), processes.main_first():
            assert rank == 0, "nobody follows one that failed"
            raise OSError("full")
    (place / f"end-{rank}").touch()


def test_processes_agree(tmp_path: Path) -> None:
    Job(3, tmp_path, agreements, tmp_path).expect_done()
    assert all((tmp_path / f"end-{rank}").exists() for rank in range(3))


def test_one_process_agrees_with_itself() -> None:
    with Processes() as processes:
        assert (processes.world, processes.main) == (1, True)
        assert processes.any(True)
        assert not processes.any(False)
        parameter = nn.Parameter(torch.zeros(1))
        parameter.grad = torch.ones(1)
        processes.average_gradients([parameter])
        assert parameter.grad.tolist() == [1]
        processes.expect_equal({"a thing": b"mine"})
        for block in (processes.together, processes.main_first):
            with pytest.raises(KeyError, match="mine"), block():
                raise KeyError("mine")


# ---- launchers


def command(place: Path, *options: str) -> list[str]:
    return [
        *("-m", "turnwise", "train", "dse", "--corpus", str(store()), "--out", str(place), "--backbone", backbone()),
        *(f"--set={change}" for change in ("batch_size=7", "max_length=24", "log_every=1", "checkpoint_every=5")),
        *options,
    ]


def launched(launcher: list[str], arguments: list[str]) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-m", *launcher, *arguments],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


LAUNCHERS = {
    "torchrun": ["torch.distributed.run", "--nproc-per-node=2"],
    "accelerate": [
        "accelerate.commands.launch",
        "--cpu",
        "--num_processes=2",
        "--num_machines=1",
        "--mixed_precision=no",
    ],
}


@pytest.mark.full
@pytest.mark.parametrize("name", LAUNCHERS)
def test_launchers_start_the_command(name: str, tmp_path: Path) -> None:
    port = {"torchrun": "--master-port", "accelerate": "--main_process_port"}[name]
    arguments = command(tmp_path / "run", "--set=steps=3", "--json")
    out, error = launched([*LAUNCHERS[name], f"{port}={job.free_port()}"], arguments).communicate(timeout=HANG_SECONDS)
    assert json.loads(out)["last"]["step"] == 3, error  # one process reports: two answers would be no JSON
    assert (tmp_path / "run" / "trained").is_file()


@pytest.mark.full
def test_a_worker_of_torchrun_is_killed(tmp_path: Path) -> None:
    place = tmp_path / "run"
    launcher = [*LAUNCHERS["torchrun"], f"--master-port={job.free_port()}"]
    running = launched(launcher, command(place, "--set=steps=4000"))
    while steps(place) < 7:
        assert running.poll() is None
        time.sleep(0.01)
    children = subprocess.run(
        ["pgrep", "-P", str(running.pid)], capture_output=True, text=True, check=True
    ).stdout.split()
    ranked = {
        int(re.findall(r"\bRANK=(\d)", Path(f"/proc/{child}/environ").read_text())[0]): int(child) for child in children
    }
    os.kill(ranked[1], signal.SIGKILL)
    _, error = running.communicate(timeout=HANG_SECONDS)
    assert re.search(r"error: a process was lost at step \d+ of 4000; the last good checkpoint is .*--resume", error), (
        error
    )
    assert "Signal 9 (SIGKILL) received" in error  # by the launcher: which one it was
