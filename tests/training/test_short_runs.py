"""Runs with few steps or examples: `min_steps` makes them longer, and others say how to get more."""

import logging
import math
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from tests.helpers.stores import write_store
from tests.helpers.tiny import backbone, corpus, folder, recipe
from turnwise import Dialogue, Turn
from turnwise.core.errors import TrainingError
from turnwise.training.loop import train
from turnwise.training.recipe import load_recipe
from turnwise.training.recipe_files import packaged_recipes
from turnwise.training.setup import fit_to_corpus, report_size


def warnings_of(caplog: pytest.LogCaptureFixture, changes: list[str], examples: int, steps: int) -> list[str]:
    caplog.clear()
    chosen = load_recipe("dse", ["min_steps=null", *changes])
    with caplog.at_level(logging.WARNING):
        report_size(chosen, chosen, examples, steps)
    return [record.getMessage() for record in caplog.records]


def test_few_steps_and_examples_are_reported(caplog: pytest.LogCaptureFixture) -> None:
    (warning,) = warnings_of(caplog, [], 800, 1)
    assert warning == (
        "this run has 1 step (800 examples of dse in batches of 1,024), which is few: use --set min_steps=200, or add"
        " conversations"
    )
    (warning,) = warnings_of(caplog, ["batch_size=16", "epochs=20"], 100, 140)
    assert "--set" not in warning and "add conversations" in warning
    # steps that the user has chosen are not questioned, and large corpora are not affected
    assert warnings_of(caplog, ["steps=10"], 800, 10) == []
    assert warnings_of(caplog, [], 400_000, 391) == []
    (warning,) = warnings_of(caplog, ["steps=10"], 40, 10)
    assert "this run has 10 steps (40 examples" in warning and "--set" not in warning


def test_a_run_warns_of_each_stage(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    stages = tmp_path / "stages.yaml"
    stages.write_text(
        f"{{backbone: {backbone()}, max_length: 24, batch_size: 64, objectives: {{dse: {{}}}},"
        f" first: {{batch_size: 64, objectives: {{masked-language: {{}}}}}}}}"
    )
    train(load_recipe(stages), corpus(), tmp_path / "stages", cache=folder() / "cache")
    assert "the first stage has" in caplog.text and "--set first.min_steps=200" in caplog.text
    assert "this run has" in caplog.text and "--set min_steps=200" in caplog.text


def test_a_long_run_on_a_cpu_says_how_long_it_takes(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen = recipe("dse", "steps=8", "batch_size=8")
    with caplog.at_level(logging.WARNING):
        train(chosen, corpus(), tmp_path / "short", cache=folder() / "cache")
        assert "on this CPU" not in caplog.text
        monkeypatch.setattr("turnwise.training.loop._LONG_RUN", 0)
        train(chosen, corpus(), tmp_path / "long", cache=folder() / "cache")
    (warning,) = (record.getMessage() for record in caplog.records if "on this CPU" in record.getMessage())
    assert re.fullmatch(r"5 more steps of \d+\.\d seconds take about 0 h 0\d min on this CPU\..*", warning)


def test_the_command_warns_on_standard_error(tmp_path: Path, run_turnwise: Callable[..., tuple[str, str]]) -> None:
    root = logging.getLogger()
    handlers, root.handlers = root.handlers, []  # as outside of pytest
    dialogues = [
        Dialogue(str(number), (Turn("user", f"where is parcel {number} ?"), Turn("system", f"it is at gate {number}")))
        for number in range(12)
    ]
    command = ("train", "dse", "--corpus", write_store(tmp_path / "store", dialogues), "--backbone", backbone())
    try:
        _, error = run_turnwise(*command, "--out", tmp_path / "run")
        _, as_set = run_turnwise(*command, "--out", tmp_path / "set", "--set", "batch_size=4")
    finally:
        root.handlers = handlers
    assert "batch_size=16 and epochs=20 instead of 1,024 and 1, which makes 20 steps" in error
    assert "this run has 20 steps (12 examples of dse in batches of 16), which is few: add conversations" in error
    assert "instead of" not in as_set
    assert "this run has 3 steps (12 examples of dse in batches of 4), which is few" in as_set


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


@pytest.mark.parametrize(
    ("examples", "batch_size", "epochs"),
    [(2, 16, 20), (12, 16, 20), (100, 16, 20), (800, 16, 4), (13_000, 256, 4), (200_000, 1_024, 2)],
)
def test_small_corpora_get_smaller_batches_and_more_epochs(examples: int, batch_size: int, epochs: int) -> None:
    dse = load_recipe("dse")
    fitted = fit_to_corpus(dse, examples, math.ceil(examples / 1_024))
    assert (fitted.batch_size, fitted.epochs) == (batch_size, epochs)
    steps_per_epoch = math.ceil(examples / batch_size)
    assert epochs == 20 or fitted.steps_of(steps_per_epoch) >= 200
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
    small = load_recipe("dse", [f"backbone={backbone()}", "max_length=24", "learning_rate=1e-3", "checkpoint_every=6"])
    small = replace(small, batch_size=64, min_steps=8, log_every=1, corpus_fraction=0.25)

    def stop(what: str, done: int, total: int | None = None) -> None:
        if what.startswith("training") and done >= 7:
            raise InterruptedError

    whole = train(small, corpus(), tmp_path / "whole")
    saved = load_recipe(tmp_path / "whole" / "recipe.yaml")
    assert saved.min_steps == 8 and saved.batch_size < 64
    with pytest.raises(InterruptedError):
        train(small, corpus(), tmp_path / "killed", progress=stop)
    resumed = train(small, corpus(), tmp_path / "killed", resume=True)
    for (name, expected), (_, actual) in zip(whole.named_parameters(), resumed.named_parameters(), strict=True):
        assert torch.equal(expected, actual), name
    with pytest.raises(TrainingError, match="differs from the given recipe"):
        train(replace(small, min_steps=None), corpus(), tmp_path / "killed", resume=True)
