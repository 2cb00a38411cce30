"""Checkpoints are written in the background, contain the state at the time of the call, and report errors."""

import threading
from pathlib import Path

import pytest
import torch
from pytest import MonkeyPatch

import turnwise.training.checkpoint as checkpoint_module
from turnwise.core.errors import TrainingError
from turnwise.training.checkpoint import CheckpointWriter, latest_checkpoint, load_checkpoint


class Gate:
    """Blocks writing until it is opened, and fails if requested."""

    def __init__(self, monkeypatch: MonkeyPatch):
        self.reached, self.opened, self.fails = threading.Event(), threading.Event(), False
        self._write = checkpoint_module.write_tensors
        monkeypatch.setattr(checkpoint_module, "write_tensors", self)

    def __call__(self, path: Path, tensors: dict[str, torch.Tensor]) -> None:
        self.reached.set()
        assert self.opened.wait(30)
        if self.fails:
            raise OSError(28, "No space left on device")
        self._write(path, tensors)


@pytest.fixture
def gate(monkeypatch: MonkeyPatch) -> Gate:
    return Gate(monkeypatch)


def load_weight(place: Path | None) -> list[float]:
    assert place is not None
    values: list[float] = load_checkpoint(place)[0]["parameters"]["weight"].tolist()
    return values


def test_checkpoint_contains_the_state_at_the_time_of_the_call(tmp_path: Path, gate: Gate) -> None:
    weight = torch.zeros(3)
    with CheckpointWriter(tmp_path) as checkpoints:
        checkpoints.save(1, {"parameters": {"weight": weight}}, {"best": None})
        assert gate.reached.wait(30)  # it is being written
        weight += 1
        assert latest_checkpoint(tmp_path) is None
        gate.opened.set()
        checkpoints.save(2, {"parameters": {"weight": weight}}, {"best": 0.5})  # the first is on disk before
        assert load_weight(tmp_path / "step-000000001") == [0, 0, 0]
    assert load_weight(latest_checkpoint(tmp_path)) == [1, 1, 1]
    assert load_checkpoint(tmp_path / "step-000000002")[1] == {"step": 2, "best": 0.5}


def test_only_the_newest_are_kept(tmp_path: Path) -> None:
    with CheckpointWriter(tmp_path) as checkpoints:
        for step in range(1, 6):
            checkpoints.save(step, {"parameters": {"weight": torch.ones(1)}}, {})
    assert sorted(path.name for path in tmp_path.iterdir()) == ["step-000000004", "step-000000005"]


@pytest.mark.parametrize("how", ["the next one", "wait", "the end"])
def test_write_errors_are_raised(how: str, tmp_path: Path, gate: Gate) -> None:
    gate.fails = True
    gate.opened.set()
    tensors = {"parameters": {"weight": torch.ones(1)}}
    checkpoints = CheckpointWriter(tmp_path)
    with (
        pytest.raises(TrainingError, match=r"step 7 could not be written .*No space left.*there is none yet"),
        checkpoints,
    ):
        assert not checkpoints.failed
        checkpoints.save(7, tensors, {})
        if how == "the next one":
            checkpoints.save(8, tensors, {})
        elif how == "wait":
            checkpoints.wait()
    assert not checkpoints.failed
    assert list(tmp_path.iterdir()) == []


def test_write_errors_do_not_hide_an_error_of_the_run(tmp_path: Path, gate: Gate) -> None:
    gate.fails = True
    gate.opened.set()
    with pytest.raises(ZeroDivisionError), CheckpointWriter(tmp_path) as checkpoints:
        checkpoints.save(1, {"parameters": {"weight": torch.ones(1)}}, {})
        raise ZeroDivisionError
