"""Runs with few steps or examples say so, and how to get more."""

import logging
import math
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.helpers.stores import write_store
from tests.helpers.tiny import backbone, corpus, recipe
from turnwise import Dialogue, Turn
from turnwise.training.loop import train
from turnwise.training.recipe import load_recipe
from turnwise.training.short_runs import FEW_EXAMPLES, FEW_STEPS, suggest_batches, warn_of_short_run


@pytest.mark.parametrize("examples", [1, 50, 300, 1_000, 10_000, 60_000])
@pytest.mark.parametrize("batch_size", [2, 16, 20, 1_024])
def test_suggestion_gives_enough_steps(examples: int, batch_size: int) -> None:
    size, epochs = suggest_batches(examples, batch_size)
    assert min(16, batch_size) <= size <= batch_size
    assert 1 <= epochs <= 20
    steps = epochs * math.ceil(examples / size)
    assert steps >= FEW_STEPS or examples < FEW_EXAMPLES


def warnings_of(caplog: pytest.LogCaptureFixture, changes: list[str], examples: int, steps: int) -> list[str]:
    caplog.clear()
    with caplog.at_level(logging.WARNING):
        warn_of_short_run(load_recipe("dse", changes), examples, steps)
    return [record.getMessage() for record in caplog.records]


def test_few_steps_and_examples_are_reported(caplog: pytest.LogCaptureFixture) -> None:
    (warning,) = warnings_of(caplog, [], 800, 1)
    assert warning == (
        "this run has 1 step (800 examples of dse in batches of 1,024, 1 epoch), which is few: for more steps, use "
        "--set batch_size=16 --set epochs=6"
    )
    (warning,) = warnings_of(caplog, ["objectives.dse.batch_size=32", "epochs=2"], 100, 8)
    assert "--set objectives.dse.batch_size=16 --set epochs=20; for more examples, add conversations" in warning
    (warning,) = warnings_of(caplog, ["batch_size=16", "epochs=20"], 100, 140)
    assert "--set" not in warning and "add conversations" in warning
    # steps that the user has chosen are not questioned, and large corpora are not affected
    assert warnings_of(caplog, ["steps=10"], 800, 10) == []
    assert warnings_of(caplog, [], 400_000, 391) == []
    (warning,) = warnings_of(caplog, ["steps=10"], 40, 10)
    assert "this run has 10 steps (40 examples" in warning and "--set" not in warning


def test_a_run_warns_of_each_stage(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    small = recipe("dse", "steps=null", "epochs=1", "log_every=100")
    train(small, corpus(), tmp_path / "short")
    assert "this run has" in caplog.text and "--set epochs=" in caplog.text
    caplog.clear()
    stages = tmp_path / "stages.yaml"
    stages.write_text(
        f"{{backbone: {backbone()}, max_length: 24, batch_size: 64, objectives: {{dse: {{}}}},"
        f" first: {{batch_size: 64, objectives: {{masked-language: {{}}}}}}}}"
    )
    train(load_recipe(stages), corpus(), tmp_path / "stages")
    assert "the first stage has" in caplog.text and "--set first.batch_size=16" in caplog.text


def test_the_command_warns_on_standard_error(tmp_path: Path, run_turnwise: Callable[..., tuple[str, str]]) -> None:
    root = logging.getLogger()
    handlers, root.handlers = root.handlers, []  # as outside of pytest
    dialogues = [
        Dialogue(
            str(number),
            (Turn("user", f"where is parcel {number} ?"), Turn("system", f"it is waiting for you at gate {number}")),
        )
        for number in range(12)
    ]
    store = write_store(tmp_path / "store", dialogues)
    try:
        _, error = run_turnwise("train", "dse", "--corpus", store, "--out", tmp_path / "run", "--backbone", backbone())
    finally:
        root.handlers = handlers
    assert "this run has 1 step (12 examples of dse in batches of 1,024, 1 epoch), which is few" in error
    assert "--set batch_size=16 --set epochs=20" in error
