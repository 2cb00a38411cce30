"""Runs with few steps or examples: `min_steps` makes them longer, and others say how to get more."""

import logging
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from tests.helpers.stores import write_store
from tests.helpers.tiny import backbone, corpus, recipe
from turnwise import Dialogue, Turn
from turnwise.core.errors import TrainingError
from turnwise.training.loop import train
from turnwise.training.recipe_files import packaged_recipes
from turnwise.training.recipe_loading import load_recipe
from turnwise.training.short_runs import FEW_EXAMPLES, FEW_STEPS, fit_to_corpus, suggest_batches, warn_of_short_run


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
        warn_of_short_run(load_recipe("dse", ["min_steps=null", *changes]), examples, steps)
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
        _, as_set = run_turnwise(
            *("train", "dse", "--corpus", store, "--out", tmp_path / "set", "--backbone", backbone()),
            *("--set", "batch_size=4"),
        )
    finally:
        root.handlers = handlers
    assert "batch_size=16 and epochs=20 instead of 1,024 and 1, which makes 20 steps" in error
    assert "this run has 20 steps (12 examples of dse in batches of 16, 20 epochs), which is few" in error
    assert "instead of" not in as_set
    assert "this run has 3 steps (12 examples of dse in batches of 4, 1 epoch), which is few" in as_set


@pytest.mark.parametrize("name", packaged_recipes())
def test_papers_numbers_are_never_changed(name: str) -> None:
    """Only recipes with our own numbers have `min_steps`; those with a fixed number of steps need none."""
    loaded = load_recipe(name)
    if name.endswith("-paper"):
        assert all(stage.min_steps is None for stage in loaded.stages)
    assert loaded.min_steps is None or loaded.steps is None


def test_large_corpora_are_read_as_the_recipe_says() -> None:
    dse = load_recipe("dse")
    assert fit_to_corpus(dse, 204_800, 200) is dse
    assert fit_to_corpus(load_recipe("dse-paper"), 800, 1) == load_recipe("dse-paper")


@pytest.mark.parametrize("examples", [2, 12, 100, 800, 13_000, 200_000])
def test_small_corpora_get_smaller_batches_and_more_epochs(examples: int) -> None:
    dse = load_recipe("dse")
    fitted = fit_to_corpus(dse, examples, math.ceil(examples / 1_024))
    assert (fitted.batch_size, fitted.epochs) == suggest_batches(examples, 1_024, 200)
    steps_per_epoch = math.ceil(examples / fitted.batch_size)
    assert fitted.epochs == 20 or fitted.steps_of(steps_per_epoch) >= 200
    assert fit_to_corpus(fitted, examples, steps_per_epoch) == fitted
    assert fitted.started_as(dse)


@pytest.mark.parametrize("change", ["steps=5", "epochs=3", "batch_size=8", "objectives.dse.batch_size=8"])
def test_values_that_are_set_are_used(change: str) -> None:
    chosen = load_recipe("dse", [change])
    assert chosen.min_steps is None
    assert fit_to_corpus(chosen, 100, 1) == chosen
    assert load_recipe("dse", ["min_steps=50", change]).min_steps == 50
    assert load_recipe("dse", [change, "min_steps=50"]).min_steps == 50


def test_a_batch_size_of_the_first_objective_is_kept() -> None:
    own = load_recipe("dse", ["objectives.dse.batch_size=64", "min_steps=100"])
    fitted = fit_to_corpus(own, 640, 10)
    assert (fitted.batch_of("dse"), fitted.epochs) == (64, 10)


def test_a_fitted_run_records_its_numbers_and_resumes_exactly(tmp_path: Path) -> None:
    small = load_recipe("dse", [f"backbone={backbone()}", "max_length=24", "learning_rate=1e-3", "checkpoint_every=20"])
    small = replace(small, batch_size=64, min_steps=30)

    def stop_at(step: int) -> Callable[..., None]:
        def progress(what: str, done: int, total: int | None = None) -> None:
            if what.startswith("training") and done >= step:
                raise InterruptedError

        return progress

    whole = train(small, corpus(), tmp_path / "whole")
    saved = load_recipe(tmp_path / "whole" / "recipe.yaml")
    assert saved.min_steps == 30 and saved.batch_size < 64 and saved.epochs > 1
    with pytest.raises(InterruptedError):
        train(replace(small, log_every=1), corpus(), tmp_path / "killed", progress=stop_at(25))
    resumed = train(replace(small, log_every=1), corpus(), tmp_path / "killed", resume=True)
    for (name, expected), (_, actual) in zip(whole.named_parameters(), resumed.named_parameters(), strict=True):
        assert torch.equal(expected, actual), name
    with pytest.raises(TrainingError, match="differs from the given recipe"):
        train(replace(small, log_every=1, min_steps=None), corpus(), tmp_path / "killed", resume=True)
