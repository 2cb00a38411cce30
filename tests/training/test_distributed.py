"""Several processes do what one does: the same losses and weights, no example lost or seen twice, one end for all of them."""

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

from tests.helpers import job
from tests.helpers.job import Job, Signal
from tests.helpers.tiny import backbone, corpus, expect_close, expect_identical, folder, recipe, set_up_run
from turnwise.models.backbone.stream import RaggedTokens
from turnwise.objectives.objective import PreparedBatch
from turnwise.objectives.registry import make_objective
from turnwise.training import TrainingError
from turnwise.training.batches import BatchLoader, LoaderConfig
from turnwise.training.checkpoint import latest_checkpoint
from turnwise.training.distributed import Processes
from turnwise.training.loop import train
from turnwise.training.recipe import Recipe
from turnwise.training.step import RowLayout, Rows, sorted_chunks

#: Recipes and tokens a pass: with 40 every process cuts its share of a batch, with 90 now and then one of them alone.
SHARED = {
    2: [
        ("dse", 100000),
        ("masked-language", 100000),
        ("wmdc", 90),
        ("dialoguecse", 100000),
        ("tadse-mlp-paper", 60),
        ("combined", 90),
        ("ums", 300),
    ],
    3: [("dse", 40), ("masked-language", 40), ("wmdc", 90), ("dialoguecse", 60), ("last-batch", 100000)],
}


def store() -> Path:
    return corpus().stores[0].folder


def losses(place: Path) -> list[float]:
    return [
        line["loss"] for line in map(json.loads, (place / "metrics.jsonl").read_text().splitlines()) if "loss" in line
    ]


def steps(place: Path) -> int:
    """Steps that a run has told of, so far."""
    try:
        return len((place / "metrics.jsonl").read_text().splitlines())
    except OSError:
        return 0


def expect_one_curve(one: Path, other: Path) -> None:
    """Two runs are equal up to rounding, in their weights and at every step."""
    expect_close(one, other)
    assert losses(one) == pytest.approx(losses(other), rel=1e-4, abs=1e-6)


def expect_same(one: Path, other: Path) -> None:
    """Equal to the last bit."""
    expect_identical(one, other)
    assert losses(one) == losses(other)


def saved(wanted: Recipe, place: Path) -> Path:
    place.mkdir(parents=True, exist_ok=True)
    (place / "recipe.yaml").write_text(wanted.to_yaml())
    return place / "recipe.yaml"


# ---- the same curve


@functools.cache
def shared(name: str, budget: int) -> Recipe:
    """Three steps on batches that neither two nor three processes share out evenly."""
    size = 7
    if name == "last-batch":  # the second batch is what an epoch leaves: two examples for three processes
        name, size = "dse", examples() - 2
    changes = [f"tokens_per_forward={budget}", "steps=3", f"batch_size={size}", "optimizer=adam", "learning_rate=1e-3"]
    return recipe(name, *changes, dropout=0.0)


@functools.cache
def examples() -> int:
    """How many examples DSE finds in the tiny corpus."""
    return len(set_up_run(recipe("dse", "steps=1")).loaders[0].examples)


@functools.cache
def alone(name: str, budget: int) -> Path:
    """What one process makes of a recipe."""
    place = folder() / "alone" / f"{name}-{budget}"
    train(shared(name, budget), corpus(), place, cache=folder() / "cache")
    return place


@pytest.fixture(scope="module")
def several(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """What so many processes make of all their recipes; they are started once."""

    @functools.cache
    def trained(world: int) -> Path:
        place = tmp_path_factory.mktemp(f"world-{world}")
        for name, budget in SHARED[world]:
            (place / f"{name}-{budget}.yaml").write_text(shared(name, budget).to_yaml())
        Job(world, place, job.train_all, place, store()).expect_done()
        return place

    return trained


@pytest.mark.parametrize(
    ("world", "name", "budget"), [(world, *each) for world, found in SHARED.items() for each in found]
)
def test_several_processes_equal_one(world: int, name: str, budget: int, several: Any) -> None:
    """Three steps on several processes have the losses and end with the weights of three steps on one, up to rounding."""
    expect_one_curve(alone(name, budget), several(world) / f"{name}-{budget}")


def test_with_90_tokens_a_pass_one_share_is_cut_and_the_other_is_not(tmp_path: Path) -> None:
    batch = set_up_run(shared("wmdc", 90)).loaders[0].prepare(0)
    passes = [len(sorted_chunks(batch, share, 90)) for share in RowLayout.of(batch, "vectors", 2).members]
    assert min(passes) == 1 < max(passes)


def test_the_last_batch_of_an_epoch_is_smaller_than_the_job(tmp_path: Path) -> None:
    (loader,) = set_up_run(shared("last-batch", 100000)).loaders
    assert [len(loader.rows(step)) for step in range(3)] == [examples() - 2, 2, examples() - 2]
    assert [len(share) for share in RowLayout.of(loader.prepare(1), "vectors", 3).members] == [2, 2, 0]


@pytest.mark.full
def test_a_process_without_an_example_takes_part(tmp_path: Path) -> None:
    """Three processes share batches of two: the third has nothing to encode, in one pass or in several."""
    small = ["batch_size=2", "steps=2", "optimizer=adam"]
    recipes = {
        f"{name}-{budget}": recipe(name, *small, f"tokens_per_forward={budget}", dropout=0.0)
        for name, budget in (("wmdc", 100000), ("wmdc", 20), ("masked-language", 100000))
    }
    for name, wanted in recipes.items():
        (tmp_path / f"{name}.yaml").write_text(wanted.to_yaml())
    Job(3, tmp_path, job.train_all, tmp_path, store()).expect_done()
    for name, wanted in recipes.items():
        train(wanted, corpus(), tmp_path / "alone" / name)
        expect_one_curve(tmp_path / "alone" / name, tmp_path / name)


# ---- the share-out


@given(st.integers(2, 60), st.integers(2, 20), st.integers(1, 9), st.sampled_from(["vectors", "states"]), st.data())
def test_an_epoch_is_shared_out_without_overlap_or_loss(
    size: int, batch_size: int, world: int, rows: Rows, data: st.DataObject
) -> None:
    """Whatever divides what: every example of a pass is encoded by one process, with all of its sequences."""
    columns = data.draw(st.integers(1, 3), "columns")
    texts = data.draw(st.lists(st.integers(1, 5), min_size=size, max_size=size), "tokens")
    seen: list[int] = []
    for numbers in passed(size, batch_size):
        # the example and the column that a sequence is of are written into it
        sequences = [
            np.full(texts[number], number * columns + column, np.int32)
            for column in range(columns)
            for number in numbers
        ]
        layout = RowLayout.of(PreparedBatch(RaggedTokens.of(sequences), len(numbers)), rows, world)
        shared_out = [sorted(int(sequences[member][0]) for member in share) for share in layout.members]
        for share in shared_out:
            owned = {text // columns for text in share}
            assert share == sorted(number * columns + column for number in owned for column in range(columns))
            seen.extend(owned)
        # nobody has more than one example more than another
        assert max(map(len, shared_out)) - min(map(len, shared_out)) <= columns
        places = np.concatenate([layout.rows_of(share) for share in layout.members])
        assert sorted(places) == list(range(sum(map(len, sequences)) if rows == "states" else len(sequences)))
    left_out = 1 if size % batch_size == 1 and size > batch_size else 0
    assert len(seen) == len(set(seen)) == size - left_out
    assert set(seen) <= set(range(size))


def passed(size: int, batch_size: int) -> list[list[int]]:
    """The examples of the steps of a pass."""
    # of examples without labels, only how many there are is asked
    feed = BatchLoader("dse", make_objective("dse", {}), range(size), None, None, LoaderConfig(batch_size, 24, 128, 1))  # type: ignore[arg-type]
    return [feed.rows(step).tolist() for step in range(feed.steps_per_epoch)]


# ---- going on


def test_a_run_goes_on_with_another_number_of_processes(tmp_path: Path) -> None:
    """Two processes, then one, then three: the losses and the weights are those of one that was left alone."""
    wanted = recipe(
        "wmdc", "steps=6", "batch_size=7", "optimizer=adamw", "ema=0.9", "checkpoint_every=100", dropout=0.0
    )
    file = saved(wanted, tmp_path)
    train(wanted, corpus(), tmp_path / "alone", cache=folder() / "cache")
    for world, stop in ((2, 2), (1, 4)):
        running = Job(world, tmp_path, job.train_one, file, store(), tmp_path / "run", Signal(0, 2, signal.SIGTERM))
        said = running.wait()
        assert all(f"interrupted at step {stop} of 6; the state is saved" in each for each in said), said
        newest = latest_checkpoint(tmp_path / "run" / "checkpoints")
        assert newest is not None
        assert newest.name == f"step-{stop:09d}"
    Job(3, tmp_path, job.train_one, file, store(), tmp_path / "run").expect_done()
    expect_one_curve(tmp_path / "alone", tmp_path / "run")


#: Some steps with dropout, and a checkpoint every fourth.
LONG = ["steps=12", "checkpoint_every=4", "optimizer=adamw", "ema=0.9"]


@functools.cache
def undisturbed(world: int) -> Path:
    place = folder() / f"undisturbed-{world}"
    Job(world, place, job.train_one, saved(recipe("dse", *LONG), place), store(), place / "run").expect_done()
    return place / "run"


@pytest.mark.parametrize(
    ("world", "rank"),
    [(3, 1), *(pytest.param(*case, marks=pytest.mark.full) for case in ((2, 0), (2, 1), (3, 0), (3, 2)))],
)
def test_a_killed_process_ends_the_job_and_it_resumes(world: int, rank: int, tmp_path: Path) -> None:
    file, place = saved(recipe("dse", *LONG), tmp_path), tmp_path / "run"
    running = Job(world, tmp_path, job.train_one, file, store(), place, Signal(rank, 7, signal.SIGKILL))
    said = running.wait()
    assert running.processes[rank].exitcode == -signal.SIGKILL
    for survivor in set(range(world)) - {rank}:
        assert running.processes[survivor].exitcode == 1
        assert said[survivor].startswith(
            f"error: a process was lost at step 6 of 12; the last good checkpoint is {place}/checkpoints/step-000000004. Resume with"
            " the same command and --resume."
        ), said
    Job(world, tmp_path, job.train_one, file, store(), place).expect_done()
    expect_same(undisturbed(world), place)


@pytest.mark.parametrize("rank", [1, pytest.param(0, marks=pytest.mark.full)])
def test_one_that_is_asked_to_end_ends_all_at_one_step(rank: int, tmp_path: Path) -> None:
    file, place = saved(recipe("dse", *LONG), tmp_path), tmp_path / "run"
    said = Job(3, tmp_path, job.train_one, file, store(), place, Signal(rank, 7, signal.SIGTERM)).wait()
    assert (
        said
        == ["error: interrupted at step 7 of 12; the state is saved. Resume with the same command and --resume\n"] * 3
    )
    newest = latest_checkpoint(place / "checkpoints")
    assert newest is not None
    assert newest.name == "step-000000007"
    assert steps(place) == 7
    Job(3, tmp_path, job.train_one, file, store(), place).expect_done()
    expect_same(undisturbed(3), place)


def test_one_that_is_stuck_is_waited_for_as_long_as_one_likes(tmp_path: Path) -> None:
    file, place = saved(recipe("dse", *LONG), tmp_path), tmp_path / "run"
    running = Job(2, tmp_path, job.train_one, file, store(), place, Signal(1, 3, signal.SIGSTOP), 4)
    said = running.wait(1)
    assert running.processes[0].exitcode == 1
    assert re.search(
        "a process was lost at step 2 of 12; there is no checkpoint yet.*no heartbeat for 4 seconds", said[0]
    ), said


# ---- errors of one are errors of all


def test_a_full_disk_of_the_one_that_writes_ends_all(tmp_path: Path) -> None:
    file = saved(recipe("dse", "checkpoint_every=2"), tmp_path)
    running = Job(2, tmp_path, job.fill_the_disk, file, store(), tmp_path / "run")
    said = running.wait()
    assert [process.exitcode for process in running.processes] == [1, 1]
    told = r"the checkpoint at step 4 could not be written \(.*No space left on device\); the last good one is .*step-000000002"
    assert re.match(f"error: {told}", said[0]), said
    assert re.match(f"error: process 0 stopped: {told}", said[1]), said


def test_a_bad_probe_ends_all(tmp_path: Path) -> None:
    running = Job(2, tmp_path, job.probe_badly, saved(recipe(), tmp_path), store(), tmp_path / "run")
    said = running.wait()
    assert [process.exitcode for process in running.processes] == [1, 1]
    assert said[0].endswith("ValueError: no such data\n")
    assert said[1] == "error: process 0 stopped: ValueError: no such data\n"


def test_an_error_of_one_in_the_middle_of_a_step_ends_all(tmp_path: Path) -> None:
    running = Job(2, tmp_path, job.fail_alone, saved(recipe("dse", "steps=5"), tmp_path), store(), tmp_path / "run")
    said = running.wait()
    assert [process.exitcode for process in running.processes] == [1, 1]
    assert said[1] == "error: the memory of this machine is full\n"
    assert said[0].startswith("error: a process was lost at step 2 of 5; there is no checkpoint yet."), said


def test_work_of_one_may_take_longer_than_a_sign_of_life(tmp_path: Path) -> None:
    Job(
        2, tmp_path, job.probe_slowly, saved(recipe("dse", "steps=2"), tmp_path), store(), tmp_path / "run"
    ).expect_done()
    assert steps(tmp_path / "run") == 4  # two steps, and the probe before and after


def test_processes_that_were_given_different_things_say_so(tmp_path: Path) -> None:
    """Another recipe; another folder, which does not hold the checkpoint that the first goes on from."""
    one, other = (
        saved(recipe("dse", "steps=2"), tmp_path / "one"),
        saved(recipe("dse", "steps=2", "seed=9"), tmp_path / "other"),
    )
    said = Job(2, tmp_path, job.train_apart, [one, other], store(), [tmp_path / "run"] * 2).wait()
    assert all(
        each.startswith("error: process 1 has a recipe other than process 0: use the same command") for each in said
    ), said
    train(recipe("dse", "steps=2"), corpus(), tmp_path / "first", cache=folder() / "cache")
    places = [tmp_path / "first", tmp_path / "not-shared"]
    said = Job(2, tmp_path, job.train_apart, [one, one], store(), places).wait()
    assert all(each.startswith("error: process 1 has a first step other than process 0") for each in said), said
    assert all("where all machines find the same files" in each for each in said)


def test_a_wait_of_no_time_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TrainingError, match="longest_wait must be positive, got 0"):
        train(recipe(), corpus(), tmp_path / "run", longest_wait=0)


# ---- the parts


def agreements(rank: int, place: Path) -> None:
    """What a process of three finds; run in each."""
    with Processes(30) as processes:
        assert (processes.rank, processes.world, processes.main) == (rank, 3, rank == 0)
        assert [processes.any(rank == said) for said in (0, 1, 2, 3)] == [True, True, True, False]
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
            with pytest.raises(KeyError if rank == 1 else TrainingError) as met, block():
                if rank == 1:
                    raise KeyError("ä" * 3000)
            # of a message that is too long for the others, they are told whole characters
            assert rank == 1 or re.fullmatch("process 1 stopped: KeyError: 'ä{900,1000}", str(met.value))
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


# ---- as a user starts it


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


@pytest.mark.parametrize("name", ["torchrun", pytest.param("accelerate", marks=pytest.mark.full)])
def test_launchers_start_the_command(name: str, tmp_path: Path) -> None:
    port = {"torchrun": "--master-port", "accelerate": "--main_process_port"}[name]
    arguments = command(tmp_path / "run", "--set=steps=3", "--json")
    out, error = launched([*LAUNCHERS[name], f"{port}={job.free_port()}"], arguments).communicate(timeout=120)
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
    _, error = running.communicate(timeout=60)
    assert re.search(r"error: a process was lost at step \d+ of 4000; the last good checkpoint is .*--resume", error), (
        error
    )
    assert "Signal 9 (SIGKILL) received" in error  # by the launcher: which one it was
